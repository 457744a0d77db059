"""A job in Slurm, as an operation sees it: its launchers recover it inside the allocation."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, NoReturn

from jobctl.jobspec.deploy.slurm.sent_files import hashes_of
from jobctl.jobspec.operations.errors import HostsFailed, PartlyDone, Refused, UnsupportedOnTarget
from jobctl.jobspec.operations.lifecycle.applying import (
    cut_off,
    ended_already,
    grace_of,
    locked,
    ordering,
    refuse_unfit,
    step_teller,
)
from jobctl.jobspec.operations.lifecycle.base import Applied, JobRequest, Restarted, ScaleRequest, Stopped, UpOptions
from jobctl.jobspec.operations.lifecycle.records import record_of, secret_names, secrets_of, source_of, tell_up
from jobctl.jobspec.operations.lifecycle.telling import leave_none, leave_teller, tell_now
from jobctl.jobspec.operations.resolve.channels import channels_of, withheld_variables
from jobctl.jobspec.operations.resolve.drift import changed_secrets, differing, spec_started_with
from jobctl.jobspec.operations.resolve.moves import refuse_move_in_slurm
from jobctl.jobspec.operations.resolve.names import node_number
from jobctl.jobspec.operations.resolve.ownership import refuse_others, refuse_owner, warn_of_another_spec
from jobctl.jobspec.operations.unsupported import unsupported
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobctl.jobspec.deploy.apply.changes import Changed
    from jobctl.jobspec.deploy.apply.deployer import Breakable
    from jobctl.jobspec.deploy.apply.reconcile import Step
    from jobctl.jobspec.deploy.model.observed import Observed
    from jobctl.jobspec.deploy.slurm.allocation import SlurmAllocation
    from jobctl.jobspec.operations.reporter import Reporter
    from jobctl.jobspec.operations.resolve.job import Compiled
    from jobctl.jobspec.plan.types import Plan

TARGET = "slurm"


@dataclass(frozen=True, slots=True)
class AllocationChange:
    """What an operation is about to do in Slurm."""

    steps: tuple[Step, ...]
    phase: str
    changed: tuple[Changed, ...] = ()


class SlurmJob:
    """One job in Slurm: submitted, changed and ended through a login node."""

    def __init__(self, allocation: SlurmAllocation) -> None:
        self.handle = allocation

    def deployer(self, command: str) -> NoReturn:
        """Raise UnsupportedOnTarget: the job's recovery is its launchers'."""
        raise unsupported(TARGET, command) or UnsupportedOnTarget(f"there is no `{command}` on target `{TARGET}`")

    def breakable(self) -> Breakable:
        """Return the job: its launchers recover it."""
        return self.handle

    def enterable(self) -> NoReturn:
        """Raise UnsupportedOnTarget: there is nothing for SSH clients to enter."""
        self.deployer("ssh-config")

    def _plan(self) -> Plan:
        plan = self.handle.plan
        if plan is None:
            raise Refused(f"job `{self.handle.job.name}` is not up", "`jobctl up` submits it")
        return plan

    # Bringing up.

    def change(self, compiled: Compiled, options: UpOptions) -> AllocationChange:
        """Return what `up` would do now. Raises Refused if the job is up in another place."""
        from jobctl.jobspec.deploy.apply.deployer import AllUnreachable
        from jobctl.jobspec.deploy.model.observed import phase

        try:
            observed = self.handle.observe()
        except AllUnreachable as nothing:
            error = nothing.failures[self.handle.login.name]
            raise HostsFailed(error.message, error.hint, details={"job": self.handle.job.name}) from nothing
        refuse_owner(self.handle, observed, options.take_over)
        refuse_move_in_slurm(self.handle, compiled, take_over=options.take_over)
        changed = _changed_keys(compiled, self.handle)
        now = phase(observed)[0]
        return AllocationChange(self._steps(observed, changed, options), now, changed)

    def _steps(self, observed: Observed, changed: tuple[Changed, ...], options: UpOptions) -> tuple[Step, ...]:
        from jobctl.jobspec.deploy.slurm.steps import steps, submitted_of

        now = submitted_of(observed, self.handle.sent(), begins_runs=self.handle.begins_runs())
        return steps(self._plan(), now, changed, fresh=options.fresh, recreate=options.recreate)

    def up(self, compiled: Compiled, options: UpOptions, reporter: Reporter) -> Applied:
        """Submit the job, or change it to what its plan says."""
        plan = self._plan()
        change = self.change(compiled, options)
        refuse_others(self.handle, compiled, plan, reporter, fresh=options.fresh, take_over=options.take_over)
        if options.check and any(step.kind in ("create", "replace") for step in change.steps):
            refuse_unfit(self.handle, plan, reporter, f"Slurm does not take job `{plan.job}`")
        with locked(self.handle, "up", options.break_lock):
            applied = self._apply(compiled, options, reporter)
            if not options.supervise:
                leave_none(self.handle.job, reporter)
            elif self.handle.job.channels.exists() and not self.handle.is_settled():
                leave_teller(self.handle.job)
        tell_now(self.handle.job, reporter)
        return applied

    def _apply(self, compiled: Compiled, options: UpOptions, reporter: Reporter) -> Applied:
        from jobctl.jobspec.deploy.model.errors import DeployError
        from jobctl.jobspec.deploy.targets.background import end_supervisor
        from jobctl.jobspec.notify.channels import keep_channels

        allocation, plan = self.handle, self._plan()
        allocation.forget_look()  # another command may have changed the job meanwhile
        change = self.change(compiled, options)
        allocation.refuse_silent()
        secrets = secrets_of(compiled) if change.steps else {}
        channels = channels_of(compiled, os.environ, reporter)
        warn_of_another_spec(allocation, compiled, reporter)
        allocation.events().gather()  # before something of the job is removed
        allocation.check_here()
        allocation.job.create()
        keep_channels(allocation.job, plan.run_id, channels)
        # Values of secrets are the job's once they are sent: until then, the next `up` has to see that they differ.
        self._remember(compiled, plan, {} if allocation.sent() else secrets)
        if change.steps:
            end_supervisor(allocation.job)  # which would take what is replaced for ended
            tell_up(allocation, plan, fresh=options.fresh)
        self._begun = False
        try:
            with reporter.waiting() as waiting:
                allocation.tell = waiting.show
                tell = step_teller(allocation, reporter, "up")
                for step in change.steps:
                    tell(step)
                    self._begun = self._begun or step.kind == "replace"  # which ends the allocation
                    self._do(step, secrets, fresh=options.fresh)
                    if step.kind != "generation":
                        self._remember(compiled, plan, secrets)
        except DeployError as error:
            raise cut_off(error, begun=self._begun) from error
        return Applied(plan, change.steps, {}, True, changed=change.changed)

    def _remember(self, compiled: Compiled, plan: Plan, secrets: Mapping[str, str]) -> None:
        """Keep what the job is started with; of secrets that are not among these, what was known of them."""
        about = record_of(compiled, plan, self.handle.inventory)
        self.handle.job.remember(about, plan, source_of(compiled, plan, secrets))

    def _do(self, step: Step, secrets: Mapping[str, str], *, fresh: bool) -> None:
        from jobctl.jobspec.deploy.slurm.steps import DUE

        allocation, plan = self.handle, self._plan()
        if step.kind == "replace":
            allocation.cancel(plan.stop_grace)
        if step.kind == "create":
            self._await_end()
        if step.kind in ("create", "replace", "change"):
            sent = allocation.sent()
            if sent:
                self._note_sent({**sent, DUE: True})
            self._send(plan, secrets)
            if sent:
                self._note_sent({**sent, DUE: hashes_of(plan)})
        if step.kind in ("create", "replace"):
            self._submit(plan, fresh=fresh, sent=hashes_of(plan))
        if step.kind == "generation":
            self._order("restart", fresh=fresh, sent=hashes_of(plan))
            self._begun = True
            self._note_sent(hashes_of(plan))  # so does a coordinator, but not one of an earlier version

    def _note_sent(self, sent: Mapping[str, object]) -> None:
        """Write down what the job's processes begin with, for the next `up`."""
        self.handle.login.write("run/sent.json", json.dumps(sent, indent=1).encode())

    def _send(self, plan: Plan, secrets: Mapping[str, str]) -> None:
        """Put all files below the job's directory; what runs is not touched by that."""
        from jobctl.jobspec.deploy.sending.send_code import pack_code
        from jobctl.jobspec.plan.generation import first_generation
        from jobctl.jobspec.render.artefact import render

        login = self.handle.login
        self.handle.tell(f"sending files to {login.work}")
        login.send(render(plan, first_generation(plan)), ["run"], pack_code(plan), secrets)

    def _await_end(self) -> None:
        """Wait until Slurm has let go of a job that has ended: it would take the next one for that. Raises HostError."""
        from jobctl.jobspec.deploy.apply.clock import pause
        from jobctl.jobspec.deploy.model.errors import HostError
        from jobctl.jobspec.deploy.slurm.allocation import CANCEL_TIMEOUT

        allocation, deadline = self.handle, time.monotonic() + CANCEL_TIMEOUT
        while (look := allocation.look_anew()).result is not None and (entry := look.entry) is not None and entry.runs:
            if time.monotonic() > deadline:
                message = (
                    f"job {entry.job_id} has ended, and Slurm still has it as {entry.state}: nothing was submitted"
                )
                hint = f"`scontrol show job {entry.job_id}` shows why; `scancel {entry.job_id}` ends it"
                raise HostError(allocation.login.name, "slurm-not-gone", message, hint)
            allocation.tell(f"job {entry.job_id} has ended: waiting until Slurm has let go of it")
            pause(allocation.interval)

    def _submit(self, plan: Plan, *, fresh: bool = False, sent: Mapping[str, object] | None = None) -> None:
        """Have Slurm queue the job. What it was before, is over: all restarts are before it again.

        It goes on with the run that `up --fresh` has begun last, or with `fresh` begins another one. `sent` is what was sent
        for it.
        """
        from jobctl.jobspec.deploy.store import events

        allocation = self.handle
        before = allocation.seen("run/start.json")
        start = {"began": before.get("began") or time.time(), "fresh_budget": True, "owner": plan.owner}
        start |= {"fresh": fresh or bool(before.get("fresh")), "run": before.get("run")}
        start |= {name: before[name] for name in ("followed",) if name in before}
        allocation.login.write("run/start.json", json.dumps(start).encode())
        told = json.dumps(sent, indent=1).encode() if sent else b""
        job_id, new = allocation.login.submit(sorted(self._hidden(plan)), told)
        words = f"job {job_id} of Slurm was submitted" if new else f"Slurm has job {job_id} already"
        events.record(allocation.job.events, time.time(), "submitted", words, job_id=job_id)
        allocation.forget_look()

    def _hidden(self, plan: Plan) -> set[str]:
        """Return the variables that Slurm does not get: of secrets and `notify`, as the job was brought up, and misleading ones."""
        from jobctl.jobspec.deploy.slurm.variables import before_the_script, of_another_job

        names = secret_names(plan) | of_another_job(os.environ) | before_the_script(plan)
        spec = spec_started_with(self.handle.job)
        return names | withheld_variables(spec, os.environ) if spec is not None else names

    def _order(self, command: str, **more: object) -> None:
        entry = self.handle.look_anew().entry
        if entry is None or not entry.runs:
            raise Refused(f"job `{self.handle.job.name}` has no allocation now", "`jobctl status` says how it is")
        with ordering():
            self.handle.order(entry.job_id, command, **more)

    def scale(self, request: ScaleRequest, reporter: Reporter) -> Applied:
        """Have an elastic job go on with `count` nodes on the machines that it has. Raises Refused for what it cannot."""
        from jobctl.jobspec.deploy.apply.reconcile import Step
        from jobctl.jobspec.deploy.slurm.steps import due_of, next_generation

        allocation, plan, count = self.handle, self._plan(), request.count
        with locked(allocation, "scale", request.options.break_lock):
            observed = allocation.observe()
            refuse_owner(allocation, observed, request.options.take_over)
            _refuse_size(plan, observed, count)
            if len(observed.members) == count:
                return Applied(plan, (), {}, True)
            step = Step("generation", next_generation(observed), f"`jobctl scale {count}`")
            step_teller(allocation, reporter, "scale")(step)
            with reporter.waiting() as waiting:
                allocation.tell = waiting.show
                due = due_of(allocation.sent())  # the coordinator notes it once all launchers begin again
                self._order("scale", nodes=count, **({"sent": due} if due else {}))
        return Applied(plan, (step,), {}, True)

    # Ending and beginning again.

    def stop(self, request: JobRequest, reporter: Reporter) -> Stopped:
        """End the allocation, and keep everything in place."""
        from jobctl.jobspec.deploy.model.errors import DeployError
        from jobctl.jobspec.deploy.store import events

        allocation = self.handle
        with locked(allocation, "stop", request.break_lock):
            observed = allocation.observe()
            refuse_owner(allocation, observed, request.take_over)
            ended = ended_already(allocation.job.name, observed, is_up=allocation.has_files())
            if ended is not None:
                return ended
            try:
                with reporter.waiting() as waiting:
                    allocation.tell = waiting.show
                    allocation.cancel(grace_of(allocation, request.grace))
                allocation.note_stopped()
            except DeployError as error:
                raise PartlyDone(error.message, error.hint) from error
            allocation.events().gather()
            events.record(allocation.job.events, time.time(), "stopped", "job stopped by the user")
        tell_now(allocation.job, reporter)
        return Stopped("stopped")

    def restart(self, node: str | None, request: JobRequest, reporter: Reporter) -> Restarted:
        """Begin a new generation in the allocation; a job without one is submitted again.

        All launchers are started again, that of `node` too.
        """
        from jobctl.jobspec.deploy.apply.reconcile import Step
        from jobctl.jobspec.deploy.model.observed import SETTLED, phase
        from jobctl.jobspec.deploy.slurm.steps import due_of, next_generation

        allocation, plan = self.handle, self._plan()
        with locked(allocation, "restart", request.break_lock):
            observed = allocation.observe()
            refuse_owner(allocation, observed, request.take_over)
            if node is not None:
                node_number(plan, node, [one.node for one in observed.nodes])
            now, why = phase(observed)[0], "`jobctl restart`"
            if now == "pending":
                raise Refused(f"job `{allocation.job.name}` waits in Slurm's queue: there is nothing to restart")
            over = now in SETTLED
            step = Step("create", "allocation", why) if over else Step("generation", next_generation(observed), why)
            allocation.events().gather()
            step_teller(allocation, reporter, "restart")(step)
            due = due_of(allocation.sent())  # of an `up` that was cut off
            if over:
                self._await_end()
                self._submit(plan, sent=due)
            else:
                with reporter.waiting() as waiting:
                    allocation.tell = waiting.show
                    self._order("restart", **({"sent": due} if due else {}))
                if due:
                    self._note_sent(due)
            leave_teller(allocation.job)
        tell_now(allocation.job, reporter)
        return Restarted(begins=True)


def _refuse_size(plan: Plan, observed: Observed, count: int) -> None:
    """Raise Refused unless a job may have `count` nodes in the allocation that it has."""
    from jobctl.jobspec.deploy.model.observed import phase
    from jobctl.jobspec.render.slurm import machines

    now, (least, most) = phase(observed)[0], machines(plan)
    spares = plan.slurm.spares if plan.slurm else 0
    if now not in ("running", "degraded", "restarting"):
        raise Refused(f"job `{plan.job}` is {now}: there is nothing to scale", "`jobctl up` starts it")
    if not plan.elastic:
        hint = (
            'with a range, such as `nodes: "1:4"`, it is elastic; or change `nodes`, and `jobctl up` submits it again'
        )
        raise Refused(f"job `{plan.job}` has a fixed number of nodes: {most}", hint)
    if not least <= count <= most:
        raise Refused(f"job `{plan.job}` has {least} to {most} nodes", "`nodes` in the spec is its range")
    there = (
        len({node.host for node in observed.nodes if node.host} | {spare.host for spare in observed.spares}) - spares
    )
    if count > there:
        hint = "`jobctl stop`, then `jobctl up` asks Slurm for as many as there are"
        raise Refused(f"the allocation of job `{plan.job}` has machines for {there} nodes", hint)


def _changed_keys(compiled: Compiled, allocation: SlurmAllocation) -> tuple[Changed, ...]:
    """Return the keys of the spec that are not as the job was started with. Values of `secrets` count too."""
    spec = spec_started_with(allocation.job)
    return () if spec is None else (*differing(spec, compiled.spec), *changed_secrets(compiled, allocation.job))
