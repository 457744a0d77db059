"""`jobctl scale`: another number of nodes for an elastic job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jobctl.console import command
from jobctl.options import AcceptNew, BreakLock, Format, Output, SshConfig, TakeOver

if TYPE_CHECKING:
    pass


@command
def scale(
    arguments: Annotated[list[str], typer.Argument(metavar="[JOB] NODES", help="The job, and how many nodes it gets.")],
    take_over: TakeOver = False,
    break_lock: BreakLock = False,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    output: Output = Format.text,
) -> None:
    """Give an elastic job another number of nodes.

    Within the range of the spec's `nodes`. Containers stay, processes go on from the last checkpoint. The next `up`
    takes as many nodes as there is room for again.

    Example: jobctl scale my-job 3
    """
    from jobctl.bringup import Options
    from jobctl.scaling import scale_job

    options = Options(break_lock=break_lock, take_over=take_over, output=output)
    scale_job(arguments, ssh_config, accept_new, options)
