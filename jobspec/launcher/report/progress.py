"""Whether processes make progress, or hang."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.records import record
from jobctl.jobspec.launcher.system.files import files_in, read_progress

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple
STEADY = 20  # steps that a process has told of, after which its own time counts
# `hang_timeout: auto`. The least is for the first evaluation, or checkpoint, which steps do not announce.
HANG_LEAST, HANG_SAMPLES = 300.0, 20
HANG_FACTOR, PAUSE_FACTOR = 5.0, 2.0  # of the 99th percentile, and of the longest


@record
class Headway:
    """How far a generation has come, as far as a launcher knows: its last step, and for how many seconds it has run."""

    step: Optional[int] = None
    ran: float = 0.0

    def furthest(self, other: Headway) -> Headway:
        """Return what two launchers know together."""
        steps = [step for step in (self.step, other.step) if step is not None]
        return Headway(max(steps, default=None), max(self.ran, other.ran))

    def to_json(self) -> List[Optional[float]]:
        """Return its JSON form."""
        return [self.step, round(self.ran, 1)]

    @classmethod
    def from_json(cls, data: Sequence[Optional[float]]) -> Headway:
        """Return what `to_json` has written. Raises TypeError or ValueError."""
        step, ran = data
        return cls(None if step is None else int(step), float(ran or 0.0))


class Pace:
    """How long a process needs by itself in each step, before it waits for others: the last steps that it told of."""

    def __init__(self) -> None:
        self.last: Optional[int] = None
        self.seconds: List[float] = []

    def take(self, told: Tuple[int, Optional[float]]) -> None:
        """Take note of a step and its seconds, once for each step."""
        step, seconds = told
        if step == self.last:
            return
        if self.last is not None and step < self.last:
            self.seconds = []  # it has begun again
        self.last = step
        if seconds is not None:
            self.seconds = [*self.seconds[-STEADY + 1 :], seconds]

    @property
    def least(self) -> Optional[float]:
        """The seconds of the fastest of the last steps, None while there are too few: each of them took as long, or longer."""
        return min(self.seconds) if len(self.seconds) == STEADY else None


class Hang:
    """The node's step counter, and for how many seconds it may not move. None: no limit; 0: jobctl derives the limit."""

    def __init__(self, timeout: Optional[float]) -> None:
        self.timeout = timeout
        self.progress: Optional[int] = None
        self.at: Optional[float] = None  # by a clock that nobody sets
        # Seconds for which the counter has stood still, as seen: a script may write only each hundredth step.
        self.pauses: List[float] = []
        self.steps_of: Dict[int, int] = {}  # by local rank
        self.paces: Dict[int, Pace] = {}  # by local rank
        self.told = float("inf")  # the limit by which another node has called this generation hung

    def look(self, folder: str, now: float) -> bool:
        """Read the progress files; say whether there was progress."""
        files = {os.path.basename(path): read_progress(path) for path in files_in(folder)}
        found = {name: told for name, told in files.items() if told is not None}
        self.steps_of = {int(name): step for name, (step, _) in found.items() if name.isdigit()}
        for name, told in found.items():
            if name.isdigit():
                self.paces.setdefault(int(name), Pace()).take(told)
        newest = max((step for step, _ in found.values()), default=None)
        if newest is None or newest == self.progress:
            return False
        if self.progress is not None and self.at is not None and newest > self.progress:
            self.pauses = [*self.pauses[-999:], now - self.at]
        self.progress, self.at = newest, now
        return True

    def limit(self) -> float:
        """Return how many seconds without progress are too many; infinite while that cannot be said."""
        if self.timeout is None or (self.timeout == 0 and len(self.pauses) < HANG_SAMPLES):
            return float("inf")
        if self.timeout > 0:
            return self.timeout
        ordered = sorted(self.pauses)
        return max(HANG_LEAST, HANG_FACTOR * ordered[int(len(ordered) * 0.99)], PAUSE_FACTOR * ordered[-1])

    def hangs(self, now: float) -> bool:
        """Return whether the processes hang; before the first step nobody can tell."""
        return self.at is not None and now - self.at > self.limit()
