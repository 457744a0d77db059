"""The control file of a run, and the ledger beside it.

`control.json` is the Generation, exactly as `render` prints the first one. `ledger.json` is what recovery has to
remember from one generation to the next. Both lie with the job on its host, so any supervisor can go on from them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, field, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

from jobctl.jobspec.deploy.model.untrusted import Json
from jobctl.jobspec.launcher.order.control import age_of
from jobctl.jobspec.launcher.order.order import EARLIER
from jobctl.jobspec.plan.generation import AutonomyTerms, Generation
from jobctl.jobspec.plan.recovery import STRAGGLER, UNTOLD, Failure
from jobctl.jobspec.plan.serial import load
from jobctl.jobspec.records import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JobResult:
    """How the job ended; a later `up` begins again."""

    phase: Literal["succeeded", "failed", "stopped"]
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class Image:
    """What the name of the job's image meant when `up` looked: restarts and spares use no other.

    `ids` are those of the hosts' engines (several, where hosts have built it themselves, or store it in different ways), and
    of its content, by which all engines know it (`image_content`). `digests` how registries
    know it (`repository@sha256:…`; none for an image that was never pushed or pulled).
    """

    name: str
    ids: tuple[str, ...]
    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ledger:
    """What recovery remembers: the budget counts `failures`, which begins empty with every `up` that starts from nothing.

    `began` is when that was (seconds since the epoch), `code` the hash of the code that the generation runs, `excluded`
    the hosts that recovery uses no more.
    """

    began: float
    code: str | None = None
    failures: tuple[Failure, ...] = ()
    result: JobResult | None = None
    image: Image | None = None
    excluded: tuple[str, ...] = ()

    @property
    def excluded_hosts(self) -> tuple[str, ...]:
        """The hosts that are used no more, as long as the job has not ended."""
        return self.excluded if self.result is None else ()

    def renewed(self, now: float, code: str | None, image: Image | None) -> Ledger:
        """Return the ledger of a new budget that begins `now`.

        It is newer than this one, also where another machine wrote that, whose clock is ahead. Otherwise a job that was
        brought up again would still count as stopped.
        """
        return Ledger(max(now, self.began + BUDGET_STEP), code, image=image)

    def with_failure(self, failure: Failure, now: float | None = None) -> Ledger:
        """Return the ledger with `failure`, noted `now`: of those that ended a generation, one for each."""
        others = tuple(f for f in self.failures if f.generation != failure.generation or f.alone)
        return replace(self, failures=(*others, replace(failure, noted=now)))

    def with_those_of(self, generation: Generation | None) -> Ledger:
        """Return the ledger with what launchers have decided by themselves: failures, and that the job has failed."""
        known = {failure.generation for failure in self.failures}
        terms = generation.autonomy if generation else None
        found = terms.failures if terms else ()
        more = (*self._untold(terms), *(f for f in found if f.generation not in known)) if terms else ()
        ledger = replace(self, failures=self.failures + more) if more else self
        if generation is None or generation.why is None or self.result is not None:
            return ledger
        at = max((failure.at for failure in found), default=generation.began)
        return replace(ledger, result=JobResult("failed", generation.why, at))

    def _untold(self, terms: AutonomyTerms) -> Iterator[Failure]:
        """Yield the failures that launchers only count, except those that were noted while launchers still told of them."""
        earlier = terms.earlier
        if earlier is None or not terms.failures:
            return
        # Each of these generations has ended by one failure.
        numbers = range(earlier.first, terms.failures[0].generation)
        noted = {f.generation: round(f.at, 3) for f in self.failures if f.generation in numbers and not f.alone}
        timed = [at for at in earlier.at if at not in noted.values()]
        left = earlier.count - (len(noted) - (len(earlier.at) - len(timed)))
        times = [terms.failures[0].at] * left + timed
        free = [number for number in numbers if number not in noted]
        for number, at in zip(free[max(0, len(free) - len(times)) :], times, strict=False):
            yield Failure(number, at, -1, "", None, None, UNTOLD, None, 0.0)

    def counting(self, window: float | None, now: float) -> tuple[Failure, ...]:
        """Return the failures that count for `recovery.max_restarts`. A node that was only slow has not failed."""
        failed = (failure for failure in self.failures if failure.kind != STRAGGLER)
        return tuple(failure for failure in failed if window is None or now - failure.counts_from <= window)

    def counted(self, window: float | None, now: float) -> int:
        """Return how many these are."""
        return len(self.counting(window, now))


@dataclass(frozen=True)  # without slots, which leave no place for what is looked up once
class Control:
    """Generation and ledger of a run, as read from its host."""

    generation: Generation | None = None
    ledger: Ledger = field(default_factory=lambda: Ledger(0.0))

    @property
    def ordered_to_end(self) -> bool:
        """Whether launchers were told to end their processes, or are to be: the job has a result, or a command changes it."""
        return self.ledger.result is not None or (self.generation is not None and self.generation.command != "run")

    @cached_property
    def placement(self) -> Mapping[int, str]:
        """On which host the generation has each of its nodes; of none, nothing."""
        return {member.node: member.host for member in self.generation.members} if self.generation else {}


BUDGET_STEP = 0.001  # seconds by which a budget is newer than the one before, at least
NOTHING = Control()
VERSION = 1  # of the control file, as Generation has it; a ledger says none


def role_of(control: Control, node: int) -> str:
    """Return the role that a node has in the generation, of one that has no part in it the usual one."""
    members = control.generation.members if control.generation else ()
    return next((member.roles[0] for member in members if member.node == node and member.roles), "trainer")


def newest(controls: Iterable[Control]) -> Control:
    """Return the newest generation and the newest ledger among what several hosts hold; empty if there is none.

    The process that handed them out may have been killed, or cut off, before all hosts had them.
    """
    every = list(controls)
    generation = max((control.generation for control in every if control.generation), key=age, default=None)
    ledger = max((control.ledger for control in every), key=_ledger_age, default=Ledger(0.0))
    return Control(generation, ledger.with_those_of(generation))


def age(generation: Generation) -> tuple[Any, ...]:
    """Return what grows with every order, as launchers have it."""
    base = None if generation.base is None else (generation.base.number, generation.base.id)
    moved = generation.autonomy.moved.times if generation.autonomy and generation.autonomy.moved else 0
    own = generation.number, generation.rendezvous.id
    return age_of(generation.began, own, base, generation.command, moved, generation.pause)


def _ledger_age(ledger: Ledger) -> tuple[float, int, bool]:
    return ledger.began, len(ledger.failures), ledger.result is not None


class Unreadable(Exception):
    """A file of the run that cannot be read: its name below `run`, and what is wrong with it."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"{file}: {why}")
        self.file, self.why = file, why

    def error(self, place: str) -> str:
        """Return the sentence about the file, which is in `place`."""
        return f"cannot read {place}/{self.file}, written by another version of jobctl, or damaged: {self.why}"


def parse_control(generation: Json | None, ledger: Json | None) -> Control:
    """Return what the two files say, each None where it is missing. Raises Unreadable."""
    if generation is not None and EARLIER in generation:
        generation = {"autonomy": generation[EARLIER], **generation}
    return Control(
        _load(Generation, "control.json", generation) if generation is not None else None,
        _load(Ledger, "ledger.json", ledger) if ledger is not None else Ledger(0.0),
    )


def kept_control(generation: Json | None, ledger: Json | None = None) -> Control:
    """Return what our own copies of the two files say; what another version has kept counts as nothing."""
    try:
        return parse_control(generation, ledger)
    except Unreadable:
        return NOTHING


def begun_by_launchers(report: Json | None) -> Control:
    """Return the generation that launchers have begun without a supervisor, as one of them reports it; otherwise empty."""
    order = (report or {}).get("order")
    return kept_control(order) if isinstance(order, dict) else NOTHING


def _load(kind: type[T], file: str, data: Json) -> T:
    version = data.get("version", VERSION)
    if version != VERSION:
        raise Unreadable(file, f"it has version {version!r}, and this jobctl knows {VERSION}")
    try:
        return load(kind, data)
    except ValueError as error:
        raise Unreadable(file, str(error)) from error


def ledger_json(ledger: Ledger) -> bytes:
    """Return the ledger's file."""
    return (json.dumps(asdict(ledger), indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
