"""Jobs that run: which one is meant, and what it is looked at and changed through."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.operations.resolve.job import (
    AS_STARTED,
    DEFAULT_SPEC,
    Reached,
    Where,
    in_cluster,
    is_spec_file,
    job_of_name,
    known_hosts,
)
from jobctl.jobspec.operations.resolve.names import name_of
from jobctl.jobspec.operations.resolve.planning import deployer_of, plan_of, ssh_options
from jobctl.jobspec.spec.hosts import Host

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Deployer, Handle
    from jobctl.jobspec.deploy.kubernetes.api import Api
    from jobctl.jobspec.deploy.kubernetes.cluster import Cluster
    from jobctl.jobspec.deploy.slurm.allocation import SlurmAllocation
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.operations.resolve.job import Compiled
    from jobctl.jobspec.plan.types import Plan


def is_in_cluster(directory: JobDir, reached: Reached) -> bool:
    """Say whether a job is in a cluster: it was brought up there, or options name one."""
    return (directory.about() or {}).get("target") == "kubernetes" or in_cluster(reached)


def is_in_slurm(directory: JobDir) -> bool:
    """Say whether a job was submitted to Slurm."""
    return (directory.about() or {}).get("target") == "slurm"


def known_allocation(directory: JobDir, reached: Reached = AS_STARTED) -> SlurmAllocation:
    """Return a job in Slurm. Raises Refused if it is not known here where its files are."""
    plan, known = directory.plan(), directory.inventory()
    if plan is None or plan.slurm is None or known is None:
        raise Refused(f"what job `{directory.name}` was started with cannot be read here", "`jobctl up` with its spec")
    return _allocation(
        directory, plan, Inventory(known.hosts, ssh_options(reached.ssh_config, reached.accept_new, known))
    )


def allocation_for(compiled: Compiled, reached: Reached) -> tuple[Plan, SlurmAllocation]:
    """Return the plan of a compiled job, and the job in Slurm."""
    plan = plan_of(compiled)
    directory = job_of_name(plan.job)
    known = directory.inventory() if is_in_slurm(directory) else None
    options = ssh_options(reached.ssh_config, reached.accept_new, known)
    login = plan.slurm.login if plan.slurm else None
    return plan, _allocation(directory, plan, Inventory((login_host(login),), options))


def allocation_of_spec(job: str | None, directory: JobDir, reached: Reached) -> SlurmAllocation | None:
    """Return a job of which there is no trace here, where the block `slurm` of its spec says that it is.

    None without such a block, if options name another place, or if it names no login node and Slurm is not here.
    """
    elsewhere = reached.hosts is not None or in_cluster(reached)
    if elsewhere or directory.about() is not None or (job is not None and not is_spec_file(job)):
        return None
    place = _place_in_slurm(Path(job or DEFAULT_SPEC))
    if place is None or (place[0] is None and shutil.which("squeue") is None):
        return None
    from jobctl.jobspec.deploy.slurm.allocation import SlurmAllocation
    from jobctl.jobspec.planner.slurm import work_directory

    login, folder = place
    inventory = Inventory((login_host(login),), ssh_options(reached.ssh_config, reached.accept_new, None))
    return SlurmAllocation(directory, inventory, work_directory(folder, directory.name))


def _place_in_slurm(path: Path) -> tuple[str | None, str] | None:
    """Return login node and directory from a spec, whatever else is wrong with it; None if it has no block `slurm`."""
    from jobctl.jobspec.spec.load import load_spec
    from jobctl.jobspec.spec.partial import Lost

    loaded = load_spec(path, environ=os.environ)
    seen = loaded.spec or loaded.draft
    with suppress(Lost):
        if seen is not None and seen.slurm is not None:
            return seen.slurm.login, seen.slurm.directory or str(loaded.directory)
    return None


def login_host(login: str | None) -> Host:
    """Return the login node as a host of a hosts file; None is this machine."""
    user, _, name = (login or "localhost").rpartition("@")
    return Host(name, user=user or None)


def _allocation(directory: JobDir, plan: Plan, inventory: Inventory) -> SlurmAllocation:
    from jobctl.jobspec.deploy.slurm.allocation import SlurmAllocation

    assert plan.slurm is not None
    return SlurmAllocation(directory, inventory, plan.slurm.work, plan)


def known_handle(directory: JobDir, reached: Reached = AS_STARTED) -> Handle:
    """Return what a job is looked at through: where it was started, or where `reached` says."""
    if is_in_cluster(directory, reached):
        return known_cluster(directory, reached)
    if is_in_slurm(directory):
        return known_allocation(directory, reached)
    return known_deployer(directory, reached)


def known_deployer(directory: JobDir, reached: Reached = AS_STARTED) -> Deployer:
    """Return what a job on hosts or on this machine is driven through."""
    target = (directory.about() or {}).get("target", "local")
    return deployer_of(directory, target, _reach(directory.inventory(), reached))


def known_cluster(directory: JobDir, reached: Reached = AS_STARTED) -> Cluster:
    """Return a job in its cluster."""
    return cluster_of(directory, reached.context, reached.namespace)


def _reach(known: Inventory | None, reached: Reached) -> Inventory | None:
    hosts = known.hosts if known else ()
    if reached.hosts is not None:
        hosts = known_hosts(Where(hosts=reached.hosts))
    if not hosts:
        return None
    return Inventory(hosts, ssh_options(reached.ssh_config, reached.accept_new, known))


def cluster_of(directory: JobDir, context: str | None, namespace: str | None, plan: Plan | None = None) -> Cluster:
    """Return a job in its cluster: as the options say, otherwise as it was started. Raises Refused if no cluster is known."""
    from jobctl.jobspec.deploy.kubernetes.cluster import Cluster, ClusterAccess, load_cluster

    known = (directory.about() or {}).get("cluster")
    reach = load_cluster(known) if known else ClusterAccess()
    elsewhere = context not in (None, reach.context)
    api = _connected(context or reach.context, namespace or (None if elsewhere else reach.namespace))
    same = (api.context, api.namespace) == (reach.context, reach.namespace)
    return Cluster(directory, api, plan, reach.kinds if same else None)


def _connected(context: str | None, namespace: str | None) -> Api:
    from jobctl.jobspec.deploy.kubernetes.api import connect
    from jobctl.jobspec.deploy.kubernetes.problems import ConfigError

    try:
        return connect(context, namespace, os.environ)
    except ConfigError as error:
        raise Refused(error.message, error.hint) from error


def cluster_for(compiled: Compiled, reached: Reached) -> tuple[Plan, Cluster]:
    """Return the plan of a compiled job and its cluster: as the options say, or the spec, or as it was started."""
    plan = plan_of(compiled)
    asked = compiled.spec.kubernetes
    context = reached.context or (asked.context if asked else None)
    namespace = reached.namespace or (asked.namespace if asked else None)
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


def reached_by_default(job: str | None, reached: Reached) -> Reached:
    """Return `reached` with the user's default hosts file, for a job of which there is no trace here."""
    from jobctl.jobspec.operations.resolve.settings import default_hosts, has_defaults

    if reached.hosts is not None or in_cluster(reached) or not has_defaults(os.environ):
        return reached
    if job_of_name(name_of(job, reached)).root.exists():
        return reached
    return replace(reached, hosts=default_hosts().value)


def directory_of_running(job: str | None, reached: Reached = AS_STARTED) -> JobDir:
    """Return the directory of a job that is up, or was and left a trace. Raises Refused for one that is not known."""
    name = name_of(job, reached)
    directory = job_of_name(name)
    named = job is not None and not is_spec_file(job)
    anywhere = reached.hosts is None and not in_cluster(reached)
    if named and anywhere and directory.about() is None and not directory.root.exists():
        raise Refused(
            f"no job `{name}` is known here",
            "it may run on hosts that jobctl cannot know here: `--hosts hosts.txt` names them; `jobctl list` shows the jobs"
            " that are known, `jobctl up` starts one",
        )
    return directory
