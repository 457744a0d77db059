"""Progress over time, as the page of a report draws it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobctl.jobspec.deploy.store.history import StepProgress
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.report.goodput import Share
from jobctl.jobspec.report.layout import Mark, Scale
from jobctl.jobspec.report.progress import Curve
from jobctl.jobspec.report.report import Story

POINTS = 400  # of a curve: more than a screen shows


@dataclass(frozen=True, slots=True)
class Chart:
    """Progress over time: curves as points of a drawing 1000 wide and high, marks in percent from left and bottom."""

    lines: tuple[tuple[str, str], ...]  # class, points
    levels: tuple[Mark, ...]
    begins: tuple[Mark, ...]
    failures: tuple[Mark, ...]
    label: str


def chart(story: Story, scale: Scale) -> Chart:
    """Return the chart of a story that has curves."""
    steps = [point.step for curve in story.curves for point in curve.points]
    levels = _levels(min(steps), max(steps))
    rows = Scale(levels[0], levels[-1])
    return Chart(
        lines=tuple(line for curve in story.curves for line in _lines(curve, story.shares, scale, rows)),
        levels=tuple(Mark(rows.at(level), f"{level:,}".replace(",", "\u202f")) for level in levels),
        begins=tuple(Mark(scale.at(b.at), f"generation {b.number}: {b.cause}") for b in story.generations),
        failures=tuple(Mark(scale.at(f.at), f.cause) for f in story.failures),
        label=f"Steps over time: from {min(steps)} to {max(steps)}, in {len(story.curves)} generations",
    )


def _levels(low: int, high: int) -> tuple[int, ...]:
    """Return round step numbers around what was reached: at most seven, from 0 if that is near."""
    low = 0 if low <= high / 2 else low
    size = max(1, high - low)
    step = next(n * 10**power for power in range(20) for n in (1, 2, 5) if size / (n * 10**power) <= 5)
    bottom = low // step * step
    return tuple(range(bottom, max(-(-high // step) * step, bottom + step) + 1, step))


def _lines(curve: Curve, shares: Sequence[Share], scale: Scale, rows: Scale) -> Iterator[tuple[str, str]]:
    """Yield the parts of a curve: what was kept, and what was lost."""
    lost = next((s.begin for s in shares if s.use == "redone" and curve.first.at <= s.begin <= curve.top.at), None)
    points = _thinned(curve.points)
    if lost is None:
        yield "kept", _drawn(points, scale, rows)
        return
    turn = StepProgress(lost, curve.generation, _step_at(curve, lost))
    if lost > curve.first.at:
        yield "kept", _drawn([*(p for p in points if p.at < lost), turn], scale, rows)
    yield "redone", _drawn([turn, *(p for p in points if p.at > lost)], scale, rows)


def _step_at(curve: Curve, at: float) -> int:
    before = max((p for p in curve.points if p.at <= at), key=lambda p: p.at)
    after = next((p for p in curve.points if p.at > at), before)
    part = (at - before.at) / (after.at - before.at) if after.at > before.at else 0.0
    return round(before.step + part * (after.step - before.step))


def _thinned(points: Sequence[StepProgress]) -> Sequence[StepProgress]:
    stride = -(-len(points) // POINTS)
    return [*points[:-1:stride], points[-1]]


def _drawn(points: Sequence[StepProgress], scale: Scale, rows: Scale) -> str:
    """Return points for a polyline; a single one twice, so that it shows."""
    drawn = [f"{10 * scale.at(p.at):g},{1000 - 10 * rows.at(p.step):g}" for p in points]
    return " ".join(drawn * 2 if len(drawn) == 1 else drawn)
