"""`jobctl down`: remove everything of the job."""

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
def down(
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
    """Stop and remove everything of the job.

    Logs, outputs and checkpoints stay. Safe to repeat.

    Example: jobctl down my-job
    """
    from jobctl.ending import down_job
    from jobctl.jobs import Reached
    from jobctl.ownership import refuse_other_folder
    from jobctl.running import running_job

    deployer = running_job(job, Reached(hosts, ssh_config, accept_new, context, namespace))
    refuse_other_folder(deployer.job, job, take_over)
    down_job(deployer, timeout, break_lock, take_over, output)
