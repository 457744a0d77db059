"""A story as a page: one HTML file that needs nothing else, readable for years.

The layout is made here, in percent of the run's time; the template only puts it down. Text keeps its size
on any screen: only bars and curves are stretched.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, tzinfo
from itertools import zip_longest

from jobctl.jobspec.launcher.telling.words import counted, in_words
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.render.environment import html_template
from jobctl.jobspec.report.chart import chart
from jobctl.jobspec.report.fitness_layout import fitness_part
from jobctl.jobspec.report.goodput import Share, Use
from jobctl.jobspec.report.incidents import Incident, Stack
from jobctl.jobspec.report.layout import Mark, RunClock, Scale, cut, percent, ticks
from jobctl.jobspec.report.report import Story
from jobctl.jobspec.report.runs import Event
from jobctl.jobspec.report.timeline import TROUBLE, NodeLine, StateSpan

LINES = 64  # nodes that are drawn; more only make those harder to find that something happened to
LISTED = 2000  # events that are listed, the last ones
ROWS = 2000  # states in the table of nodes, the first ones


def page(story: Story, made: float, zone: tzinfo | None = UTC) -> str:
    """Return the page of a story, made at `made` (seconds since the epoch), with the times of day of `zone` (None: here)."""
    scale = Scale(story.begin, max(story.end, story.begin + 1.0))
    clock = RunClock(story.begin, zone)
    shown = _shown_nodes(story.nodes)
    return html_template("report.html.j2").render(
        story=story,
        clock=clock,
        made=clock.day(made),
        tiles=tuple(_tiles(story)),
        uses=_uses(story.shares),
        paused=in_words(story.paused) if story.paused >= 1 else None,
        chart=chart(story, scale) if story.curves else None,
        generations=_generations(story, scale),
        rows=tuple(_row(line, scale, clock) for line in shown),
        table=tuple(row for line in shown for row in _table(line, clock))[:ROWS],
        hidden=len(story.nodes) - len(shown),
        states=_states(shown),
        failures=tuple(_failure(number, failure, clock) for number, failure in enumerate(story.failures, 1)),
        fitness=fitness_part(story.fitness, clock),
        ticks=ticks(scale),
        events=tuple(_event(event, clock) for event in story.events[-LISTED:]),
        unlisted=max(0, len(story.events) - LISTED),
    )


@dataclass(frozen=True, slots=True)
class _Tile:
    """A figure, what it is, and how it is meant."""

    figure: str
    name: str
    note: str


def _tiles(story: Story) -> Iterator[_Tile]:
    if story.ratio is not None:
        note = (
            "of the time led to progress that was kept" if story.by_steps else "of the time it ran (it tells no steps)"
        )
        yield _Tile(percent(story.ratio), "effective training time", note)
    yield _Tile(in_words(story.end - story.begin), "from start to end", _paused(story))
    count = len(story.failures)
    yield _Tile(
        str(count), "failure" if count == 1 else "failures", f"cost {in_words(story.lost)}" if count else "none"
    )
    count = len(story.generations)
    moved = sum(1 for line in story.nodes if len(line.hosts) > 1)
    note = f"{counted(moved, 'node')} moved" if moved else "no node moved"
    yield _Tile(str(count), "generation" if count == 1 else "generations", note)
    if story.step is not None:
        yield _Tile(f"{story.step:,}".replace(",", "\u202f"), "steps", "the last one seen")


def _paused(story: Story) -> str:
    return f"of that {in_words(story.paused)} stopped" if story.paused >= 1 else "without a stop"


# Good first, in the order in which they are drawn.
_USES: dict[Use, str] = {
    "kept": "progress that was kept",
    "running": "running",
    "redone": "progress that was lost and made again",
    "starting": "starting",
    "down": "down after a failure",
    "no step": "after the last step: saving, ending, hanging",
}


@dataclass(frozen=True, slots=True)
class _Used:
    """What time was used for, and how much of it."""

    use: str
    name: str
    width: float
    part: str
    time: str


def _uses(shares: Sequence[Share]) -> tuple[_Used, ...]:
    """Return what the time in which the job was wanted to run was used for."""
    times = {use: sum(s.end - s.begin for s in shares if s.use == use) for use in _USES}
    whole = sum(times.values())
    return tuple(
        _Used(
            use.replace(" ", "-"),
            name,
            round(100 * times[use] / whole, 3),
            percent(times[use] / whole),
            in_words(times[use]),
        )
        for use, name in _USES.items()
        if whole > 0 and times[use] > 0
    )


@dataclass(frozen=True, slots=True)
class _Bar:
    """A part of a row, in thousandths of its width; `title` says all of it."""

    kind: str
    x: float
    width: float
    title: str
    label: str = ""


def _generations(story: Story, scale: Scale) -> tuple[_Bar, ...]:
    ends = [begins.at for begins in story.generations[1:]]
    return tuple(
        _Bar(
            "odd" if begins.number % 2 else "even",
            scale.at(begins.at),
            scale.width(begins.at, end),
            f"generation {begins.number}: {cut(begins.cause)}",
            str(begins.number) if scale.width(begins.at, end) >= 2.5 else "",
        )
        for begins, end in zip_longest(story.generations, ends, fillvalue=story.end)
        if not isinstance(begins, float) and isinstance(end, float)
    )


@dataclass(frozen=True, slots=True)
class _Row:
    """A node: where it ran, what it did, and when it moved where."""

    node: int
    hosts: str
    bars: tuple[_Bar, ...]
    moves: tuple[Mark, ...]


def _row(line: NodeLine, scale: Scale, clock: RunClock) -> _Row:
    bars = tuple(
        _Bar(_known(span.state), 10 * scale.at(span.begin), 10 * scale.width(span.begin, span.end), _title(span, clock))
        for span in sorted(line.spans, key=lambda span: span.state in TROUBLE)  # what is drawn last is on top
    )
    return _Row(line.node, " → ".join(_few(line.hosts)), bars, tuple(_moves(line, scale)))


def _table(line: NodeLine, clock: RunClock) -> Iterator[tuple[int, str, str, str, str, str]]:
    """Yield the states of a node as text: node, from when, for how long, what, where, and the message."""
    for span in line.spans:
        times = clock.since(span.begin), in_words(span.end - span.begin)
        yield (line.node, *times, span.state, span.host or "", cut(span.note))


def _few(hosts: Sequence[str]) -> Sequence[str]:
    return hosts if len(hosts) <= 4 else [*hosts[:2], "…", *hosts[-1:]]


def _moves(line: NodeLine, scale: Scale) -> Iterator[Mark]:
    last = None
    for span in line.spans:
        if last is not None and span.host is not None and span.host != last:
            yield Mark(scale.at(span.begin), f"moved from {last} to {span.host}")
        last = span.host or last


def _title(span: StateSpan, clock: RunClock) -> str:
    where = f" on {span.host}" if span.host else ""
    generation = f", generation {span.generation}" if span.generation else ""
    head = f"{span.state}{where}{generation}: {clock.since(span.begin)}, for {in_words(span.end - span.begin)}"
    return f"{head}\n{cut(span.note)}" if span.note and span.state not in _PLAIN else head


_PLAIN = ("starting", "running", "ended")  # of these all is said by the state


# States of nodes as the legend has them, in its order.
STATES = ("pending", "starting", "running", "ended", "stopped", "failed", "lost", "fenced")


def _known(state: str) -> str:
    return state if state in STATES else "other"


def _states(lines: Sequence[NodeLine]) -> tuple[str, ...]:
    seen = {_known(span.state) for line in lines for span in line.spans}
    return tuple(state for state in (*STATES, "other") if state in seen)


def _shown_nodes(lines: Sequence[NodeLine]) -> tuple[NodeLine, ...]:
    """Return the nodes to draw: all if they are few, otherwise first those that something happened to."""
    chosen = sorted(lines, key=lambda line: not line.eventful)[:LINES]
    return tuple(sorted(chosen, key=lambda line: line.node))


@dataclass(frozen=True, slots=True)
class _Told:
    """A failure as its row in the table, and what was logged below it."""

    number: int
    at: str
    since: str
    node: str
    cause: str
    step: str
    times: tuple[tuple[str, str], ...]
    lost: str
    outcome: str
    log: str
    tail: tuple[str, ...]
    stacks: tuple[tuple[str, tuple[str, ...]], ...]  # who stood there, frames


_TIMES = ("noticed", "new generation", "all running", "first step")
_TIMES_ALONE = ("noticed", "new generation", "running", "first step")  # of a node, while the others went on

_OUTCOMES = {
    "regained": "until it was back at that step",
    "ran again": "until all nodes ran again",
    "failed again": "until it failed again",
    "ended": "until the job ended",
    "not yet": "so far",
}


def _failure(number: int, failure: Incident, clock: RunClock) -> _Told:
    times = (failure.detected, failure.stopped, failure.running, failure.training)
    names = _TIMES_ALONE if failure.alone else _TIMES
    rejoined = failure.alone and failure.outcome == "ran again"
    return _Told(
        number=number,
        at=clock.time(failure.at),
        since=clock.since(failure.at),
        node="?" if failure.node is None else str(failure.node),
        cause=cut(failure.cause),
        step="" if failure.step is None else str(failure.step),
        times=tuple((name, in_words(at)) for name, at in zip(names, times, strict=True) if at is not None),
        lost=in_words(failure.lost),
        outcome="until it ran again" if rejoined else _OUTCOMES[failure.outcome],
        log=failure.log or "log",
        tail=tuple(map(cut, failure.tail)),
        stacks=tuple((process_names(stack), tuple(map(cut, stack.frames))) for stack in failure.stacks),
    )


def process_names(stack: Stack) -> str:
    """Return the names of the processes that have this stack."""
    return ", ".join(stack.who) + (f" and {stack.more} more" if stack.more else "")


def _event(event: Event, clock: RunClock) -> tuple[str, str, str, str]:
    text = event.message or json.dumps(dict(event.details), ensure_ascii=False)
    return clock.time(event.at), clock.since(event.at), event.kind, cut(text)
