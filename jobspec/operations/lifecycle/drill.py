"""Drills: something of a running job is broken on purpose, and its recovery is timed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from jobctl.jobspec.deploy.apply.clock import pause
from jobctl.jobspec.operations.errors import JobFailed, Refused
from jobctl.jobspec.operations.inspect.status import observe
from jobctl.jobspec.operations.resolve.names import node_number
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Breakable, FaultTarget
    from jobctl.jobspec.deploy.model.observed import Observed

MIN_POLL_INTERVAL = 0.05  # seconds between two looks, at least
REPORTED = 0.3  # seconds until a step that was made is reported
BEGINS = 20.0  # seconds in which a node that runs has started its processes
TOLD = 10.0  # seconds in which the supervisor writes down what it has done

Witness = Literal["supervisor", "launchers", "allocation"]  # the last is the coordinator of an allocation of Slurm's
# What tells that something is broken; of the others only where the coordinator tells it.
_SIGNS = ("failure", "process-restarted")
_SIGNS_OF_MACHINES = ("host-lost", "host-failed", "waiting")


class DrillFailed(JobFailed):
    """The job ended, as `observed`, instead of going on."""

    def __init__(self, observed: Observed, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.observed = observed


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds from the fault until somebody saw it, the next generation began, all nodes ran, and a step was made.

    None where that could not be seen: without events here, without a step counter.
    """

    detected: float | None = None
    stopped: float | None = None
    running: float | None = None
    training: float | None = None


@dataclass(frozen=True, slots=True)
class Drill:
    """What was broken, and what came of it. `before` and `after` are steps; `continued`: whether from a checkpoint.

    `detected_by` is who saw it first, None if nobody has told.
    """

    victim: FaultTarget
    node: int
    host: str
    generation: int
    before: int | None
    after: int | None
    seconds: Times
    continued: bool | None
    detected_by: Witness | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """What a drill is about to break, in a job as it was last observed."""

    victim: FaultTarget
    node: int
    host: str
    observed: Observed

    @property
    def _thing(self) -> str:
        """What is killed. Nodes on this machine, and in Slurm, tell no container: their launchers are killed."""
        if self.victim == "process":
            return "a process"
        node = self.observed.node(self.node)
        return "the launcher" if node is None or node.container is None else "the container"

    @property
    def words(self) -> tuple[str, str]:
        """What the drill does, and what it did."""
        if self.victim == "host":
            what = f"that {self.host} with node {self.node} is lost"
            return f"plays {what}", f"played {what}"
        what = f"{self._thing} of node {self.node} on {self.host}"
        return f"kills {what}", f"killed {what}"


def plan_drill(deployer: Breakable, victim: FaultTarget, node: str | None) -> Fault:
    """Return what would be broken. Raises Refused if there is nothing to rehearse."""
    observed = _fit(deployer)
    taking_part = [member.node for member in observed.members]
    number = _last_trainer(observed) if node is None else node_number(deployer.plan, node, taking_part)
    host = next(member.host for member in observed.members if member.node == number)
    deadline = time.monotonic() + BEGINS
    while victim == "process" and not _has_process(observed, number) and time.monotonic() < deadline:
        pause(MIN_POLL_INTERVAL)
        observed = _fit(deployer)
    if victim == "host" and deployer.places() == (host,):
        raise Refused("the job has only one host, and goes on where it is", "nobody can know that it is lost")
    return Fault(victim, number, host, observed)


def price_of(deployer: Breakable, fault: Fault) -> str:
    """Return in words what a drill does, and what it costs."""
    plan = deployer.plan
    restart = f"one of the {plan.recovery.max_restarts} restarts of `recovery.max_restarts`" if plan else "a restart"
    return f"{fault.words[0]} of job `{deployer.job.name}`, and costs the work since its last checkpoint and {restart}"


def run_drill(deployer: Breakable, fault: Fault, seconds: float) -> Drill:
    """Break it, and wait for the recovery. Raises JobFailed if the job has not recovered in so many seconds."""
    from jobctl.jobspec.deploy.store import events

    deadline = time.monotonic() + seconds
    observed, node = fault.observed, fault.node
    generation = observed.control.generation
    number = generation.number if generation else 0
    before, rate = _step(observed), _rate(observed)
    _, offset = events.read(deployer.job.events)
    struck = time.time()
    deployer.inject_fault(node, fault.victim)
    back = _recovery(deployer, _Before(number, node, _life(observed, node), before is not None), deadline)
    told = _told(deployer, offset, begins=back.generation > number)
    sign = _sign(told, struck)
    times = Times(
        None if sign is None else round(sign["time"] - struck, 2),
        _first(told, ("generation",), struck),
        round(back.running - struck, 2),
        round(back.seen - struck, 2) if back.step is not None else None,
    )
    continued = _continued(before, back.step, rate * (back.gap + REPORTED))
    witness = None if sign is None else _witness(sign, observed)
    return Drill(fault.victim, node, fault.host, number, before, back.step, times, continued, witness)


def _has_process(observed: Observed, number: int) -> bool:
    """Say whether a node has a process that could be killed: it runs a moment before it reports those that it starts."""
    node = observed.node(number)
    return node is not None and node.first_pid is not None


def _last_trainer(observed: Observed) -> int:
    return max(node.node for node in observed.members if node.role == "trainer")


def _fit(deployer: Breakable) -> Observed:
    """Look at the job. Raises Refused if there is nothing to rehearse."""
    from jobctl.jobspec.deploy.model.observed import phase

    name, observed = deployer.job.name, deployer.observe()
    now, reason = phase(observed)
    if now != "running":
        raise Refused(f"job `{name}` is {now}: a drill needs one that runs", reason)
    if observed.supervised is False:
        raise Refused(
            f"job `{name}` has no supervisor: a drill shows how one recovers a job", f"`jobctl up {name}` starts it"
        )
    homes = {node.host for node in observed.members}  # a full spare, or a host that the job has left, stops nothing
    full = {host: words for host, words in observed.obstacles.items() if host in homes}
    if full:
        why = "; ".join(f"{host}: {words}" for host, words in sorted(full.items()))
        raise Refused(f"job `{name}` could not recover from a drill: {why}", "make room there first")
    return observed


def _told(deployer: Breakable, offset: int, *, begins: bool) -> list[dict[str, Any]]:
    """Return what was told since; who has told of the failure tells of the generation, too.

    Unless none `begins`.
    """
    from jobctl.jobspec.deploy.store import events

    deadline = time.monotonic() + TOLD
    while True:
        deployer.events().gather()
        told, _ = events.read(deployer.job.events, offset)
        kinds = {event["event"] for event in told}
        if not begins or "failure" not in kinds or "generation" in kinds or time.monotonic() >= deadline:
            return told
        pause(MIN_POLL_INTERVAL)


@dataclass(frozen=True, slots=True)
class _Before:
    """The job before it was harmed: its generation, the node that is struck and the life it was in, whether it counts steps."""

    generation: int
    node: int
    life: object
    counts: bool


@dataclass(frozen=True, slots=True)
class _Back:
    """The job after it was harmed: since when it runs, when its first `step` was seen, and for how long nobody had looked."""

    generation: int
    running: float
    seen: float
    gap: float
    step: int | None


def _recovery(deployer: Breakable, was: _Before, deadline: float) -> _Back:
    """Wait until the job has recovered, and has made a step if it counts them.

    It has when all nodes run a later generation. Where nodes join again by themselves (Paddle with etcd, parameter servers)
    none begins: then it has when the node that was struck runs other processes than before, and so do the others.
    """
    from jobctl.jobspec.deploy.model.observed import phase

    name, running, last, stale, observed = deployer.job.name, None, time.time(), None, None
    for observed in _looks(deployer, deadline):
        current = observed.control.generation
        number = current.number if current else 0
        begun = number > was.generation
        if not begun and phase(observed)[0] == "succeeded" and running is None:
            raise Refused(f"job `{name}` ended well before the drill could harm it")
        runs = all(m.generation == number and m.state in ("running", "exited") for m in observed.members)
        if not runs or not (begun or _lives_again(observed, was)):
            running = running if begun else None
            continue  # what they report is of before
        step = _step(observed) if begun else _step_of(observed, was.node)
        if running is None:
            running = time.time()
            stale = None if begun else step  # in the same generation the last report of the old processes stays
        if not was.counts or (step is not None and step != stale):
            return _Back(number, running, time.time(), time.time() - last, step)
        last = time.time()
    raise _not_recovered(name, observed)


def _not_recovered(name: str, observed: Observed | None) -> JobFailed:
    """Return the error of a drill whose time is over, with what the last look says of the job."""
    from jobctl.jobspec.deploy.model.observed import phase

    now, reason = phase(observed) if observed is not None else (None, None)
    message = f"job `{name}` has not recovered in time"
    if now == "unknown":
        message = f"whether job `{name}` has recovered is not known"
    return JobFailed(f"{message}: {reason}" if reason else message, f"`jobctl status {name}`, `jobctl events {name}`")


def _life(observed: Observed, number: int) -> object:
    """Return what tells the processes of a node that run now from any that are started later."""
    node = observed.node(number)
    return node and (node.container, node.started_at, node.process_restarts, tuple(p.pid for p in node.processes))


def _lives_again(observed: Observed, was: _Before) -> bool:
    """Say whether the node that was struck runs, with other processes than before."""
    node = observed.node(was.node)
    if node is None or not node.processes or _life(observed, was.node) == was.life:
        return False
    return all(p.state == "exited" or (p.state == "running" and p.pid) for p in node.processes)


def _looks(deployer: Breakable, deadline: float) -> Iterator[Observed]:
    """Look again and again until the deadline, also where no host answers. Raises DrillFailed if the job ends badly."""
    from jobctl.jobspec.deploy.model.observed import SETTLED, phase

    name = deployer.job.name
    while time.monotonic() < deadline:
        observed = observe(deployer)
        now, reason = phase(observed)
        if now in SETTLED and now != "succeeded":
            raise DrillFailed(observed, f"job `{name}` {now}: {reason}", "it did not survive the drill")
        yield observed
        pause(max(MIN_POLL_INTERVAL, deployer.interval / 4))


def _step(observed: Observed) -> int | None:
    return max((node.progress for node in observed.members if node.progress is not None), default=None)


def _step_of(observed: Observed, number: int) -> int | None:
    node = observed.node(number)
    return node.progress if node is not None else None


def _rate(observed: Observed) -> float:
    """Return how many steps a second the job makes, rather too many: what it has made since it began, four times."""
    began = min((node.started_at for node in observed.members if node.started_at), default=None)
    step = _step(observed)
    return 0.0 if began is None or step is None else 4 * step / max(1.0, time.time() - began)


def _sign(told: list[dict[str, Any]], since: float) -> dict[str, Any] | None:
    """Return the first event that tells of the fault."""
    signs = (e for e in told if e["event"] in (_SIGNS_OF_MACHINES if e.get("by") == "allocation" else _SIGNS))
    return min((e for e in signs if e["time"] >= since), key=lambda event: event["time"], default=None)


def _witness(sign: dict[str, Any], observed: Observed) -> Witness:
    """Return who told of a fault. Where a job has a supervisor, that does; in an allocation of Slurm's there is none."""
    if observed.supervised:
        return "supervisor"
    return "allocation" if sign.get("by") == "allocation" else "launchers"


def _first(told: list[dict[str, Any]], kinds: tuple[str, ...], since: float) -> float | None:
    found = (event["time"] for event in told if event["event"] in kinds and event["time"] >= since)
    at = next(found, None)
    return None if at is None else round(at - since, 2)


def _continued(before: int | None, after: int | None, unseen: float) -> bool | None:
    """Say whether training went on from a checkpoint; None where that cannot be told from the steps.

    `unseen` is how many steps may have been made since the last look that saw none, at the rate before the fault.
    """
    if before is None or after is None:
        return None
    from_zero = 1 + unseen  # as far as it may have come, had it begun from zero
    if after > from_zero:
        return True
    return False if before > from_zero else None
