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
from jobctl.jobspec.deploy.model.untrusted import Json, as_moment, as_number, as_text, objects
from jobctl.jobspec.report.runs import Event, beginning, events_of
from jobctl.jobspec.spec.durations import in_words

MOST = 8  # failures that one message names: the first ones and the last ones


@dataclass(frozen=True, slots=True)
class Mishap:
    """One failure, in the generation in which it happened; of `kind` `wait`: the job waits."""

    generation: int
    kind: str
    text: str
    nodes: tuple[int, ...]

    def is_same(self, other: Mishap) -> bool:
        """Say whether it is another record of `other`, by a supervisor whose predecessor was killed."""
        return (self.generation, self.kind, self.nodes) == (other.generation, other.kind, other.nodes)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Failures that the job has not recovered from yet, the last one last; since when. `more` are not kept."""

    at: float
    mishaps: tuple[Mishap, ...]
    more: int = 0

    @property
    def generation(self) -> int:
        """The newest generation that has failed."""
        return max(one.generation for one in self.mishaps)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes that failed."""
        return tuple(sorted({node for one in self.mishaps for node in one.nodes}))

    @property
    def waits(self) -> bool:
        """Whether it is no failure, but a reason to wait."""
        return self.mishaps[-1].kind == "wait"

    @property
    def words(self) -> str:
        """All that has failed, for people."""
        texts = [one.text for one in self.mishaps]
        if self.more:
            texts.insert(MOST // 2, f"{self.more} more failure{'s' if self.more > 1 else ''}")
        return "; then ".join(texts)

    def joined(self, at: float, mishaps: tuple[Mishap, ...], more: int = 0) -> Trouble:
        """Return it with further failures, which began at `at`: an event may be read late."""
        every = (*self.mishaps, *mishaps)
        kept = every if len(every) <= MOST else (*every[: MOST // 2], *every[-MOST // 2 :])
        return Trouble(min(self.at, at), kept, self.more + more + len(every) - len(kept))

    def before(self, generation: int) -> Trouble:
        """Return it as trouble that a generation of this number ends."""
        mishaps = tuple(replace(one, generation=min(one.generation, generation - 1)) for one in self.mishaps)
        return replace(self, mishaps=mishaps)

    def record(self) -> Json:
        """Return it as JSON."""
        kept = [
            {"generation": one.generation, "kind": one.kind, "text": one.text, "nodes": list(one.nodes)}
            for one in self.mishaps
        ]
        return {"at": self.at, "mishaps": kept, "more": self.more}

    @classmethod
    def from_record(cls, data: object) -> Trouble | None:
        """Return what `record` returned, also that of an earlier version, which kept one failure; None of all else."""
        if not isinstance(data, dict) or (at := as_moment(data.get("at"))) is None:
            return None
        kept = objects(data["mishaps"]) if "mishaps" in data else [data]
        mishaps = tuple(one for one in map(_mishap, kept) if one is not None)
        return cls(at, mishaps, as_number(data.get("more")) or 0) if mishaps else None


def _mishap(data: Json) -> Mishap | None:
    generation, kind, text = as_number(data.get("generation")), as_text(data.get("kind")), as_text(data.get("text"))
    if generation is None or kind is None or text is None:
        return None
    return Mishap(generation, kind, text, tuple(_numbers(data.get("nodes"))))


def _numbers(value: object) -> list[int]:
    return [n for n in map(as_number, value) if n is not None] if isinstance(value, list) else []


@dataclass(frozen=True, slots=True)
class Begun:
    """The generation in which all nodes ran last, since when, and when its job was brought up."""

    number: int
    at: float
    run: str

    def is_after(self, event: Event, generation: int) -> bool:
        """Say whether a failure of that generation was over when its event was read, which a launcher had kept."""
        return self.number > generation and _run_of(event) == self.run

    def record(self) -> Json:
        """Return it as JSON."""
        return {"number": self.number, "at": self.at, "run": self.run}

    @classmethod
    def from_record(cls, data: object) -> Begun | None:
        """Return what `record` returned, None of all else."""
        said = data if isinstance(data, dict) else {}
        number, at, run = as_number(said.get("number")), as_moment(said.get("at")), as_text(said.get("run"))
        return None if number is None or at is None or run is None else cls(number, at, run)


def _run_of(event: Event) -> str | None:
    """Return when the job was brought up that an event of a launcher is about, None of all other events."""
    return (event.text("id") or "").partition(" ")[0] or None


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of a job after some of its events. `waiting` is the reason to wait, `lost` are nodes of lost hosts."""

    generation: int | None = None
    ended: bool = False
    trouble: Trouble | None = None
    apart: tuple[Trouble, ...] = ()  # of nodes that begin again alone, while the others go on
    begun: Begun | None = None
    waiting: str | None = None
    away: frozenset[int] = frozenset()  # the nodes because of which it waits
    lost: frozenset[int] = frozenset()

    @property
    def troubles(self) -> Trouble | None:
        """All that the job has not recovered from, None if there is nothing."""
        every = sorted([*self.apart, *([self.trouble] if self.trouble else [])], key=lambda one: one.at)
        found = every[0] if every else None
        for one in every[1:]:
            found = found.joined(one.at, one.mishaps, one.more) if found else one
        return found

    def record(self) -> Json:
        """Return it as JSON."""
        return {
            "generation": self.generation,
            "ended": self.ended,
            "trouble": self.trouble and self.trouble.record(),
            "apart": [one.record() for one in self.apart],
            "begun": self.begun and self.begun.record(),
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
            Trouble.from_record(data.get("trouble")),
            tuple(one for one in map(Trouble.from_record, objects(data.get("apart"))) if one is not None),
            Begun.from_record(data.get("begun")),
            as_text(data.get("waiting")),
            frozenset(_numbers(data.get("away"))),
            frozenset(_numbers(data.get("lost"))),
        )


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
        told = self.told
        if asked and told.ended:  # a person has seen how it ended
            told = replace(told, trouble=None, apart=())
        elif asked and told.troubles is not None:  # it may count from 1 again: it was taken down elsewhere
            trouble = told.troubles
            told = replace(told, trouble=trouble.before(number), apart=())
        elif number == told.generation and not told.ended:
            return
        self.told = replace(told, generation=number, ended=False)

    def _failure(self, event: Event) -> None:
        generation = _or(event.number("generation"), self.told.generation or 0)
        nodes = tuple(node for node in [event.number("node")] if node is not None)
        one, begun = Mishap(generation, event.text("kind") or "", event.message, nodes), self.told.begun
        late = begun is not None and begun.is_after(event, generation)
        note = self._fails_alone if event.details.get("alone") is True else self._fails
        if not late and not note(event, one):
            return  # a supervisor was killed before it had done anything about it
        if one.kind == "hang":
            self._tell("hang", event, event.message, nodes)
        elif one.kind == "host" and not set(nodes) <= self.told.lost:
            self._lost(event, nodes)
        if begun is not None and late:  # what the job is in now is another trouble
            self._recovered(replace(event, at=max(event.at, begun.at)), Trouble(event.at, (one,)), begun.number)

    def _fails(self, event: Event, one: Mishap) -> bool:
        """Take note of a failure because of which all nodes begin again; say whether it is news."""
        before = self.told.trouble
        if before is not None and any(one.is_same(other) for other in before.mishaps):
            return False
        trouble = Trouble(event.at, (one,)) if before is None else before.joined(event.at, (one,))
        self.told = replace(self.told, trouble=trouble, waiting=None)
        return True

    def _fails_alone(self, event: Event, one: Mishap) -> bool:
        """Take note of a node that begins again alone, however many others do, too."""
        apart = {trouble.nodes: trouble for trouble in self.told.apart}
        before = apart.get(one.nodes)
        if before is not None and one in before.mishaps:
            return False
        apart[one.nodes] = Trouble(event.at, (one,)) if before is None else before.joined(event.at, (one,))
        self.told = replace(self.told, apart=tuple(apart.values()), waiting=None)
        return True

    def _lost(self, event: Event, nodes: Iterable[int]) -> None:
        self.told = replace(self.told, lost=self.told.lost | frozenset(nodes))
        self._tell("host-lost", event, event.message, nodes)

    def _host_lost(self, event: Event) -> None:
        """Tell of a machine that the coordinator of an allocation has given up. Others tell of that by a failure."""
        if _by_allocation(event):
            self._lost(event, [node for node in [event.number("node")] if node is not None])

    def _waiting(self, event: Event) -> None:
        if event.details.get("lasting") is not True or event.message == self.told.waiting:
            return
        if event.text("id") is not None and not _by_allocation(event):
            return  # a launcher waited that nobody reached: whether the job still does, the supervisor finds out itself
        away = frozenset(_numbers(event.details.get("nodes")))
        wait = Mishap(self.told.generation or 0, "wait", event.message, tuple(sorted(away)))
        trouble = self.told.trouble or Trouble(event.at, (wait,))
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
        if told.trouble is not None and told.trouble.waits and node in told.away and not away:
            self._recovered(event, told.trouble)
            self.told = replace(self.told, trouble=None)
        for trouble in told.apart:
            if node in trouble.nodes:
                self._recovered(event, trouble)
        self.told = replace(self.told, apart=tuple(one for one in told.apart if node not in one.nodes))

    def _generation_runs(self, event: Event) -> None:
        number, trouble = event.number("generation"), self.told.troubles
        if number is not None and (run := _run_of(event)) is not None:
            self.told = replace(self.told, begun=Begun(number, event.at, run))
        if trouble is not None and number is not None and number > trouble.generation:
            self._recovered(event, trouble, number)
            self.told = replace(self.told, trouble=None, apart=())
        self.told = replace(self.told, waiting=None, away=frozenset())

    def _recovered(self, event: Event, trouble: Trouble, number: int | None = None) -> None:
        cost, number = max(0.0, event.at - trouble.at), self.told.generation if number is None else number
        text = f"{trouble.words}. It runs again after {in_words(cost)}, in generation {number}."
        self._tell("recovered", event, text, trouble.nodes, cost)

    def _process_restarted(self, event: Event) -> None:
        self._tell("recovered", event, event.message, [n for n in [event.number("node")] if n is not None])

    def _ends(self, event: Event) -> None:
        """Tell how the job ended; `down` says so where no supervisor had the time to."""
        phase = event.text("phase") if event.kind == "down" else event.kind
        if not self.told.ended and phase in ("failed", "succeeded"):
            trouble, reason = self.told.troubles, event.text("reason")
            text = event.message if event.kind != "down" else f"job {phase}: {reason}" if reason else f"job {phase}"
            if trouble is not None and trouble.words not in text:
                text += f". Before that: {trouble.words}"
            self._tell(phase, event, text, trouble.nodes if trouble and phase == "failed" else ())
        self.told = Told(self.told.generation, ended=True)

    def _straggler(self, event: Event) -> None:
        self._tell("straggler", event, event.message, [n for n in [event.number("node")] if n is not None])


_READERS = {
    "failure": News._failure,
    "host-lost": News._host_lost,
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


def _by_allocation(event: Event) -> bool:
    """Say whether the coordinator of an allocation, or Slurm, tells of it: they decide, and there is no supervisor."""
    return event.text("by") in ("allocation", "slurm")


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
