"""`jobctl supervise`: the supervisor in the foreground."""

from __future__ import annotations

import contextlib
import signal
import sys
from datetime import datetime
from typing import Annotated

import typer

from jobctl import console
from jobctl.options import Job
from jobctl.views.failure import command


@command
def supervise(
    job: Job = None,
    background: Annotated[bool, typer.Option("--background", hidden=True)] = False,
) -> None:
    """Run the job's supervisor in the foreground.

    For systemd or tmux; ends when the job does. SIGTERM ends the supervisor, not the job. In Slurm it only tells what
    happens: the allocation recovers the job by itself.

    Example: jobctl supervise my-job
    """
    from jobctl.jobspec.operations.errors import NotYours
    from jobctl.jobspec.operations.lifecycle import supervise as supervising

    found = supervising.supervisable(job)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if background:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        supervising.supervise(found, _say, background=background)
    except NotYours:
        if not background:
            raise


def _say(message: str) -> None:
    with contextlib.suppress(OSError):  # its log lies on a disk that is full
        console.say(f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S} {message}")
