"""`jobctl restart`: begin a new generation."""

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
    Node,
    Output,
    SshConfig,
    TakeOver,
)
from jobctl.views.failure import command

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle
    from jobctl.jobspec.operations.lifecycle.base import JobOnTarget, Restarted


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
    from jobctl.jobspec.operations.lifecycle.open import change_job
    from jobctl.jobspec.operations.resolve.job import Reached
    from jobctl.views.outcome import finish_restart, raise_code
    from jobctl.views.reporter import Terminal

    reached = Reached(hosts, ssh_config, accept_new, context, namespace)
    request = JobRequest(None, break_lock, take_over)

    def change(found: JobOnTarget) -> tuple[Handle, Restarted]:
        done = found.restart(node, request, Terminal(output))
        return found.handle, done  # `restart` may have found nodes on other hosts, and the handle knows that

    raise_code(finish_restart(*change_job(job, reached, request, change), output))
