"""A container, as an engine tells of it, or a process that takes its place on target `local`."""

from __future__ import annotations

from jobctl.jobspec.records import dataclass


@dataclass(frozen=True, slots=True)
class SeenContainer:
    """A container of the job, as its host's engine tells. `artefact` is the hash of what it was started from.

    That of a service has no node, but a name. A process of this machine has a `pid`, and an empty `id`; where
    only a generation knows its role, that is empty too.
    """

    node: int
    role: str
    id: str
    running: bool
    artefact: str | None
    owner: str | None
    image: str = ""
    service: str | None = None
    restarting: bool = False  # it has ended, and its engine is about to start it again
    pid: int | None = None
