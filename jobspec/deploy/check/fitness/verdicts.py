"""Which hosts are slower than the others: pure decisions about measured numbers.

A value is compared with the median of all that were measured, and with what the host itself measured earlier. Absolute
limits would need a table of all hardware, and would miss a host that is slow for its kind.

How far below the median is too far depends on the metric, and on how much healthy hosts differ: three times the usual
deviation (of the median of deviations, which one bad host hardly moves) is never too far. With two hosts there is no
median. The faster one is the reference then, and only a difference of twice the tolerance makes the slower one unfit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median, median_low
from typing import Literal, TypeAlias

from jobctl.jobspec.deploy.model.finding import Verdict
from jobctl.jobspec.records import dataclass

Place: TypeAlias = tuple[str, str]  # a host, and a device of it (`cuda:3`), or "" for the host as a whole
Values: TypeAlias = Mapping[str, Mapping[Place, float]]  # by the metric's name
PastValues: TypeAlias = Mapping[str, Mapping[Place, Sequence[float]]]  # oldest first

NORMAL = 1.4826  # the standard deviation of a normal distribution, in medians of absolute deviations
SPREAD = 3.0  # deviations that are never too far
WIDEST = 0.5  # below half of the median is too far, however much hosts differ
MEMORIES = 3  # earlier values from which on a host's own history counts
PAST = 0.15  # of the host's own earlier speed that it may lose, at least


@dataclass(frozen=True, slots=True)
class Metric:
    """What is measured, for which check, and how far below the median a value may be (a fraction of it)."""

    name: str
    check: str
    unit: str
    tolerance: float
    code: str
    pairwise: bool = False  # two hosts have one value together, which says nothing of either
    by_core: bool = False  # what hosts of one machine wait for its cores is left out; their values are of all rounds
    once: bool = False  # measured in the first round, and again only where it looks unfit


METRICS = (
    Metric("all cores", "compute", "Mround/s", 0.12, "slow-host", by_core=True),
    Metric("matrix products", "compute", "TFLOP/s", 0.10, "slow-device", once=True),
    Metric("all devices together", "compute", "TFLOP/s", 0.10, "slow-host", once=True),
    Metric("memory of the host", "memory", "GB/s", 0.25, "slow-host", by_core=True),
    Metric("memory of the device", "memory", "GB/s", 0.10, "slow-device", once=True),
    Metric("copies to the device", "memory", "GB/s", 0.25, "slow-device", once=True),
    Metric("copies from the device", "memory", "GB/s", 0.25, "slow-device", once=True),
    Metric("writing", "storage", "MB/s", 0.50, "slow-storage"),
    Metric("reading", "storage", "MB/s", 0.70, "slow-storage"),
    Metric("link to other hosts", "link", "Mbit/s", 0.30, "slow-link", pairwise=True),
)
METRIC: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is to say of one value. `reference` is what it was compared with, None where there is nothing to compare with."""

    metric: Metric
    place: Place
    value: float
    reference: float | None
    against: Literal["median", "other", "past", "nothing"]
    verdict: Verdict

    @property
    def share(self) -> float:
        """The value as a fraction of its reference; 1 without a reference."""
        return self.value / self.reference if self.reference else 1.0


def judge(metric: Metric, values: Mapping[Place, float], past: Mapping[Place, Sequence[float]]) -> list[Judgement]:
    """Return a judgement for each value; `past` has earlier values of the same places, oldest first."""
    lost = _lost(values, past)
    made = []
    for place, value in values.items():
        found = _among_others(metric, place, value, values)
        # What all others have lost, too, is due to a new image or driver, or to what else runs; a single host cannot tell.
        mine, others = lost.get(place, 1.0), [other for there, other in lost.items() if there != place]
        usual = min(1.0, median(others)) if others else 1.0
        if found.verdict != "error" and mine < usual * (1 - max(PAST, metric.tolerance)):
            sure: Verdict = "error" if len(lost) > 2 or (len(lost) == 2 and found.verdict == "warning") else "warning"
            found = Judgement(metric, place, value, median(past[place]), "past", sure)
        made.append(found)
    return made


def _lost(values: Mapping[Place, float], past: Mapping[Place, Sequence[float]]) -> dict[Place, float]:
    """Return each value as a fraction of what the place measured earlier, where that is known well enough."""
    known = {place: median(past[place]) for place in values if len(past.get(place, ())) >= MEMORIES}
    return {place: values[place] / earlier for place, earlier in known.items() if earlier > 0}


def _among_others(metric: Metric, place: Place, value: float, values: Mapping[Place, float]) -> Judgement:
    if len(values) < (3 if metric.pairwise else 2):
        return Judgement(metric, place, value, None, "nothing", "ok")
    if len(values) == 2:
        faster = max(values.values())
        verdict: Verdict = "ok" if value >= faster * (1 - metric.tolerance) else "warning"
        if value < faster * (1 - max(metric.tolerance, min(WIDEST, 2 * metric.tolerance))):
            verdict = "error"
        return Judgement(metric, place, value, faster, "other", verdict)
    middle = median(values.values())
    # Of an even number of deviations the lower one: with four hosts, the mean of two would often be a bad host's.
    deviation = NORMAL * median_low(abs(other - middle) for other in values.values())
    far = max(metric.tolerance, min(WIDEST, SPREAD * deviation / middle)) if middle > 0 else 1.0
    return Judgement(metric, place, value, middle, "median", "error" if value < middle * (1 - far) else "ok")


def is_doubtful(one: Judgement, values: Values) -> bool:
    """Say whether a value deserves another look: also one that passes only since others were as slow, perhaps by chance."""
    best = max(values[one.metric.name].values())
    return one.verdict != "ok" or one.value < best * (1 - one.metric.tolerance / 2)


def doubts(values: Values, past: PastValues) -> dict[str, frozenset[str]]:
    """Return which metrics of which hosts deserve another look."""
    found: dict[str, set[str]] = {}
    for one in judge_all(values, past):
        if is_doubtful(one, values):
            found.setdefault(one.place[0], set()).add(one.metric.name)
    return {host: frozenset(names) for host, names in found.items()}


def judge_all(values: Values, past: PastValues) -> list[Judgement]:
    """Return the judgements of all metrics, in the order of METRICS."""
    return [one for metric in METRICS for one in judge(metric, values.get(metric.name, {}), past.get(metric.name, {}))]
