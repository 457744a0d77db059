"""`jobctl down`: remove everything of the job."""

from __future__ import annotations

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
    grace,
)
from jobctl.views.failure import command


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
    from jobctl.jobspec.operations.lifecycle.base import JobRequest
    from jobctl.jobspec.operations.lifecycle.down import take_down
    from jobctl.jobspec.operations.lifecycle.open import running_job
    from jobctl.jobspec.operations.resolve.job import Reached
    from jobctl.jobspec.operations.resolve.ownership import refuse_other_folder
    from jobctl.views.outcome import finish_down, raise_code
    from jobctl.views.reporter import Terminal

    handle = running_job(job, Reached(hosts, ssh_config, accept_new, context, namespace)).handle
    refuse_other_folder(handle.job, job, take_over)
    done = take_down(handle, JobRequest(grace(timeout), break_lock, take_over), Terminal(output))
    raise_code(finish_down(handle.job.name, done, output))
