"""What really runs, as read from the hosts: see host_state.py and report_reader.py.

The job's phase is derived here each time; nothing stores it.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Literal

from jobctl.jobspec.deploy.model.control import Control
from jobctl.jobspec.deploy.model.slurm_state import SlurmState
from jobctl.jobspec.deploy.model.spare_state import SpareState
from jobctl.jobspec.launcher.report.node_report import StandbyState, StartWay
from jobctl.jobspec.launcher.system.memory import tells_of_oom
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.generation import Generation, OldPlace
from jobctl.jobspec.plan.recovery import Failure
from jobctl.jobspec.records import dataclass

Phase = Literal["pending", "starting", "running", "degraded", "restarting", "succeeded", "failed", "stopped", "unknown"]
SETTLED: tuple[Phase, ...] = ("succeeded", "failed", "stopped")  # phases in which a job stays until somebody changes it
MAX_NAMED_NODES = 4  # nodes that are named one by one where many are waited for
State = Literal["pending", "starting", "running", "exited", "failed", "lost", "fenced"]


@dataclass(frozen=True, slots=True)
class ObservedProcess:
    """One process of a node, by its global rank.

    `step` is the last that it wrote to its progress file, `where` the function that it was in when it was called hung,
    `stack` the frames there, the innermost first.
    """

    rank: int
    local_rank: int
    state: State
    pid: int | None
    exit_code: int | None
    device: str | None
    step: int | None = None
    where: str | None = None
    stack: tuple[str, ...] = ()
    own_seconds: float | None = None  # that it needs in each step before it waits for others, at least


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """The report of a node's launcher. `artefact` is what it was started from, None if that cannot be told.

    `host` is empty where none was found yet. `generation` is the last one that it began, 0 for none. Times are Unix times.
    """

    node: int
    role: str
    host: str
    state: State
    artefact: ArtefactId | None = None
    launcher: int | None = None
    generation: int = 0
    exit_code: int | None = None
    reason: str | None = None
    started_at: float | None = None
    progress: int | None = None
    failure: Failure | None = None
    processes: tuple[ObservedProcess, ...] = ()
    container: str | None = None
    reachable: bool = True
    port: int | None = None  # where it hears others
    process_restarts: int = 0  # how often processes of it were started again in this generation, which went on
    restart_reason: str | None = None  # why, the last time
    stacks_written: bool = False  # whether it has written the stacks of its processes because the generation hangs
    standby: StandbyState | None = None
    start: StartWay | None = None  # how its generation was started, once all of its processes were
    paused: bool = False  # whether somebody has paused its container, or stopped its launcher on this machine

    @property
    def alive(self) -> bool:
        """Whether its launcher lives."""
        return self.launcher is not None

    @property
    def frozen_by(self) -> tuple[str, str]:
        """How somebody keeps all of it from going on, and what ends that."""
        if self.container is None:
            return "its launcher is stopped, as by SIGSTOP", "SIGCONT"
        return "its container is paused", "`docker unpause`"

    @property
    def first_pid(self) -> int | None:
        """The pid of the first of its processes that run, None if none does."""
        return next((one.pid for one in self.processes if one.state == "running" and one.pid), None)

    @property
    def broken(self) -> bool:
        """Whether it cannot go on by itself: it failed, or was stopped by someone else, as an engine does that is shut down."""
        stopped = self.state == "exited" and self.exit_code is None and not self.alive
        return stopped or self.state in ("failed", "fenced")


@dataclass(frozen=True, slots=True)
class ObservedService:
    """A service of the job: a container (on `local` a process) without a launcher."""

    name: str
    role: str
    host: str
    state: State
    artefact: ArtefactId | None = None
    container: str | None = None
    reachable: bool = True
    reason: str | None = None


@dataclass(frozen=True)  # without slots, which leave no place for what is looked up once
class Observed:
    """A whole job as seen at one moment.

    `unreachable` are the hosts that did not answer, and why; a node on one is `lost` here, which says nothing of how
    it is. `outdated` are hosts with a node of the job whose control file is not the newest. `strays` are containers of
    a node that belongs elsewhere. `owners` are all whose containers were seen. `prepared` says of each host that
    answered what was put there last for a node that may move there, None for nothing. `verdict` is how the job stands,
    and why, as somebody else says who owns its recovery: then there is neither a generation nor a supervisor of
    jobctl's, and `supervised` is None. `obstacles` says why hosts that answer cannot take what they are sent.
    """

    control: Control
    nodes: tuple[ObservedNode, ...]
    supervised: bool | None
    unreachable: Mapping[str, str] = field(default_factory=dict)
    outdated: tuple[str, ...] = ()
    strays: tuple[ObservedNode, ...] = ()
    owners: frozenset[str] = frozenset()
    services: tuple[ObservedService, ...] = ()
    prepared: Mapping[str, str | None] = field(default_factory=dict)
    verdict: tuple[Phase, str | None] | None = None
    obstacles: Mapping[str, str] = field(default_factory=dict)
    changing: bool = False  # whether a change of the job waits for hosts
    slurm: SlurmState | None = None
    spares: tuple[SpareState, ...] = ()  # hosts without a node

    @property
    def members(self) -> tuple[ObservedNode, ...]:
        """The nodes that take part in the current generation; all of them where generations are not ours."""
        if self.verdict is not None:
            return self.nodes
        generation = self.control.generation
        joined = {m.node for m in generation.members} if generation else set()
        return tuple(node for node in self.nodes if node.node in joined)

    @property
    def is_half_ended(self) -> bool:
        """Whether the job is over, as its ledger says, and nobody has told its launchers, or only they each other."""
        result, generation = self.control.ledger.result, self.control.generation
        if result is None or generation is None:
            return False
        return generation.command == "run" or (generation.ended_by_launchers and result.phase == "failed")

    @property
    def old_places(self) -> tuple[OldPlace, ...]:
        """Where nodes may still run that have yet to begin where the generation has them."""
        moves = self.control.generation.moves if self.control.generation is not None else None
        waiting = {node.node for node in self.members if node.state == "pending"}
        return tuple(place for place in moves.places if place.node in waiting) if moves is not None else ()

    def node(self, index: int) -> ObservedNode | None:
        """Return node `index`, or None if nothing of it was seen."""
        return self._by_number.get(index)

    @cached_property
    def _by_number(self) -> Mapping[int, ObservedNode]:
        return {node.node: node for node in reversed(self.nodes)}


LAUNCHER_KILLED = "its launcher was killed"
FIRST_UP = "launchers wait for the first generation; if their `up` was cut off, `jobctl up` hands it out"
GOES_BACK = (
    "`jobctl up` makes it; if nobody does, its launchers go on as before, a minute after their processes have ended"
)
CANNOT_GO_ON = "cannot go on as before"  # what launchers say that wait for somebody to finish a change
FULL = "the disk with the job's own files is full"


def phase(observed: Observed) -> tuple[Phase, str | None]:
    """Return the job's phase, and in words what it waits for or what went wrong."""
    generation, ledger = observed.control.generation, observed.control.ledger
    members = observed.members
    if observed.unreachable and not any(node.reachable for node in observed.nodes):
        return "unknown", f"{', '.join(observed.unreachable)} cannot be reached"
    if observed.verdict is not None:
        return observed.verdict
    if generation is None:
        waiting = any(node.alive for node in observed.nodes)
        return ("starting", FIRST_UP) if waiting else ("stopped", "nothing of it runs")
    if succeeded(observed):
        return "succeeded", None
    running = any(node.state in ("running", "starting") for node in members)
    if ledger.result is not None:
        ending = running and ledger.result.phase == "stopped"
        return ("running", "is being stopped") if ending else (ledger.result.phase, ledger.result.reason)
    if generation.command != "run":
        return _stopped_in_the_middle(observed, generation, running=running)
    now, reason = _unfinished(observed)
    more = [f"{host}: {words}" for host, words in observed.obstacles.items()]
    if observed.changing:
        more.append("a change waits until all hosts that it needs are ready")
    return now, "; ".join([reason, *more] if reason else more) or None


def _stopped_in_the_middle(observed: Observed, generation: Generation, *, running: bool) -> tuple[Phase, str | None]:
    """Return the phase of a job that a command has stopped, and is at work on, unless it was cut off."""
    if observed.supervised:
        return "restarting", "stopped for a change; the change goes on"
    now: Phase = "restarting" if running else "stopped"
    if generation.command == "finish":
        return now, "taken down in part: `jobctl down` takes the rest down, `jobctl up` starts it again"
    stuck = next((node.reason for node in observed.members if node.reason and CANNOT_GO_ON in node.reason), None)
    if generation.is_paused and stuck is None and all(node.alive for node in observed.members):
        return "restarting", f"stopped for a change; {GOES_BACK}"
    return now, "; ".join(
        ["stopped for a change", *([stuck] if stuck else []), "no supervisor runs: `jobctl up` goes on"]
    )


def _current(observed: Observed, node: ObservedNode) -> bool:
    generation = observed.control.generation
    return generation is not None and node.generation == generation.number


def takes_part(observed: Observed, node: ObservedNode) -> bool:
    """Say whether a node runs the current generation, or has done its part in it."""
    return _current(observed, node) and node.state in ("running", "exited") and not node.broken


def all_take_part(observed: Observed) -> bool:
    """Say whether all members of the generation are heard, and run it or have done their part in it."""
    return all(node.reachable and takes_part(observed, node) for node in observed.members)


def succeeded(observed: Observed) -> bool:
    """Say whether the job is done: what serves trainers has nothing left to do once all of them have ended well."""
    trainers = [node for node in observed.members if node.role == "trainer"]
    return bool(trainers) and all(_succeeded(observed, node) for node in trainers)


def _succeeded(observed: Observed, node: ObservedNode) -> bool:
    return node.state == "exited" and node.exit_code == 0 and _current(observed, node)


def is_behind(node: ObservedNode, generation: Generation) -> bool:
    """Say whether a node has not begun `generation` yet, though its launcher can: what it reports is of an earlier one."""
    return node.alive and node.generation < generation.number


def _unreached(observed: Observed) -> str | None:
    """Say which hosts do not have the newest generation yet, None if all have it that answer, and can start their nodes."""
    generation = observed.control.generation
    stuck = {node.host for node in observed.members if not node.alive and node.reason}  # no order is of use there
    outdated = [host for host in observed.outdated if host not in stuck]
    if generation is None or not outdated:
        return None
    again = "it is sent again until it arrives" if observed.supervised else "`jobctl up` sends it again"
    return f"{', '.join(outdated)} has not received generation {generation.number}; {again}"


def _unfinished(observed: Observed) -> tuple[Phase, str | None]:
    members, generation = observed.members, observed.control.generation
    failed = [node for node in members if node.broken and not (generation and is_behind(node, generation))]
    running = [node for node in members if takes_part(observed, node)]
    lost = [f"node {node.node}: {node.reason}" for node in members if not node.reachable]
    if failed:
        broken = [describe_failure(node).removesuffix(f"; {_awaited(node)}") for node in failed]
        words = "; ".join([*broken, *lost])
        if observed.supervised:
            return "restarting", words
        if running or any(node.alive for node in members):
            return "degraded", f"{words}; no supervisor runs: {_goes_on_alone(observed, failed)}"
        return "failed", f"{words}; nothing of it runs and no supervisor does: `jobctl up` goes on"
    if lost:
        return "degraded", "; ".join(lost)
    paused = [node for node in members if node.paused and node.state != "exited"]
    if paused:
        words = "; ".join(f"node {node.node} on {node.host}: {node.frozen_by[0]}" for node in paused)
        if observed.supervised:
            return "restarting", f"{words}; the supervisor replaces it once its lease is over"
        return "degraded", f"{words}: {paused[0].frozen_by[1]} or `jobctl restart --node` goes on"
    unreached = _unreached(observed)
    if unreached is not None:
        return "restarting" if observed.supervised else "degraded", unreached
    if len(running) == len(members) and members:
        held = (f"node {node.node}: {node.reason}" for node in running if node.state == "running" and node.reason)
        return "running", next(held, None)
    waiting = [node for node in members if not (_current(observed, node) and node.state in ("running", "exited"))]
    why = next((node.reason for node in waiting if node.reason and not node.broken), None)
    again = generation is not None and generation.number > 1 and bool(observed.control.ledger.failures)
    words = f"waits for node {', '.join(str(node.node) for node in waiting)}"
    return ("restarting" if again else "starting"), f"{words}: it {why}" if why else words


def decides_alone(observed: Observed) -> bool:
    """Say whether launchers, with nobody watching, may begin the next generation, or end the job as failed."""
    generation = observed.control.generation
    return not observed.supervised and generation is not None and generation.autonomy is not None


def _goes_on_alone(observed: Observed, failed: Sequence[ObservedNode]) -> str:
    """Say what becomes of a job with failed nodes that nobody watches, in the words of `status`."""
    if not decides_alone(observed):
        return "`jobctl up` or `jobctl supervise` goes on"
    waiting = {node.node: words for node in failed if node.alive and (words := _awaited(node))}
    if waiting:
        return "; ".join(f"node {node}: {words}" for node, words in waiting.items())
    gone = [str(node.node) for node in observed.members if node.reachable and not node.alive]
    if gone:
        return f"its launchers go on once node {', '.join(gone)} is started again, by its engine or `jobctl up`"
    lost = [str(node.node) for node in observed.members if not node.reachable]
    if lost:
        return f"its launchers go on once they hear node {', '.join(lost)}, or a hot spare has taken its place"
    return "its launchers go on by themselves, or end it"


def _awaited(node: ObservedNode) -> str | None:
    """Return what the launcher of a failed node waits for, as its report says after how the node failed; None for nothing.

    It leaves a failure to another launcher for moments only.
    """
    words = (node.reason or "").partition("; ")[2]
    return words if words and not words.startswith("leaves it to ") else None


def describe_failure(node: ObservedNode) -> str:
    """Say in a few words how a node failed."""
    failure = node.failure
    if failure is None or failure.kind == "launcher":
        return f"node {node.node}: {node.reason or 'failed'}"
    return f"node {node.node}: {failure_words(failure)}"


def failure_words(failure: Failure) -> str:
    """Say in a few words what failed, without naming the node."""
    if failure.exit_code is None or failure.kind in ("setup", "start", "exhausted"):
        return failure.reason or (LAUNCHER_KILLED if failure.kind == "launcher" else failure.kind)
    kind = "rank" if failure.role == "trainer" else failure.role
    who = "a process" if failure.rank is None else f"{kind} {failure.rank}"
    why = ": out of memory" if tells_of_oom(failure.tail) else ""
    if 0 < failure.exit_code - 128 < signal.NSIG:  # 255 is what programs choose themselves
        return f"{who} was killed by {_signal_name(failure.exit_code - 128)}{why}"
    return f"{who} exited with code {failure.exit_code}{why}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
