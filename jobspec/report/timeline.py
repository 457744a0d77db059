"""What each node did over a run: one state after the other, without gaps while it takes part. Pure."""

from __future__ import annotations

from dataclasses import field, replace

from jobctl.jobspec.records import dataclass
from jobctl.jobspec.report.runs import Beginning, Chapter, Event, Run, beginning


@dataclass(frozen=True, slots=True)
class StateSpan:
    """One state of a node, from `begin` to `end` (seconds since the epoch).

    `state` is one of status, or `ended` (with code 0), or `stopped` (by someone). `generation` is None where the node
    had none yet, `host` where the log does not say. `note` is what was told when it began.
    """

    state: str
    begin: float
    end: float
    host: str | None = None
    generation: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node over the run."""

    node: int
    spans: tuple[StateSpan, ...]

    @property
    def hosts(self) -> tuple[str, ...]:
        """Where it ran, in order; a host that it came back to is named again."""
        found = [span.host for span in self.spans if span.host is not None]
        return tuple(host for at, host in enumerate(found) if at == 0 or found[at - 1] != host)

    @property
    def eventful(self) -> bool:
        """Whether anything happened to it that does not happen to all nodes."""
        return len(self.hosts) > 1 or any(span.state in TROUBLE for span in self.spans)


TROUBLE = ("failed", "lost", "fenced")

# What ends by itself or was ended is not ended again by what ends the job.
_OVER = ("ended", "failed", "fenced", "stopped")


def node_lines(run: Run, end: float) -> tuple[NodeLine, ...]:
    """Return the nodes of a run that goes until `end`, by their numbers."""
    drawing = _Drawing()
    for event in run:
        if event.at <= end:
            _draw(drawing, event)
    for node in list(drawing.open):
        drawing.close(node, end)
    return tuple(NodeLine(node, tuple(spans)) for node, spans in sorted(drawing.done.items()) if spans)


@dataclass
class _Drawing:
    """Spans while they are drawn: those that have ended, and the one of each node that has not."""

    done: dict[int, list[StateSpan]] = field(default_factory=dict)
    open: dict[int, StateSpan] = field(default_factory=dict)

    def enter(self, node: int, now: StateSpan) -> None:
        """Let `node` be in a state; it is where it was, if `now` does not say."""
        before = self.open.get(node)
        if before is not None:
            now = replace(now, host=now.host or before.host)
            if now.state == before.state and now.host == before.host and before.generation in (None, now.generation):
                self.open[node] = replace(before, generation=now.generation)
                return
        self.close(node, now.begin)
        self.open[node] = now

    def close(self, node: int, at: float) -> None:
        """Let the node's state end; of a state that lasted no time nothing is kept."""
        before = self.open.pop(node, None)
        if before is not None and at > before.begin:
            self.done.setdefault(node, []).append(replace(before, end=at))


def _draw(drawing: _Drawing, event: Event) -> None:
    begins = beginning(event)
    if begins is not None:
        _begin(drawing, begins, event)
    elif event.kind == "step":
        _step(drawing, event)
    elif event.kind == "node":
        _enter(drawing, event, _state(event))
    elif event.kind == "moved":
        _enter(drawing, event, "starting")
    elif event.kind in ("stopped", "failed"):
        for node, span in list(drawing.open.items()):
            if span.state not in _OVER:
                drawing.enter(node, replace(span, state="stopped", begin=event.at, note=event.message))
    elif event.kind == "down":
        for node in list(drawing.open):
            drawing.close(node, event.at)


def _begin(drawing: _Drawing, begins: Beginning, event: Event) -> None:
    members = begins.members
    for node in [node for node in drawing.open if members is not None and node not in members]:
        drawing.close(node, begins.at)
    for node in sorted(drawing.open) if members is None else members:
        if begins.asked or not _has_begun(drawing.open.get(node), begins.number):
            host = begins.hosts.get(node)
            drawing.enter(node, StateSpan("starting", begins.at, begins.at, host, begins.number, event.message))


def _has_begun(span: StateSpan | None, generation: int) -> bool:
    """Say whether a node was seen in a generation before the event that begins it."""
    return span is not None and span.generation == generation and span.state != "starting"


def _step(drawing: _Drawing, event: Event) -> None:
    kind, node = event.text("step"), event.number("node")
    if node is None or kind not in ("start", "replace", "remove"):
        return
    if kind == "remove":
        if drawing.open.get(node, StateSpan("", 0.0, 0.0)).host in (None, event.host):
            drawing.close(node, event.at)
    else:
        drawing.enter(node, StateSpan("starting", event.at, event.at, event.host, None, event.message))


def _enter(drawing: _Drawing, event: Event, state: str) -> None:
    node = event.number("node")
    if node is not None:
        generation = event.number("generation") or None
        drawing.enter(node, StateSpan(state, event.at, event.at, event.host, generation, event.message))


def _state(event: Event) -> str:
    state = event.text("state") or "unknown"
    if state != "exited":
        return state
    code = event.number("exit_code")
    return "stopped" if code is None else "failed" if code else "ended"


def ran(chapter: Chapter) -> float | None:
    """Return when all members of a generation had begun to run, None if some never had."""
    number, members = chapter.begins.number, chapter.begins.members
    told = [event for event in chapter.events if event.kind == "node" and event.number("generation") == number]
    first: dict[int | None, float] = {}
    for event in told:
        if event.text("state") in ("running", "exited"):
            first.setdefault(event.number("node"), event.at)
    wanted = {event.number("node") for event in told} if members is None else {*members}
    return max(first[node] for node in wanted) if wanted and wanted <= set(first) else None
