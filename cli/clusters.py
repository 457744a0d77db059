"""What commands do with a job in a Kubernetes cluster, where they do something else than with one on hosts."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobctl import console
from jobctl.bringup import (
    Options,
    about,
    grace_of,
    locked,
    secrets_of,
    show_steps,
    source_of,
    tell_up,
    teller,
)
from jobctl.console import Failed
from jobctl.options import Format
from jobctl.outcome import SETTLED, Applied, finish_up, raise_code, report, wait_until_up
from jobctl.ownership import refuse_others, refuse_owner, warn_of_another_spec
from jobctl.running import cluster_for, refuse
from jobctl.views.progress import Progress

if TYPE_CHECKING:
    from jobctl.jobs import Compiled, Where
    from jobctl.jobspec.deploy.apply.changes import Changed
    from jobctl.jobspec.deploy.apply.reconcile import Step
    from jobctl.jobspec.deploy.kubernetes.cluster import Cluster, ObjectChange
    from jobctl.jobspec.plan.types import Plan


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """What a command is about to do in a cluster, as `show_steps` takes it."""

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


def changes_in_cluster(compiled: Compiled, where: Where) -> tuple[Plan, Cluster, ClusterChange]:
    """Return what `up` would do."""
    plan, cluster = cluster_for(compiled, where)
    _refuse_move(cluster)
    return plan, cluster, ClusterChange(_change(cluster, plan, Options(), _readable(compiled)))


def up_in_cluster(compiled: Compiled, where: Where, options: Options) -> int:
    """Bring a job up in a cluster and return the exit code."""
    if options.fresh:
        hint = "name another `checkpoint` directory, for example with `--set checkpoint=…`"
        raise Failed(
            "there is no `--fresh` on target `kubernetes`: the checkpoint's place is in the manifests", 2, hint
        )
    plan, cluster = cluster_for(compiled, where)
    _refuse_move(cluster)
    change = _change(cluster, plan, options, _readable(compiled))
    if options.dry_run:
        show_steps({"job": plan.job}, ClusterChange(change), options.output)
        return 0
    refuse_others(cluster, compiled, plan, fresh=False, take_over=options.take_over)
    if options.check and any(step.kind in ("create", "replace") for step in change.steps):
        _refuse_unfit(cluster, plan, options)
    with locked(cluster, "up", options.break_lock):
        done = _apply(cluster, compiled, plan, options)
    return finish_up(cluster, done, follow=options.follow, output=options.output)


def _refuse_move(cluster: Cluster) -> None:
    """End with 2 if the job is up in another place: it would then be there twice."""
    known = (cluster.job.about() or {}).get("cluster")
    api = cluster.api
    if known and (known["context"], known["namespace"]) != (api.context, api.namespace):
        name, there = cluster.job.name, f"{known['context']}/{known['namespace']}"
        raise Failed(
            f"job `{name}` is up in {there}, and would be brought up in {cluster.where()[0]} too",
            2,
            f"`jobctl down {name}` first",
        )


def _readable(compiled: Compiled) -> dict[str, str]:
    """Return the values of the secrets that can be read here: `plan` and a second `up` do without the others."""
    from jobctl.jobspec.deploy.store.secrets import readable_secrets

    return readable_secrets(compiled.spec.secrets, compiled.directory, console.environ())


def _change(
    cluster: Cluster, plan: Plan, options: Options, secrets: dict[str, str], anew: str | None = None
) -> ObjectChange:
    """Look at what there is to do. Ends with 5 if it is about someone else's objects."""
    from jobctl.jobs import owner
    from jobctl.jobspec.deploy.kubernetes.cluster import Foreign

    cause = anew or ("`--recreate`" if options.recreate else None)
    try:
        change = cluster.change(plan, secrets, anew=cause, force=options.take_over)
    except Foreign as foreign:
        raise Failed(foreign.message, 5, foreign.hint) from foreign
    others = sorted(cluster.owners(change) - {owner()})
    if others and not options.take_over:
        raise Failed(
            f"job `{plan.job}` in {cluster.where()[0]} belongs to {', '.join(others)}, and is left alone",
            5,
            "give yours another `name`, or `--take-over` if it is yours nevertheless",
        )
    return change


def _refuse_unfit(cluster: Cluster, plan: Plan, options: Options) -> None:
    """Check the cluster. Ends with 3 if it is not fit for the job."""
    from jobctl.preflight import failures_of, show_findings

    findings = cluster.preflight(plan, cluster.where())
    show_findings([f for f in findings if f.verdict in ("warning", "error")])
    unfit = failures_of(findings)
    if unfit:
        raise Failed(
            f"the cluster is not fit for job `{plan.job}`: nothing was changed",
            3,
            "`--skip-check` goes on all the same",
            {"job": plan.job, "failed_hosts": [console.failure_json(h, e) for h, e in unfit.items()]},
        )


def _apply(cluster: Cluster, compiled: Compiled, plan: Plan, options: Options) -> Applied:
    from jobctl.jobspec.deploy.kubernetes.cluster import dump_cluster

    change = _change(cluster, plan, options, _readable(compiled))  # once more: another command may have had the lock
    secrets = secrets_of(compiled) if change.steps else {}
    warn_of_another_spec(cluster, compiled)
    cluster.job.create()
    cluster.job.remember(about(compiled, plan, None, dump_cluster(cluster)), plan, source_of(compiled, plan, {}))
    if change.steps:
        tell_up(cluster, plan)
        _carry_out(cluster, change, secrets, options)
    return Applied(plan, change.steps, {}, True)


def _carry_out(cluster: Cluster, change: ObjectChange, secrets: dict[str, str], options: Options) -> None:
    """Do it, telling of each step. Ends with 3 if nothing could be done, 4 if some of it was."""
    from jobctl.jobspec.deploy.model.errors import DeployError

    told: list[Step] = []
    tell = teller(cluster, options.output)

    def note(step: Step) -> None:
        told.append(step)
        tell(step)

    try:
        with Progress(quiet=options.output is Format.json) as progress:
            cluster.tell = progress.show
            cluster.execute(change, secrets, note, force=options.take_over)
    except DeployError as error:
        begun = len(told) > 1
        if begun:
            console.error(f"{len(told) - 1} of {len(change.steps)} steps were done; `jobctl up` again does the others")
        raise Failed(error.message, 4 if begun else 3, error.hint) from error


def restart_in_cluster(cluster: Cluster, node: str | None, break_it: bool, take_over: bool, output: Format) -> None:
    """Have all pods made anew."""
    if node is not None:
        raise refuse("restart --node")
    plan, name = cluster.plan, cluster.job.name
    if plan is None:
        raise Failed(f"job `{name}` was not brought up from here", 2, "`jobctl up --recreate` makes its pods anew")
    options = replace(Options(), break_lock=break_it, take_over=take_over, output=output)
    with locked(cluster, "restart", break_it):
        change = _change(cluster, plan, options, {}, "`jobctl restart`")
        if any(step.kind in ("create", "change") for step in change.steps):
            raise Failed(f"job `{name}` is not in the cluster as it was brought up", 2, "`jobctl up` mends that first")
        _carry_out(cluster, change, {}, options)
    raise_code(wait_until_up(cluster, output, {}))


def stop_in_cluster(cluster: Cluster, timeout: str | None, break_it: bool, take_over: bool, output: Format) -> None:
    """Have no pod of the job run, and keep everything else in place."""
    from jobctl.jobspec.deploy.model.errors import DeployError
    from jobctl.jobspec.deploy.model.observed import phase
    from jobctl.jobspec.deploy.store import events

    name = cluster.job.name
    with locked(cluster, "stop", break_it):
        observed = cluster.observe()
        refuse_owner(cluster, observed, take_over)
        if not cluster.has_files():
            raise Failed(f"job `{name}` is not up: there is nothing to stop", 2)
        now, _ = phase(observed)
        if now in SETTLED:
            console.say(f"job `{name}` is {now} already")
        else:
            _refuse_queued(cluster)
            try:
                with Progress(quiet=output is Format.json) as progress:
                    cluster.tell = progress.show
                    logs = cluster.stop(grace_of(cluster, timeout))
            except DeployError as error:
                raise Failed(error.message, 4, error.hint) from error
            events.record(cluster.job.events, time.time(), "stopped", "job stopped by the user")
            kept = f"; its logs are in {logs}" if logs else ""
            console.say(f"job `{name}` stopped; `jobctl up` resumes it from its last checkpoint{kept}")
    if output is Format.json:
        report(cluster)


def _refuse_queued(cluster: Cluster) -> None:
    """End with 2 where Kueue would have the job go on at once: it alone says when pods of what is in its queues run."""
    if cluster.queued():
        raise Failed(
            f"Kueue decides when pods of job `{cluster.job.name}` run, and would start them again at once",
            2,
            "`kubectl kueue stop workload` (`active: false` of its Workload) keeps it stopped; `jobctl down` ends it",
        )
