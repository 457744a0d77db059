"""A job on hosts or on this machine, as an operation sees it: jobctl itself recovers it."""

from __future__ import annotations

import time
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import PartlyDone, Refused
from jobctl.jobspec.operations.lifecycle.applying import cut_off, ended_already, grace_of, locked, step_teller
from jobctl.jobspec.operations.lifecycle.base import Applied, JobRequest, Restarted, ScaleRequest, Stopped, UpOptions
from jobctl.jobspec.operations.lifecycle.bring_up import (
    ENGINE_RESTART_TIMEOUT,
    STAY_SECONDS,
    BringUp,
    HostsChange,
    observe_patiently,
    refuse_ended,
)
from jobctl.jobspec.operations.lifecycle.telling import start_supervisor, tell_now
from jobctl.jobspec.operations.resolve.drift import compiled_as_started, say_drift
from jobctl.jobspec.operations.resolve.job import Where, as_started, check, compiled_of, refuse_missing_code
from jobctl.jobspec.operations.resolve.moves import refuse_move
from jobctl.jobspec.operations.resolve.names import node_number
from jobctl.jobspec.operations.resolve.ownership import refuse_owner, refuse_superseded
from jobctl.jobspec.operations.resolve.planning import plan_in_place

if TYPE_CHECKING:
    from collections.abc import Set

    from jobctl.jobspec.deploy.apply.deployer import Breakable, Deployer, Enterable, Failures
    from jobctl.jobspec.deploy.apply.executor import Done
    from jobctl.jobspec.deploy.model.errors import DeployError
    from jobctl.jobspec.deploy.model.observed import Observed
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.operations.reporter import Reporter
    from jobctl.jobspec.operations.resolve.job import Compiled
    from jobctl.jobspec.plan.types import Plan


class HostsJob:
    """One job that jobctl recovers: on hosts, or on this machine."""

    def __init__(self, deployer: Deployer) -> None:
        self.handle = deployer
        self._since = deployer.job.stamp()

    def deployer(self, command: str) -> Deployer:
        """Return the deployer, through which jobctl recovers the job: every command is supported here."""
        return self.handle

    def breakable(self) -> Breakable:
        """Return the deployer: every job that jobctl recovers can be drilled."""
        return self.handle

    def enterable(self) -> Enterable:
        """Return the deployer."""
        return self.handle

    def change(self, compiled: Compiled, options: UpOptions) -> HostsChange:
        """Return what `up` would do now."""
        bring_up = BringUp(self.handle, compiled, self._plan(), options)
        return bring_up.change(self.handle.observe())

    def up(self, compiled: Compiled, options: UpOptions, reporter: Reporter) -> Applied:
        """Start the job, or change it to what its plan says."""
        return BringUp(self.handle, compiled, self._plan(), options, reporter).run()

    def scale(self, request: ScaleRequest, reporter: Reporter) -> Applied:
        """Bring the job up with another number of nodes, planned again from the spec that it was started with.

        Raises ChangedMeanwhile if another command has changed the job before this one has the lock.
        """
        directory, options = self.handle.job, request.options
        where = Where(hosts=request.reached.hosts)
        compiled = compiled_as_started(directory.name, where) or _compiled_now(directory, request.job, where)
        refuse_missing_code(compiled)
        refuse_move(compiled, request.reached)
        _, deployer = plan_in_place(compiled, request.reached, request.count)
        self.handle = deployer
        say_drift(directory, reporter)  # while hosts let us in
        observed = deployer.observe()
        refuse_superseded(deployer, observed, options.take_over)
        refuse_ended(directory.name, observed)
        options = replace(options, start=deployer.started_with())
        return BringUp(deployer, compiled, self._plan(), options, reporter).scale(observed, self._since)

    def _plan(self) -> Plan:
        plan = self.handle.plan
        if plan is None:
            raise Refused(f"job `{self.handle.job.name}` is not up", "`jobctl up` starts it")
        return plan

    def _plan_here(self) -> Plan:
        """Return the plan. Raises Refused, or DeployError if no host answers: only hosts know what was not brought up here."""
        if self.handle.plan is None and self.handle.observe().control.generation is not None:
            name = self.handle.job.name
            raise Refused(f"job `{name}` was not brought up from here", "`jobctl up` from its spec makes it known here")
        return self._plan()

    def stop(self, request: JobRequest, reporter: Reporter) -> Stopped:
        """End all processes, and keep everything in place."""
        from jobctl.jobspec.deploy.model.control import JobResult
        from jobctl.jobspec.deploy.model.errors import DeployError
        from jobctl.jobspec.deploy.model.observed import phase
        from jobctl.jobspec.deploy.store import events

        deployer = self.handle
        with locked(deployer, "stop", request.break_lock, self._since):
            observed = deployer.observe()
            refuse_owner(deployer, observed, request.take_over)
            ended = ended_already(deployer.job.name, observed, is_up=observed.control.generation is not None)
            if ended is not None:  # whether a silent host has heard of it is not known
                return replace(ended, failures={} if ended.phase == "succeeded" else _silent(deployer, observed))
            # The wish first: whoever finds it without its fulfilment goes on with that.
            deployer.keep(
                replace(observed.control.ledger, result=JobResult("stopped", "stopped by the user", time.time()))
            )
            try:
                with reporter.waiting() as waiting:
                    deployer.tell = waiting.show
                    deployer.stop_processes(grace_of(deployer, request.grace))
                observed = deployer.observe()
                deployer.check_here()  # otherwise what was seen is what another command has begun
            except DeployError as error:
                raise _unseen_to_stop(deployer.job.name, error) from error
            events.record(deployer.job.events, time.time(), "stopped", "job stopped by the user")
        tell_now(deployer.job, reporter)
        busy = [node for node in observed.nodes if node.alive and node.state in ("starting", "running")]
        paused = {node.node: " ({}: {} lets it end)".format(*node.frozen_by) for node in busy if node.paused}
        left = tuple(f"node {node.node} on {node.host}{paused.get(node.node, '')}" for node in busy)
        return Stopped(phase(observed)[0], failures=_silent(deployer, observed), left=left)

    def restart(self, node: str | None, request: JobRequest, reporter: Reporter) -> Restarted:
        """Begin a new generation, whatever runs; with `node`, that node's launcher begins again too."""
        self.handle.preconnect()
        deployer, plan = self.handle, self._plan_here()
        say_drift(deployer.job, reporter)
        again = frozenset() if node is None else frozenset({node_number(plan, node, range(len(plan.nodes)))})
        with locked(deployer, "restart", request.break_lock, self._since):
            observed = observe_patiently(deployer, reporter)
            done = self._restart(plan, observed, again, request, reporter)
        tell_now(deployer.job, reporter)
        homes = {node.host.name for node in (deployer.plan or plan).nodes}
        return Restarted(done.generation is not None, {**_silent(deployer, observed, homes), **done.failed})

    def _where_nodes_are(self, plan: Plan, observed: Observed) -> Plan:
        """Return the plan with nodes where their launchers, or another machine, have moved them meanwhile."""
        from jobctl.jobspec.supervise.replan import moved_meanwhile, with_moves

        deployer = self.handle
        moves = moved_meanwhile(plan, observed.control.generation, deployer.job.standing(plan))
        source = deployer.job.source()
        if not moves or source is None or deployer.inventory is None:
            return plan
        deployer.plan = with_moves(plan, source, deployer.inventory, moves)
        deployer.job.keep_plan(deployer.plan)
        return deployer.plan

    def _restart(
        self, plan: Plan, observed: Observed, again: frozenset[int], request: JobRequest, reporter: Reporter
    ) -> Done:
        from jobctl.jobspec.deploy.apply.clock import SystemClock
        from jobctl.jobspec.deploy.apply.executor import Execution, Transition, execute, runs, wanted_state
        from jobctl.jobspec.deploy.apply.reconcile import reconcile
        from jobctl.jobspec.deploy.model.errors import DeployError
        from jobctl.jobspec.supervise.replan import places_of

        deployer = self.handle
        refuse_owner(deployer, observed, request.take_over)
        refuse_superseded(deployer, observed, request.take_over)
        plan = self._where_nodes_are(plan, observed)
        pending = deployer.job.pending()
        joining = {} if pending is None else places_of(pending, plan)
        want = wanted_state(deployer, plan, anew="`jobctl restart`", replace=again, joining=joining)
        steps, begun = reconcile(want, observed), Event()
        try:
            note = step_teller(deployer, reporter, "restart")
            # Where a change waits, its files are on the hosts already: what runs is started again from its own.
            starts = {step.host for step in steps if step.kind in ("start", "replace") and step.node is not None}
            failed = deployer.provision(plan, starts) if deployer.job.is_changing() and starts else {}
            how = Execution(failed=failed, patience=STAY_SECONDS, engines=ENGINE_RESTART_TIMEOUT, adopt=begun.set)
            done = execute(deployer, Transition(want, observed, steps), SystemClock(), note, how)
        except DeployError as error:
            raise cut_off(error, begun=begun.is_set(), ran=runs(observed)) from error
        if any(step.kind == "supervise" for step in steps):
            start_supervisor(deployer.job)
        return done


def _silent(deployer: Deployer, observed: Observed, planned: Set[str] = frozenset()) -> Failures:
    """Return why hosts of nodes, those that are `planned` among them, did not answer; a spare runs nothing of the job."""
    homes = {node.host for node in observed.nodes} | planned
    return {host: error for host, error in deployer.failures.items() if host in homes}


def _unseen_to_stop(name: str, error: DeployError) -> PartlyDone:
    """Return the error of a `stop` whose hosts went silent once they knew of it, or that lost the lock then."""
    message = f"job `{name}` is to stop, and whether it has is not known: {error.message}"
    return PartlyDone(message, f"`jobctl status {name}` shows it once hosts answer; then `jobctl stop {name}` again")


def _compiled_now(directory: JobDir, job: str | None, where: Where) -> Compiled:
    """Return the job from its spec file, where jobctl cannot read what it was started with any more."""
    return compiled_of(check(job, (directory.job_record() or {}).get("set"), as_started(job, where)))
