"""Target `local`: the nodes of a job as process groups on this machine, node i at 127.0.0.(i+2).

The same artefacts, launcher and control file as on a host, and a fleet with one host, this machine (job.py).
Processes carry marks in their environment (see processes.py) as containers carry labels, so what runs is always found,
whatever became of the files. This file has the rest: what processes need, and how commands get into them.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from jobctl.jobspec.deploy.apply.deployer import Failures, FaultTarget, RuntimeInputs
from jobctl.jobspec.deploy.apply.generations import KnownPorts, choose_generation
from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.host.devices import count_devices
from jobctl.jobspec.deploy.logs.files import Folder
from jobctl.jobspec.deploy.logs.reader import Logs
from jobctl.jobspec.deploy.model.container import SeenContainer
from jobctl.jobspec.deploy.model.control import Image
from jobctl.jobspec.deploy.model.errors import DeployError, NothingToEnter
from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.model.log_lines import LineSelection
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.store import processes
from jobctl.jobspec.deploy.store.archive import last_folders
from jobctl.jobspec.deploy.store.files import write_atomic
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.webhooks import webhooks_for_hosts
from jobctl.jobspec.deploy.targets import ending
from jobctl.jobspec.deploy.targets.fleet import Fleet
from jobctl.jobspec.deploy.targets.fleet_deployer import FleetDeployer
from jobctl.jobspec.deploy.targets.gathering import LocalEvents
from jobctl.jobspec.deploy.targets.local.environ import process_environ, record_environ, recorded_environ
from jobctl.jobspec.deploy.targets.local.fetch import fetch_collected, fetch_logs, fetch_outputs
from jobctl.jobspec.deploy.targets.local.job import LauncherProcesses, LocalJob, OneMachine
from jobctl.jobspec.deploy.targets.local.ports import LocalPorts, is_free_at, port_is_free
from jobctl.jobspec.deploy.targets.local.processes import HOST
from jobctl.jobspec.deploy.targets.local.session import ProcessSession
from jobctl.jobspec.deploy.targets.node_ports import home_of
from jobctl.jobspec.deploy.transport.foreground import run_in_foreground
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.generation import Generation, HotSpare, first_generation
from jobctl.jobspec.plan.sent import Dataset
from jobctl.jobspec.plan.types import Node, Plan
from jobctl.jobspec.render.artefact import render
from jobctl.jobspec.spec.fitness_mode import FitnessMode


class Local(FleetDeployer[LocalJob]):
    """The deployer of one job on this machine."""

    image: Image | None = None
    inventory: Inventory | None = None
    interval = 0.1  # reading the reports of a few nodes costs well under a millisecond
    pause = 0.02

    def __init__(self, job: JobDir, plan: Plan | None = None) -> None:
        self.work = job.host
        self._here = LocalJob(self.work, lambda: self.plan)
        inventory = Inventory((self._here.host,))
        fleet = Fleet(job, inventory, [self._here], OneMachine(), plan or job.plan())
        super().__init__(job, fleet, LauncherProcesses())
        self.spare_launcher_failures: Failures = {}  # this machine has no spares

    def places(self) -> tuple[str, ...]:
        """This machine."""
        return (HOST,)

    def preconnect(self) -> None:
        """There is nothing to connect to."""

    def note_unmet(self) -> None:
        """This machine is always reached."""

    def count_devices(self, kind: str, hosts: Iterable[str]) -> tuple[Mapping[str, int], Failures]:
        """Return how many devices this machine has."""
        found = count_devices(kind)
        return (dict.fromkeys(hosts, found) if found else {}), {}

    def data_versions(self, data: Iterable[Dataset]) -> tuple[Mapping[str, str | None], Failures]:
        """Nothing is sent on this machine."""
        return {}, {}

    def has_files(self) -> bool:
        """Say whether there is a work directory."""
        return self.work.exists()

    # What is wanted.

    def spare_ids(self, plan: Plan) -> dict[str, ArtefactId]:
        """Return nothing: this machine has no spares."""
        return {}

    def idle_spares(self, artefacts: Mapping[str, ArtefactId], homes: Collection[str]) -> tuple[HotSpare, ...]:
        """Return nothing, likewise."""
        return ()

    def spares(self, plan: Plan) -> dict[str, str]:
        """Return nothing: this machine is the only one."""
        return {}

    # Changing.

    def build(self, plan: Plan, say: Callable[[str], None]) -> None:
        """Build nothing: there are no images."""

    def prepare(self, plan: Plan, start: RuntimeInputs) -> Failures:
        """Put the files of `plan` into the work directory; what runs is not touched by that."""
        self.fleet.check_lock()
        self.plan = plan
        for artefact in render(plan, first_generation(plan)):
            if artefact.path != "control.json":
                write_atomic(self.work / artefact.path.removeprefix(f"{HOST}/"), artefact.content, artefact.mode)
        record_environ(self.work, plan, start.environ)
        self._here.claim()
        # What runs needs its secrets until the change is made.
        self.leave_secrets({**(self._here.secrets() if self.job.is_changing() else {}), **start.secrets})
        if plan.checkpoint:
            Path(plan.checkpoint.dir).mkdir(parents=True, exist_ok=True)
        return {}

    def stage(self, plan: Plan, hosts: Iterable[str]) -> Failures:
        """Processes run with what is installed on this machine: there is nothing to bring."""
        return {}

    def leave_secrets(self, secrets: Mapping[str, str] | None) -> None:
        """Leave these secrets in the work directory, None for those that are there, and the webhooks of now."""
        self.fleet.check_here()
        if secrets is not None:
            self._here.leave_secrets(secrets)
        self._here.leave_webhooks(webhooks_for_hosts(self.job, self.plan) if self.plan is not None else None)

    def started_with(self) -> RuntimeInputs | None:
        """Return the environment and the secrets of the last `prepare`."""
        return RuntimeInputs(recorded_environ(self.work), self._here.secrets())

    def free_hosts(self, observed: Observed) -> tuple[str, ...]:
        """There is only this machine."""
        return ()

    def provision(self, plan: Plan, hosts: Iterable[str]) -> Failures:
        """There is only this machine."""
        return {}

    def engines(self, hosts: Iterable[str], patience: float) -> Failures:
        """There is none."""
        return {}

    def apply(self, steps: Sequence[Step]) -> Failures:
        """Carry out steps about services and nodes. Raises DeployError: where one node cannot start, none can."""
        self.fleet.check_lock()
        return self._launchers.apply(steps, None)

    def next_generation(self, plan: Plan, last: Generation | None, grace: float, nodes: Sequence[Node]) -> Generation:
        """Return the generation after `last` (the first, if None) with a port that is free now. Raises DeployError."""
        ports = {node.node: node.port for node in self.observe().nodes}
        return choose_generation(plan, last, grace, nodes, KnownPorts(port_is_free, "this machine", ports))

    # Ending.

    def finish(self, grace: float) -> None:
        """End all processes and all launchers: SIGTERM, `grace` seconds, SIGKILL for whatever is left."""
        try:
            self.command("finish", grace)
        except OSError:  # the disk is full, and to take the job down makes room
            self._here.launchers.terminate()
        ending.wait_for_launchers(self, grace)
        self.fleet.check_here()
        processes.kill_marked(self.work)

    def take_down(self, grace: float) -> tuple[Path | None, Failures]:
        """End everything, keep the logs, and remove the work directory: artefacts, control file, secrets, reports."""

        def finish() -> None:
            left = grace
            with contextlib.suppress(OSError):  # the disk is full: see `finish`
                left = ending.end_processes(self, grace)
            self.finish(left)

        return ending.take_down(self.fleet, finish, LocalJob.erase, self.events().gather)

    # Looking around.

    def preflight(
        self, plan: Plan | None, hosts: Iterable[str], *, deep: bool = False, fitness: FitnessMode = "off"
    ) -> list[Finding]:
        """Look whether devices and ports are there and, where that matters or `deep`, whether the framework works.

        There is nothing that this machine's fitness could be compared with.
        """
        from jobctl.jobspec.deploy.check.local import PortsHere, preflight

        if plan is None:
            return []
        there = self._running()
        services = {one.service for one in there if one.service is not None}
        ports = PortsHere(is_free_at, any(one.service is None for one in there), services)
        environ = process_environ(plan, plan.nodes[0], RuntimeInputs(os.environ, {}))
        return preflight(HOST, plan, environ, ports, deep=deep)

    def _running(self) -> list[SeenContainer]:
        """Return what of the job runs here: nothing where that is not known, since its state cannot be read."""
        with suppress(DeployError):
            return [one for one in self._here.observe().containers if one.running]
        return []

    def exists(self, path: str) -> bool:
        """Say whether there is `path` on this machine."""
        return os.path.exists(path)

    def make_directory(self, path: str) -> None:
        """Make a directory on this machine."""
        Path(path).mkdir(parents=True, exist_ok=True)

    def logs(self, selection: LineSelection, last: int | None = None) -> Logs | None:
        """Return what reads the chosen logs in the work directory."""
        return Logs(Folder(self.work), selection, last) if self.work.exists() else None

    def events(self) -> LocalEvents:
        """Return what reads this machine's history, and collects what launchers have kept."""
        return LocalEvents(self.job, HOST)

    def enter(self, node: int | str, argv: Sequence[str]) -> int:
        """Run a command with the environment of a node's first process, or of a service, in its directory."""
        pid = self._first_process(node) if isinstance(node, int) else self._here.services.pid(node)
        return run_in_foreground(argv, processes.environment(pid), processes.working_directory(pid))

    def session(self, node: int) -> ProcessSession:
        """Return the surroundings of a node's first process."""
        pid = self._first_process(node)
        place = processes.environment(pid), processes.working_directory(pid)
        return ProcessSession(*place, home_of(node, self.newest(), self.plan).address)

    def ports(self) -> AbstractContextManager[LocalPorts]:
        """Return what connects to the nodes' ports: they stay where they are."""
        return nullcontext(LocalPorts(self.newest, self.plan))

    def show_log(self, service: str, last: int | None, *, follow: bool) -> int:
        """Print a service's log."""
        path = self._here.services.log(service)
        lines = "+1" if last is None else str(last)
        return run_in_foreground(["tail", "-n", lines, *(["-F"] * follow), "--", str(path)], os.environ, None)

    def _first_process(self, node: int) -> int:
        """Return the pid of the first running process of a node. Raises DeployError if it has none."""
        found = self.observe().node(node)
        if found is None and self.newest().generation is None:
            raise NothingToEnter(f"node {node} is on no host: the job does not run", "`jobctl up` starts it")
        if found is None:
            raise DeployError(
                f"job `{self.job.name}` has no node {node}", f"`jobctl status {self.job.name}` shows its nodes"
            )
        if found.first_pid is None:
            raise NothingToEnter(
                f"node {node} is {found.state}: it has no running process", "`jobctl run` needs no running job"
            )
        return found.first_pid

    def inject_fault(self, node: int, what: FaultTarget) -> None:
        """SIGKILL the first process of a node, or its launcher with all its processes."""
        if what == "host":
            raise DeployError("target `local` has only this machine, which cannot be lost", "a drill on hosts can")
        if what == "container":
            # Not the launcher that a supervisor starts in its place meanwhile.
            processes.kill_marked(self.work, node, before=processes.ticks_now())
        else:
            os.kill(self._first_process(node), signal.SIGKILL)

    def run_oneoff(self, plan: Plan, node: Node, start: RuntimeInputs, argv: Sequence[str]) -> int:
        """Run a command with the environment and in the directory that the processes of `node` would have."""
        return run_in_foreground(argv, process_environ(plan, node, start), node.launch.workdir)

    def fetch(self, into: Path) -> dict[str, int]:
        """Copy logs and outputs."""
        last = [] if self.work.exists() else last_folders(self.job)
        outputs = fetch_outputs(self.plan, into / HOST) if self.plan else 0
        outputs += fetch_collected(last, into)
        counts = {"logs": fetch_logs(last or [self.work], into / HOST), "outputs": outputs}
        return {what: count for what, count in counts.items() if count}

    def close(self) -> None:
        """There is nothing to let go of."""
