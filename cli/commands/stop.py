"""`jobctl stop`: end all processes, keep everything in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.console import command
from jobctl.options import (
    AcceptNew,
    BreakLock,
    ClusterContext,
    Format,
    Hosts,
    Job,
    Namespace,
    Output,
    SshConfig,
    TakeOver,
    Timeout,
)

if TYPE_CHECKING:
    pass


@command
def stop(
    job: Job = None,
    hosts: Hosts = None,
    timeout: Timeout = None,
    take_over: TakeOver = False,
    break_lock: BreakLock = False,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
    output: Output = Format.text,
) -> None:
    """SIGTERM to every rank; `up` resumes.

    Everything stays in place, and training goes on from the last checkpoint.

    Example: jobctl stop my-job
    """
    from jobctl.clusters import stop_in_cluster
    from jobctl.ending import stop_job
    from jobctl.jobs import Reached
    from jobctl.jobspec.deploy.kubernetes.cluster import Cluster
    from jobctl.ownership import refuse_other_folder
    from jobctl.running import running_job, supervised_job

    reached = Reached(hosts, ssh_config, accept_new, context, namespace)
    handle = running_job(job, reached)
    refuse_other_folder(handle.job, job, take_over)
    if isinstance(handle, Cluster):
        stop_in_cluster(handle, timeout, break_lock, take_over, output)
    else:
        stop_job(supervised_job(job, "stop", reached), timeout, break_lock, take_over, output)
