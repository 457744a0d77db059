"""The story of a run: one JSON object a line, appended by each process that sees, decides or does something."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from jobctl.jobspec.deploy.model.untrusted import is_moment, parse_object
from jobctl.jobspec.deploy.store.files import append_line


class Events(Protocol):
    """What happened to a job, read bit by bit."""

    def new(self) -> list[dict[str, Any]]:
        """Return what happened since the last call, the oldest first."""


class EventFile:
    """The events in a file of this machine's history."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset = path, 0

    def new(self) -> list[dict[str, Any]]:
        """Return the events that were written since the last call."""
        found, self.offset = read(self.path, self.offset)
        return found


def record(path: Path, at: float, kind: str, message: str, /, **details: Any) -> None:
    """Append one event. A disk that is full or read-only keeps nobody from what they do: it only goes untold."""
    with contextlib.suppress(OSError):
        append_line(path, json.dumps({"time": at, "event": kind, "message": message, **details}, ensure_ascii=False))


def read(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return the whole events after byte `offset`, and where the next ones begin."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            text = file.read()
    except FileNotFoundError:
        return [], offset
    whole = text[: text.rfind(b"\n") + 1]
    return sorted(_parse(whole), key=lambda event: event["time"]), offset + len(whole)


def _parse(text: bytes) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        event = parse_object(line)
        # A writer may have been killed in the middle of its line, or be of another version.
        if event is not None and is_moment(event.get("time")):
            yield {"time": event["time"], "event": "", "message": "", **event}
