"""Steps on hosts: launchers and services are started there, ended and handed what they missed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from jobctl.jobspec.deploy.apply.deployer import Failures
from jobctl.jobspec.deploy.apply.generations import KnownPorts, choose_generation
from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.host import images
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.ports import used_ports
from jobctl.jobspec.deploy.model.container import SeenContainer
from jobctl.jobspec.deploy.model.control import Control, Image, Ledger, ledger_json
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.model.host_state import HostState, control_of
from jobctl.jobspec.deploy.targets import spare_launchers
from jobctl.jobspec.deploy.targets.fleet import Fleet, raise_if_all
from jobctl.jobspec.deploy.transport.fanout import AT_ONCE, Outcome
from jobctl.jobspec.plan.generation import Generation
from jobctl.jobspec.plan.types import Node, Plan
from jobctl.jobspec.render.artefact import control_json

START_TIMEOUT = 60.0  # seconds within which a started launcher reports
LOOK = 0.2  # seconds between two looks at a launcher that has not reported yet


class Launchers:
    """The launchers of a job on its hosts, and what they are handed."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.cold: dict[str, DeployError] = {}  # why launchers of spares could not be started, the last time

    # Steps.

    def apply(self, steps: Sequence[Step], prepared: Image | None) -> Failures:
        """Carry out steps about nodes, and hand-overs, on each host in their order.

        `prepared` is what the image was just found to be. Without it, nodes start with the image of the job's `up`.
        """
        fleet = self._fleet
        self.cold = {}
        todo = {host: [step for step in steps if step.host == host] for host in {step.host for step in steps}}
        fresh: dict[str, HostState] = {}

        def execute(host_job: HostJob) -> None:
            name = host_job.host.name
            _wait_for_reports(host_job, self._apply_on(host_job, todo[name], prepared), fresh)
            if any(step.spare for step in todo[name]):
                fresh[name] = host_job.observe()

        outcome = fleet.on(todo, execute)
        fleet.seen = {**fleet.seen, **fresh}
        return fleet.failures(outcome)

    def _apply_on(self, host_job: HostJob, steps: Sequence[Step], prepared: Image | None) -> set[int]:
        """Carry out the steps of one host; return the nodes whose launchers were started."""
        started = set()
        for step in steps:
            if step.service is not None:
                _apply_service(host_job, step)
            elif step.spare:
                self._apply_spare(host_job, step, prepared)
            elif step.kind == "prepare":
                continue  # `prepare` has done it
            elif step.node is not None:
                if self._apply_node(host_job, step, step.node, prepared):
                    started.add(step.node)
            else:
                control = self._fleet.known or control_of(self._fleet.seen)  # what was observed last
                raise_if_all(self.hand_over([host_job.host.name], control.generation, control.ledger))
        return started

    def _apply_node(self, host_job: HostJob, step: Step, node: int, prepared: Image | None) -> bool:
        """Carry out a step about a node; say whether its launcher was started."""
        seen = self._fleet.seen.get(host_job.host.name)
        if step.kind != "start" or seen is None or any(container.node == node for container in seen.containers):
            host_job.end(node, step.grace)
        if step.kind == "remove" and not step.stale:
            host_job.forget(node)
        if step.kind not in ("replace", "start"):
            return False
        spare_launchers.make_room(self._fleet, host_job, sends=prepared is None)
        host_job.announce(node, seen.reports.get(node) if seen else None)
        host_job.start(node, None if prepared is not None else self._instead(host_job, node))
        return True

    def _apply_spare(self, host_job: HostJob, step: Step, prepared: Image | None) -> None:
        """Carry out a step about the launcher that waits on a spare host; what it cannot do is no failure of the job."""
        try:
            if step.kind != "start":
                host_job.end_spare()
            if step.kind != "remove":
                image = None if prepared is not None else self._instead(host_job, -1)
                control = self._fleet.known or control_of(self._fleet.seen)
                spare_launchers.start(host_job, control, image)
        except HostError as error:
            self.cold[host_job.host.name] = error

    def _instead(self, host_job: HostJob, node: int) -> str | None:
        """Return the image to start a node (-1: a spare) with if its name means another one by now than at `up`."""
        plan = self._fleet.plan
        nodes = (*plan.nodes, *plan.spares) if plan else ()
        container = next((n.container for n in nodes if n.index == node), None)
        return images.instead(host_job, container, control_of(self._fleet.seen).ledger.image) if container else None

    # Generations.

    def next_generation(self, plan: Plan, last: Generation | None, grace: float, nodes: Sequence[Node]) -> Generation:
        """Return the generation after `last` (the first, if None) with ports that are free on their hosts."""
        fleet = self._fleet
        first = fleet.host_jobs[min(nodes, key=lambda node: node.index).host.name]
        taken = {first.host.name: used_ports(first)}
        others = {node.host.name for node in nodes if node.launch.listens} - set(taken)
        taken |= {host_job.host.name: found for host_job, found in fleet.on(others, used_ports).done.items()}
        ports = {node.node: node.port for node in fleet.merge(fleet.seen, fleet.down).nodes}
        ports |= spare_launchers.ports(fleet, nodes)
        known = KnownPorts(lambda host, port: port not in taken.get(host, ()), first.host.name, ports)
        return choose_generation(plan, last, grace, nodes, known)

    def begin(self, generation: Generation, ledger: Ledger, patience: float) -> Failures:
        """Hand a generation to the launchers; the ledger goes first, see control.py."""
        fleet = self._fleet
        before = control_of(fleet.seen, fleet.known).generation
        fleet.job.keep_run(control_json(generation), ledger_json(ledger), control_json(before) if before else None)
        fleet.known = Control(generation, ledger)
        others = set(fleet.hosts_with_launchers())  # so that left out nodes stop, and spares know what is newest
        hosts = {member.host for member in generation.members} | others
        if len(hosts) > AT_ONCE:  # then some wait for others that would be told after them
            patience = 0.0
        return fleet.failures(self.hand_over(hosts, generation, ledger, patience))

    def keep(self, ledger: Ledger) -> None:
        """Keep what recovery has to remember, on all hosts of the job."""
        homes = [host for host, seen in self._fleet.seen.items() if seen.control.generation or seen.directories]
        raise_if_all(self.hand_over(homes, ledger=ledger))

    def command(self, verb: Literal["stop", "finish"], grace: float) -> None:
        """Tell all launchers to `stop` (and stay) or to `finish` (and exit)."""
        generation = self._fleet.observe().control.generation
        if generation is not None:
            told = replace(generation, command=verb, grace=grace)
            raise_if_all(self.hand_over(self._fleet.hosts_with_launchers(), told))

    def hand_over(
        self,
        hosts: Iterable[str],
        generation: Generation | None = None,
        ledger: Ledger | None = None,
        patience: float = 0.0,
    ) -> Outcome[HostJob, None]:
        """Replace the files of the run, side by side: the ledger first, then the control file, as far as given."""
        ours = ledger_json(ledger) if ledger else b""
        theirs = control_json(generation) if generation else b""
        return self._fleet.on(hosts, lambda host_job: host_job.hand_over(ours, theirs, patience))


def _apply_service(host_job: HostJob, step: Step) -> None:
    """Carry out a step about a service."""
    name = str(step.service)
    if step.kind in ("replace", "remove"):
        host_job.end(name, step.grace)
    if step.kind == "remove":
        host_job.remove([str(host_job.work / name), str(host_job.work / f"{name}.sh")])
    else:
        host_job.start_service(name)


def _wait_for_reports(host_job: HostJob, started: Iterable[int], fresh: dict[str, HostState]) -> None:
    """Wait until every launcher that was started reports; put down how the host looks. Raises HostError if one does not."""
    deadline = time.monotonic() + START_TIMEOUT
    waiting = set(started)
    while waiting:
        seen = fresh[host_job.host.name] = host_job.observe()
        for container in seen.containers:
            over = not container.running or container.restarting
            if container.node in waiting and over and not seen.ended(container.node):
                host_job.containers.kill([container])  # else its engine tries for ever
                raise _died(host_job, container)
        waiting = {node for node in waiting if not seen.started(node)}
        if waiting and time.monotonic() > deadline:
            node = min(waiting)
            message = f"the launcher of node {node} says nothing"
            hint = f"`docker logs jobctl-{host_job.job}-{node}` there"
            raise HostError(host_job.host.name, "launcher-silent", message, hint)
        if waiting:
            time.sleep(LOOK)


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
