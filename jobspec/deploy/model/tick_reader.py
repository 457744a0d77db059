"""What a supervisor makes of a line that a launcher has written into its pipe."""

from __future__ import annotations

from jobctl.jobspec.deploy.model.liveness import FailureDetector
from jobctl.jobspec.deploy.model.tick import parse_tick
from jobctl.jobspec.deploy.model.untrusted import as_word
from jobctl.jobspec.records import dataclass


@dataclass(frozen=True, slots=True)
class HeardTick:
    """A tick of a node's launcher: what it is answered, None for nothing, and whether its report is another one by now."""

    node: int
    answer: str | None
    reported: bool


class TickReader:
    """Reads the ticks of the launchers on one host, for `detector`."""

    def __init__(self, detector: FailureDetector, host: str) -> None:
        self._detector, self._host = detector, host
        self._versions: dict[int, str | None] = {}  # of the launchers' reports

    def forget(self) -> None:
        """Take the next tick of each launcher for one with another report."""
        self._versions.clear()

    def read(self, line: bytes) -> HeardTick | None:
        """Return the tick in a line; None for what no launcher has written."""
        tick = parse_tick(line)
        if tick is None or as_word(tick.name) is None:  # the answer, which has the name, is a file on the host
            return None
        answer = self._detector.hear(tick, self._host)
        reported = self._versions.get(tick.node) != tick.report
        self._versions[tick.node] = tick.report
        return HeardTick(tick.node, answer, reported)
