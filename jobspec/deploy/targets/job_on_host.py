"""What a fleet needs to know of its hosts: containers, which are reached over connections, or processes of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TypeVar

from jobctl.jobspec.deploy.apply.deployer import Feed
from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.model.control import Control, Image
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.model.host_state import HostState, PutTogether
from jobctl.jobspec.deploy.model.liveness import FailureDetector
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.transport.base import Transport
from jobctl.jobspec.deploy.transport.fanout import H, Outcome, T
from jobctl.jobspec.spec.hosts import Host

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.host.lock import Held


class JobOnHost(Protocol):
    """A job's place on one host: `HostJob` with containers, `LocalJob` with processes. Every method raises DeployError."""

    @property
    def host(self) -> Host:
        """The host."""

    @property
    def transport(self) -> Transport:
        """How it is reached."""

    def observe(self) -> HostState:
        """Read what is there."""

    def look_on(self) -> None:
        """From now on, observe in a way that is cheap when it is done again and again."""

    def control(self) -> Control:
        """Read control file and ledger only."""

    def hand_over(self, ledger: bytes, control: bytes, patience: float = 0.0) -> None:
        """Replace the ledger, then the control file, which launchers follow; one that is empty here stays."""

    def start_service(self, name: str) -> None:
        """Start a service as its artefact says."""

    def end(self, name: int | str, grace: float) -> None:
        """End a node or service: SIGTERM, `grace` seconds, SIGKILL."""

    def forget(self, name: int | str) -> None:
        """Remove what is left of a node or service that belongs elsewhere now."""


J = TypeVar("J", bound=JobOnHost)
L = TypeVar("L", bound=JobOnHost, contravariant=True)


class Together(Protocol[L]):
    """How all hosts of a job are worked on at once.

    `keeps_run`: this machine keeps the newest generation too, since the hosts that have it may be gone.
    """

    keeps_run: bool

    def on_each(self, hosts: Iterable[H], task: Callable[[H], T]) -> Outcome[H, T]:
        """Do `task` for all hosts."""

    def lock(
        self, host_jobs: Sequence[L], command: str, *, break_it: bool, stay: bool
    ) -> AbstractContextManager[Held | None]:
        """Hold the job's lock on hosts, beside that of this machine; None if the job has none but that.

        To `stay` is to hold nothing where the job is down.
        """

    def following(self, job: JobDir, host_jobs: Sequence[L], detector: FailureDetector) -> Followed:
        """Return what follows hosts, not started yet."""


class Followed(Protocol):
    """The hosts of a job, which are followed from `start` until `close`."""

    def start(self) -> None:
        """Begin. Raises Locked if another supervisor follows them."""

    def look(self, host: str) -> HostState:
        """Read a host now. Raises DeployError."""

    def feed(self, put_together: PutTogether) -> Feed:
        """Return what they send; `put_together` makes one picture of what was seen, and of hosts that are silent."""

    def close(self) -> None:
        """Let go of them."""


class LauncherStarter(Protocol[L]):
    """What starts launchers: in containers, or as processes. All methods but `silent` raise DeployError.

    A launcher has `timeout` seconds to report; between two looks at one that has not yet are `pause` seconds.
    """

    timeout: float
    pause: float

    def start(self, host_job: L, node: int, prepared: Image | None) -> None:
        """Start the launcher of a node. `prepared` is what the image was just found to be."""

    def check(self, host_job: L, node: int, seen: HostState) -> None:
        """Raise an error if the launcher of a node has ended before it began, as `seen` says."""

    def silence_error(self, host_job: L, node: int) -> DeployError:
        """Return the error for a launcher that says nothing."""

    def apply_spare(self, host_job: L, step: Step, prepared: Image | None) -> None:
        """Carry out a step about the launcher that waits on a spare host; what it cannot do is no failure of the job."""
