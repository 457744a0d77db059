"""From the event log to one run of the job: its events, its generations, and how it ended.

A job's log holds all its runs, one after the other. A run begins with a first generation or with `up --fresh`, which
share nothing with what was before but perhaps a checkpoint, and goes on through failures, `stop` and `restart` until
the next of these or `down`. Pure; an event is read by its fields. Its message is for people.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from jobctl.jobspec.deploy.model.untrusted import is_moment, is_number
from jobctl.jobspec.deploy.store.events import ENDINGS
from jobctl.jobspec.records import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the log; `at` is in seconds since the epoch."""

    at: float
    kind: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def number(self, key: str) -> int | None:
        """Return the detail `key` if it is a number."""
        value = self.details.get(key)
        return value if is_number(value) else None

    def text(self, key: str) -> str | None:
        """Return the detail `key` if it is text."""
        value = self.details.get(key)
        return value if isinstance(value, str) else None

    @property
    def host(self) -> str | None:
        """The host that it is about."""
        return self.text("host")


@dataclass(frozen=True, slots=True)
class Beginning:
    """A generation that begins: when, why, and with whom.

    `members` is None where the log does not say; `hosts` (node to host) may be empty. `asked`: by a command, not by
    the supervisor. `run` differs between two times that the job was up, None where the event does not tell.
    """

    at: float
    number: int
    cause: str
    members: tuple[int, ...] | None
    hosts: Mapping[int, str]
    asked: bool
    run: str | None = None


_NODE = re.compile(r"[0-9]{1,9}")

# What `up` writes before the first generation of a run begins.
_OPENING = frozenset({"up", "step", "host-failed", "fitness"})

# What may still come after `down`, and begins nothing.
_AFTERMATH = frozenset({"supervisor-ended", "notify-failed"})
_CLOSING = _AFTERMATH | {"down"}

Run = tuple[Event, ...]


def events_of(lines: Iterable[object]) -> tuple[Event, ...]:
    """Return what can be read of the log's lines, as parsed from JSON; others are left out."""
    return tuple(_event(line) for line in lines if isinstance(line, dict) and is_moment(line.get("time")))


def _event(line: Mapping[str, Any]) -> Event:
    kind, message = str(line.get("event", "")), str(line.get("message", ""))
    details = {key: value for key, value in line.items() if key not in ("time", "event", "message")}
    return Event(float(line["time"]), kind, message, details)


def beginning(event: Event) -> Beginning | None:
    """Return the generation that begins with `event`, or None."""
    number = event.number("generation")
    begins = event.kind == "generation" or (event.kind == "step" and event.text("step") == "generation")
    if number is None or not begins:
        return None
    return Beginning(
        event.at,
        number,
        event.text("cause") or "",
        _members(event.details.get("members")),
        _hosts(event.details.get("hosts")),
        event.kind == "step",
        (event.text("id") or "").partition(" ")[0] or None,
    )


def _members(value: object) -> tuple[int, ...] | None:
    return tuple(node for node in value if is_number(node)) if isinstance(value, list) else None


def _hosts(value: object) -> dict[int, str]:
    """Return node to host; JSON has text for keys."""
    items = value.items() if isinstance(value, dict) else ()
    return {int(node): str(host) for node, host in items if _NODE.fullmatch(str(node))}


def runs(events: Sequence[Event]) -> tuple[Run, ...]:
    """Return the runs that the log tells of, the last one last; none of an empty log."""
    found: list[list[Event]] = []
    for event in events:
        if not found or (_is_over(found[-1]) and event.kind not in _CLOSING):
            found.append([])
        elif _is_new(event, found[-1]):
            found.append(_taken_back(found[-1]))
        found[-1].append(event)
    return tuple(_in_order(run) for run in found if run)


def _is_over(run: Sequence[Event]) -> bool:
    last = next((event for event in reversed(run) if event.kind not in _AFTERMATH), None)
    return last is not None and last.kind == "down"


def _is_new(event: Event, run: Sequence[Event]) -> bool:
    """Say whether `event` begins a run after `run`."""
    begins = beginning(event)
    if begins is None or not (begins.number == 1 or _is_fresh(run)):
        return False
    last = next((before for told in reversed(run) if (before := beginning(told)) is not None), None)
    if last is None:
        return False
    # A command's generation may be told of by the supervisor once more, and by launchers.
    another = None not in (last.run, begins.run) and last.run != begins.run
    return begins.asked or begins.number != last.number or another


def _is_fresh(run: Sequence[Event]) -> bool:
    """Say whether `run` ends with an `up --fresh` that has begun no generation yet."""
    return any(event.kind == "up" and event.details.get("fresh") is True for event in run[_opening(run) :])


def _opening(run: Sequence[Event]) -> int:
    """Return where the events at the end of `run` begin that prepare its next generation."""
    at = len(run)
    while at and run[at - 1].kind in _OPENING and beginning(run[at - 1]) is None:
        at -= 1
    return at


def _taken_back(run: list[Event]) -> list[Event]:
    """Take from the end of `run` what prepared the next one, and return it."""
    at = _opening(run)
    taken = run[at:]
    del run[at:]
    return taken


def _in_order(run: Iterable[Event]) -> Run:
    """Return the events with times that never go back: several write the log, and clocks are set."""
    return tuple(_forward(run))


def _forward(run: Iterable[Event]) -> Iterator[Event]:
    latest = float("-inf")
    for event in run:
        latest = max(latest, event.at)
        yield replace(event, at=latest)


def beginnings(run: Run) -> tuple[Beginning, ...]:
    """Return the generations of a run, each once: as its first event says, with the details of later ones."""
    found: dict[int, Beginning] = {}
    for begins in filter(None, map(beginning, run)):
        first = found.get(begins.number)
        found[begins.number] = begins if first is None else _joined(first, begins)
    return tuple(found.values())


def _joined(first: Beginning, again: Beginning) -> Beginning:
    members = first.members if again.members is None else again.members
    return replace(first, members=members, hosts={**first.hosts, **again.hosts})


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run, or a part of it, ended: its phase (`down`: while it ran), in words, and when."""

    phase: str
    reason: str
    at: float


def endings(run: Run) -> tuple[tuple[Ending, float | None], ...]:
    """Return each end of a run, with the time at which a generation began after it (None: none did)."""
    found: list[tuple[Ending, float | None]] = []
    for event in run:
        begins = beginning(event)
        over = bool(found) and found[-1][1] is None
        if begins is not None and over:
            found[-1] = (found[-1][0], begins.at)
        elif event.kind in ENDINGS and not over:  # a job that has ended stays so when it is taken down
            found.append((_ending(event), None))
    return tuple(found)


def _ending(event: Event) -> Ending:
    """Return the end that an event tells of; `down` says how the job had ended if nobody had written it before."""
    phase = event.text("phase") if event.kind == "down" else None
    if phase not in ENDINGS:
        return Ending(event.kind, event.message, event.at)
    return Ending(phase, event.text("reason") or "", event.at)


@dataclass(frozen=True, slots=True)
class Chapter:
    """One generation of a run: its beginning, until when it was the current one, and what was told meanwhile."""

    begins: Beginning
    until: float
    events: Run


def chapters(run: Run, end: float) -> tuple[Chapter, ...]:
    """Return the generations of a run that goes until `end`, in order."""
    first: dict[int, int] = {}
    for at, event in enumerate(run):
        if (begins := beginning(event)) is not None:
            first.setdefault(begins.number, at)
    stops = [*list(first.values())[1:], len(run)] if first else []
    return tuple(
        Chapter(begins, run[stop].at if stop < len(run) else end, run[first[begins.number] : stop])
        for begins, stop in zip(beginnings(run), stops, strict=True)
    )
