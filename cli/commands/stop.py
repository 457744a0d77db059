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
    from jobctl.jobspec.operations.lifecycle.base import JobOnTarget, Stopped


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
    from jobctl.jobspec.operations.lifecycle.base import JobRequest
    from jobctl.jobspec.operations.lifecycle.open import change_job
    from jobctl.jobspec.operations.resolve.job import Reached
    from jobctl.views.outcome import finish_stop, raise_code
    from jobctl.views.reporter import Terminal

    reached = Reached(hosts, ssh_config, accept_new, context, namespace)
    request = JobRequest(grace(timeout), break_lock, take_over)

    def change(found: JobOnTarget) -> tuple[Handle, Stopped]:
        return found.handle, found.stop(request, Terminal(output))

    raise_code(finish_stop(*change_job(job, reached, request, change), output))
