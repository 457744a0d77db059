"""`jobctl supervise`: the supervisor in the foreground."""

from __future__ import annotations

import contextlib
import signal
import sys
from datetime import datetime
from typing import Annotated, Optional

import typer

from jobctl import console
from jobctl.options import Job
from jobctl.views.failure import Failed, command

# It plans lost nodes again, and changes to the hosts of every later `up`: it has to use those that are recorded.
_AS_RECORDED = "it uses the hosts and SSH options that the last `up` from this machine has recorded"
_NEW_HOSTS = (
    "give them to `jobctl up`, which leaves a supervisor behind; or to `up --no-supervise`, then `jobctl supervise`"
)


@command
def supervise(
    job: Job = None,
    background: Annotated[bool, typer.Option("--background", hidden=True)] = False,
    hosts: Annotated[Optional[str], typer.Option("--hosts", hidden=True)] = None,  # noqa: UP045
    ssh_config: Annotated[Optional[str], typer.Option("--ssh-config", hidden=True)] = None,  # noqa: UP045
    accept_new: Annotated[bool, typer.Option("--accept-new-host-keys", hidden=True)] = False,
) -> None:
    """Run the job's supervisor in the foreground.

    For systemd or tmux; ends when the job does. SIGTERM ends the supervisor, not the job. In Slurm it only tells what
    happens: the allocation recovers the job by itself.

    Example: jobctl supervise my-job
    """
    from jobctl.jobspec.operations.errors import NotYours
    from jobctl.jobspec.operations.lifecycle import supervise as supervising

    given = {"--hosts": hosts, "--ssh-config": ssh_config, "--accept-new-host-keys": accept_new}
    if option := next((option for option, value in given.items() if value), None):
        raise Failed(f"`supervise` takes no `{option}`: {_AS_RECORDED}", 2, _NEW_HOSTS)
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
