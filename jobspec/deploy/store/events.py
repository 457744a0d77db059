"""The story of a run: one JSON object a line, appended by each process that sees, decides or does something."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from jobctl.jobspec.deploy.model.untrusted import is_moment, parse_object
from jobctl.jobspec.deploy.store.files import append_line
from jobctl.jobspec.launcher.report.event_log import key_of

ENDINGS = ("succeeded", "failed", "stopped", "down")  # the kinds of events that say how a job has ended
SLACK = 5.0  # seconds before a job counts as brought up in which `up` may have told of its first generation


class Events(Protocol):
    """What happened to a job, read bit by bit."""

    def new(self) -> list[dict[str, Any]]:
        """Return what happened since the last call, the oldest first."""

    def gather(self) -> None:
        """Add to this machine's history what launchers have kept, as far as they can be reached now."""


class EventFile:
    """The events in a file of this machine's history."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset = path, 0

    def new(self) -> list[dict[str, Any]]:
        """Return the events that were written since the last call."""
        found, self.offset = read(self.path, self.offset)
        return found

    def gather(self) -> None:
        """Do nothing: there is this file alone."""


class KnownEvents:
    """What is in a log, so that several who tell of the same thing, at the same time perhaps, write it once.

    An event of a launcher has an `id`; what jobctl has written is known by what it is about, and by its time: see `key_of`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self._offset = 0
        self._ids: set[str] = set()
        self._latest: dict[str, float] = {}  # by keys: when that was told of last without an id

    def add(self, told: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Append those that are new of events with an id, and return them. Raises OSError."""
        new = []
        with self._locked():
            self._read()
            for event in told:
                if not self.has(event):
                    append_line(self.path, json.dumps(event, ensure_ascii=False))
                    self._note(event)
                    new.append(event)
        return new

    def has(self, event: Mapping[str, Any]) -> bool:
        """Say whether the log had an event with an id, as last read."""
        began, _, key = event["id"].partition(" ")
        latest = self._latest.get(key)
        return event["id"] in self._ids or (latest is not None and latest >= float(began) - SLACK)

    def look(self) -> None:
        """Read what was appended."""
        with contextlib.suppress(OSError):
            self._read()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _read(self) -> None:
        if self.path.exists() and self.path.stat().st_size < self._offset:
            self._forget()  # somebody has removed the history
        found, self._offset = read(self.path, self._offset)
        for event in found:
            self._note(event)

    def _note(self, event: Mapping[str, Any]) -> None:
        if isinstance(event.get("id"), str):
            self._ids.add(event["id"])
        elif (key := key_of(dict(event))) is not None:
            self._latest[key] = max(event["time"], self._latest.get(key, 0.0))


def record(path: Path, at: float, kind: str, message: str, /, **details: Any) -> None:
    """Append one event. A disk that is full or read-only keeps nobody from what they do: it only goes untold."""
    with contextlib.suppress(OSError):
        append_line(path, json.dumps({"time": at, "event": kind, "message": message, **details}, ensure_ascii=False))


def read(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return the whole events after byte `offset`, in order of time as far as clocks allow that, and where the next ones begin."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            text = file.read()
    except FileNotFoundError:
        return [], offset
    whole = text[: text.rfind(b"\n") + 1]
    return [event for part in _parts(_parse(whole)) for event in sorted(part, key=_time)], offset + len(whole)


def _parts(told: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return events in parts that end with `down`: what was written before it was before it, whatever a clock said then.

    What is collected from launchers just behind it belongs before it if it is older.
    """
    parts: list[list[dict[str, Any]]] = [[]]
    for event in told:
        if len(parts) > 1 and not parts[-1] and "id" in event and event["time"] <= parts[-2][-1]["time"]:
            parts[-2].insert(0, event)
            continue
        parts[-1].append(event)
        if event["event"] == "down":
            parts.append([])
    return parts


def _time(event: Mapping[str, Any]) -> tuple[bool, float]:
    return event["event"] == "down", event["time"]


def _parse(text: bytes) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        event = parse_object(line)
        # A writer may have been killed in the middle of its line, or be of another version.
        if event is not None and is_moment(event.get("time")):
            yield {"time": event["time"], "event": "", "message": "", **event}
