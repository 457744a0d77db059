"""What failures cost, and how each was recovered from. Pure.

A failure costs the time from when it was seen until the job was again at the step that it had had; where no steps are
known, until it ran again. The next failure takes over what was not made up for until then. A node may also fail alone,
and begin again while the others go on: that ends no generation, and costs the time until the node ran again, less what
other failures cost meanwhile. So no second is counted twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import dropwhile, zip_longest
from typing import Any, Literal

from jobctl.jobspec.deploy.model.untrusted import is_number
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.report.progress import Curve
from jobctl.jobspec.report.run import Course
from jobctl.jobspec.report.runs import Chapter, Event
from jobctl.jobspec.report.timeline import TROUBLE, ran

# How a failure was over: its step was reached again; all nodes ran again (no steps are known), or the one that failed
# alone; the next failure came first; the job ended; or it is not over yet.
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
    `until` is when it was over, or the next failure came. `alone`: the node began again while the others went on, and
    `running` is when it ran.
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
    until: float
    lost: float
    outcome: Outcome
    stacks: tuple[Stack, ...] = ()
    alone: bool = False


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
    ended = _ended(course)
    return tuple(sorted([*ended, *_rejoins(course, ended)], key=lambda one: one.at))


def _ended(course: Course) -> list[Incident]:
    """Return the failures that ended generations."""
    signs = [sign for chapter in course.chapters if (sign := _sign(course, chapter)) is not None]
    found: list[Incident] = []
    wanted: int | None = None  # the step that the job has to come back to
    for sign, following in zip_longest(signs, signs[1:]):
        step = _step(course, sign)
        wanted = max((s for s in (wanted, step) if s is not None), default=None)
        found.append(_failure(course, sign, following, step, wanted))
        wanted = None if found[-1].outcome == "regained" else wanted
    return found


def _sign(course: Course, chapter: Chapter) -> _Sign | None:
    """Return the failure that ended a generation, None if it did not end so."""
    number = chapter.begins.number
    mine = [event for event in chapter.events if event.number("generation") in (None, 0, number)]
    ends = [event for event in mine if event.kind == "failure" and not _is_alone(event)]
    told = ends[-1] if ends else None
    seen = _first_trouble(mine if told is None else mine[: mine.index(told)])
    if told is not None:
        return _Sign(number, seen or ends[0], told)
    ended = chapter is not course.chapters[-1] or any(event.kind == "failed" for event in mine)
    return _Sign(number, seen, None) if seen is not None and ended else None


def _is_alone(event: Event) -> bool:
    """Say whether it is a failure after which a node begins again while the others go on."""
    return event.kind == "failure" and event.details.get("alone") is True


def _first_trouble(events: Sequence[Event]) -> Event | None:
    """Return what was first told of the nodes that were in trouble in the end, and did not just begin again alone."""
    troubled: dict[int | None, Event] = {}
    for event in events:
        if event.kind == "node" and event.text("state") in TROUBLE:
            troubled.setdefault(event.number("node"), event)
        elif event.kind == "node" or _is_alone(event):
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
        until=stop,
        lost=stop - sign.at - course.paused(sign.at, stop),
        outcome=back.how if over else _unless_back(course, following is not None),
        stacks=sign.stacks,
    )


def _unless_back(course: Course, failed_again: bool) -> Outcome:
    """Return what became of a failure that the job did not come back from."""
    return "failed again" if failed_again else "ended" if course.final else "not yet"


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


# Failures of nodes that begin again while the others go on.


def _rejoins(course: Course, ended: Sequence[Incident]) -> list[Incident]:
    """Return these; `ended` are the failures that ended generations."""
    signs = [sign for chapter in course.chapters for sign in _signs_alone(chapter)]
    counted = [*((one.at, one.until) for one in ended), *((pause.begin, pause.end) for pause in course.pauses)]
    found: list[Incident] = []
    for number, sign in enumerate(signs):
        again = [other.at for other in signs[number + 1 :] if other.node == sign.node]
        found.append(_rejoin(course, sign, [*again, *(one.at for one in ended if one.at >= sign.at)], counted))
        counted.append((sign.at, found[-1].until))
    return found


def _signs_alone(chapter: Chapter) -> Iterator[_Sign]:
    """Yield each of them in a generation once: a supervisor whose predecessor was killed may tell of it again."""
    number, troubled = chapter.begins.number, dict[int | None, Event]()
    away: set[int | None] = set()
    for event in chapter.events:
        node = event.number("node")
        if _is_alone(event):
            seen = troubled.pop(node, None)
            if seen is not None or node not in away:
                yield _Sign(number, seen or event, event)
            away.add(node)
        elif event.kind == "node" and event.text("state") in TROUBLE:
            troubled.setdefault(node, event)
        elif event.kind == "node":
            troubled.pop(node, None)
            away -= {node} if _runs(event) else set()


def _runs(event: Event) -> bool:
    """Say whether it tells of a node that it runs, or ran."""
    return event.kind == "node" and event.text("state") in ("running", "exited")


def _rejoin(course: Course, sign: _Sign, later: Sequence[float], counted: Sequence[tuple[float, float]]) -> Incident:
    """Return one of them; `later` failures end it, what is `counted` already is not lost by it."""
    following = min(later, default=None)
    until = course.end if following is None else following
    since = dropwhile(lambda event: event is not sign.told, course.run)
    ran_again = (event.at for event in since if _runs(event) and event.number("node") == sign.node)
    back = next(_before(until, ran_again), None)
    stop = until if back is None else back
    return Incident(
        at=sign.at,
        generation=sign.generation,
        node=sign.node,
        cause=sign.event.message,
        step=_step(course, sign),
        log=sign.event.text("log"),
        tail=sign.tail,
        detected=sign.until(sign.event.at),
        stopped=None,
        running=sign.until(back),
        training=None,
        until=stop,
        lost=_uncounted(sign.at, stop, counted),
        outcome="ran again" if back is not None else _unless_back(course, following is not None),
        stacks=sign.stacks,
        alone=True,
    )


def _uncounted(begin: float, end: float, counted: Sequence[tuple[float, float]]) -> float:
    """Return how many seconds from `begin` to `end` are in no span that is counted."""
    free, at = 0.0, begin
    for first, last in sorted(counted):
        free += max(0.0, min(first, end) - at)
        at = max(at, last)
    return free + max(0.0, end - at)
