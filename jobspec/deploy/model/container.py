"""A container, as an engine tells of it, or a process that takes its place on target `local`."""

from __future__ import annotations

from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.records import dataclass

Interpreter = tuple[str, str]  # an image, and what Python is called in it


@dataclass(frozen=True, slots=True)
class SeenContainer:
    """A container of the job, as its host's engine tells. `artefact` is what it was started from.

    `python` is what Python is called in its image, as its command tells. That of a service has no node, but a name. A process of this machine has a `pid`, and an empty `id`; where
    only a generation knows its role, that is empty too.
    """

    node: int
    role: str
    id: str
    running: bool
    artefact: ArtefactId | None
    owner: str | None
    image: str = ""
    service: str | None = None
    restarting: bool = False  # it has ended, and its engine is about to start it again
    paused: bool = False  # somebody has frozen it (`docker pause`, SIGSTOP): it runs, and nothing in it does
    pid: int | None = None
    python: str = "python3"

    @property
    def interpreter(self) -> Interpreter:
        """Its image with the Python there."""
        return self.image, self.python
