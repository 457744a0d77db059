"""How far a job had got, and when: one JSON object a line, appended by its supervisor as the job goes on.

Beside the events, not among them: there are many more of them, and nobody reads them one by one.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobctl.jobspec.deploy.files import append_line


@dataclass(frozen=True, slots=True)
class Progress:
    """The job's step number at one moment: `at` is in seconds since the epoch, `step` counts what the script counts."""

    at: float
    generation: int
    step: int


def record_progress(path: Path, at: float, generation: int, step: int) -> None:
    """Append one record, where there is room for it."""
    with contextlib.suppress(OSError):
        append_line(path, json.dumps({"at": at, "generation": generation, "step": step}))


def read_progress(path: Path) -> tuple[Progress, ...]:
    """Return all records, in the order in which they were written; none where there is no such file."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return ()
    return tuple(_records(text))


def _records(text: bytes) -> Iterator[Progress]:
    for line in text.splitlines():
        try:
            data = json.loads(line)
        except ValueError:
            continue  # a writer was killed in the middle of its line
        if isinstance(data, dict) and _is_record(data):
            yield Progress(float(data["at"]), data["generation"], data["step"])


def _is_record(data: dict[str, Any]) -> bool:
    at, numbers = data.get("at"), (data.get("generation"), data.get("step"))
    return is_moment(at) and all(is_number(number) for number in numbers)


def is_moment(value: object) -> bool:
    """Say whether `value`, as read from JSON, is a time."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_number(value: object) -> bool:
    """Say whether `value`, as read from JSON, is a number of something: not negative, and no larger than a counter holds."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
