"""`jobctl supervise`: the supervisor in the foreground."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jobctl.console import command
from jobctl.options import Job

if TYPE_CHECKING:
    pass


@command
def supervise(
    job: Job = None,
    background: Annotated[bool, typer.Option("--background", hidden=True)] = False,
) -> None:
    """Run the job's supervisor in the foreground.

    For systemd or tmux; ends when the job does. SIGTERM ends the supervisor, not the job.

    Example: jobctl supervise my-job
    """
    from jobctl.supervising import supervise_job

    supervise_job(job, background=background)
