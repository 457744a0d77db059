"""`jobctl restart`: begin a new generation."""

from __future__ import annotations

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
from jobctl.views.failure import command


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

    With --node that node's launcher is started again too.

    Example: jobctl restart my-job --node 1
    """
    from jobctl.jobspec.operations.lifecycle.base import JobRequest
    from jobctl.jobspec.operations.lifecycle.open import running_job
    from jobctl.jobspec.operations.resolve.job import Reached
    from jobctl.jobspec.operations.resolve.ownership import refuse_other_folder
    from jobctl.views.outcome import finish_restart, raise_code
    from jobctl.views.reporter import Terminal

    found = running_job(job, Reached(hosts, ssh_config, accept_new, context, namespace))
    refuse_other_folder(found.handle.job, job, take_over)
    done = found.restart(node, JobRequest(None, break_lock, take_over), Terminal(output))
    raise_code(finish_restart(found.handle, done, output))
