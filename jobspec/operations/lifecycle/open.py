"""Jobs on their targets: what carries out operations, for each kind of place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from jobctl.jobspec.operations.lifecycle.applying import while_others_change
from jobctl.jobspec.operations.lifecycle.base import JobOnTarget, JobRequest, Planned
from jobctl.jobspec.operations.resolve.job import AS_STARTED, Compiled, Reached
from jobctl.jobspec.operations.resolve.ownership import refuse_other_folder
from jobctl.jobspec.operations.resolve.running import find_running
from jobctl.jobspec.operations.targets.table import finder_of
from jobctl.jobspec.spec.targets import PlaceKind, traits_of

R = TypeVar("R")


def running_job(job: str | None, reached: Reached = AS_STARTED, name: str | None = None) -> JobOnTarget:
    """Return a job that is up, or was and left a trace. Raises Refused for one that is not known.

    `name` is its name, if JOB need not tell it.
    """
    place, handle = find_running(job, reached, name)
    return JOBS[place](handle)


def change_job(
    job: str | None, reached: Reached, request: JobRequest, change: Callable[[JobOnTarget], R], name: str | None = None
) -> R:
    """Return what `change` does with a job that is up. Raises NotYours if JOB is a file of another folder than the job's.

    The job is opened again if others change it before `change` has the lock. `name` is its name, if JOB need not tell it.
    """

    def attempt() -> R:
        found = running_job(job, reached, name)
        try:
            refuse_other_folder(found.handle.job, job, request.take_over)
            return change(found)
        except BaseException:
            found.handle.close()
            raise

    return while_others_change(attempt)


def planned_job(compiled: Compiled, reached: Reached) -> Planned:
    """Return a compiled job with its plan."""
    plan, handle = finder_of(compiled.target).planned(compiled, reached)
    return Planned(compiled, plan, JOBS[traits_of(compiled.target).place](handle))


# Only what is needed is imported: a command for a job on hosts does not pay for Kubernetes.


def _on_hosts(handle: Any) -> JobOnTarget:
    from jobctl.jobspec.operations.lifecycle.on_hosts import HostsJob

    return HostsJob(handle)


def _in_cluster(handle: Any) -> JobOnTarget:
    from jobctl.jobspec.operations.lifecycle.in_cluster import ClusterJob

    return ClusterJob(handle)


def _in_allocation(handle: Any) -> JobOnTarget:
    from jobctl.jobspec.operations.lifecycle.in_allocation import SlurmJob

    return SlurmJob(handle)


# Each takes what the finder of that place returns (`operations/targets/table.py`).
JOBS: Mapping[PlaceKind, Callable[[Any], JobOnTarget]] = {
    "machine": _on_hosts,
    "hosts": _on_hosts,
    "cluster": _in_cluster,
    "allocation": _in_allocation,
}
