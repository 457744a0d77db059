"""The layout of the part of a report that is about fitness. Pure."""

from __future__ import annotations

from jobctl.jobspec.records import dataclass
from jobctl.jobspec.report.fitness import FitnessStory, HostHistory, HostVerdict, SlowNode
from jobctl.jobspec.report.layout import RunClock, cut

ROWS = 400  # of each table, those first that something is wrong with
_WORST = {"error": 0, "warning": 1, "skipped": 2}


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """A verdict as text; `bad`: something is wrong."""

    check: str
    host: str
    value: str
    median: str
    off: str
    verdict: str
    bad: bool
    note: str


@dataclass(frozen=True, slots=True)
class SlowRow:
    """A node that made the others wait, as text."""

    at: str
    since: str
    node: str
    rank: str
    host: str
    seconds: str
    median: str
    share: str
    note: str


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """What a host has measured of one thing: its values as text, and as heights in percent of the largest."""

    host: str
    what: str
    last: str
    best: str
    heights: tuple[float, ...]
    values: str


@dataclass(frozen=True, slots=True)
class FitnessPart:
    """The part of the page, None of which is empty."""

    mode: str | None
    verdicts: tuple[VerdictRow, ...]
    hidden: int
    slow: tuple[SlowRow, ...]
    history: tuple[HistoryRow, ...]


def fitness_part(fitness: FitnessStory, clock: RunClock) -> FitnessPart | None:
    """Return the part of the page, None where nothing is known."""
    if not fitness.verdicts and not fitness.slow:
        return None
    checks = list(dict.fromkeys(one.check for one in fitness.verdicts))
    worst_first = sorted(fitness.verdicts, key=lambda one: _WORST.get(one.verdict, 3))[:ROWS]
    chosen = sorted(worst_first, key=lambda one: (checks.index(one.check), fitness.hosts.index(one.host)))
    return FitnessPart(
        fitness.mode,
        tuple(map(_verdict, chosen)),
        len(fitness.verdicts) - len(chosen),
        tuple(_slow(one, clock) for one in fitness.slow[:ROWS]),
        tuple(map(_history, fitness.history[:ROWS])),
    )


def _verdict(one: HostVerdict) -> VerdictRow:
    bad = one.verdict != "ok"
    return VerdictRow(
        one.check,
        cut(one.host),
        "" if one.value is None else cut(f"{one.value:.3g} {one.unit}".strip()),
        "" if one.median is None else f"{one.median:.3g}",
        "" if one.share is None else deviation(one.share),
        cut(one.code or one.verdict),
        bad,
        cut(one.message) if bad else "",
    )


def _slow(one: SlowNode, clock: RunClock) -> SlowRow:
    return SlowRow(
        clock.time(one.at),
        clock.since(one.at),
        str(one.node),
        "" if one.rank is None else str(one.rank),
        cut(one.host),
        f"{one.seconds:.3g} s",
        f"{one.median:.3g} s",
        f"{one.seconds / one.median:.1f} times",
        cut(one.stays or ""),
    )


def _history(one: HostHistory) -> HistoryRow:
    best = max(one.values)
    heights = tuple(round(100 * value / best, 1) if best > 0 else 0.0 for value in one.values)
    told = ", ".join(f"{value:.3g}" for value in one.values)
    unit = f" {one.unit}"
    return HistoryRow(cut(one.host), cut(one.what), f"{one.values[-1]:.3g}{unit}", f"{best:.3g}{unit}", heights, told)


def deviation(share: float) -> str:
    """Say how far a value is from what it was compared with."""
    far = round(100 * (1 - share))
    return f"{far} % below" if far > 0 else f"{-far} % above" if far < 0 else "equal"
