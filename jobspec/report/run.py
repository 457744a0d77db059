"""How a run went, ready to be judged: its generations, how it ended, and the steps it made. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from jobctl.jobspec.deploy.store.history import StepProgress
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.report.progress import Curve, curves
from jobctl.jobspec.report.runs import Chapter, Ending, Run, chapters, endings


@dataclass(frozen=True, slots=True)
class Pause:
    """A time in which nobody wanted the job to run: it had been stopped, or had succeeded."""

    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Course:
    """A run until `end` (seconds since the epoch); what happens after that is not part of it.

    `endings` are all of its ends, with the time at which it went on after each (None: it did not).
    """

    run: Run
    chapters: tuple[Chapter, ...]
    endings: tuple[tuple[Ending, float | None], ...]
    curves: tuple[Curve, ...]
    end: float

    @property
    def begin(self) -> float:
        """When it began."""
        return self.run[0].at

    @property
    def final(self) -> Ending | None:
        """How it ended, None if it did not, or has gone on."""
        return self.endings[-1][0] if self.endings and self.endings[-1][1] is None else None

    @property
    def pauses(self) -> tuple[Pause, ...]:
        """Its pauses."""
        return tuple(
            Pause(ending.at, self.end if again is None else again)
            for ending, again in self.endings
            if ending.phase in ("stopped", "succeeded")
        )

    def paused(self, begin: float, end: float) -> float:
        """Return for how long (seconds) it was paused between two times."""
        return sum(max(0.0, min(end, pause.end) - max(begin, pause.begin)) for pause in self.pauses)


def course_of(run: Run, records: Iterable[StepProgress], now: float | None) -> Course:
    """Return the course of a run.

    One that has not ended goes until `now`; or, where nobody goes on writing (None), until the last that is known of it.
    """
    kept = tuple(records)
    every = endings(run)
    last = max([run[-1].at, *(record.at for record in kept)])
    final = every[-1] if every else None
    end = final[0].at if final and final[1] is None else last if now is None else max(now, run[-1].at)
    during = tuple(event for event in run if event.at <= end)
    return Course(during, chapters(during, end), every, curves(during, kept, end), end)
