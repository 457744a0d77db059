"""What tells the artefact of a container from that of another one."""

from __future__ import annotations

from jobctl.jobspec.records import dataclass

INPUTS_LABEL = "jobctl.inputs"  # of a container: the hash of its artefact's inputs


@dataclass(frozen=True, slots=True)
class ArtefactId:
    """The hash of an artefact, and that of its inputs: what the user has given, and what was found on hosts.

    Another version of jobctl may write another artefact for the same inputs. `inputs` is None where they are not known: of
    what an older version has started, and of what runs on this machine.
    """

    hash: str
    inputs: str | None = None

    def stands_for(self, other: ArtefactId | None) -> bool:
        """Return whether what was started from this artefact may go on where `other` is wanted."""
        if other is None:
            return False
        return self.hash == other.hash or (self.inputs is not None and self.inputs == other.inputs)
