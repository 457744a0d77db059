"""Progress over a run as a curve for each generation: which step it had reached when, and back. Pure.

Steps are known at moments a few seconds apart; between two of them they are taken to come evenly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from jobctl.jobspec.deploy.store.history import StepProgress
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.report.runs import Beginning, Run, beginning, beginnings


@dataclass(frozen=True, slots=True)
class Curve:
    """The progress of one generation: at least one point, times and steps never going down."""

    generation: int
    points: tuple[StepProgress, ...]

    @property
    def first(self) -> StepProgress:
        """Where it was seen first."""
        return self.points[0]

    @property
    def top(self) -> StepProgress:
        """When it had come as far as it came."""
        return next(point for point in self.points if point.step == self.points[-1].step)

    def reached(self, step: int) -> float | None:
        """Return when it reached `step` (seconds since the epoch), None if it did not."""
        if step <= self.first.step:
            return self.first.at
        for before, after in pairwise(self.points):
            if after.step >= step:
                part = (step - before.step) / (after.step - before.step)
                return before.at + part * (after.at - before.at)
        return None


def curves(run: Run, records: Iterable[StepProgress], end: float) -> tuple[Curve, ...]:
    """Return the curves of a run that goes until `end`, in order, of those generations whose steps are known.

    Besides the records, what events tell of steps counts: a node's last one. None without any record: where events
    name steps only when something ends, nothing is known of the way there.
    """
    recorded = [record for record in records if run[0].at <= record.at <= end]
    if not recorded:
        return ()
    points: dict[int, list[StepProgress]] = {}
    for point in sorted([*_told(run), *recorded], key=lambda point: point.at):
        points.setdefault(point.generation, []).append(point)
    known = (begins for begins in beginnings(run) if begins.number in points)
    return tuple(Curve(begins.number, _rising(points[begins.number], begins, end)) for begins in known)


def _told(run: Run) -> Iterable[StepProgress]:
    """Yield the steps that events tell of."""
    current = 0
    for event in run:
        begins = beginning(event)
        current = begins.number if begins else current
        generation, step = event.number("generation") or current, event.number("progress")
        if event.kind in _TELLING and step is not None:
            yield StepProgress(event.at, generation, step)


_TELLING = ("node", "failure")


def _rising(points: Iterable[StepProgress], begins: Beginning, end: float) -> tuple[StepProgress, ...]:
    """Return the points of a generation, without those of nodes that had not come as far as others before."""
    found: list[StepProgress] = []
    for point in points:
        if not found or point.step >= found[-1].step:
            # Clocks differ, and what is told late was so before: nothing was before the generation or after the run.
            found.append(replace(point, at=min(end, max(begins.at, point.at))))
    return tuple(found)
