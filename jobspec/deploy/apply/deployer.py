"""What commands and the supervisor do with a job, whatever it runs on: a `Handle`, which some targets add to.

`Local` runs the nodes as processes of this machine, `Hosts` in containers of others: their recovery is jobctl's, so they
are each a `Deployer`. tests/contract holds both to it. In a `Cluster` its controllers recover the job: that is
`Enterable`. In a `SlurmAllocation` the launchers do: that is `Breakable`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.model.control import Control, Image, Ledger
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.store.events import Events
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.generation import Generation, HotSpare
from jobctl.jobspec.plan.sent import Dataset
from jobctl.jobspec.plan.types import Node, Plan
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.fitness_mode import FitnessMode

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.model.finding import Finding
    from jobctl.jobspec.deploy.model.liveness import FailureDetector
    from jobctl.jobspec.deploy.model.log_lines import LineSelection, Reader
    from jobctl.jobspec.deploy.transport.base import RunningCommand, TerminalSize

Verb = Literal["stop", "pause", "finish"]  # what launchers are told; a pause is a stop for a change
FaultTarget = Literal["process", "container", "host"]  # what `inject_fault` kills, or plays the loss of
BLACKOUT = 30.0  # seconds beyond `host_timeout` for which a host that is struck plays dead
Failures = Mapping[str, DeployError]  # by the names of the hosts that could not do it


@dataclass(frozen=True, slots=True)
class RuntimeInputs:
    """What processes get at run time only: `up`'s environment, and the values of secrets by name."""

    environ: Mapping[str, str]
    secrets: Mapping[str, str]


class Feed(Protocol):
    """What the hosts of a job tell its supervisor by themselves; `detector` knows who was heard, and answers launchers."""

    detector: FailureDetector

    def wait(self, seconds: float) -> None:
        """Return when something changed, or after `seconds`."""

    def refresh(self) -> None:
        """Read all hosts again soon, whatever they tell."""

    def observe(self) -> Observed:
        """Return the job as last heard of. Raises DeployError if not a single host is heard."""


class AllUnreachable(HostError):
    """Not a single host answers; `failures` says why, for each, and `observed` that nothing is known."""

    def __init__(self, failures: Failures, observed: Observed, message: str = "no host answers") -> None:
        host = next(iter(failures))
        super().__init__(host, "unreachable", message)
        self.message = message
        self.failures, self.observed = failures, observed


@dataclass(frozen=True, slots=True)
class NodePlace:
    """Where a node is now. `problem`: why its host does not answer, None if it does; `here`: its loopback address is ours."""

    host: str
    problem: str | None = None
    here: bool = False


class NodePorts(Protocol):
    """The TCP ports of a job's nodes (by number) and services (by name), wherever these are now; for several threads."""

    def place(self, node: int | str) -> NodePlace:
        """Return where a node is. Raises NothingToEnter if it is nowhere now, DeployError if the job has no such node."""

    def dial(self, node: int | str, port: int) -> Any:
        """Return something like a socket that is connected to a port of a node. Raises DeployError (PortClosed, …)."""


class NodeSession(Protocol):
    """The inside of a node as it runs now: if the node begins again, a new session is needed. For several threads.

    `python` is the interpreter there.
    """

    python: str

    def start(self, argv: Sequence[str], environ: Mapping[str, str], terminal: TerminalSize | None) -> RunningCommand:
        """Start a command there, with more variables, and a terminal or pipes. Raises DeployError (CannotRun, …)."""

    def dial(self, port: int) -> Any:
        """Return something like a socket that is connected to a port of its loopback address. Raises DeployError."""

    def why_gone(self) -> str | None:
        """Ask whether it is still there, which may take a while; return why it is not, None as long as it may be."""


class Handle(Protocol):
    """One job in the world, to be looked at, read, entered and taken down.

    `plan` is what the job was last brought up with (None: not known here), `interval` how many seconds to wait between
    two looks. `tell` gets a sentence about whatever takes long.
    """

    job: JobDir
    tell: Callable[[str], None]
    plan: Plan | None
    interval: float

    @property
    def failures(self) -> Failures:
        """Why hosts did not answer when last observed."""

    def places(self) -> tuple[str, ...]:
        """Return the names of all hosts that the job may be on; a cluster counts as one."""

    def has_files(self) -> bool:
        """Say whether the job left something somewhere, even if none of it runs, as last observed."""

    def observe(self) -> Observed:
        """Read what runs now. Raises AllUnreachable if not a single host can tell."""

    def owners(self, observed: Observed) -> frozenset[str]:
        """Return the owners of the job, as it was observed, and of what is left of it."""

    def lock(self, command: str, *, break_it: bool = False) -> AbstractContextManager[object]:
        """Hold the job's lock while steps are applied. Raises Locked if someone else keeps it for 30 s.

        A command that is stopped, as by Ctrl-Z, may lose it: it then changes nothing more of the job, see `check_here`.
        """

    def check_here(self) -> None:
        """Raise LockLost if we have lost the lock on this machine: someone else may be at work now."""

    def take_down(self, grace: float) -> tuple[Path | None, Failures]:
        """End and remove everything but logs, outputs and checkpoints; return where the logs went."""

    def preflight(self, plan: Plan | None, hosts: Iterable[str], *, deep: bool = False) -> list[Finding]:
        """Check whether hosts are fit for the job (None: for any); finds everything that is wrong, and changes nothing."""

    def logs(self, selection: LineSelection, last: int | None = None) -> Reader | None:
        """Return what reads the chosen logs (with `last` so many lines of each), None if the job has none any more."""

    def events(self) -> Events:
        """Return what reads what happened to the job."""

    def enter(self, node: int | str, argv: Sequence[str]) -> int:
        """Run a command inside of a running node (a number) or service (a name), with the terminal if there is one; return its exit code."""

    def ports(self) -> AbstractContextManager[NodePorts]:
        """Follow where nodes are for the length of the block. Raises AllUnreachable if not a single host can tell."""

    def fetch(self, into: Path) -> Mapping[str, int]:
        """Copy logs and outputs below `into`; return how many of what (`files`, `logs`, …) that was."""

    def close(self) -> None:
        """Let go of all connections."""


class Enterable(Handle, Protocol):
    """One job whose nodes SSH clients enter."""

    def session(self, node: int) -> NodeSession:
        """Return the inside of a running node. Raises NothingToEnter if it does not run now."""


class Breakable(Handle, Protocol):
    """One job in which a drill can break something."""

    def inject_fault(self, node: int, what: FaultTarget) -> None:
        """SIGKILL the first process of a node, or all of it at once, as a fault would. Raises DeployError.

        A `host` is lost for a while: neither its launchers nor it itself are heard, for BLACKOUT seconds beyond `host_timeout`.
        """


class Deployer(Breakable, Enterable, Protocol):
    """One job whose recovery is ours. A failure on one host is reported for that host and does not keep the others from going on.

    `image` is what the last `prepare` found its image to be (None: nothing was prepared, or there are no images).
    """

    image: Image | None

    def preflight(
        self, plan: Plan | None, hosts: Iterable[str], *, deep: bool = False, fitness: FitnessMode = "off"
    ) -> list[Finding]:
        """Check whether hosts are fit for the job (None: for any), and with `fitness` also how fast they are."""

    @property
    def inventory(self) -> Inventory | None:
        """Return the hosts that it was made for, and how they are reached; None on this machine."""

    def preconnect(self) -> None:
        """Connect in the background: there is something else to do first. What comes of it shows at the first use."""

    def note_unmet(self) -> None:
        """Keep which hosts are new to the job and were never reached: if they leave the hosts file, the job forgets them."""

    def count_devices(self, kind: str, hosts: Iterable[str]) -> tuple[Mapping[str, int], Failures]:
        """Return how many devices hosts have, none left out that have some, and which hosts could not be asked."""

    def data_versions(self, data: Iterable[Dataset]) -> tuple[Mapping[str, str | None], Failures]:
        """Return the version of each data that is on a host, by its name, and which hosts could not be asked.

        None is the version of a folder that does not exist. On this machine, where nothing is sent, there is none.
        """

    def newest(self) -> Control:
        """Return the newest generation and ledger, empty where no host tells; nothing else is looked at."""

    def ids(self, plan: Plan) -> Mapping[int, ArtefactId]:
        """Return what identifies each node's artefact."""

    def service_ids(self, plan: Plan) -> Mapping[str, ArtefactId]:
        """Return what identifies each service's artefact, by the service's name."""

    def spare_ids(self, plan: Plan) -> Mapping[str, ArtefactId]:
        """Return what identifies the artefact of each hot spare, by the name of its host."""

    def idle_spares(self, artefacts: Mapping[str, ArtefactId], homes: Collection[str]) -> tuple[HotSpare, ...]:
        """Return the hot spares that wait for a node, as last observed; none on `homes`, or of other `artefacts` by host."""

    @property
    def spare_launcher_failures(self) -> Failures:
        """Why launchers of spares could not be started, the last time: that is no failure of the job."""

    def spares(self, plan: Plan) -> Mapping[str, str]:
        """Return what identifies the files that each spare host needs, so that a node can move there."""

    def follow(self) -> AbstractContextManager[Feed]:
        """Be the job's only supervisor for the length of the block: launchers are answered. Raises Locked if there is one."""

    def let_in(self, command: str) -> AbstractContextManager[None]:
        """Let others have the job's lock for the length of the block, which waits for something: the job may be another one then.

        A supervisor knows that the command is still at work. Raises Locked if someone else keeps the lock after that.
        """

    def build(self, plan: Plan, say: Callable[[str], None]) -> None:
        """Have the image of `plan` built, unless somebody has it; `say` gets what is printed. Raises DeployError.

        Nothing is built where the plan has no `build`, nor on this machine.
        """

    def prepare(self, plan: Plan, start: RuntimeInputs) -> Failures:
        """Put what `plan` needs in place; what runs is not touched by that."""

    def stage(self, plan: Plan, hosts: Iterable[str]) -> Failures:
        """Bring code and images to hosts of the plan, and nothing else; a no-op on this machine."""

    def leave_secrets(self, secrets: Mapping[str, str] | None) -> None:
        """Leave no other secrets than these where the job runs, None for those that are there, and the webhooks of now.

        While a job changes, `prepare` keeps those it had.
        """

    def started_with(self) -> RuntimeInputs | None:
        """Return what processes got at the last `prepare`, as far as it is kept; None where nobody can tell."""

    def free_hosts(self, observed: Observed) -> tuple[str, ...]:
        """Return the hosts with room for a node that has to move, spares first; one with room for two is there twice."""

    def provision(self, plan: Plan, hosts: Iterable[str]) -> Failures:
        """Put on `hosts` what nodes that move there need: what `prepare` left on spares, and their artefacts."""

    def engines(self, hosts: Iterable[str], patience: float) -> Failures:
        """Return which hosts' engines do not answer, even after `patience` seconds."""

    def apply(self, steps: Sequence[Step]) -> Failures:
        """Carry out steps about services and nodes, and hand-overs; jobctl waits for launchers that are started."""

    def stop_processes(self, grace: float, *, for_change: bool = False) -> None:
        """End all processes of the job at the same time; the launchers stay.

        `for_change`: a generation of its changed plan follows at once. If none does, launchers may go on with the last one.
        """

    def next_generation(self, plan: Plan, last: Generation | None, grace: float, nodes: Sequence[Node]) -> Generation:
        """Return the generation after `last` (the first, if None) of `nodes`, with a free port. Raises DeployError."""

    def begin(self, generation: Generation, ledger: Ledger, patience: float = 0.0) -> Failures:
        """Hand a generation to the launchers; the ledger goes first, see control.py.

        May take `patience` seconds to return, if launchers begin it meanwhile: that spares the caller to look.
        """

    def command(self, verb: Verb, grace: float) -> None:
        """Tell all launchers to `stop` (and stay), also as a `pause`, or to `finish` (and exit)."""

    def keep(self, ledger: Ledger) -> None:
        """Keep what recovery has to remember."""

    def finish(self, grace: float) -> None:
        """End all processes and all launchers: SIGTERM, `grace` seconds, SIGKILL for whatever is left."""

    def exists(self, path: str) -> bool:
        """Say whether there is `path` where the job runs."""

    def make_directory(self, path: str) -> None:
        """Make a directory where the job runs."""

    def run_oneoff(self, plan: Plan, node: Node, start: RuntimeInputs, argv: Sequence[str]) -> int:
        """Run a command with what the processes of `node` would have, and the terminal; return its exit code."""

    def show_log(self, service: str, last: int | None, *, follow: bool) -> int:
        """Print what a service has printed (the `last` lines of it; and, to `follow`, prints); return the exit code. Raises DeployError."""
