"""Lines of logs, which of them are chosen, and what reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.records import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """One line, without its newline. `time` is seconds since the epoch, `rank` None for setup and launcher logs."""

    time: float
    node: int
    rank: int | None
    generation: int
    log: str
    text: bytes

    @property
    def writer(self) -> str:
        """The process that wrote it, in one word: a rank, a server, or one of the launchers."""
        if self.rank is None:
            return self.log.removesuffix(".log")
        role = self.log.partition("log.")[0]
        worker = role == "worker" or self.log.startswith("stack.")
        return f"rank{self.rank}" if worker else f"{role}{self.rank}"


@dataclass(frozen=True, slots=True)
class LineSelection:
    """Which lines: None means all. `launcher` includes what the framework's launcher printed.

    `since` says nothing about generation `current` and later ones: the clocks of their hosts may be wrong.
    """

    node: int | None = None
    rank: int | None = None
    generation: int | None = None
    since: float | None = None
    current: int | None = None
    launcher: bool = False


class Reader(Protocol):
    """What reads the chosen logs of a job, merged by time, as they grow."""

    @property
    def interval(self) -> float:
        """Seconds between two looks at logs that grow."""

    @property
    def problems(self) -> Mapping[str, DeployError]:
        """Why the last read of a host (or pod) failed."""

    def nodes(self) -> set[int]:
        """Return the nodes that have logs, chosen or not."""

    def generations(self) -> set[int]:
        """Return the generations that have logs."""

    def lines(self, *, final: bool = False) -> Iterator[Line]:
        """Yield the lines that came since the last call; with `final` also those without a newline."""
