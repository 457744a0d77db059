"""Steps on the hosts of a job: launchers and services are started there, ended and handed what they missed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Generic

from jobctl.jobspec.deploy.apply.deployer import Failures, Verb
from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.model.control import Control, Image, Ledger, ledger_json
from jobctl.jobspec.deploy.model.host_state import HostState, control_of
from jobctl.jobspec.deploy.targets.fleet import Fleet, raise_if_all
from jobctl.jobspec.deploy.targets.job_on_host import J, JobOnHost, LauncherStarter
from jobctl.jobspec.deploy.transport.fanout import MAX_PARALLEL, Outcome
from jobctl.jobspec.plan.generation import Generation
from jobctl.jobspec.render.payload import control_json, handed_over


class Launchers(Generic[J]):
    """The launchers of a job on its hosts, and what they are handed."""

    def __init__(self, fleet: Fleet[J], starter: LauncherStarter[J]) -> None:
        self._fleet, self._starter = fleet, starter

    # Steps.

    def apply(self, steps: Sequence[Step], prepared: Image | None) -> Failures:
        """Carry out steps about nodes, and hand-overs, on each host in their order.

        `prepared` is what the image was just found to be. Without it, nodes start with the image of the job's `up`.
        """
        fleet = self._fleet
        todo = {host: [step for step in steps if step.host == host] for host in {step.host for step in steps}}
        fresh: dict[str, HostState] = {}

        def execute(host_job: J) -> None:
            name = host_job.host.name
            self._wait_for_reports(host_job, self._apply_on(host_job, todo[name], prepared), fresh)
            if any(step.spare for step in todo[name]):
                fresh[name] = host_job.observe()

        outcome = fleet.on_each(todo, execute)
        fleet.seen = {**fleet.seen, **fresh}
        return fleet.failures(outcome)

    def _apply_on(self, host_job: J, steps: Sequence[Step], prepared: Image | None) -> set[int]:
        """Carry out the steps of one host; return the nodes whose launchers were started."""
        started = set()
        for step in steps:
            if step.service is not None:
                _apply_service(host_job, step, step.service)
            elif step.spare:
                self._starter.apply_spare(host_job, step, prepared)
            elif step.kind == "prepare":
                continue  # `prepare` has done it
            elif step.node is not None:
                if self._apply_node(host_job, step, step.node, prepared):
                    started.add(step.node)
            else:
                self._hand_over_known(host_job)
        return started

    def _apply_node(self, host_job: J, step: Step, node: int, prepared: Image | None) -> bool:
        """Carry out a step about a node; say whether its launcher was started."""
        seen = self._fleet.seen.get(host_job.host.name)
        if step.kind != "start" or seen is None or any(container.node == node for container in seen.containers):
            host_job.end(node, step.grace)
        if step.kind == "remove" and self._is_no_part(node):
            host_job.forget(node)
        if step.kind not in ("replace", "start"):
            return False
        self._let_wait(host_job, node)
        self._starter.start(host_job, node, prepared)
        return True

    def _is_no_part(self, node: int) -> bool:
        """Say whether the job has no such node any more, wherever it was."""
        plan = self._fleet.plan
        return plan is not None and all(other.index != node for other in plan.nodes)

    def _let_wait(self, host_job: J, node: int) -> None:
        """Have a launcher that is about to start know what runs without its node: beside that, it gets its standby ready."""
        generation, seen = self._known.generation, self._fleet.seen.get(host_job.host.name)
        if generation is None or generation.command != "run" or node in self._known.placement:
            return
        if seen is None or seen.control.generation != generation:
            self._hand_over_known(host_job)

    @property
    def _known(self) -> Control:
        """What was observed last."""
        return self._fleet.known or control_of(self._fleet.seen)

    def _hand_over_known(self, host_job: J) -> None:
        """Hand the newest generation to a host that lacks it."""
        control = self._known
        raise_if_all(self.hand_over([host_job.host.name], control.generation, control.ledger))

    def _wait_for_reports(self, host_job: J, started: Iterable[int], fresh: dict[str, HostState]) -> None:
        """Wait until every launcher that was started reports; put down how the host looks. Raises DeployError if one does not."""
        deadline = time.monotonic() + self._starter.timeout
        waiting = set(started)
        while waiting:
            seen = fresh[host_job.host.name] = host_job.observe()
            for node in sorted(waiting):
                self._starter.check(host_job, node, seen)
            waiting = {node for node in waiting if not seen.started(node)}
            if waiting and time.monotonic() > deadline:
                raise self._starter.silence_error(host_job, min(waiting))
            if waiting:
                time.sleep(self._starter.pause)

    # Generations.

    def begin(self, generation: Generation, ledger: Ledger, patience: float) -> Failures:
        """Hand a generation to the launchers; the ledger goes first, see control.py."""
        fleet = self._fleet
        before = control_of(fleet.seen, fleet.known).generation
        if fleet.keeps_run:
            fleet.job.keep_run(control_json(generation), ledger_json(ledger), control_json(before) if before else None)
        fleet.known = Control(generation, ledger)
        others = set(fleet.hosts_with_launchers())  # so that left out nodes stop, and spares know what is newest
        hosts = {member.host for member in generation.members} | others
        if len(hosts) > MAX_PARALLEL:  # then some wait for others that would be told after them
            patience = 0.0
        return fleet.failures(self.hand_over(hosts, generation, ledger, patience))

    def keep(self, ledger: Ledger) -> None:
        """Keep what recovery has to remember, on all hosts of the job."""
        homes = [host for host, seen in self._fleet.seen.items() if seen.control.generation or seen.directories]
        raise_if_all(self.hand_over(homes, ledger=ledger))

    def command(self, verb: Verb, grace: float) -> None:
        """Tell all launchers to `stop` (and stay), also as a `pause`, or to `finish` (and exit)."""
        generation = self._fleet.observe().control.generation
        if generation is not None:
            told = generation.told("finish" if verb == "finish" else "stop", grace, for_change=verb == "pause")
            raise_if_all(self.hand_over(self._fleet.hosts_with_launchers(), told))

    def hand_over(
        self,
        hosts: Iterable[str],
        generation: Generation | None = None,
        ledger: Ledger | None = None,
        patience: float = 0.0,
    ) -> Outcome[J, None]:
        """Replace the files of the run, side by side: the ledger first, then the control file, as far as given."""
        ours = ledger_json(ledger) if ledger else b""
        theirs = handed_over(generation) if generation else b""
        return self._fleet.on_each(hosts, lambda host_job: host_job.hand_over(ours, theirs, patience))


def _apply_service(host_job: JobOnHost, step: Step, name: str) -> None:
    """Carry out a step about a service."""
    if step.kind in ("replace", "remove"):
        host_job.end(name, step.grace)
    if step.kind == "remove":
        host_job.forget(name)
    else:
        host_job.start_service(name)
