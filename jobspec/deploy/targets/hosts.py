"""Targets `compose` and `ssh`: the nodes of a job as containers of other machines' Docker Engines.

Everything is done on all hosts side by side (`Fleet`), and what fails on one is reported for it. Each subject has a
file: what hosts need (provision.py), launchers and generations (launchers.py), commands and faults in what runs (inside.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jobctl.jobspec.deploy.apply.deployer import Failures, FaultTarget, RuntimeInputs
from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.host.collecting import collect
from jobctl.jobspec.deploy.host.devices import devices_on
from jobctl.jobspec.deploy.host.directories import are_missing
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.model.container import SeenContainer
from jobctl.jobspec.deploy.model.control import Image
from jobctl.jobspec.deploy.model.errors import DeployError, OnAnotherMachine
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.targets import building, ending, inside, oneoff, provision, spare_launchers
from jobctl.jobspec.deploy.targets.fleet_deployer import FleetDeployer
from jobctl.jobspec.deploy.targets.gathering import HostEvents
from jobctl.jobspec.deploy.targets.host_fleet import HostFleet, host_fleet
from jobctl.jobspec.deploy.targets.launcher_containers import LauncherContainers
from jobctl.jobspec.deploy.targets.node_ports import HostPorts
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.generation import Generation, HotSpare
from jobctl.jobspec.plan.sent import Dataset
from jobctl.jobspec.plan.types import Node, Plan
from jobctl.jobspec.render.artefact import read_templates, spare_ids
from jobctl.jobspec.spec.fitness_mode import FitnessMode

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.logs.reader import Logs
    from jobctl.jobspec.deploy.model.finding import Finding
    from jobctl.jobspec.deploy.model.log_lines import LineSelection


class Hosts(FleetDeployer[HostJob]):
    """The deployer of one job on other machines (and on this one, where the hosts file says `localhost`)."""

    fleet: HostFleet
    interval = 1.0  # one command and one request of the engine's on every host
    pause = 0.2

    def __init__(
        self, job: JobDir, target: Literal["compose", "ssh"], inventory: Inventory, plan: Plan | None = None
    ) -> None:
        fleet = host_fleet(job, target, inventory, plan or job.plan(), lambda text: self.tell(text))
        self._target, self._containers = target, LauncherContainers(fleet)
        super().__init__(job, fleet, self._containers)
        self.image: Image | None = None

    @property
    def inventory(self) -> Inventory:
        """The hosts that this was made for, and how they are reached."""
        return self.fleet.inventory

    @property
    def host_jobs(self) -> Mapping[str, HostJob]:
        """The job's place on each host."""
        return self.fleet.host_jobs

    def places(self) -> tuple[str, ...]:
        """Return the names of all hosts that the job may be on."""
        return tuple(self.host_jobs)

    def note_unmet(self) -> None:
        """Keep which hosts are new to the job, and were never reached."""
        self.fleet.note_unmet()

    def has_files(self) -> bool:
        """Say whether a host has a work directory of the job, as last observed."""
        return bool(self.fleet.hosts_with_files())

    def preconnect(self) -> None:
        """Connect to the hosts that are asked first, in the background: there is something else to do before."""
        # Docker's SDK imports paramiko too, and threads that do so at the same time may see half of it.
        import fabric

        del fabric
        self.fleet.connect()
        import docker

        del docker
        read_templates(self._target)  # while hosts let us in: it is needed as soon as they have

    def close(self) -> None:
        """Let go of all connections."""
        self.fleet.close()

    # Observing.

    def look_on(self) -> None:
        """From now on, let no look wait for a host that is silent."""
        self.fleet.look_on()

    def count_devices(self, kind: str, hosts: Iterable[str]) -> tuple[Mapping[str, int], Failures]:
        """Return how many devices hosts have, none left out that have some, and which hosts could not be asked."""
        outcome = self.fleet.on_each(hosts, devices_on)
        counts = {host_job.host.name: found[kind] for host_job, found in outcome.done.items() if kind in found}
        return counts, self.fleet.failures(outcome)

    def data_versions(self, data: Iterable[Dataset]) -> tuple[Mapping[str, str | None], Failures]:
        """Return the version of each data that is on a host, and which hosts could not be asked."""
        return provision.data_versions(self.fleet, data)

    def preflight(
        self, plan: Plan | None, hosts: Iterable[str], *, deep: bool = False, fitness: FitnessMode = "off"
    ) -> list[Finding]:
        """Check whether hosts are fit for the job; finds everything that is wrong, and changes nothing."""
        from jobctl.jobspec.deploy.check.preflight import Preflight

        checked, others = self.fleet.chosen(hosts)
        preflight = Preflight(checked, plan, deep=deep, others=others)
        findings = preflight.run()
        if fitness == "off":
            return findings
        from jobctl.jobspec.deploy.check.fitness.measure import measured

        return measured(preflight.survey, findings, fitness, self.job.state)

    # What is wanted.

    def spare_ids(self, plan: Plan) -> Mapping[str, ArtefactId]:
        """Return what identifies the artefact of each hot spare, by the name of its host."""
        return spare_ids(plan)

    def idle_spares(self, artefacts: Mapping[str, ArtefactId], homes: Collection[str]) -> tuple[HotSpare, ...]:
        """Return the hot spares that wait for a node, as last observed; none on `homes`, or of other `artefacts` by host."""
        return spare_launchers.idle_spares(self.fleet, artefacts, homes)

    @property
    def spare_launcher_failures(self) -> Failures:
        """Why launchers of spares could not be started, the last time."""
        return self._containers.spare_launcher_failures

    def spares(self, plan: Plan) -> Mapping[str, str]:
        """Return for each spare host what identifies all that a node needs there."""
        return provision.spares(self.fleet, plan)

    # Changing.

    def build(self, plan: Plan, say: Callable[[str], None]) -> None:
        """Have the image of the plan built, unless it is there; `say` gets what the builder prints."""
        building.build(self.fleet, plan, say)

    def prepare(self, plan: Plan, start: RuntimeInputs) -> Failures:
        """Put artefacts, code, secrets and images in place on the hosts of the plan; what runs is not touched by that."""
        self.fleet.check_lock()
        self.plan = plan
        self.image, failures = provision.prepare(self.fleet, plan, start)
        self.fleet.check_here()  # to send takes minutes, and what was proposed may be another command's by now
        return failures

    def stage(self, plan: Plan, hosts: Iterable[str]) -> Failures:
        """Bring code and images to hosts of the plan; nothing is started, and what runs is not touched."""
        self.fleet.check_lock()
        return provision.stage(self.fleet, plan, hosts)

    def leave_secrets(self, secrets: Mapping[str, str] | None) -> None:
        """Leave these secrets on the hosts of the job, None for those that are there, and the webhooks of now."""
        self.fleet.check_here()
        provision.leave_secrets(self.fleet, self.plan, secrets)

    def started_with(self) -> RuntimeInputs | None:
        """Return the secrets that hosts of the job have; they are the same on all."""
        return provision.known_secrets(self.fleet)

    def free_hosts(self, observed: Observed) -> tuple[str, ...]:
        """Return the hosts with room for a node that has to move, spares first. A host with room for two is there twice."""
        return provision.free_hosts(self.fleet, observed)

    def provision(self, plan: Plan, hosts: Iterable[str]) -> Failures:
        """Put on `hosts` what nodes that move there need: what `prepare` left on spares, and their artefacts."""
        self.fleet.check_lock()
        failed = provision.provision(self.fleet, plan, hosts)
        self._containers.tell_not_prepared(failed)
        return failed

    def engines(self, hosts: Iterable[str], patience: float) -> Failures:
        """Return which hosts' engines do not answer, even after `patience` seconds."""
        return self.fleet.failures(self.fleet.on_each(hosts, lambda host_job: host_job.engine.wait(patience)))

    def apply(self, steps: Sequence[Step]) -> Failures:
        """Carry out steps about nodes, and hand-overs, on each host in their order."""
        self.fleet.check_lock()
        self._containers.spare_launcher_failures = {}
        return self._launchers.apply(steps, self.image)

    def next_generation(self, plan: Plan, last: Generation | None, grace: float, nodes: Sequence[Node]) -> Generation:
        """Return the generation after `last` (the first, if None) with ports that are free on their hosts."""
        made = self._containers.next_generation(plan, last, grace, nodes)
        return replace(made, origin=self.job.origin(plan))

    # Ending.

    def finish(self, grace: float) -> None:
        """End all processes and all launchers; the containers stay, so that it can be seen how they ended."""
        self.command("finish", grace)
        ending.wait_for_nodes(self, grace)
        spare_launchers.end_all(self.fleet)

    def take_down(self, grace: float) -> tuple[Path | None, Failures]:
        """End everything, fetch the logs, and remove all of the job on each host that can be reached."""

        def erase(host_job: HostJob, into: Path) -> bool:
            containers = host_job.containers.seen()
            self.tell(f"stopping what still runs on {host_job.host.name}")
            host_job.containers.stop(containers, grace)
            self.tell(f"fetching logs and outputs from {host_job.host.name}")
            count = self._collect(host_job, into, containers)
            self.fleet.check_lock_on(host_job.host.name)  # what is there may be another command's: that took minutes
            self.tell(f"removing what is left on {host_job.host.name}")
            host_job.containers.remove(containers)
            host_job.erase([container.interpreter for container in containers])
            return count > 0

        def end_unlocked(host_job: HostJob, why: DeployError) -> bool:
            return self._end_unlocked(host_job, why, grace)

        def finish() -> None:
            self.finish(ending.end_processes(self, grace))

        return ending.take_down(self.fleet, finish, erase, self.events().gather, end_unlocked)

    def _end_unlocked(self, host_job: HostJob, why: DeployError, grace: float) -> bool:
        """Remove the containers on a host that cannot be locked, as on a disk that is read-only; files there stay.

        Its engine is the user's own, even where folders are not. Raises `why` unless the host surely has nothing of the job.
        """
        if isinstance(why, OnAnotherMachine):
            raise why
        containers = host_job.containers.seen()
        self.tell(f"stopping what still runs on {host_job.host.name}")
        host_job.containers.stop(containers, grace)
        self.fleet.check_here()  # that took minutes
        host_job.containers.remove(containers)
        nothing = are_missing(host_job.transport, host_job.work, host_job.own)
        # On a disk that is not mounted are files of the job that nobody sees.
        if containers or host_job.host.name in self.fleet.homes() or not nothing:
            raise why
        return False

    def _collect(self, host_job: HostJob, into: Path, ended: Sequence[SeenContainer] = ()) -> int:
        """Copy all that the job leaves behind on a host, also of nodes that have another home by now."""
        return collect(host_job, into, ended, self.fleet.moved_from(host_job.host.name))

    # Looking around.

    def exists(self, path: str) -> bool:
        """Say whether there is `path` on any host of the job that answers: each may have a disk of its own."""
        homes = self.fleet.planned_hosts()
        outcome = self.fleet.on_each(homes, lambda one: one.transport.run(["test", "-e", path]).code == 0)
        return any(outcome.done.values())

    def make_directory(self, path: str) -> None:
        """Make a directory on all hosts of the job."""
        self.fleet.on_each(self.fleet.planned_hosts(), lambda host_job: provision.make_directory(host_job, path))

    def events(self) -> HostEvents:
        """Return what reads this machine's history, and collects what launchers have kept."""
        return HostEvents(self.fleet)

    def logs(self, selection: LineSelection, last: int | None = None) -> Logs | None:
        """Return what reads the chosen logs, None if no host has any. It goes on where nodes were seen last."""
        from jobctl.jobspec.deploy.host.logs import HostLogs
        from jobctl.jobspec.deploy.logs.reader import Logs

        self.observe()
        if not self.fleet.hosts_with_nodes():
            return None
        return Logs(HostLogs(lambda: map(self.host_jobs.__getitem__, self.fleet.hosts_with_nodes())), selection, last)

    def enter(self, node: int | str, argv: Sequence[str]) -> int:
        """Run a command inside of a node's or a service's container."""
        return inside.enter(self.fleet, node, argv)

    def session(self, node: int) -> inside.ContainerSession:
        """Return the inside of a node's container."""
        return inside.ContainerSession(self.fleet, node)

    def ports(self) -> AbstractContextManager[HostPorts]:
        """Follow where nodes are for the length of the block, and yield what connects to their ports."""
        return HostPorts(self.fleet).following()

    def show_log(self, service: str, last: int | None, *, follow: bool) -> int:
        """Print what a service's container has printed, whether it runs or not."""
        return inside.show_log(self.fleet, service, last, follow=follow)

    def inject_fault(self, node: int, what: FaultTarget) -> None:
        """SIGKILL the first process of a node, or its container, or play that its host is lost."""
        inside.inject_fault(self.fleet, node, what)

    def run_oneoff(self, plan: Plan, node: Node, start: RuntimeInputs, argv: Sequence[str]) -> int:
        """Run a command in a container like that of `node`, with the terminal; what it needed is removed afterwards."""
        return oneoff.run_oneoff(self.fleet, plan, node, start, argv)

    def fetch(self, into: Path) -> dict[str, int]:
        """Copy logs and outputs of all hosts that answer, also where no node is any more; those of a node are in its folder."""
        self.observe()
        outcome = self.fleet.on_each(self.fleet.hosts_with_files(), lambda host_job: self._collect(host_job, into))
        self.fleet.down = {**self.fleet.down, **self.fleet.failures(outcome)}
        if not (count := sum(outcome.done.values())) and self.fleet.down:
            raise next(iter(self.fleet.down.values()))
        return {"files": count, "hosts": sum(1 for files in outcome.done.values() if files)} if count else {}
