"""Whether the supervisor's loop goes on, for its threads that answer launchers meanwhile.

A file system that hangs stops the loop, and not these threads: launchers that they answered would leave everything to a
supervisor that does nothing. So they answer no longer, once a node needs somebody. While all nodes run, they go on:
launchers that do not hear each other have no other leases.

What the loop does elsewhere may take as long as it likes: an image that comes over the network, a fitness measurement,
the grace of processes. All of that gives up by itself where nothing goes on. Launchers that began a generation meanwhile
would only lose it again to the one that is being prepared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from jobctl.jobspec.records import dataclass

# Seconds. What the loop does otherwise takes less: the longest is to lock and read a host that has just gone silent,
# whose lock, engine and files are given up after a minute each.
HUNG_AFTER = 180.0
LATE = 60.0  # seconds that it may take until the loop sees what a launcher has told: its host is read meanwhile


@dataclass
class LoopWatch:
    """When the loop went on last, and what has happened since. `silence`: seconds after which a node is not heard."""

    silence: float
    busy: bool = False  # with what may take long
    _turned: float | None = None  # None before the first turn: then there is no loop yet
    _went_on: float = 0.0
    _all_run: bool = True
    _reports: dict[int, str | None] = field(default_factory=dict)  # which one each launcher has written last
    _reported: float = 0.0  # when one of them was another one than before

    def turned(self, now: float, *, all_run: bool) -> None:
        """Take note of a turn, and whether all nodes ran when it looked last."""
        self._turned, self._all_run = now, all_run
        self.done(now)

    def done(self, now: float) -> None:
        """Take note that what may take long is over."""
        self.busy, self._went_on = False, now

    def heard(self, node: int, report: str | None, now: float) -> None:
        """Take note of which report a launcher has written last: it tells whatever becomes of its node."""
        if self._reports.get(node) != report:
            self._reports[node], self._reported = report, now

    def leaves_all(self, now: float, heard: Mapping[int, float]) -> bool:
        """Say whether all is left to the launchers: the loop hangs, and a node may need somebody.

        `heard`: when each node was heard last.
        """
        if self._turned is None or self.busy or now - self._went_on <= HUNG_AFTER:
            return False
        known = self._turned - LATE
        gone = any(known <= last < now - self.silence for last in heard.values())
        return gone or not self._all_run or self._reported >= known
