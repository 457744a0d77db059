"""A job in a Kubernetes cluster, as an operation sees it: somebody else recovers it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NoReturn

from jobctl.jobspec.operations.errors import HostsFailed, NotYours, PartlyDone, Refused, UnsupportedOnTarget
from jobctl.jobspec.operations.lifecycle.applying import ended_already, grace_of, locked, refuse_unfit, step_teller
from jobctl.jobspec.operations.lifecycle.base import Applied, JobRequest, Restarted, ScaleRequest, Stopped, UpOptions
from jobctl.jobspec.operations.lifecycle.records import record_of, secrets_of, source_of, tell_up
from jobctl.jobspec.operations.resolve.ownership import refuse_others, refuse_owner, warn_of_another_spec
from jobctl.jobspec.operations.resolve.planning import owner
from jobctl.jobspec.operations.unsupported import refuse_unsupported, unsupported
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    from jobctl.jobspec.deploy.apply.changes import Changed
    from jobctl.jobspec.deploy.apply.deployer import Enterable
    from jobctl.jobspec.deploy.apply.reconcile import Step
    from jobctl.jobspec.deploy.kubernetes.cluster import Cluster, ObjectChange
    from jobctl.jobspec.operations.reporter import Reporter
    from jobctl.jobspec.operations.resolve.job import Compiled
    from jobctl.jobspec.plan.types import Plan

TARGET = "kubernetes"


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """What an operation is about to do in a cluster."""

    change: ObjectChange
    changed: tuple[Changed, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, none if nothing has to change."""
        return self.change.steps

    @property
    def phase(self) -> str:
        """How the job stands."""
        return self.change.there.phase


class ClusterJob:
    """One job in one namespace of a cluster, where an operator or a Job controller recovers it."""

    def __init__(self, cluster: Cluster) -> None:
        self.handle = cluster

    def deployer(self, command: str) -> NoReturn:
        """Raise UnsupportedOnTarget: the job's recovery is not jobctl's."""
        raise unsupported(TARGET, command) or UnsupportedOnTarget(f"there is no `{command}` on target `{TARGET}`")

    def breakable(self) -> NoReturn:
        """Raise UnsupportedOnTarget: somebody else recovers the job."""
        self.deployer("drill")

    def enterable(self) -> Enterable:
        """Return the cluster, whose API enters pods."""
        return self.handle

    def change(self, compiled: Compiled, options: UpOptions) -> ClusterChange:
        """Return what `up` would do now."""
        return ClusterChange(self._up_change(compiled, options))

    def up(self, compiled: Compiled, options: UpOptions, reporter: Reporter) -> Applied:
        """Start the job, or change it to what its plan says.

        The cluster is looked at twice: before the lock, for the check; and with it, since another command may have changed
        the job meanwhile.
        """
        cluster, plan = self.handle, self._plan()
        change = self._up_change(compiled, options)
        refuse_others(cluster, compiled, plan, reporter, fresh=False, take_over=options.take_over)
        if options.check and any(step.kind in ("create", "replace") for step in change.steps):
            refuse_unfit(cluster, plan, reporter, f"the cluster is not fit for job `{plan.job}`")
        with locked(cluster, "up", options.break_lock):
            return self._apply(compiled, plan, options, reporter)

    def scale(self, request: ScaleRequest, reporter: Reporter) -> NoReturn:
        """Raise UnsupportedOnTarget: the number of pods is part of what the job is made from."""
        self.deployer("scale")

    def stop(self, request: JobRequest, reporter: Reporter) -> Stopped:
        """Have no pod of the job run, and keep everything else in place."""
        cluster = self.handle
        with locked(cluster, "stop", request.break_lock):
            observed = cluster.observe()
            refuse_owner(cluster, observed, request.take_over)
            ended = ended_already(cluster.job.name, observed, is_up=cluster.has_files())
            if ended is not None:
                return ended
            return Stopped("stopped", logs=self._suspend(request, reporter))

    def _suspend(self, request: JobRequest, reporter: Reporter) -> Path | None:
        """End the pods, and return where their logs are."""
        from jobctl.jobspec.deploy.model.errors import DeployError
        from jobctl.jobspec.deploy.store import events

        cluster = self.handle
        self._refuse_queued()
        try:
            with reporter.waiting() as waiting:
                cluster.tell = waiting.show
                logs = cluster.stop(grace_of(cluster, request.grace))
        except DeployError as error:
            raise PartlyDone(error.message, error.hint) from error
        events.record(cluster.job.events, time.time(), "stopped", "job stopped by the user")
        return logs

    def restart(self, node: str | None, request: JobRequest, reporter: Reporter) -> Restarted:
        """Have all pods made again."""
        if node is not None:
            refuse_unsupported(TARGET, "restart --node")
        cluster, plan = self.handle, self.handle.plan
        name = cluster.job.name
        if plan is None:
            raise Refused(f"job `{name}` was not brought up from here", "`jobctl up --recreate` creates its pods again")
        with locked(cluster, "restart", request.break_lock):
            change = self._change(plan, {}, "`jobctl restart`", take_over=request.take_over)
            self._refuse_another(plan, change, request)
            self._try_out(change, {}, take_over=request.take_over)
            self._carry_out(change, {}, reporter, "restart", take_over=request.take_over)
        return Restarted(begins=True)

    def _refuse_another(self, plan: Plan, change: ObjectChange, request: JobRequest) -> None:
        """Raise Refused if the job is not as it was brought up, unless only another version of jobctl has made it.

        What that has made in another way goes with its pods, except secrets: only `up` knows their values.
        """
        odd = [step.target.split()[0] for step in change.steps if step.kind in ("create", "change")]
        if not odd:
            return
        stands = not self._change(plan, {}, None, take_over=request.take_over).steps
        if not stands or "Secret" in odd:
            up = "up --recreate" if stands else "up"
            message = f"job `{self.handle.job.name}` is not in the cluster as it was brought up"
            raise Refused(message, f"`jobctl {up}` fixes that first")

    def _plan(self) -> Plan:
        plan = self.handle.plan
        assert plan is not None, "a job that is brought up has a plan"
        return plan

    def _up_change(self, compiled: Compiled, options: UpOptions) -> ObjectChange:
        if options.fresh:
            refuse_unsupported(TARGET, "up --fresh")
        self._refuse_move()
        anew = "`--recreate`" if options.recreate else None
        return self._change(self._plan(), _readable(compiled), anew, take_over=options.take_over)

    def _refuse_move(self) -> None:
        """Raise Refused if the job is up in another place: it would then be there twice."""
        from jobctl.jobspec.deploy.kubernetes.access import load_access

        cluster = self.handle
        known = (cluster.job.job_record() or {}).get("cluster")
        reach = load_access(known) if known else None
        if reach is not None and not reach.is_of(cluster.api):
            name = cluster.job.name
            raise Refused(
                f"job `{name}` is up in {reach.place or 'another cluster'}, and would be brought up in {cluster.places()[0]} too",
                f"`jobctl down {name}` first",
            )

    def _change(self, plan: Plan, secrets: dict[str, str], anew: str | None, *, take_over: bool) -> ObjectChange:
        """Look at what there is to do. Raises NotYours if it is about someone else's objects."""
        from jobctl.jobspec.deploy.kubernetes.claim import Foreign

        cluster = self.handle
        try:
            change = cluster.change(plan, secrets, anew=anew, force=take_over)
        except Foreign as foreign:
            raise NotYours(foreign.message, foreign.hint) from foreign
        others = sorted(change.owners - {owner()})
        if others and not take_over:
            raise NotYours(
                f"job `{plan.job}` in {cluster.places()[0]} belongs to {', '.join(others)}, and is left alone",
                "give yours another `name`, or `--take-over` if it is yours nevertheless",
            )
        return change

    def _apply(self, compiled: Compiled, plan: Plan, options: UpOptions, reporter: Reporter) -> Applied:
        from jobctl.jobspec.deploy.kubernetes.access import dump_access

        cluster = self.handle
        change = self._up_change(compiled, options)
        secrets = secrets_of(compiled) if change.steps else {}
        warn_of_another_spec(cluster, compiled, reporter)
        cluster.check_here()
        cluster.job.create()
        if change.steps:
            self._try_out(change, secrets, take_over=options.take_over)
        access = dump_access(cluster.api, cluster.kinds or ())
        cluster.job.remember(record_of(compiled, plan, None, access), plan, source_of(compiled, plan, {}))
        if change.steps:
            tell_up(cluster, plan)
            self._carry_out(change, secrets, reporter, "up", take_over=options.take_over)
        return Applied(plan, change.steps, {}, True)

    def _try_out(self, change: ObjectChange, secrets: dict[str, str], *, take_over: bool) -> None:
        """Raise HostsFailed for what the server would refuse: nothing has changed then, neither there nor here."""
        from jobctl.jobspec.deploy.model.errors import DeployError

        try:
            self.handle.try_out(change, secrets, force=take_over)
        except DeployError as error:
            raise HostsFailed(error.message, error.hint) from error

    def _carry_out(
        self, change: ObjectChange, secrets: dict[str, str], reporter: Reporter, command: str, *, take_over: bool
    ) -> None:
        """Do it, telling of each step. Raises HostsFailed if nothing could be done, PartlyDone if some of it was, NotYours."""
        from jobctl.jobspec.deploy.kubernetes.claim import Foreign, HalfMade
        from jobctl.jobspec.deploy.model.errors import DeployError

        told: list[Step] = []
        tell = step_teller(self.handle, reporter, command)

        def note(step: Step) -> None:
            told.append(step)
            tell(step)

        try:
            with reporter.waiting() as waiting:
                self.handle.tell = waiting.show
                logs = self.handle.execute(change, secrets, note, force=take_over)
        except Foreign as theirs:
            raise NotYours(theirs.message, theirs.hint) from theirs
        except DeployError as error:
            ending = any(step.kind in ("remove", "replace") for step in told)
            count = len(told) - (not isinstance(error, HalfMade))
            if count <= 0 and not ending:
                raise HostsFailed(error.message, error.hint) from error
            done = "what runs was ended" if ending else f"{count} of {len(change.steps)} steps were done"
            reporter.error(f"{done}; `jobctl up` again does the others")
            raise PartlyDone(error.message, error.hint) from error
        if logs is not None:
            reporter.say(f"the logs of the pods that were ended are in {logs}")

    def _refuse_queued(self) -> None:
        """Raise Refused where Kueue would start the job again: it alone says when pods of what is in its queues run."""
        if self.handle.queued():
            raise Refused(
                f"Kueue decides when pods of job `{self.handle.job.name}` run, and would start them again at once",
                "`kubectl kueue stop workload` (`active: false` of its Workload) keeps it stopped; `jobctl down` ends it",
            )


def _readable(compiled: Compiled) -> dict[str, str]:
    """Return the values of the secrets that can be read here: `plan` and a second `up` do without the others."""
    from jobctl.jobspec.deploy.store.secrets import readable_secrets

    return readable_secrets(compiled.spec.secrets, compiled.directory, os.environ)
