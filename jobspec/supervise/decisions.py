"""What a supervisor can decide, and what it knows beyond what it observes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from jobctl.jobspec.plan.generation import Standing
from jobctl.jobspec.plan.recovery import STRAGGLER, Failure
from jobctl.jobspec.records import dataclass


@dataclass(frozen=True, slots=True)
class Continue:
    """Nothing to do."""


@dataclass(frozen=True, slots=True)
class Stay(Continue):
    """Nothing to do either: a rule would have a node leave its host, and `reason` says why it stays there."""

    node: int
    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class Succeed:
    """All members ended well."""


@dataclass(frozen=True, slots=True)
class World:
    """What a supervisor knows beyond what it observes.

    `cleared` are nodes that cannot run any more although nobody can look (see liveness.py), `too_few`: half of the nodes
    are not heard, so that nobody can tell which side is cut off. `free_hosts` are hosts with room for a node, in the order in
    which they are taken, and `planned` on which host each node is to be. `least` is how many nodes the job needs, `waited` how long (seconds) it has
    waited for hosts, `settled` whether all hosts that answer have done so for a while, `unfit` are hosts that could not take a node: the last in `free_hosts`, or left alone,
    `refusing` those of them that answered, each with what it said,
    `rejoining` nodes that a generation can go on without until they are back, each with the seconds that it must stay away at least, `ending` those whose launchers end when they fail.
    `change` is what a command could not change, though all hosts that it needs answer by now. `cold_spares` are hosts
    where a launcher could wait for a node, and none does. `joining` are nodes that get ready to join, and for how many seconds they have,
    `patient` those that can get ready beside what runs. `overdue`: for how many seconds looks have found that the job's time is over. `standing`: by which plan it decides; None where nobody else can have another one.
    """

    cleared: frozenset[int] = frozenset()
    too_few: bool = False
    free_hosts: tuple[str, ...] = ()
    planned: Mapping[int, str] = field(default_factory=dict)
    least: int = 1
    waited: float = 0.0
    settled: bool = True
    unfit: frozenset[str] = frozenset()
    refusing: Mapping[str, str] = field(default_factory=dict)
    rejoining: Mapping[int, float] = field(default_factory=dict)
    ending: frozenset[int] = frozenset()
    change: str | None = None
    cold_spares: tuple[str, ...] = ()
    joining: Mapping[int, float] = field(default_factory=dict)
    patient: frozenset[int] = frozenset()
    overdue: float = 0.0
    standing: Standing | None = None


NOTHING_KNOWN = World()


@dataclass(frozen=True, slots=True)
class Restart:
    """Begin a new generation because of `failure`, after `delay` seconds.

    `moves` are new hosts of nodes, `without` nodes that are left out, `exclude` hosts that are used no more. `held`: why
    nodes could not be started, if they are tried again where they were.
    """

    cause: str
    failure: Failure
    delay: float
    moves: Mapping[int, str] = field(default_factory=dict)
    without: frozenset[int] = frozenset()
    exclude: frozenset[str] = frozenset()
    held: str | None = None

    @property
    def may_wait(self) -> bool:
        """Whether nothing has failed: if its nodes cannot move, the job goes on as it is."""
        return self.failure.kind == STRAGGLER


@dataclass(frozen=True, slots=True)
class Rejoin:
    """Start the launcher of a node again, which ended because of `failure`, after `delay` seconds; all others go on.

    `counts`: whether it is for `recovery.max_restarts`. `held`: why it could not be started so far.
    """

    cause: str
    failure: Failure
    delay: float
    counts: bool = True
    held: str | None = None


@dataclass(frozen=True, slots=True)
class Grow:
    """Begin a new generation with more nodes: there are `hosts` for them again.

    `joins`: no generation begins yet; these nodes are started, and get ready beside what runs.
    """

    cause: str
    hosts: frozenset[str] = frozenset()
    joins: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Change:
    """Make the change that a command has begun, or could not begin: all hosts that it needs answer."""

    cause: str


@dataclass(frozen=True, slots=True)
class Wait:
    """A host is gone, and nothing can be done but to wait for it; `lasting`: it is not only a matter of seconds.

    `runs`: the generation goes on meanwhile, as far as anybody can tell, so the job itself waits for nobody.
    """

    reason: str
    lasting: bool = True
    runs: bool = False


@dataclass(frozen=True, slots=True)
class Repair:
    """Start the launchers that are missing although nothing failed: a command was killed before it had.

    `spares`: hosts where those that are missing wait for a node. `held`: why they could not be started before. `runs`: a
    host is gone, and the generation goes on meanwhile, see Wait.
    """

    cause: str
    spares: tuple[str, ...] = ()
    held: str | None = None
    runs: bool = False


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End the job as failed, because of `reason`; `failure` is None where time alone ran out."""

    reason: str
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Leave:
    """There is nothing to supervise: the job has ended, was stopped, or is gone."""

    why: str


Decision = Continue | Succeed | Restart | Rejoin | Grow | Change | Repair | Wait | GiveUp | Leave
