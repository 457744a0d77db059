"""`jobctl restart`: begin a new generation."""

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
    Node,
    Output,
    SshConfig,
    TakeOver,
)

if TYPE_CHECKING:
    pass


@command
def restart(
    job: Job = None,
    hosts: Hosts = None,
    node: Node = None,
    take_over: TakeOver = False,
    break_lock: BreakLock = False,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
    output: Output = Format.text,
) -> None:
    """Begin a new generation with a fresh budget.

    With --node that node's launcher is started anew too.

    Example: jobctl restart my-job --node 1
    """
    from jobctl.bringup import restart_job
    from jobctl.clusters import restart_in_cluster
    from jobctl.jobs import Reached
    from jobctl.jobspec.deploy.kubernetes.cluster import Cluster
    from jobctl.ownership import refuse_other_folder
    from jobctl.running import running_job, supervised_job

    reached = Reached(hosts, ssh_config, accept_new, context, namespace)
    handle = running_job(job, reached)
    refuse_other_folder(handle.job, job, take_over)
    if isinstance(handle, Cluster):
        restart_in_cluster(handle, node, break_lock, take_over, output)
    else:
        restart_job(supervised_job(job, "restart", reached), node, break_lock, take_over, output)
