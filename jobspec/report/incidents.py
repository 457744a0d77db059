"""What failures cost, and how each was recovered from. Pure.

A failure costs the time from when it was seen until the job was again at the step that it had had; where no steps are
known, until it ran again. The next failure takes over what was not made up for until then, so that no second is
counted twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, Literal

from jobctl.jobspec.deploy.model.untrusted import is_number
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.report.progress import Curve
from jobctl.jobspec.report.run import Course
from jobctl.jobspec.report.runs import Chapter, Event
from jobctl.jobspec.report.timeline import TROUBLE, ran

# How a failure was over: its step was reached again; all nodes ran again (no steps are known); the next failure came
# first; the job ended; or it is not over yet.
Outcome = Literal["regained", "ran again", "failed again", "ended", "not yet"]


@dataclass(frozen=True, slots=True)
class Stack:
    """Where some processes of a job stood that hung: who they are (`more` of them are not named), and the frames there."""

    who: tuple[str, ...]
    more: int
    frames: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Incident:
    """One failure, and how the job came back from it.

    `at` is when it was first seen (seconds since the epoch), `step` how far the job had come. `detected`, `stopped`,
    `running`, `training` are seconds from then until the supervisor had decided, the next generation began, all its
    nodes ran, and it was seen to make a step; None where that did not happen or is not known. `lost` is in seconds.
    """

    at: float
    generation: int
    node: int | None
    cause: str
    step: int | None
    log: str | None
    tail: tuple[str, ...]
    detected: float | None
    stopped: float | None
    running: float | None
    training: float | None
    lost: float
    outcome: Outcome
    stacks: tuple[Stack, ...] = ()


@dataclass(frozen=True, slots=True)
class _Sign:
    """What was first seen of a failure, and what the supervisor told of it (None: nothing)."""

    generation: int
    seen: Event
    told: Event | None

    @property
    def at(self) -> float:
        return self.seen.at

    @property
    def event(self) -> Event:
        """The one that says more."""
        return self.told or self.seen

    @property
    def node(self) -> int | None:
        node = self.event.number("node")
        return self.seen.number("node") if node is None else node

    @property
    def tail(self) -> tuple[str, ...]:
        lines = self.event.details.get("tail")
        return tuple(str(line) for line in lines) if isinstance(lines, list) else ()

    @property
    def stacks(self) -> tuple[Stack, ...]:
        found = self.event.details.get("stacks")
        return tuple(map(_stack, filter(_is_stack, found))) if isinstance(found, list) else ()

    def until(self, at: float | None) -> float | None:
        """Return how many seconds after it `at` is."""
        return None if at is None else at - self.at


def _is_stack(told: object) -> bool:
    return isinstance(told, dict) and all(isinstance(told.get(key), list) for key in ("who", "stack"))


def _stack(told: dict[str, Any]) -> Stack:
    more = int(told["more"]) if is_number(told.get("more")) else 0
    return Stack(tuple(map(str, told["who"])), more, tuple(map(str, told["stack"])))


def failures(course: Course) -> tuple[Incident, ...]:
    """Return the failures of a run, in order."""
    signs = [sign for chapter in course.chapters if (sign := _sign(course, chapter)) is not None]
    found: list[Incident] = []
    wanted: int | None = None  # the step that the job has to come back to
    for sign, following in zip_longest(signs, signs[1:]):
        step = _step(course, sign)
        wanted = max((s for s in (wanted, step) if s is not None), default=None)
        found.append(_failure(course, sign, following, step, wanted))
        wanted = None if found[-1].outcome == "regained" else wanted
    return tuple(found)


def _sign(course: Course, chapter: Chapter) -> _Sign | None:
    """Return the failure that ended a generation, None if it did not end so."""
    number = chapter.begins.number
    mine = [event for event in chapter.events if event.number("generation") in (None, 0, number)]
    told = next((event for event in reversed(mine) if event.kind == "failure"), None)
    seen = _first_trouble(mine if told is None else mine[: mine.index(told)])
    if told is not None:
        return _Sign(number, seen or next(event for event in mine if event.kind == "failure"), told)
    ended = chapter is not course.chapters[-1] or any(event.kind == "failed" for event in mine)
    return _Sign(number, seen, None) if seen is not None and ended else None


def _first_trouble(events: Sequence[Event]) -> Event | None:
    """Return what was first told of the nodes that were in trouble in the end."""
    troubled: dict[int | None, Event] = {}
    for event in events:
        if event.kind == "node" and event.text("state") in TROUBLE:
            troubled.setdefault(event.number("node"), event)
        elif event.kind == "node":
            troubled.pop(event.number("node"), None)
    return min(troubled.values(), key=lambda event: event.at, default=None)


def _step(course: Course, sign: _Sign) -> int | None:
    """Return how far the generation had come when it failed."""
    until = sign.event.at
    points = [p for curve in course.curves if curve.generation == sign.generation for p in curve.points]
    told = [step for event in (sign.seen, sign.event) if (step := event.number("progress")) is not None]
    return max([*told, *(point.step for point in points if point.at <= until)], default=None)


def _failure(course: Course, sign: _Sign, following: _Sign | None, step: int | None, wanted: int | None) -> Incident:
    until = following.at if following else course.end
    back = _back(course, sign, wanted, until)
    over = back.at is not None and back.at <= until
    stop = back.at if back.at is not None and over else until
    return Incident(
        at=sign.at,
        generation=sign.generation,
        node=sign.node,
        cause=sign.event.message,
        step=step,
        log=sign.event.text("log"),
        tail=sign.tail,
        detected=sign.until(sign.told.at) if sign.told else None,
        stopped=sign.until(back.began),
        running=sign.until(back.ran),
        training=sign.until(back.trained),
        lost=stop - sign.at - course.paused(sign.at, stop),
        outcome=back.how if over else "failed again" if following else "ended" if course.final else "not yet",
        stacks=sign.stacks,
    )


@dataclass(frozen=True, slots=True)
class _Back:
    """How a job came back before the next failure: when its next generation began, ran, made a step; when it was over."""

    began: float | None
    ran: float | None
    trained: float | None
    at: float | None
    how: Outcome


def _back(course: Course, sign: _Sign, wanted: int | None, until: float) -> _Back:
    later = [c for c in course.chapters if c.begins.number != sign.generation and sign.at <= c.begins.at <= until]
    numbers = {chapter.begins.number for chapter in later}
    curves = [curve for curve in course.curves if curve.generation in numbers and curve.first.at <= until]
    began = later[0].begins.at if later else None
    running = next(_before(until, map(ran, later)), None)
    trained = curves[0].first.at if curves else None
    if not course.curves or (wanted is None and trained is None):
        return _Back(began, running, None, running, "ran again")
    return _Back(began, running, trained, _regained(curves, wanted), "regained")


def _before(until: float, times: Iterator[float | None]) -> Iterator[float]:
    return (at for at in times if at is not None and at <= until)


def _regained(curves: Sequence[Curve], step: int | None) -> float | None:
    """Return when `step` was reached again; with None, when any step was made."""
    times = (curve.reached(curve.first.step if step is None else step) for curve in curves)
    return min((at for at in times if at is not None), default=None)
