"""Where the time of a run went: to progress that was kept, or to what else. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

from jobctl.jobspec.records import dataclass
from jobctl.jobspec.report.incidents import Incident
from jobctl.jobspec.report.progress import Curve
from jobctl.jobspec.report.run import Course
from jobctl.jobspec.report.runs import Chapter
from jobctl.jobspec.report.timeline import ran

# starting: until the first step is seen. kept: progress that all later generations built on. running: it ran, and tells
# no steps. redone: progress that was lost, and made again later. no step: after the last one of a generation (it is
# saved, or processes end, or hang). down: after a failure, until the next generation begins. paused: the job had been
# stopped, or had succeeded: nobody wanted it to run.
Use = Literal["starting", "kept", "running", "redone", "no step", "down", "paused"]


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a run's time, in one piece (seconds since the epoch)."""

    use: Use
    begin: float
    end: float


_Mark = tuple[float, Use]  # from when on time was used how


def shares(course: Course, failed: Sequence[Incident]) -> tuple[Share, ...]:
    """Return what all the time of a run was used for, in order and without gaps."""
    marks: list[_Mark] = [(course.begin, "starting")]
    for chapter in course.chapters:
        failure = next((f for f in failed if f.generation == chapter.begins.number and not f.alone), None)
        marks += _marks(course, chapter, failure)
    return tuple(_tiles(marks, course.end))


def _marks(course: Course, chapter: Chapter, failure: Incident | None) -> Iterator[_Mark]:
    begin, until = chapter.begins.at, chapter.until
    ending, again = next(((e, again) for e, again in course.endings if begin <= e.at <= until), (None, None))
    stop = min([until, *([failure.at] if failure else []), *([ending.at] if ending else [])])
    yield begin, "starting"
    yield from ((min(at, stop), use) for at, use in _work(course, chapter))
    if failure is not None:
        yield failure.at, "down"
    if ending is not None:
        yield ending.at, "paused" if ending.phase in ("stopped", "succeeded") else "down"
    if again is not None:
        yield again, "starting"


def _work(course: Course, chapter: Chapter) -> Iterator[_Mark]:
    """Yield how a generation used its time as long as nothing came in between."""
    mine = next((curve for curve in course.curves if curve.generation == chapter.begins.number), None)
    if mine is not None:
        yield mine.first.at, "kept"
        yield _kept(mine, course.curves), "redone"
        yield mine.top.at, "no step"
    elif not course.curves and (at := ran(chapter)) is not None:
        yield at, "running"


def _kept(mine: Curve, curves: Sequence[Curve]) -> float:
    """Return until when a generation made the progress that all later ones built on."""
    later = [curve.first.step for curve in curves if curve.generation > mine.generation]
    reached = mine.reached(min(later)) if later else None
    return mine.top.at if reached is None else min(reached, mine.top.at)


def _tiles(marks: Sequence[_Mark], end: float) -> Iterator[Share]:
    """Yield what lies between marks, equal neighbours as one; a mark never goes back behind its predecessor."""
    last: Share | None = None
    for (at, use), (until, _) in pairwise([*marks, (end, "paused")]):
        begin = last.end if last else at
        if last is not None and last.use == use:
            last = replace(last, end=max(begin, until))
        elif until > begin:
            if last is not None:
                yield last
            last = Share(use, begin, until)
    if last is not None:
        yield last


def effective(parts: Sequence[Share]) -> float | None:
    """Return which part (0 to 1) of the time in which the job was wanted to run led to progress that was kept.

    For a job that tells no steps: the part in which it ran. None if there was no such time.
    """
    wall = sum(part.end - part.begin for part in parts if part.use != "paused")
    good = sum(part.end - part.begin for part in parts if part.use in ("kept", "running"))
    return good / wall if wall > 0 else None
