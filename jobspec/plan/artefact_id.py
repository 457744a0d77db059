"""What tells the artefact of a container from that of another one."""

from __future__ import annotations

from jobctl.jobspec.records import dataclass

INPUTS_LABEL = "jobctl.inputs"  # of a container: the hash of its artefact's inputs


@dataclass(frozen=True, slots=True)
class ArtefactId:
    """The hash of an artefact, that of its inputs, and the version of jobctl that has made it.

    Inputs are what the user has given, and what was found on hosts. Another version may make another artefact of the same
    inputs. `inputs` is None where they are not known: of what an older version has started, and of what runs on this
    machine.
    """

    hash: str
    inputs: str | None = None
    version: str | None = None

    def stands_for(self, other: ArtefactId | None) -> bool:
        """Return whether what was started from this artefact may go on where `other` is wanted."""
        return other is not None and (self.hash == other.hash or self.is_another_versions(other))

    def is_another_versions(self, other: ArtefactId) -> bool:
        """Return whether another version of jobctl has made this artefact from the inputs that `other` has."""
        return self.inputs is not None and self.inputs == other.inputs and self.version != other.version
