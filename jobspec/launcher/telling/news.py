"""Which events of a job are news for people. Pure, and one for all: supervisors tell, and launchers where none does.

The log repeats itself: a supervisor that was killed leaves the next one to record the same failure, or the same reason
to wait, again. So what was told before decides too, and is kept in `Told`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.records import changed, record
from jobctl.jobspec.launcher.telling.notification import Notification, id_of_message
from jobctl.jobspec.launcher.telling.words import LATEST, counted, in_words

if TYPE_CHECKING:
    from typing import Any, FrozenSet, Iterable, List, Optional, Tuple

    from jobctl.jobspec.launcher.system.files import Json

MOST_NAMED = 8  # failures that one message names: the first ones and the last ones


@record
class Happened:
    """One line of a log of events; `at` is in seconds since the epoch, `details` is all else that it says."""

    at: float
    kind: str
    message: str
    details: Json

    def number(self, key: str) -> Optional[int]:
        """Return the detail `key` if it is a number of something."""
        return count_in(self.details.get(key))

    def text(self, key: str) -> Optional[str]:
        """Return the detail `key` if it is text."""
        value = self.details.get(key)
        return value if isinstance(value, str) else None


def count_in(value: object) -> Optional[int]:
    """Return `value` if it is a number of something, otherwise None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None


def counts_in(value: object) -> List[int]:
    """Return the numbers in a list, none if it is something else."""
    return [n for n in map(count_in, value) if n is not None] if isinstance(value, list) else []


def happened(line: Any) -> Optional[Happened]:
    """Return a line of a log, as parsed from JSON, None if it cannot be read."""
    at = line.get("time") if isinstance(line, dict) else None
    if not isinstance(at, (int, float)) or isinstance(at, bool) or not 0 <= at < LATEST:
        return None
    details = {key: value for key, value in line.items() if key not in ("time", "event", "message")}
    return Happened(float(at), str(line.get("event", "")), str(line.get("message", "")), details)


@record
class Mishap:
    """One failure, in the generation in which it happened; of `kind` `wait`: the job waits."""

    generation: int
    kind: str
    text: str
    nodes: Tuple[int, ...]

    def is_same(self, other: Mishap) -> bool:
        """Say whether it is another record of `other`, by a supervisor whose predecessor was killed."""
        return (self.generation, self.kind, self.nodes) == (other.generation, other.kind, other.nodes)


@record
class Trouble:
    """Failures that the job has not recovered from yet, the last one last; since when. `more` are not kept."""

    at: float
    mishaps: Tuple[Mishap, ...]
    more: int = 0

    @property
    def generation(self) -> int:
        """The newest generation that has failed."""
        return max(one.generation for one in self.mishaps)

    @property
    def nodes(self) -> Tuple[int, ...]:
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
            texts.insert(MOST_NAMED // 2, counted(self.more, "more failure"))
        return "; then ".join(texts)

    def joined(self, at: float, mishaps: Tuple[Mishap, ...], more: int = 0) -> Trouble:
        """Return it with further failures, which began at `at`: an event may be read late."""
        every = (*self.mishaps, *mishaps)
        kept = every if len(every) <= MOST_NAMED else (*every[: MOST_NAMED // 2], *every[-MOST_NAMED // 2 :])
        return Trouble(min(self.at, at), kept, self.more + more + len(every) - len(kept))

    def before(self, generation: int) -> Trouble:
        """Return it as trouble that a generation of this number ends."""
        mishaps = tuple(changed(one, generation=min(one.generation, generation - 1)) for one in self.mishaps)
        return changed(self, mishaps=mishaps)


@record
class Begun:
    """The generation in which all nodes ran last, since when, and when its job was brought up.

    `told`: whether a message says that the job has recovered in it.
    """

    number: int
    at: float
    run: str
    told: bool = False

    @property
    def id(self) -> str:
        """The id of the event that it has begun."""
        return f"{self.run} generation-begun {self.number}"

    def is_after(self, event: Happened, generation: int) -> bool:
        """Say whether a failure of that generation was over when its event was read, which a launcher had kept."""
        return self.number > generation and _run_of(event) == self.run


def _run_of(event: Happened) -> Optional[str]:
    """Return when the job was brought up that an event of a launcher is about, None of all other events."""
    return (event.text("id") or "").partition(" ")[0] or None


@record
class Told:
    """What is known of a job after some of its events. `waiting` is the reason to wait, `lost` are nodes of lost hosts."""

    generation: Optional[int] = None
    ended: bool = False
    trouble: Optional[Trouble] = None
    apart: Tuple[Trouble, ...] = ()  # of nodes that begin again alone, while the others go on
    begun: Optional[Begun] = None
    waiting: Optional[str] = None
    away: FrozenSet[int] = frozenset()  # the nodes because of which it waits
    lost: FrozenSet[int] = frozenset()

    @property
    def troubles(self) -> Optional[Trouble]:
        """All that the job has not recovered from, None if there is nothing."""
        every = sorted([*self.apart, *([self.trouble] if self.trouble else [])], key=lambda one: one.at)
        found = every[0] if every else None
        for one in every[1:]:
            found = found.joined(one.at, one.mishaps, one.more) if found else one
        return found


class News:
    """Reads events one after the other; `found` are the messages that they make.

    `by_launchers`: a launcher reads them, where nobody watches.
    """

    def __init__(self, job: str, run: str, told: Optional[Told] = None, by_launchers: bool = False) -> None:
        self.job, self.run, self.told, self.by_launchers = job, run, told or Told(), by_launchers
        self.found: List[Notification] = []

    def read(self, lines: Iterable[Any]) -> None:
        """Read lines of the event log, as parsed from JSON."""
        for event in map(happened, lines):
            if event is not None:
                self._read(event)

    def _read(self, event: Happened) -> None:
        number, asked = event.number("generation"), event.kind == "step" and event.text("step") == "generation"
        if number is not None and (event.kind == "generation" or asked):
            self._begins(number, asked=asked)
        elif event.kind in _READERS:
            _READERS[event.kind](self, event)

    def _tell(
        self, what: str, event: Happened, text: str, nodes: Iterable[int] = (), cost: Optional[float] = None
    ) -> None:
        # What has an id is the same for all that tell of it: other launchers, the next supervisor, and after `up --fresh`.
        known = event.text("id")
        facts = (known,) if known is not None else (self.run, repr(event.at), event.message)
        ident = id_of_message(self.job, what, *facts)
        where = tuple(sorted(nodes))
        text = text.encode(errors="replace").decode()  # a log line may hold half a character
        generation = self.told.generation if self.told.generation is not None else event.number("generation")
        self.found.append(Notification(ident, self.job, self.run, what, event.at, generation, text, where, cost))

    def _begins(self, number: int, *, asked: bool) -> None:
        told = self.told
        if asked and told.ended:  # a person has seen how it ended
            told = changed(told, trouble=None, apart=())
        elif asked and told.troubles is not None:  # it may count from 1 again: it was taken down elsewhere
            trouble = told.troubles
            told = changed(told, trouble=trouble.before(number), apart=())
        elif number == told.generation and not told.ended:
            return
        self.told = changed(told, generation=number, ended=False)

    def _failure(self, event: Happened) -> None:
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
            self._recovered_before(event, Trouble(event.at, (one,)), begun)

    def _recovered_before(self, event: Happened, trouble: Trouble, begun: Begun) -> None:
        """Tell of trouble that was over when its event was read, with the id by which those tell who knew it in time."""
        details = event.details if begun.told else {**event.details, "id": begun.id}
        self._recovered(Happened(max(event.at, begun.at), event.kind, event.message, details), trouble, begun.number)
        self.told = changed(self.told, begun=changed(begun, told=True))

    def _fails(self, event: Happened, one: Mishap) -> bool:
        """Take note of a failure because of which all nodes begin again; say whether it is news."""
        before = self.told.trouble
        if before is not None and any(one.is_same(other) for other in before.mishaps):
            return False
        trouble = Trouble(event.at, (one,)) if before is None else before.joined(event.at, (one,))
        self.told = changed(self.told, trouble=trouble, waiting=None)
        return True

    def _fails_alone(self, event: Happened, one: Mishap) -> bool:
        """Take note of a node that begins again alone, however many others do, too."""
        apart = {trouble.nodes: trouble for trouble in self.told.apart}
        before = apart.get(one.nodes)
        if before is not None and one in before.mishaps:
            return False
        apart[one.nodes] = Trouble(event.at, (one,)) if before is None else before.joined(event.at, (one,))
        self.told = changed(self.told, apart=tuple(apart.values()), waiting=None)
        return True

    def _lost(self, event: Happened, nodes: Iterable[int]) -> None:
        self.told = changed(self.told, lost=self.told.lost | frozenset(nodes))
        self._tell("host-lost", event, event.message, nodes)

    def _host_lost(self, event: Happened) -> None:
        """Tell of a machine that the coordinator of an allocation has given up. Others tell of that by a failure."""
        if _by_allocation(event):
            self._lost(event, [node for node in [event.number("node")] if node is not None])

    def _waiting(self, event: Happened) -> None:
        if event.details.get("lasting") is not True or event.message == self.told.waiting:
            return
        of_launchers = event.text("id") is not None and not _by_allocation(event)
        if of_launchers and not self.by_launchers:
            return  # a launcher waited that nobody reached: whether the job still does, the supervisor finds out itself
        away = frozenset(counts_in(event.details.get("nodes")))
        wait = Mishap(self.told.generation or 0, "wait", event.message, tuple(sorted(away)))
        trouble = self.told.trouble or Trouble(event.at, (wait,))
        self.told = changed(self.told, waiting=event.message, away=away, trouble=trouble)
        if away - self.told.lost and not of_launchers:  # they only have not heard it
            self._lost(event, away)
        self._tell("waiting", event, event.message, away)

    def _node(self, event: Happened) -> None:
        """Take note of a node that runs again."""
        node, told = event.number("node"), self.told
        if event.text("state") != "running" or node is None:
            return
        away, lost = told.away - {node}, told.lost - {node}
        waiting = told.waiting if away or not told.away else None
        self.told = changed(told, away=away, lost=lost, waiting=waiting)
        if told.trouble is not None and told.trouble.waits and node in told.away and not away:
            self._recovered(event, told.trouble)
            self.told = changed(self.told, trouble=None)
        for trouble in told.apart:
            if node in trouble.nodes:
                self._recovered(event, trouble)
        self.told = changed(self.told, apart=tuple(one for one in told.apart if node not in one.nodes))

    def _goes_on(self, event: Happened) -> None:
        """Take note that the job waits no longer, though no generation has begun: nodes may have run all the time."""
        trouble = self.told.trouble
        if trouble is not None and trouble.waits:
            took = in_words(max(0.0, event.at - trouble.at))
            self._tell("recovered", event, f"{trouble.words}. That was over after {took}.", trouble.nodes)
            self.told = changed(self.told, trouble=None)
        self.told = changed(self.told, waiting=None, away=frozenset())

    def _generation_runs(self, event: Happened) -> None:
        number, trouble = event.number("generation"), self.told.troubles
        over = trouble is not None and number is not None and number > trouble.generation
        if number is not None and (run := _run_of(event)) is not None:
            self.told = changed(self.told, begun=Begun(number, event.at, run, over))
        if trouble is not None and over:
            self._recovered(event, trouble, number)
            self.told = changed(self.told, trouble=None, apart=())
        self.told = changed(self.told, waiting=None, away=frozenset())

    def _recovered(self, event: Happened, trouble: Trouble, number: Optional[int] = None) -> None:
        cost, number = max(0.0, event.at - trouble.at), self.told.generation if number is None else number
        text = f"{trouble.words}. It runs again after {in_words(cost)}, in generation {number}."
        self._tell("recovered", event, text, trouble.nodes, cost)

    def _process_restarted(self, event: Happened) -> None:
        self._tell("recovered", event, event.message, [n for n in [event.number("node")] if n is not None])

    def _ends(self, event: Happened) -> None:
        """Tell how the job ended; `down` says so where no supervisor had the time to."""
        phase = event.text("phase") if event.kind == "down" else event.kind
        if not self.told.ended and phase in ("failed", "succeeded"):
            trouble, reason = self.told.troubles, event.text("reason")
            text = event.message if event.kind != "down" else f"job {phase}: {reason}" if reason else f"job {phase}"
            if trouble is not None and trouble.words not in text:
                text += f". Before that: {trouble.words}"
            if event.text("ends") is not None:  # launchers may have told it
                event = changed(event, details={**event.details, "id": event.text("ends")})
            self._tell(phase, event, text, trouble.nodes if trouble and phase == "failed" else ())
        self.told = Told(self.told.generation, ended=True)

    def _straggler(self, event: Happened) -> None:
        self._tell("straggler", event, event.message, [n for n in [event.number("node")] if n is not None])


_READERS = {
    "failure": News._failure,
    "host-lost": News._host_lost,
    "waiting": News._waiting,
    "goes-on": News._goes_on,
    "node": News._node,
    "generation-begun": News._generation_runs,
    "process-restarted": News._process_restarted,
    "failed": News._ends,
    "succeeded": News._ends,
    "stopped": News._ends,
    "down": News._ends,
    "straggler": News._straggler,
}


def _by_allocation(event: Happened) -> bool:
    """Say whether the coordinator of an allocation, or Slurm, tells of it: they decide, and there is no supervisor."""
    return event.text("by") in ("allocation", "slurm")


def _or(value: Optional[int], default: int) -> int:
    return default if value is None else value
