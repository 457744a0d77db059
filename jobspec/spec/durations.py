"""Durations as text, one function for each form: a spec's, Go's and Slurm's. Standard library only.

A person's form is `in_words` of launcher/telling/words.py: launchers tell people, too.
"""

from __future__ import annotations

import math
import re

_SPEC = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?", re.ASCII)
_SLURM = re.compile(r"(?:(\d{1,5})-)?(\d{1,6})(?::(\d{1,6}))?(?::(\d{1,6}))?", re.ASCII)

_SECONDS = (86400.0, 3600.0, 60.0, 1.0, 0.001)

MAX_SECONDS = 100 * 365 * 86400.0  # seconds; what waits that long waits for ever, and clocks end after 292 years
EARLIEST_SIGNAL = 65535  # seconds before its time limit at which Slurm signals a job at the earliest


def is_duration(text: str) -> bool:
    """Say whether a text has the form of a duration, however long it is."""
    return bool(text) and _SPEC.fullmatch(text) is not None


def parse_duration(text: str) -> float:
    """Return the seconds of a duration such as `30s`, `10m`, `1h30m`. Raises ValueError, also above MAX_SECONDS."""
    match = _SPEC.fullmatch(text)
    if match is None or not text:
        raise ValueError(f"not a duration: {text}")
    seconds = sum(float(part) * unit for part, unit in zip(match.groups(), _SECONDS, strict=True) if part)
    if seconds > MAX_SECONDS:
        raise ValueError(f"longer than 100 years: {text}")
    return seconds


def in_one_unit(seconds: float) -> str:
    """Return seconds as a spec has them, in the largest unit that leaves no rest: `30s`, `90m`, `1.5s`."""
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s" if seconds == round(seconds) else f"{seconds:g}s"


def in_all_units(seconds: float) -> str:
    """Return whole seconds as a spec has them, in each unit that they need: `1d2h30m`."""
    parts = zip(_days_and_clock(int(seconds)), "dhms", strict=True)
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"


def for_go(seconds: float) -> str:
    """Return seconds as Go writes durations, and Compose reads them: `90s`, `1500ms`."""
    return f"{seconds:.0f}s" if seconds == round(seconds) else f"{round(seconds * 1000)}ms"


def for_slurm(seconds: float) -> str:
    """Return seconds, rounded up, as Slurm writes time limits: `D-HH:MM:SS`."""
    days, hours, minutes, rest = _days_and_clock(math.ceil(seconds))
    return f"{days}-{hours:02}:{minutes:02}:{rest:02}"


def parse_slurm(text: str) -> float | None:
    """Return the seconds of a time of Slurm's; None for other words, such as `UNLIMITED`.

    Options take `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M` and `D-H:M:S`; Slurm itself prints `M:S`, `H:M:S` and `D-H:M:S`.
    """
    match = _SLURM.fullmatch(text)
    if match is None:
        return None
    parts = [int(part) for part in match.groups()[1:] if part is not None]
    if match[1] is None and len(parts) < 3:
        parts = [0, *parts]
    hours, minutes, seconds = (*parts, 0, 0)[:3]
    return float(int(match[1] or 0) * 86400 + hours * 3600 + minutes * 60 + seconds)


def _days_and_clock(whole: int) -> tuple[int, int, int, int]:
    """Return days, hours, minutes and seconds."""
    return whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60
