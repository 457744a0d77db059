"""What the deployers of hosts and of this machine do alike: they have the fleet and its launchers do it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Generic

from jobctl.jobspec.deploy.apply.deployer import Failures, Feed, Verb
from jobctl.jobspec.deploy.model.control import Control, Ledger
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.targets import ending
from jobctl.jobspec.deploy.targets.fleet import Fleet
from jobctl.jobspec.deploy.targets.job_on_host import J, LauncherStarter
from jobctl.jobspec.deploy.targets.launchers import Launchers
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.generation import Generation
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.render.artefact import ids, service_ids


class FleetDeployer(Generic[J]):
    """The deployer of one job on a fleet, as far as hosts and this machine are alike."""

    pause: float  # seconds between two looks at what it waits for

    def __init__(self, job: JobDir, fleet: Fleet[J], starter: LauncherStarter[J]) -> None:
        self.job, self.fleet, self._launchers = job, fleet, Launchers(fleet, starter)
        self.tell: Callable[[str], None] = lambda text: None

    @property
    def plan(self) -> Plan | None:
        """What the job was last brought up with, None where that is not known here."""
        return self.fleet.plan

    @plan.setter
    def plan(self, plan: Plan | None) -> None:
        self.fleet.plan = plan

    # Observing.

    def observe(self) -> Observed:
        """Read what runs now. Raises the first host's error if none answers."""
        return self.fleet.observe()

    def owners(self, observed: Observed) -> frozenset[str]:
        """Return the owners of the job's containers."""
        return observed.owners

    def newest(self) -> Control:
        """Return the newest generation and ledger. This command waits no more for a host that did not answer."""
        return self.fleet.newest()

    @property
    def failures(self) -> Failures:
        """Why hosts did not answer when last observed."""
        return self.fleet.down

    # What is wanted.

    def ids(self, plan: Plan) -> Mapping[int, ArtefactId]:
        """Return what identifies each node's artefact."""
        return ids(plan)

    def service_ids(self, plan: Plan) -> Mapping[str, ArtefactId]:
        """Return what identifies each service's artefact."""
        return service_ids(plan)

    # Whose turn it is.

    def lock(self, command: str, *, break_it: bool = False) -> AbstractContextManager[None]:
        """Hold the job's lock, here and on all hosts that can be reached, while steps are applied."""
        return self.fleet.lock(command, break_it=break_it)

    def check_here(self) -> None:
        """Raise LockLost if we have lost the lock on this machine."""
        self.fleet.check_here()

    def let_in(self, command: str) -> AbstractContextManager[None]:
        """Let others have the lock for the length of the block."""
        return self.fleet.let_in(command)

    def follow(self) -> AbstractContextManager[Feed]:
        """Be the job's only supervisor, wherever others may be started: launchers are answered."""
        return self.fleet.follow()

    # Generations.

    def begin(self, generation: Generation, ledger: Ledger, patience: float = 0.0) -> Failures:
        """Hand a generation to the launchers; the ledger goes first, see control.py."""
        self.fleet.check_lock()
        return self._launchers.begin(generation, ledger, patience)

    def keep(self, ledger: Ledger) -> None:
        """Keep what recovery has to remember, on all hosts of the job."""
        self.fleet.check_lock()
        self._launchers.keep(ledger)

    def command(self, verb: Verb, grace: float) -> None:
        """Tell all launchers to `stop` (and stay), also as a `pause`, or to `finish` (and exit)."""
        self.fleet.check_lock()
        self._launchers.command(verb, grace)

    def stop_processes(self, grace: float, *, for_change: bool = False) -> None:
        """End all processes of the job, at the same time on all nodes; the launchers stay."""
        ending.stop_processes(self, grace, "pause" if for_change else "stop")
