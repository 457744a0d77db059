"""How far a job had got, and when: one JSON object a line, appended by its supervisor as the job goes on.

Beside the events, not among them: there are many more of them, and nobody reads them one by one.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobctl.jobspec.deploy.model.untrusted import is_moment, is_number, parse_object
from jobctl.jobspec.deploy.store.files import append_line
from jobctl.jobspec.records import dataclass


@dataclass(frozen=True, slots=True)
class StepProgress:
    """The job's step number at one moment: `at` is in seconds since the epoch, `step` counts what the script counts."""

    at: float
    generation: int
    step: int


def record_progress(path: Path, at: float, generation: int, step: int) -> None:
    """Append one record, where there is room for it."""
    with contextlib.suppress(OSError):
        append_line(path, json.dumps({"at": at, "generation": generation, "step": step}))


def read_progress(path: Path, last: int | None = None) -> tuple[StepProgress, ...]:
    """Return all records, in the order in which they were written; none where there is no such file.

    With `last` only those in so many bytes at its end: a job of a week has a hundred thousand records.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = 0 if last is None else max(0, size - last)
            file.seek(start)
            text = file.read()
    except FileNotFoundError:
        return ()
    return tuple(_records(text[text.find(b"\n") + 1 :] if start else text))


def _records(text: bytes) -> Iterator[StepProgress]:
    for line in text.splitlines():
        data = parse_object(line)
        if data is not None and _is_record(data):  # a writer may have been killed in the middle of its line
            yield StepProgress(float(data["at"]), data["generation"], data["step"])


def _is_record(data: dict[str, Any]) -> bool:
    at, numbers = data.get("at"), (data.get("generation"), data.get("step"))
    return is_moment(at) and all(is_number(number) for number in numbers)
