"""The verdicts of a fitness check as findings: one for each host and check, with its number, its reference and its remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobctl.jobspec.deploy.check.fitness.verdicts import Judgement
from jobctl.jobspec.deploy.model.finding import Finding

HINTS = {
    "slow-host": "leave it out (`--exclude`) or make it a `spare`; look there for other processes (`top`), its power"
    " mode, its temperatures and throttling, and in a virtual machine for its neighbours",
    "slow-device": "leave the device out (`devices=` in the hosts file), or the host; look there for throttling, other"
    " processes and the slot's PCIe lanes (`nvidia-smi -q`)",
    "slow-storage": "look there how the checkpoint's file system is mounted, and whether its disk is full or failing",
    "slow-link": "look at the cable, the speed and the errors of its network interface (`ip -s link`, `ethtool`); leave"
    " the host out (`--exclude`) or make it a `spare`",
}
WRONG = "do not train on it: leave it out (`--exclude`), and test its memory and its devices"
WORST = {"error": 0, "warning": 1, "skipped": 2, "ok": 3}


def findings_of(judgements: Sequence[Judgement]) -> Iterator[Finding]:
    """Yield one finding for each host and check: about the worst of its values."""
    groups: dict[tuple[str, str], list[Judgement]] = {}
    for one in judgements:
        groups.setdefault((one.place[0], one.metric.check), []).append(one)
    counts = {one.metric.name: len({j.place for j in judgements if j.metric is one.metric}) for one in judgements}
    for (host, check), group in groups.items():
        worst = min(group, key=lambda one: (WORST[one.verdict], one.share))
        bad = worst.verdict != "ok"
        text = sentence(worst, counts[worst.metric.name])
        code, hint = (worst.metric.code, HINTS[worst.metric.code]) if bad else (None, None)
        numbers = (significant(worst.value), significant(worst.reference), worst.metric.unit)
        yield Finding(host, check, worst.verdict, text, code, hint, *numbers)


def sentence(one: Judgement, count: int) -> str:
    """Return a sentence about a value; `count` values were compared."""
    name = f"{one.metric.name}{f' {one.place[1]}' if one.place[1] else ''}"
    value = f"{name}: {significant(one.value):g} {one.metric.unit}"
    if one.reference is None:
        return f"{value}; there is nothing to compare it with"
    off = round(100 * (1 - one.share))
    far = f"{off} % below" if off > 0 else f"{-off} % above" if off < 0 else "equal to"
    reference = f"{significant(one.reference):g}"
    if one.against == "median":
        return f"{value}, {far} the median of {count} ({reference})"
    if one.against == "past":
        return f"{value}, {far} what the same host had earlier ({reference})"
    if off == 0:
        return f"{value}, as fast as the other ({reference})"
    return f"{value}, {far} the other ({reference}); with two, nobody can say which of them is usual"


def significant(value: float | None) -> float | None:
    """Return a value with three digits that count."""
    return None if value is None else float(f"{value:.3g}")


def wrong_result(host: str, check: str, what: str) -> Finding:
    """Return the finding for a host that computes, copies or stores something wrong."""
    return Finding(host, check, "error", what, "wrong-result", WRONG)
