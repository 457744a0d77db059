"""`jobctl scale`: another number of nodes for an elastic job."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from jobctl.options import AcceptNew, BreakLock, Format, Hosts, Output, SkipCheck, SshConfig, TakeOver
from jobctl.views.failure import Failed, command

_COUNT = re.compile("0*[1-9][0-9]{0,8}")


@command
def scale(
    arguments: Annotated[list[str], typer.Argument(metavar="[JOB] NODES", help="The job, and how many nodes it gets.")],
    hosts: Hosts = None,
    skip_check: SkipCheck = False,
    take_over: TakeOver = False,
    break_lock: BreakLock = False,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    output: Output = Format.text,
) -> None:
    """Give an elastic job another number of nodes.

    Within the range of the spec's `nodes`. Containers stay, processes go on from the last checkpoint. The next `up`
    takes as many nodes as there is room for again. With --hosts the job has the hosts of that file from then on.

    Example: jobctl scale my-job 3
    """
    from jobctl.jobspec.operations.lifecycle.base import UpOptions
    from jobctl.jobspec.operations.lifecycle.scale import scale_job
    from jobctl.jobspec.operations.resolve.job import Reached
    from jobctl.views.outcome import finish_up, raise_code
    from jobctl.views.reporter import Terminal

    job, count = _job_and_count(arguments)
    options = UpOptions(check=not skip_check, break_lock=break_lock, take_over=take_over)
    reached = Reached(hosts, ssh_config, accept_new)
    handle, done = scale_job(job, count, reached, options, Terminal(output))
    raise_code(finish_up(handle, done, follow=False, output=output))


def _job_and_count(arguments: list[str]) -> tuple[str | None, int]:
    *job, count = arguments
    if len(job) <= 1 and re.fullmatch("-?[0-9]+", count) and not _COUNT.fullmatch(count):
        message = "the number of nodes has to be at least 1, and at most that of the spec's `nodes`"
        raise Failed(message, 2, "`jobctl stop` ends the processes of all nodes")
    if len(job) > 1 or not _COUNT.fullmatch(count):
        raise Failed("`scale` takes a job and a number of nodes", 2, "for example `jobctl scale my-job 3`")
    return (job[0] if job else None), int(count)
