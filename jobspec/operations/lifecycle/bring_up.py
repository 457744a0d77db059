"""`up` on hosts and on this machine, whose jobs jobctl itself recovers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.store.webhooks import tells
from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.operations.lifecycle.applying import cut_off, locked, not_fit, step_teller
from jobctl.jobspec.operations.lifecycle.base import Applied, UpOptions
from jobctl.jobspec.operations.lifecycle.records import (
    asked,
    record_of,
    refuse_missing_data,
    secret_names,
    secrets_of,
    source_of,
    tell_refused,
    tell_up,
)
from jobctl.jobspec.operations.lifecycle.telling import leave_none, start_supervisor, tell_now
from jobctl.jobspec.operations.lifecycle.unfit_hosts import has_enough, plan_on, plan_on_spares, plan_with
from jobctl.jobspec.operations.reporter import SILENT
from jobctl.jobspec.operations.resolve.build import have_built
from jobctl.jobspec.operations.resolve.channels import channels_of, environ_of_job
from jobctl.jobspec.operations.resolve.drift import another_secret, changed_keys
from jobctl.jobspec.operations.resolve.ownership import refuse_others, refuse_owner, warn_of_another_spec
from jobctl.jobspec.plan.homes import homes_of
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.changes import Changed
    from jobctl.jobspec.deploy.apply.deployer import Deployer, Failures, RuntimeInputs
    from jobctl.jobspec.deploy.apply.executor import Done, Fresh, Transition
    from jobctl.jobspec.deploy.apply.reconcile import Step, Wanted
    from jobctl.jobspec.deploy.model.finding import Finding
    from jobctl.jobspec.deploy.model.notification import Channel
    from jobctl.jobspec.deploy.model.observed import Observed
    from jobctl.jobspec.operations.reporter import Reporter
    from jobctl.jobspec.operations.resolve.job import Compiled
    from jobctl.jobspec.plan.types import Plan

STAY_SECONDS = 1.0  # seconds for which hosts are asked to stay until launchers have begun
ENGINE_RESTART_TIMEOUT = 20.0  # seconds within which an engine that is restarted has to be back


@dataclass(frozen=True, slots=True)
class HostsChange:
    """What an operation is about to do on hosts: the steps from what runs to what should."""

    observed: Observed
    want: Wanted
    steps: tuple[Step, ...]

    @property
    def transition(self) -> Transition:
        """The same, for the executor."""
        from jobctl.jobspec.deploy.apply.executor import Transition

        return Transition(self.want, self.observed, self.steps)

    @property
    def changed(self) -> tuple[Changed, ...]:
        """The keys of the spec that are not as what runs was started with."""
        return self.want.changed or ()

    @property
    def phase(self) -> str:
        """How the job stands."""
        from jobctl.jobspec.deploy.model.observed import phase

        return phase(self.observed)[0]


def observe_patiently(deployer: Deployer, reporter: Reporter) -> Observed:
    """Look at what runs; engines of a running job that do not answer get a moment to come back first."""
    from jobctl.jobspec.deploy.model.errors import ENGINE_AWAY_CODES

    observed = deployer.observe()
    away = {host for host, error in deployer.failures.items() if error.code in ENGINE_AWAY_CODES}
    away &= set(observed.control.placement.values())
    if not away:
        return observed
    reporter.say(f"waits for the engine of {', '.join(sorted(away))}, for {ENGINE_RESTART_TIMEOUT:g} s at most")
    return deployer.observe() if away - set(deployer.engines(away, ENGINE_RESTART_TIMEOUT)) else observed


def refuse_ended(name: str, observed: Observed) -> None:
    """Raise Refused if a job that gets another number of nodes has ended, or is told to: it would begin again."""
    from jobctl.jobspec.deploy.model.observed import SETTLED, phase

    now, _ = phase(observed)
    if now in SETTLED or observed.control.ledger.result is not None:
        how = now if now in SETTLED else "being stopped"
        raise Refused(f"job `{name}` is {how}: there is nothing to scale", "`jobctl up` starts it")


class BringUp:
    """One `up` of a job: what it was asked, and what the job is compared with."""

    def __init__(
        self, deployer: Deployer, compiled: Compiled, plan: Plan, options: UpOptions, reporter: Reporter = SILENT
    ) -> None:
        self.deployer, self.compiled, self.plan = deployer, compiled, plan
        self.options, self.reporter = options, reporter
        self.changed = changed_keys(compiled, plan, deployer, secrets=options.start is None)
        self._known = deployer.job.stamp(), homes_of(deployer.job.plan())  # what it is compared with
        self.channels: tuple[Channel, ...] | None = None  # None: this command does not know them
        self.unfit: Failures = {}  # hosts that were measured, and found unfit
        self.measured: list[Finding] = []  # what was measured, if something was
        self._begun = False  # whether the plan is the job's by now
        self._note = step_teller(deployer, reporter, "up")

    def change(self, observed: Observed) -> HostsChange:
        """Return what there is to do, from what was observed."""
        from jobctl.jobspec.deploy.apply.executor import wanted_state
        from jobctl.jobspec.deploy.apply.reconcile import reconcile

        self._follow(observed)
        options, plan = self.options, self.plan
        anew = "`--fresh`: a new run" if options.fresh else "`--recreate`" if options.recreate else None
        anew = anew or another_secret(self.changed)
        every = frozenset(node.index for node in plan.nodes) if options.recreate else frozenset()
        spares = self.deployer.spares(plan)
        how = {"supervise": options.supervise, "spares": spares, "changed": self.changed}
        want = wanted_state(self.deployer, plan, anew=anew, replace=every, **how)
        return HostsChange(observed, want, reconcile(want, observed))

    def _follow(self, observed: Observed) -> None:
        """Plan nodes where their launchers, or another machine, have moved them meanwhile."""
        from jobctl.jobspec.supervise.replan import moved_meanwhile

        moves = moved_meanwhile(self.plan, observed.control.generation, self.deployer.job.standing(self.plan))
        if moves and {host.name for host in self.compiled.hosts} >= set(moves.values()):
            self._go_by(plan_on(self.compiled, self.plan, moves))

    def _renew(self) -> None:
        """Compare with what others have made of the job, and where nodes have moved, while the lock was not ours."""
        job, (since, homes) = self.deployer.job, self._known
        if job.stamp() != since:
            self._go_by(plan_with(self.compiled, self.plan, homes, homes_of(job.plan())))

    def _go_by(self, plan: Plan) -> None:
        self.plan = self.deployer.plan = plan
        self.changed = changed_keys(self.compiled, plan, self.deployer, secrets=self.options.start is None)

    def run(self) -> Applied:
        """Bring the job up.

        The job is looked at twice. Before the lock, since the check of the hosts that are needed takes long, and nobody else
        should have to wait for it. And again with the lock, since another command may have changed the job meanwhile: what
        is done follows from that look only.
        """
        left = self._prepare(None)
        with locked(self.deployer, "up", self.options.break_lock):
            applied = self._apply(left, self._look())
            if not self.options.supervise and not applied.held:
                leave_none(self.deployer.job, self.reporter)
        tell_now(self.deployer.job, self.reporter)
        return applied

    def scale(self, seen: Observed, since: tuple[tuple[int, int], ...]) -> Applied:
        """Bring a job that runs to another number of nodes. `seen` is how it was when its stamp was `since`.

        Raises Refused if it has ended meanwhile, and ChangedMeanwhile if another command has changed it.
        """
        self._note = step_teller(self.deployer, self.reporter, "scale")
        left = self._prepare(seen)
        with locked(self.deployer, "scale", self.options.break_lock, since):
            observed = self._look()
            refuse_ended(self.deployer.job.name, observed)
            applied = self._apply(left, observed)
        tell_now(self.deployer.job, self.reporter)
        return applied

    def _prepare(self, seen: Observed | None) -> Failures:
        """Do what needs no lock; return the hosts that are not fit, and why."""
        refuse_missing_data(self.plan)
        self._refuse_others(self.reporter)
        return self._left_out(seen) if self.options.check or self.plan.build else {}

    def _look(self) -> Observed:
        """Look at the job, with the lock held."""
        return self.deployer.observe() if self.options.check else observe_patiently(self.deployer, self.reporter)

    def _refuse_others(self, reporter: Reporter) -> None:
        fresh, take_over = self.options.fresh, self.options.take_over
        refuse_others(self.deployer, self.compiled, self.plan, reporter, fresh=fresh, take_over=take_over)

    def _left_out(self, seen: Observed | None = None) -> Failures:
        """Have the image built, and check the hosts that get new containers; return those that are not fit, and why.

        Raises HostsFailed if none is, or if the image cannot be built.
        """
        whole = seen is not None and not seen.unreachable
        change = self.change(seen if seen is not None and whole else observe_patiently(self.deployer, self.reporter))
        refuse_owner(self.deployer, change.observed, self.options.take_over)
        if change.steps:
            have_built(self.deployer, self.plan, self.reporter)
        return self._checked(change) if self.options.check else {}

    def _checked(self, change: HostsChange) -> Failures:
        from jobctl.jobspec.deploy.model.unfit import failures_of, measured_unfit

        deployer, plan = self.deployer, self.plan
        homes = {step.host for step in change.steps if step.kind in ("start", "replace") and not step.spare}
        if not homes:
            return {}
        new = change.observed.control.generation is None or homes - set(change.observed.control.placement.values())
        fitness = plan.fitness if new else "off"
        findings = deployer.preflight(plan, homes, fitness=fitness)
        self.measured += findings if fitness != "off" else []
        left = failures_of(findings)
        self.reporter.findings([f for f in findings if f.verdict == "warning"])
        if set(left) >= {node.host.name for node in plan.nodes}:
            raise not_fit(plan, left, f"no host is fit for job `{plan.job}`: nothing was changed")
        unfit = measured_unfit(findings)
        self.unfit = {**self.unfit, **unfit}
        return left if not unfit or has_enough(plan, left) else self._on_spares(left)

    def _on_spares(self, left: Failures) -> Failures:
        """Have spares take the place of hosts that are not fit, and check those; return which hosts are left out.

        Raises HostsFailed if there are not enough of them.
        """
        plan = self.plan
        moved = plan_on_spares(self.compiled, plan, left, {*self.unfit, *self.deployer.failures})
        if moved is None:
            fit = sum(1 for node in plan.nodes if node.host.name not in left)
            message = f"job `{plan.job}` needs {plan.min_nodes} nodes, and hosts for {fit} are fit: nothing was changed"
            raise not_fit(plan, left, message, "add hosts or a `spare`, give a range of `nodes`, or `fitness: off`; ")
        self._plan_on_spares(moved, left)
        return self._checked(self.change(self.deployer.observe()))

    def _plan_on_spares(self, moved: Plan, left: Failures) -> None:
        """Go on with a plan that has spares in the place of the hosts that are `left` out, and say so."""
        for node, before in zip(moved.nodes, self.plan.nodes, strict=True):
            home = before.host.name
            if node.host.name != home:
                self.reporter.warn(f"node {node.index} runs on spare {node.host.name}: {left[home].message}")
        self._go_by(moved)

    def _apply(self, left: Failures, now: Observed) -> Applied:
        """Do what is missing, with the lock held. `left` are hosts that are not fit, `now` is how the job is."""
        from jobctl.jobspec.deploy.apply.deployer import RuntimeInputs
        from jobctl.jobspec.deploy.apply.executor import runs

        deployer, options, job = self.deployer, self.options, self.deployer.job
        self._renew()
        change = self.change(now)
        observed, steps, plan = change.observed, change.steps, self.plan
        refuse_owner(deployer, observed, options.take_over)
        deployer.events().gather()  # before something of the job is removed
        self._refuse_others(SILENT)
        homes = {node.host.name for node in plan.nodes} | {node.host for node in observed.nodes}
        failed = {host: error for host, error in {**deployer.failures, **left}.items() if host in homes}
        read = secrets_of(self.compiled) if options.start is None and (steps or job.is_changing()) else {}
        start = options.start or RuntimeInputs(environ_of_job(self.compiled, os.environ), read)
        if options.start is None:
            self.channels = channels_of(self.compiled, os.environ, self.reporter)
        warn_of_another_spec(deployer, self.compiled, self.reporter)
        if left and change.transition.is_held(failed):  # a person has to mend that first
            return Applied(plan, steps, failed, ready=True, held=True, supervised=False, changed=self.changed)
        deployer.check_here()
        job.create()
        deployer.note_unmet()
        generation = observed.control.generation
        self._keep_channels(plan.run_id if generation is None else generation.run_id)
        before = job.plan()
        withdrawn = not steps and job.is_changing()  # its files are on the hosts, and have to be replaced
        keep = job.propose if steps and runs(observed) else job.remember
        keep(record_of(self.compiled, plan, deployer.inventory), plan, source_of(self.compiled, plan, start.secrets))
        if not steps and not withdrawn:
            self._leave_webhooks(before)
            job.agree(generation)
            return Applied(plan, (), failed, generation is not None, changed=self.changed)
        return self._carry_out(change, start, failed, before)

    def _keep_channels(self, run: str) -> None:
        """Keep the channels of the job, if this command knows them."""
        if self.channels is not None:
            from jobctl.jobspec.notify.channels import keep_channels

            keep_channels(self.deployer.job, run, self.channels)

    def _leave_webhooks(self, before: Plan | None) -> None:
        """Give launchers the webhooks of now, if they have some, or had."""
        if self.channels is not None and (tells(self.plan) or (before is not None and tells(before))):
            self.deployer.leave_secrets(None)

    def _carry_out(self, change: HostsChange, start: RuntimeInputs, failed: Failures, before: Plan | None) -> Applied:
        """Prepare the hosts and apply the steps; leave a supervisor behind. Raises HostsFailed or PartlyDone."""
        from jobctl.jobspec.deploy.apply.executor import fresh_run, runs
        from jobctl.jobspec.deploy.model.errors import DeployError

        deployer, plan, generation = self.deployer, self.plan, change.observed.control.generation
        fresh = fresh_run(plan, generation, deployer.exists) if self.options.fresh else None
        if fresh:
            self._keep_channels(fresh.run_id)
        tell_up(deployer, plan, fresh=self.options.fresh, unfit=self.unfit, measured=self.measured)
        try:
            with self.reporter.waiting() as waiting:
                deployer.tell = waiting.show
                failed = {**failed, **deployer.prepare(plan, start)}
            if fresh and fresh.checkpoint_dir:
                deployer.make_directory(fresh.checkpoint_dir)
            prepared = {node.host.name for node in plan.nodes} - set(failed)
            deployer.job.mark_prepared(prepared, asked(self.options, fresh, generation))
            begun, change, failed = self._bring_in(change, failed)
            done = self._execute(change, fresh, failed)
            if done.generation is None and not runs(change.observed):
                done, plan = self._execute_on_spares(done, fresh, start), self.plan
            for error in deployer.spare_launcher_failures.values():
                self.reporter.warn(f"spare {error.message}; it stays cold")
            if not done.held:
                deployer.job.agree(change.observed.control.generation)
            if not done.held and before is not None and secret_names(before) - secret_names(plan):
                deployer.leave_secrets({name: start.secrets[name] for name in secret_names(plan)})
            if not done.held:
                self._leave_webhooks(before)
        except DeployError as error:
            raise cut_off(error, begun=self._begun, ran=runs(change.observed)) from error
        hosts = {node.host.name for node in plan.nodes}
        if any(step.kind == "supervise" for step in change.steps) and not hosts <= set(done.failed):
            start_supervisor(deployer.job)
        ended = change.transition.begins is not None and not runs(change.observed)
        ready = done.generation is not None or (generation is not None and not ended)
        # A supervisor can make the change later only where hosts have got all that it needs.
        later = prepared >= hosts and (self.options.supervise or bool(change.observed.supervised))
        return Applied(plan, (*begun, *change.steps), done.failed, ready, done.held, later, self.changed)

    def _bring_in(self, change: HostsChange, failed: Failures) -> tuple[tuple[Step, ...], HostsChange, Failures]:
        """Have nodes that join get ready while what runs goes on; return the steps for that, what is left to do, and who failed.

        Raises Refused if the job has ended meanwhile, or another command has changed it.
        """
        from jobctl.jobspec.deploy.apply.joining import bring_in, joining
        from jobctl.jobspec.deploy.model.observed import SETTLED

        deployer, steps = self.deployer, joining(change.transition, failed)
        if not steps:
            return (), change, failed
        for step in steps:
            self._note(step)
        with self.reporter.waiting() as waiting:
            deployer.tell = waiting.show
            joined = bring_in(deployer, steps, change.observed)
        if joined.overtaken is not None:
            words = f"job `{self.plan.job}` {joined.overtaken} while new nodes got ready: this command changed nothing"
            raise Refused(words, f"`jobctl status {self.plan.job}` shows it")
        for node, why in sorted(joined.cold.items()):
            self.reporter.say(f"node {node} starts cold: {why}")
        left = self.change(joined.observed)
        if left.phase in SETTLED:
            words = f"job `{self.plan.job}` {left.phase} while new nodes got ready: it was not changed"
            raise Refused(words, "`jobctl up` begins it again")
        homes = {node.host.name for node in self.plan.nodes}
        away = {host: error for host, error in deployer.failures.items() if host in homes}
        return steps, left, {**failed, **away, **joined.failed}

    def _execute_on_spares(self, done: Done, fresh: Fresh | None, start: RuntimeInputs) -> Done:
        """Have spares take the place of hosts that answer and could not start their nodes, as long as there are enough."""
        from jobctl.jobspec.deploy.model.errors import is_unanswered

        deployer = self.deployer
        while done.generation is None and not done.held:
            homes = {node.host.name for node in self.plan.nodes}
            refused = {host: error for host, error in done.failed.items() if host in homes}
            moved = plan_on_spares(self.compiled, self.plan, refused, {*self.unfit, *deployer.failures})
            if moved is None or not refused or any(map(is_unanswered, refused.values())):
                return done
            self.unfit = {**self.unfit, **refused}
            self._plan_on_spares(moved, refused)
            tell_refused(deployer.job, refused)
            deployer.job.keep_plan(moved)
            done = self._execute(self.change(deployer.observe()), fresh, deployer.prepare(moved, start))
        return done

    def _begin(self) -> None:
        """Go by the new plan from here on."""
        self._begun = True
        self.deployer.job.adopt()

    def _execute(self, change: HostsChange, fresh: Fresh | None, failed: Failures) -> Done:
        from jobctl.jobspec.deploy.apply.clock import SystemClock
        from jobctl.jobspec.deploy.apply.executor import Execution, execute

        how = Execution(None, fresh, failed, STAY_SECONDS, ENGINE_RESTART_TIMEOUT, self._begin)
        return execute(self.deployer, change.transition, SystemClock(), self._note, how)
