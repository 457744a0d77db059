"""A job's place on this machine, for target `local`: processes in the place of containers, files that are at hand.

It does what a `HostJob` does on hosts, without any command: to read the reports of a few nodes costs well under a
millisecond.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.model.control import Control, Image, begun_by_launchers, newest
from jobctl.jobspec.deploy.model.errors import DeployError, OnAnotherMachine
from jobctl.jobspec.deploy.model.host_state import HostState
from jobctl.jobspec.deploy.model.liveness import FailureDetector
from jobctl.jobspec.deploy.model.untrusted import Json
from jobctl.jobspec.deploy.store.archive import collect_logs
from jobctl.jobspec.deploy.store.control_files import hand_over, read_control
from jobctl.jobspec.deploy.store.files import is_full, read_json, write_json
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.machine import other_machine, record_machine
from jobctl.jobspec.deploy.targets.local.environ import recorded_environ
from jobctl.jobspec.deploy.targets.local.feed import LocalFollowing
from jobctl.jobspec.deploy.targets.local.launchers import LocalLaunchers
from jobctl.jobspec.deploy.targets.local.processes import HOST, folder_of, script_of
from jobctl.jobspec.deploy.targets.local.services import LocalServices
from jobctl.jobspec.deploy.transport.fanout import H, Outcome, T
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.launcher.telling.host_teller import WEBHOOKS
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.spec.hosts import Host


class LocalJob:
    """The nodes and services of a job below the work directory `work`; `plan` returns what they are started from."""

    def __init__(self, work: Path, plan: Callable[[], Plan | None]) -> None:
        self.work, self._plan = work, plan
        self.host, self.transport = Host(HOST), LocalTransport(HOST)
        self.launchers, self.services = LocalLaunchers(work), LocalServices(work)

    def claim(self) -> None:
        """Write down that the job's processes are on this machine."""
        record_machine(self._machine)

    @property
    def _machine(self) -> Path:
        return self.work / "machine.json"

    def _refuse_elsewhere(self, control: Control) -> None:
        """Raise OnAnotherMachine if the processes are on another machine, where nobody here can look; one that has ended has none."""
        name = other_machine(self._machine)
        if name is not None and control.ledger.result is None:
            raise OnAnotherMachine(HOST, name, str(self._machine))

    # Looking.

    def observe(self) -> HostState:
        """Read what is there from files and the process table. Raises DeployError for files that cannot be read."""
        control, nodes = read_control(self.work), self.launchers.nodes()
        self._refuse_elsewhere(control)
        reports = {node: report for node in nodes if (report := self.launchers.report(node)) is not None}
        found = (*self.launchers.seen(reports), *self.services.seen())
        there, full = self.work.exists(), is_full(self.work)
        return HostState(found, control, reports, directories=nodes, there=there, full=full)

    def look_on(self) -> None:
        """Nothing is cheaper than to read the files of this machine."""

    def control(self) -> Control:
        """Read the generation, which launchers may have begun by themselves, and the ledger. Raises DeployError."""
        reports = map(self.launchers.report, self.launchers.nodes())
        here = read_control(self.work)
        self._refuse_elsewhere(here)
        return newest([here, *map(begun_by_launchers, reports)])

    # Changing.

    def hand_over(self, ledger: bytes, control: bytes, patience: float = 0.0) -> None:
        """Replace the ledger, then the control file, as far as given. There is no need for `patience`: to look costs nothing."""
        hand_over(self.work, ledger, control)

    def start(self, node: int) -> None:
        """Start the launcher of a node."""
        self.launchers.start(node, self._plan())

    def start_service(self, name: str) -> None:
        """Start a service of the plan, and wait until it listens. Raises DeployError."""
        plan = self._plan()
        for service in plan.services if plan else ():
            if service.name == name:
                self.services.start(service, recorded_environ(self.work))

    def end(self, name: int | str, grace: float) -> None:
        """End a node or service, and all that it has left; a service gets no more time than it needs."""
        if isinstance(name, int):
            self.launchers.end(name, grace)
        else:
            self.services.end(name)

    def forget(self, name: int | str) -> None:
        """Remove what is left of a node or service that is no longer part of the job."""
        shutil.rmtree(folder_of(self.work, name), ignore_errors=True)
        script_of(self.work, name).unlink(missing_ok=True)

    @property
    def _secrets(self) -> Path:
        return self.work / "secrets" / "secrets.json"

    def secrets(self) -> dict[str, str]:
        """Return the values of secrets that are there."""
        return read_json(self._secrets) or {}

    def leave_secrets(self, secrets: Mapping[str, str]) -> None:
        """Leave no other secrets than these in the work directory."""
        if secrets:
            write_json(self._secrets, dict(secrets), 0o600)
        else:
            self._secrets.unlink(missing_ok=True)

    def leave_webhooks(self, webhooks: Json | None) -> None:
        """Keep the webhooks by which launchers tell beside the secrets, or leave none there."""
        path = self._secrets.with_name(WEBHOOKS)
        if webhooks is None:
            path.unlink(missing_ok=True)
        else:
            write_json(path, webhooks, 0o600)

    def erase(self, into: Path) -> bool:
        """Move logs below `into`, and remove all else: artefacts, control file, secrets, reports. Say whether there were logs."""
        found = collect_logs(self.work, into)
        self.launchers.remove_scratch()
        shutil.rmtree(self.work, ignore_errors=True)
        return found


class LauncherProcesses:
    """Starts launchers as processes."""

    timeout = 30.0  # seconds
    pause = 0.01

    def start(self, host_job: LocalJob, node: int, prepared: Image | None) -> None:
        """Start the launcher of a node."""
        del prepared  # there are no images
        host_job.start(node)

    def check(self, host_job: LocalJob, node: int, seen: HostState) -> None:
        """Raise DeployError if the launcher of a node has ended before it began."""
        if not seen.started(node):
            host_job.launchers.check(node)

    def silence_error(self, host_job: LocalJob, node: int) -> DeployError:
        """Return the error for a launcher that says nothing."""
        return DeployError(f"the launcher of node {node} says nothing", host_job.launchers.last_words(node))

    def apply_spare(self, host_job: LocalJob, step: Step, prepared: Image | None) -> None:
        """There are no spares."""


class OneMachine:
    """This machine as the only host: what goes wrong on it is raised as it is, and the lock of the job's directory is enough."""

    keeps_run = False

    def on_each(self, hosts: Iterable[H], task: Callable[[H], T]) -> Outcome[H, T]:
        """Do `task`. Only that the processes are on another machine is the host's failure: it does not answer then."""
        asked = list(hosts)
        try:
            return Outcome({host: task(host) for host in asked}, {})
        except OnAnotherMachine as error:
            return Outcome({}, dict.fromkeys(asked, error))

    def lock(
        self, host_jobs: Sequence[LocalJob], command: str, *, break_it: bool, stay: bool
    ) -> AbstractContextManager[None]:
        """Hold no other lock."""
        return nullcontext()

    def following(self, job: JobDir, host_jobs: Sequence[LocalJob], detector: FailureDetector) -> LocalFollowing:
        """Return what follows the launchers."""
        return LocalFollowing(host_jobs[0], job.host, detector)
