"""Jobs on their targets: the one place that chooses between hosts, a cluster and Slurm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.operations.lifecycle.base import JobOnTarget, Planned
from jobctl.jobspec.operations.resolve.job import AS_STARTED, Compiled, Reached
from jobctl.jobspec.operations.resolve.planning import plan_in_place
from jobctl.jobspec.operations.resolve.running import (
    allocation_for,
    allocation_of_spec,
    cluster_for,
    directory_of_running,
    is_in_cluster,
    is_in_slurm,
    known_allocation,
    known_cluster,
    known_deployer,
    reached_by_default,
)

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Deployer
    from jobctl.jobspec.deploy.kubernetes.cluster import Cluster
    from jobctl.jobspec.deploy.slurm.allocation import SlurmAllocation


def running_job(job: str | None, reached: Reached = AS_STARTED) -> JobOnTarget:
    """Return a job that is up, or was and left a trace. Raises Refused for one that is not known."""
    reached = reached_by_default(job, reached)
    directory = directory_of_running(job, reached)
    if is_in_cluster(directory, reached):
        return _in_cluster(known_cluster(directory, reached))
    if is_in_slurm(directory):
        return _in_allocation(known_allocation(directory, reached))
    found = allocation_of_spec(job, directory, reached)
    if found is not None:
        return _in_allocation(found)
    return _on_hosts(known_deployer(directory, reached))


def planned_job(compiled: Compiled, reached: Reached, count: int | None = None) -> Planned:
    """Return a compiled job with its plan. `count`: how many nodes of its range an elastic job gets."""
    if compiled.target == "kubernetes":
        plan, cluster = cluster_for(compiled, reached)
        return Planned(compiled, plan, _in_cluster(cluster))
    if compiled.target == "slurm":
        plan, allocation = allocation_for(compiled, reached)
        return Planned(compiled, plan, _in_allocation(allocation))
    plan, deployer = plan_in_place(compiled, reached, count)
    return Planned(compiled, plan, _on_hosts(deployer))


# Only what is needed is imported: a command for a job on hosts does not pay for Kubernetes.


def _in_cluster(cluster: Cluster) -> JobOnTarget:
    from jobctl.jobspec.operations.lifecycle.in_cluster import ClusterJob

    return ClusterJob(cluster)


def _in_allocation(allocation: SlurmAllocation) -> JobOnTarget:
    from jobctl.jobspec.operations.lifecycle.in_allocation import SlurmJob

    return SlurmJob(allocation)


def _on_hosts(deployer: Deployer) -> JobOnTarget:
    from jobctl.jobspec.operations.lifecycle.on_hosts import HostsJob

    return HostsJob(deployer)
