"""Jobs that run: which one is meant, and what it is looked at and changed through."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeGuard

from jobctl import console
from jobctl.console import Failed
from jobctl.jobs import (
    AS_STARTED,
    Reached,
    Where,
    deployer_of,
    in_cluster,
    is_spec_file,
    job_of_name,
    known_hosts,
    plan_of,
    ssh_options,
)
from jobctl.naming import name_of

if TYPE_CHECKING:
    from jobctl.jobs import Compiled
    from jobctl.jobspec.deploy.apply.deployer import Deployer, Handle
    from jobctl.jobspec.deploy.kubernetes.api import Api
    from jobctl.jobspec.deploy.kubernetes.cluster import Cluster
    from jobctl.jobspec.deploy.model.inventory import Inventory
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.plan.types import Plan

_THERE = "in a cluster its operator sees to the job: "
_REFUSED = {
    "scale": ("the number of pods is part of what it is made from", "change `nodes` in the spec, then `jobctl up`"),
    "drill": ("jobctl has no recovery of its own to rehearse", "`kubectl delete pod` shows what the operator does"),
    "supervise": ("no supervisor of jobctl's runs, nor could it do anything", "`jobctl status --watch` follows it"),
    "restart --node": ("it decides which pods go on", "`kubectl delete pod` ends one, `jobctl restart` all of them"),
    "report": ("nobody here notes when it trained and when not", "`jobctl events` has what the cluster tells"),
    "run": (
        "a pod beside the job is not jobctl's to make",
        "`kubectl run -it --rm --image …`, or `jobctl exec` in a node",
    ),
}


def known_handle(directory: JobDir, reached: Reached = AS_STARTED) -> Handle:
    """Return what a job is looked at through: where it was started, or where `reached` says."""
    about = directory.about() or {}
    if about.get("target") == "kubernetes" or in_cluster(reached):
        return cluster_of(directory, reached.context, reached.namespace)
    return deployer_of(directory, about.get("target", "local"), _inventory(directory.inventory(), reached))


def _inventory(known: Inventory | None, reached: Reached) -> Inventory | None:
    from jobctl.jobspec.deploy.model.inventory import Inventory

    hosts = known.hosts if known else ()
    if reached.hosts is not None:
        hosts = known_hosts(Where(hosts=reached.hosts))
    if not hosts:
        return None
    return Inventory(hosts, ssh_options(reached.ssh_config, reached.accept_new, known))


def refuse(command: str) -> Failed:
    """Return the end of a command that means nothing in a cluster: why, and what does instead."""
    reason, hint = _REFUSED[command]
    return Failed(f"there is no `{command}` on target `kubernetes`: {_THERE}{reason}", 2, hint)


def cluster_of(directory: JobDir, context: str | None, namespace: str | None, plan: Plan | None = None) -> Cluster:
    """Return a job in its cluster: as the options say, else as it was started. Ends with 2 if no cluster is known."""
    from jobctl.jobspec.deploy.kubernetes.cluster import Cluster, ClusterAccess, load_cluster

    known = (directory.about() or {}).get("cluster")
    access = load_cluster(known) if known else ClusterAccess()
    elsewhere = context not in (None, access.context)
    api = _connected(context or access.context, namespace or (None if elsewhere else access.namespace))
    same = (api.context, api.namespace) == (access.context, access.namespace)
    return Cluster(directory, api, plan, access.kinds if same else None)


def _connected(context: str | None, namespace: str | None) -> Api:
    from jobctl.jobspec.deploy.kubernetes.api import connect
    from jobctl.jobspec.deploy.kubernetes.problems import ConfigError

    try:
        return connect(context, namespace, console.environ())
    except ConfigError as error:
        raise Failed(error.message, 2, error.hint) from error


def cluster_for(compiled: Compiled, where: Where) -> tuple[Plan, Cluster]:
    """Return the plan of a compiled job and its cluster: as the options say, or the spec, or as it was started."""
    plan = plan_of(compiled)
    asked = compiled.spec.kubernetes
    context = where.context or (asked.context if asked else None)
    namespace = where.namespace or (asked.namespace if asked else None)
    if plan.cluster is not None and plan.cluster.namespace:
        # The server refuses objects that name another namespace than the one that they are brought to.
        plan = replace(plan, cluster=replace(plan.cluster, namespace=namespace))
    cluster = cluster_of(job_of_name(plan.job), context, namespace, plan)
    cluster.unchanged = _is_unchanged(cluster.job, compiled, plan)
    return plan, cluster


def _is_unchanged(job: JobDir, compiled: Compiled, plan: Plan) -> bool:
    """Say whether the spec and the code are those that the job was last brought up with, by whichever jobctl."""
    from pydantic import ValidationError

    from jobctl.jobspec.spec.model import Spec

    source, before = job.source(), job.plan()
    try:
        spec = Spec.model_validate(source["spec"]) if source else None
    except ValidationError:
        return False
    return before is not None and spec == compiled.spec and _told(before) == _told(plan)


def _told(plan: Plan) -> object:
    """Return what of a plan the spec's own text does not say: files of variables, and code."""
    return plan.code.version if plan.code else None, [node.container.env for node in plan.nodes]


def running_job(job: str | None, reached: Reached = AS_STARTED) -> Handle:
    """Return what a job that is up, or was and left a trace, is looked at through. Ends with 2 for one that is not known."""
    name = name_of(job, reached)
    directory = job_of_name(name)
    named = job is not None and not is_spec_file(job)
    anywhere = reached.hosts is None and not in_cluster(reached)
    if named and anywhere and directory.about() is None and not directory.root.exists():
        raise Failed(
            f"no job `{name}` is known here",
            2,
            "it may run on hosts that jobctl cannot know here: `--hosts hosts.txt` names them; `jobctl list` shows the jobs"
            " that are known, `jobctl up` starts one",
        )
    return known_handle(directory, reached)


def supervised_job(job: str | None, command: str, reached: Reached = AS_STARTED) -> Deployer:
    """Return the deployer of a job whose recovery is ours. Ends with 2 where it is not, saying why `command` cannot be."""
    handle = running_job(job, reached)
    if _is_ours(handle):
        return handle
    raise refuse(command)


def _is_ours(handle: Handle) -> TypeGuard[Deployer]:
    from jobctl.jobspec.deploy.kubernetes.cluster import Cluster

    return not isinstance(handle, Cluster)
