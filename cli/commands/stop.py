"""`jobctl stop`: end all processes, keep everything in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle
    from jobctl.jobspec.operations.lifecycle.base import Stopped


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
    from jobctl.jobspec.operations.lifecycle.applying import while_others_change
    from jobctl.jobspec.operations.lifecycle.base import JobRequest
    from jobctl.jobspec.operations.lifecycle.open import running_job
    from jobctl.jobspec.operations.resolve.job import Reached
    from jobctl.jobspec.operations.resolve.ownership import refuse_other_folder
    from jobctl.views.outcome import finish_stop, raise_code
    from jobctl.views.reporter import Terminal

    def attempt() -> tuple[Handle, Stopped]:
        found = running_job(job, Reached(hosts, ssh_config, accept_new, context, namespace))
        refuse_other_folder(found.handle.job, job, take_over)
        return found.handle, found.stop(JobRequest(grace(timeout), break_lock, take_over), Terminal(output))

    raise_code(finish_stop(*while_others_change(attempt), output))
