"""Launchers of a job in containers of its hosts: what they are started with, and why one does not begin."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from jobctl.jobspec.deploy.apply.deployer import Failures
from jobctl.jobspec.deploy.apply.generations import KnownPorts, choose_generation
from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.ports import used_ports
from jobctl.jobspec.deploy.images import images
from jobctl.jobspec.deploy.model.container import SeenContainer
from jobctl.jobspec.deploy.model.control import Image
from jobctl.jobspec.deploy.model.errors import DeployError, HostError, NotPrepared
from jobctl.jobspec.deploy.model.host_state import HostState, control_of
from jobctl.jobspec.deploy.targets import spare_launchers
from jobctl.jobspec.deploy.targets.host_fleet import HostFleet
from jobctl.jobspec.plan.generation import Generation
from jobctl.jobspec.plan.types import Node, Plan


class LauncherContainers:
    """Starts launchers on the hosts of a fleet. `cold`: why launchers of spares could not be started, the last time."""

    timeout = 60.0  # seconds
    pause = 0.2

    def __init__(self, fleet: HostFleet) -> None:
        self._fleet = fleet
        self.spare_launcher_failures: dict[str, DeployError] = {}

    def start(self, host_job: HostJob, node: int, prepared: Image | None) -> None:
        """Start the launcher of a node: without `prepared` with the image of the job's `up`. Raises HostError."""
        seen = self._fleet.seen.get(host_job.host.name)
        plan = self._fleet.plan
        if plan is not None and plan.code is not None and plan.code.results:
            host_job.renew_results(plan.code.version or "", plan.nodes[0].container)
        spare_launchers.make_room(self._fleet, host_job, sends=prepared is None)
        host_job.announce(node, seen.reports.get(node) if seen else None)
        try:
            host_job.start(node, None if prepared is not None else self._instead(host_job, node))
        except HostError as error:
            self._tell(host_job, node, error)
            raise

    def tell_not_prepared(self, failed: Failures) -> None:
        """Write down why nodes cannot be started again where they are: files of the job are missing there."""
        placement = control_of(self._fleet.seen, self._fleet.known).placement
        for node, host in placement.items():
            if isinstance(error := failed.get(host), NotPrepared):
                self._tell(self._fleet.host_jobs[host], node, error)

    def _tell(self, host_job: HostJob, node: int, error: HostError) -> None:
        """Write down where `status` finds it why a node cannot be started, unless its host has just gone, or is full."""
        seen = self._fleet.seen.get(host_job.host.name)
        with contextlib.suppress(HostError):
            reason = f"cannot be started on {error.host}: {error.cause}"
            host_job.announce(node, seen.reports.get(node) if seen else None, reason)

    def check(self, host_job: HostJob, node: int, seen: HostState) -> None:
        """Raise HostError if the container of a node has ended before its launcher began; it is ended for good then."""
        for container in seen.containers:
            over = not container.running or container.restarting
            if container.node == node and over and not seen.ended(node):
                host_job.containers.kill([container])  # else its engine tries for ever
                error = _died(host_job, container)
                self._tell(host_job, node, error)
                raise error

    def silence_error(self, host_job: HostJob, node: int) -> HostError:
        """Return the error for a launcher that says nothing."""
        message = f"the launcher of node {node} says nothing"
        hint = f"`docker logs jobctl-{host_job.job}-{node}` there"
        return HostError(host_job.host.name, "launcher-silent", message, hint)

    def apply_spare(self, host_job: HostJob, step: Step, prepared: Image | None) -> None:
        """Carry out a step about the launcher that waits on a spare host; what it cannot do is no failure of the job."""
        try:
            if step.kind != "start":
                host_job.end_spare()
            if step.kind != "remove":
                image = None if prepared is not None else self._instead(host_job, -1)
                control = self._fleet.known or control_of(self._fleet.seen)
                spare_launchers.start(host_job, control, image)
        except HostError as error:
            self.spare_launcher_failures[host_job.host.name] = error

    def _instead(self, host_job: HostJob, node: int) -> str | None:
        """Return the image to start a node (-1: a spare) with if its name means another one by now than at `up`."""
        plan = self._fleet.plan
        nodes = (*plan.nodes, *plan.spares) if plan else ()
        container = next((n.container for n in nodes if n.index == node), None)
        return (
            images.pinned_image(host_job, container, control_of(self._fleet.seen).ledger.image) if container else None
        )

    def next_generation(self, plan: Plan, last: Generation | None, grace: float, nodes: Sequence[Node]) -> Generation:
        """Return the generation after `last` (the first, if None) with ports that are free on their hosts."""
        fleet = self._fleet
        first = fleet.host_jobs[min(nodes, key=lambda node: node.index).host.name]
        taken = {first.host.name: used_ports(first)}
        others = {node.host.name for node in nodes if node.launch.listens} - set(taken)
        taken |= {host_job.host.name: found for host_job, found in fleet.on_each(others, used_ports).done.items()}
        ports = {node.node: node.port for node in fleet.merge(fleet.seen, fleet.down).nodes}
        ports |= spare_launchers.ports(fleet, nodes)
        known = KnownPorts(lambda host, port: port not in taken.get(host, ()), first.host.name, ports)
        return choose_generation(plan, last, grace, nodes, known)


def _died(host_job: HostJob, container: SeenContainer) -> HostError:
    """Return why a launcher did not begin: the last words of its container."""
    code, text = host_job.containers.last_words(container)
    words = f": {text.splitlines()[-1]}" if text else ""
    return HostError(
        host_job.host.name,
        "container-died",
        f"the container of node {container.node} ended with code {code} before its launcher began{words}",
        "does the image have `python3`? `container.python` names another interpreter" if code in (126, 127) else None,
    )
