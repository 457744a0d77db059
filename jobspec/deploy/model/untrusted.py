"""Reading what others wrote: hosts, containers, launchers, and jobctl of another version. Nothing here raises."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from jobctl.jobspec.launcher.telling.words import LATEST

Json = dict[str, Any]

_DIGITS = re.compile(r"[0-9]{1,18}")  # int() also takes digits of other scripts, signs, spaces and underscores
_WORD = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


def parse_object(text: str | bytes) -> Json | None:
    """Return the JSON object in `text`, None if it is not an object; a number that is not finite is read as null."""
    try:
        found = json.loads(text, parse_constant=lambda name: None, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def number_in(text: object) -> int | None:
    """Return the number that `text` consists of (a label, a name, a column), None if it is not a number."""
    return int(text) if isinstance(text, str) and _DIGITS.fullmatch(text) else None


def is_moment(value: object) -> bool:
    """Say whether `value`, as read from JSON, is a time in seconds since the epoch."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LATEST


def is_number(value: object) -> bool:
    """Say whether `value`, as read from JSON, is a number of something: not negative, and no larger than a counter holds."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def as_moment(value: object) -> float | None:
    """Return `value` if it is a time, otherwise None."""
    return float(value) if is_moment(value) else None  # type: ignore[arg-type]


def as_number(value: object) -> int | None:
    """Return `value` if it is a number of something, otherwise None."""
    return value if is_number(value) else None  # type: ignore[return-value]


def as_code(value: object) -> int | None:
    """Return `value` if it is an exit code, otherwise None; some systems have codes below zero."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and -(2**31) <= value < 2**32 else None  # type: ignore[operator, return-value]


def as_text(value: object) -> str | None:
    """Return `value` if it is text, otherwise None; half a character, which cannot be written anywhere, becomes `?`."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else None


def as_word(value: object) -> str | None:
    """Return `value` if it is a short word without anything that a shell obeys, otherwise None."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else None


def objects(value: object) -> list[Json]:
    """Return the JSON objects in a list; empty if `value` is not a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def texts(value: object) -> tuple[str, ...]:
    """Return the texts in a list; empty if `value` is not a list."""
    found = value if isinstance(value, list | tuple) else ()
    return tuple(one for one in map(as_text, found) if one is not None)
