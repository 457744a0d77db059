"""`jobctl down`: remove everything of jobs."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from jobctl.options import (
    AcceptNew,
    BreakLock,
    ClusterContext,
    Format,
    Hosts,
    Jobs,
    Lost,
    Namespace,
    Output,
    SshConfig,
    TakeOver,
    Timeout,
    grace,
)
from jobctl.views.failure import attempt, command

if TYPE_CHECKING:
    from jobctl.jobspec.operations.lifecycle.base import JobOnTarget, JobRequest
    from jobctl.jobspec.operations.lifecycle.down import TakenDown
    from jobctl.jobspec.operations.resolve.job import Reached


@command
def down(
    jobs: Jobs = None,
    hosts: Hosts = None,
    timeout: Timeout = None,
    lost: Lost = None,
    take_over: TakeOver = False,
    break_lock: BreakLock = False,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    context: ClusterContext = None,
    namespace: Namespace = None,
    output: Output = Format.text,
) -> None:
    """Stop and remove everything of jobs.

    Logs, outputs, checkpoints and `data` stay. Safe to repeat. Of several jobs, a failure of one does not keep the others up.

    Example: jobctl down my-job my-other-job
    """
    from jobctl.jobspec.operations.lifecycle.base import JobRequest
    from jobctl.jobspec.operations.resolve.job import Reached
    from jobctl.views.down import finish_down, finish_downs, say_down
    from jobctl.views.outcome import raise_code

    reached = Reached(hosts, ssh_config, accept_new, context, namespace)
    request = JobRequest(grace(timeout), break_lock, take_over, tuple(lost or ()))
    chosen = list(dict.fromkeys(jobs or ()))
    if len(chosen) < 2:
        raise_code(finish_down(*_take_down(chosen[0] if chosen else None, reached, request, output), output))
        return
    results = []
    for job in chosen:
        done = attempt(lambda job=job: _take_down(job, reached, request, output))  # type: ignore[misc]
        if isinstance(done, tuple):
            say_down(*done)
        results.append(done if isinstance(done, tuple) else (job, done))
    raise_code(finish_downs(results, output))


def _take_down(job: str | None, reached: Reached, request: JobRequest, output: Format) -> tuple[str, TakenDown]:
    """Take one job down; return its name and what came of it."""
    from jobctl.jobspec.operations.lifecycle.down import take_down
    from jobctl.jobspec.operations.lifecycle.open import change_job
    from jobctl.views.reporter import Terminal

    def change(found: JobOnTarget) -> tuple[str, TakenDown]:
        with closing(found.handle) as handle:
            return handle.job.name, take_down(handle, request, Terminal(output))

    return change_job(job, reached, request, change)
