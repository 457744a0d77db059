"""Which events of a job are news for people. Pure.

The log repeats itself: a supervisor that was killed leaves the next one to record the same failure, or the same reason
to wait, again. So what was told before decides too, and is kept in `Told`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from jobctl.jobspec.deploy.model.notification import Notification
from jobctl.jobspec.deploy.model.untrusted import Json, as_moment, as_number, as_text
from jobctl.jobspec.report.layout import duration
from jobctl.jobspec.report.runs import Event, beginning, events_of


@dataclass(frozen=True, slots=True)
class Trouble:
    """A failure that the job has not recovered from yet. `alone`: only its node begins again; `kind` `wait`: it waits."""

    at: float
    generation: int
    kind: str
    text: str
    nodes: tuple[int, ...]
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of a job after some of its events. `waiting` is the reason to wait, `lost` are nodes of lost hosts."""

    generation: int | None = None
    ended: bool = False
    trouble: Trouble | None = None
    waiting: str | None = None
    away: frozenset[int] = frozenset()  # the nodes because of which it waits
    lost: frozenset[int] = frozenset()

    def record(self) -> Json:
        """Return it as JSON."""
        trouble = self.trouble and {
            "at": self.trouble.at,
            "generation": self.trouble.generation,
            "kind": self.trouble.kind,
            "text": self.trouble.text,
            "nodes": list(self.trouble.nodes),
            "alone": self.trouble.alone,
        }
        return {
            "generation": self.generation,
            "ended": self.ended,
            "trouble": trouble,
            "waiting": self.waiting,
            "away": sorted(self.away),
            "lost": sorted(self.lost),
        }

    @classmethod
    def from_record(cls, data: Json) -> Told:
        """Return what `record` returned; what cannot be read is as at the beginning."""
        return cls(
            as_number(data.get("generation")),
            data.get("ended") is True,
            _trouble(data.get("trouble")),
            as_text(data.get("waiting")),
            frozenset(_numbers(data.get("away"))),
            frozenset(_numbers(data.get("lost"))),
        )


def _trouble(data: object) -> Trouble | None:
    if not isinstance(data, dict):
        return None
    at, generation = as_moment(data.get("at")), as_number(data.get("generation"))
    kind, text = as_text(data.get("kind")), as_text(data.get("text"))
    if at is None or generation is None or kind is None or text is None:
        return None
    return Trouble(at, generation, kind, text, tuple(_numbers(data.get("nodes"))), data.get("alone") is True)


def _numbers(value: object) -> list[int]:
    return [n for n in map(as_number, value) if n is not None] if isinstance(value, list) else []


@dataclass
class News:
    """Reads events one after the other; `found` are the messages that they make."""

    job: str
    run: str
    told: Told = field(default_factory=Told)
    found: list[Notification] = field(default_factory=list)

    def read(self, lines: Iterable[Any]) -> None:
        """Read lines of the event log, as parsed from JSON."""
        for event in events_of(lines):
            begins = beginning(event)
            if begins is not None:
                self._begins(begins.number, asked=begins.asked)
            elif event.kind in _READERS:
                _READERS[event.kind](self, event)

    def _tell(self, what: str, event: Event, text: str, nodes: Iterable[int] = (), cost: float | None = None) -> None:
        facts = "\0".join((self.job, self.run, what, repr(event.at), event.message))
        ident = sha256(facts.encode(errors="replace")).hexdigest()[:20]
        where, text = (
            tuple(sorted(nodes)),
            text.encode(errors="replace").decode(),
        )  # a log line may hold half a character
        generation = self.told.generation if self.told.generation is not None else event.number("generation")
        self.found.append(Notification(ident, self.job, self.run, what, event.at, generation, text, where, cost))

    def _begins(self, number: int, *, asked: bool) -> None:
        if number == self.told.generation and not self.told.ended:
            return
        trouble = None if asked else self.told.trouble  # a person has done something about it
        self.told = replace(self.told, generation=number, ended=False, trouble=trouble)

    def _failure(self, event: Event) -> None:
        told, before = self.told, self.told.trouble
        generation = _or(event.number("generation"), told.generation or 0)
        nodes = tuple(node for node in [event.number("node")] if node is not None)
        kind = event.text("kind") or ""
        alone = event.details.get("alone") is True
        if before and (before.generation, before.kind, before.nodes) == (generation, kind, nodes):
            return  # a supervisor was killed before it had done anything about it
        began = before.at if before and not before.alone and not alone else event.at
        self.told = replace(told, trouble=Trouble(began, generation, kind, event.message, nodes, alone), waiting=None)
        if kind == "hang":
            self._tell("hang", event, event.message, nodes)
        elif kind == "host" and not set(nodes) <= told.lost:
            self._lost(event, nodes)

    def _lost(self, event: Event, nodes: Iterable[int]) -> None:
        self.told = replace(self.told, lost=self.told.lost | frozenset(nodes))
        self._tell("host-lost", event, event.message, nodes)

    def _waiting(self, event: Event) -> None:
        if event.details.get("lasting") is not True or event.message == self.told.waiting:
            return
        if event.text("id") is not None:
            return  # a launcher waited that nobody reached: whether the job still does, the supervisor finds out itself
        away = frozenset(_numbers(event.details.get("nodes")))
        trouble = self.told.trouble or Trouble(
            event.at, self.told.generation or 0, "wait", event.message, tuple(sorted(away))
        )
        self.told = replace(self.told, waiting=event.message, away=away, trouble=trouble)
        if away - self.told.lost:
            self._lost(event, away)
        self._tell("waiting", event, event.message, away)

    def _node(self, event: Event) -> None:
        """Take note of a node that runs again."""
        node, told = event.number("node"), self.told
        if event.text("state") != "running" or node is None:
            return
        away, lost = told.away - {node}, told.lost - {node}
        waiting = told.waiting if away or not told.away else None
        self.told = replace(told, away=away, lost=lost, waiting=waiting)
        trouble = told.trouble
        if trouble is None:
            return
        back = trouble.kind == "wait" and node in told.away and not away
        if back or (trouble.alone and node in trouble.nodes):
            self._recovered(event, trouble)

    def _generation_runs(self, event: Event) -> None:
        trouble, number = self.told.trouble, event.number("generation")
        if trouble is not None and number is not None and number > trouble.generation:
            self._recovered(event, trouble)
        self.told = replace(self.told, waiting=None, away=frozenset())

    def _recovered(self, event: Event, trouble: Trouble) -> None:
        self.told = replace(self.told, trouble=None)
        cost = max(0.0, event.at - trouble.at)
        text = f"{trouble.text}. It runs again after {duration(cost)}, in generation {self.told.generation}."
        self._tell("recovered", event, text, trouble.nodes, cost)

    def _process_restarted(self, event: Event) -> None:
        self._tell("recovered", event, event.message, [n for n in [event.number("node")] if n is not None])

    def _ends(self, event: Event) -> None:
        """Tell how the job ended; `down` says so where no supervisor had the time to."""
        phase = event.text("phase") if event.kind == "down" else event.kind
        if not self.told.ended and phase in ("failed", "succeeded"):
            nodes = self.told.trouble.nodes if self.told.trouble and phase == "failed" else ()
            reason = event.text("reason")
            text = f"job {phase}: {reason}" if event.kind == "down" and reason else event.message
            self._tell(phase, event, text if event.kind != "down" or reason else f"job {phase}", nodes)
        self.told = Told(self.told.generation, ended=True)

    def _straggler(self, event: Event) -> None:
        self._tell("straggler", event, event.message, [n for n in [event.number("node")] if n is not None])


_READERS = {
    "failure": News._failure,
    "waiting": News._waiting,
    "node": News._node,
    "generation-begun": News._generation_runs,
    "process-restarted": News._process_restarted,
    "failed": News._ends,
    "succeeded": News._ends,
    "stopped": News._ends,
    "down": News._ends,
    "straggler": News._straggler,
}


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def summary(messages: Iterable[Notification]) -> Iterator[Notification]:
    """Yield the one message that replaces several of a storm, none for none."""
    several = tuple(messages)
    if not several:
        return
    last = several[-1]
    counts: dict[str, int] = {}
    for message in several:
        counts[message.event] = counts.get(message.event, 0) + 1
    covers = tuple(ident for message in several for ident in (message.covers or (message.id,)))
    ident = sha256("\0".join(("summary", *covers)).encode()).hexdigest()[:20]
    kinds = ", ".join(f"{count} {event}" for event, count in counts.items())
    text = f"{len(several)} events in a short time: {kinds}. The last one: {last.text}"
    nodes = tuple(sorted({node for message in several for node in message.nodes}))
    yield Notification(ident, last.job, last.run, "summary", last.at, last.generation, text, nodes, None, covers)
