"""The control file of a run, and the ledger beside it.

`control.json` is the Generation, exactly as `render` prints the first one. `ledger.json` is what recovery has to
remember from one generation to the next. Both lie with the job on its host, so any supervisor can go on from them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from jobctl.jobspec.deploy.files import read_json, write_atomic
from jobctl.jobspec.plan.types import Alone, Failure, Generation, Meeting, Member, Rule
from jobctl.jobspec.render.payload import control_json


@dataclass(frozen=True, slots=True)
class Result:
    """How the job ended; a later `up` begins anew."""

    phase: Literal["succeeded", "failed", "stopped"]
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class Image:
    """What the name of the job's image meant when `up` looked: restarts and spares use no other.

    `ids` are those of the hosts' engines (several, where hosts have built it themselves), `digests` how registries
    know it (`repository@sha256:…`; none for an image that was never pushed or pulled).
    """

    name: str
    ids: tuple[str, ...]
    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ledger:
    """What recovery remembers: the budget counts `failures`, which begins empty with every `up` that starts anew.

    `began` is when that was (seconds since the epoch), `code` the hash of the code that the generation runs, `excluded`
    the hosts that recovery uses no more.
    """

    began: float
    code: str | None = None
    failures: tuple[Failure, ...] = ()
    result: Result | None = None
    image: Image | None = None
    excluded: tuple[str, ...] = ()

    @property
    def shunned(self) -> tuple[str, ...]:
        """The hosts that are used no more, as long as the job has not ended."""
        return self.excluded if self.result is None else ()

    def with_failure(self, failure: Failure) -> Ledger:
        """Return the ledger with `failure` noted: of those that ended a generation, one for each."""
        others = tuple(f for f in self.failures if f.generation != failure.generation or f.alone)
        return replace(self, failures=(*others, failure))

    def with_those_of(self, generation: Generation | None) -> Ledger:
        """Return the ledger with the failures noted because of which launchers have begun generations by themselves."""
        known = {failure.generation for failure in self.failures}
        found = generation.alone.failures if generation and generation.alone else ()
        return replace(self, failures=(*self.failures, *(f for f in found if f.generation not in known)))

    def counted(self, window: float | None, now: float) -> int:
        """Return how many failures count for `recovery.max_restarts`."""
        return sum(window is None or now - failure.at <= window for failure in self.failures)


@dataclass(frozen=True, slots=True)
class Control:
    """Generation and ledger of a run, as read from its host."""

    generation: Generation | None = None
    ledger: Ledger = field(default_factory=lambda: Ledger(0.0))

    @property
    def ordered_to_end(self) -> bool:
        """Whether launchers were told to end their processes, or are to be: the job has a result, or a command changes it."""
        return self.ledger.result is not None or (self.generation is not None and self.generation.command != "run")

    @property
    def homes(self) -> dict[int, str]:
        """On which host the generation has each of its nodes; of none, nothing."""
        return {member.node: member.host for member in self.generation.members} if self.generation else {}


NOTHING = Control()


def role_of(control: Control, node: int) -> str:
    """Return the role that a node has in the generation, of one that has no part in it the usual one."""
    members = control.generation.members if control.generation else ()
    return next((member.roles[0] for member in members if member.node == node), "trainer")


def newest(controls: Iterable[Control]) -> Control:
    """Return the newest generation and the newest ledger among what several hosts hold; empty if there is none.

    Whoever handed them out may have been killed, or cut off, before all hosts had them.
    """
    every = list(controls)
    generation = max((control.generation for control in every if control.generation), key=age, default=None)
    ledger = max((control.ledger for control in every), key=_ledger_age, default=Ledger(0.0))
    return Control(generation, ledger.with_those_of(generation))


def age(generation: Generation) -> tuple[float, int, str, int]:
    """Return what grows with every order: within a generation they only go from `run` to `stop` to `finish`.

    Two who were cut off from each other may both have begun one of a number: then one of them counts, the same for all.
    """
    command = ("run", "stop", "finish").index(generation.command)
    return generation.began, generation.number, generation.rendezvous.id, command


def _ledger_age(ledger: Ledger) -> tuple[float, int, bool]:
    return ledger.began, len(ledger.failures), ledger.result is not None


def read_control(work: Path) -> Control:
    """Return the control file and ledger in the work directory `work`; empty where there is none."""
    return parse_control(read_json(work / "run" / "control.json"), read_json(work / "run" / "ledger.json"))


def parse_control(generation: dict[str, Any] | None, ledger: dict[str, Any] | None) -> Control:
    """Return what the two files say, each None where it is missing."""
    return Control(_generation(generation), _ledger(ledger))


def begun_alone(report: dict[str, Any] | None) -> Control:
    """Return the generation that launchers have begun without a supervisor, as one of them reports it; else empty."""
    return Control(_generation((report or {}).get("order")))


def write_generation(work: Path, generation: Generation) -> None:
    """Hand `generation` to the launchers of `work`."""
    write_atomic(work / "run" / "control.json", control_json(generation))


def write_ledger(work: Path, ledger: Ledger) -> None:
    """Keep `ledger`. Write it before the generation that follows from it: it is keyed by generation."""
    write_atomic(work / "run" / "ledger.json", ledger_json(ledger), 0o600)


def ledger_json(ledger: Ledger) -> bytes:
    """Return the ledger's file."""
    return (json.dumps(asdict(ledger), indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _generation(data: dict[str, Any] | None) -> Generation | None:
    if data is None:
        return None
    members = tuple(
        Member(
            *(m["node"], m["rank"], tuple(m["roles"]), m["host"], m["address"], m["nproc"], m.get("port")),
            ports=tuple(m.get("ports", ())),
        )
        for m in data["members"]
    )
    known = {k: data[k] for k in ("job", "run_id", "number", "command", "grace", "checkpoint_dir", "version")}
    known |= {k: data[k] for k in ("host_timeout", "began") if k in data}  # not in those of older versions
    alone = _alone(data["alone"]) if data.get("alone") else None
    return Generation(**known, members=members, rendezvous=Meeting(**data["rendezvous"]), alone=alone)


def _alone(data: dict[str, Any]) -> Alone:
    rules = tuple(Rule(rule["log"], rule["exit"], rule["do"]) for rule in data["rules"])
    first, last = data["ports"]
    return Alone(data["restarts"], rules, (first, last), tuple(_failure(f) for f in data["failures"]))


def _failure(data: dict[str, Any]) -> Failure:
    alike = tuple((rank, code) for rank, code in data.get("alike", ()))
    return Failure(**{**data, "tail": tuple(data["tail"]), "alike": alike})


def _ledger(data: dict[str, Any] | None) -> Ledger:
    if data is None:
        return Ledger(0.0)
    failures = tuple(_failure(f) for f in data["failures"])
    result = Result(**data["result"]) if data["result"] else None
    image = data.get("image")
    pinned = Image(image["name"], tuple(image["ids"]), tuple(image["digests"])) if image else None
    return Ledger(data["began"], data["code"], failures, result, pinned, tuple(data.get("excluded", ())))
