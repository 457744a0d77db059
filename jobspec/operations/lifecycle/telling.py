"""Telling people what happened to a job, by commands and by its supervisor."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.telling.words import counted
from jobctl.jobspec.operations.errors import PartlyDone

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.notify.teller import Teller
    from jobctl.jobspec.operations.reporter import Reporter


def teller_of(job: JobDir) -> Teller:
    """Return what tells people of a job."""
    from jobctl.jobspec.deploy.apply.clock import SystemClock
    from jobctl.jobspec.deploy.channels.send import send
    from jobctl.jobspec.notify.teller import Teller

    return Teller(job, SystemClock(), send)


def start_supervisor(job: JobDir) -> None:
    """Leave a supervisor behind that outlives this process and its terminal. Raises PartlyDone: the rest is done by then."""
    from jobctl.jobspec.deploy.model.errors import DeployError
    from jobctl.jobspec.deploy.targets import background

    argv = [sys.executable, "-m", "jobctl", "supervise", job.name, "--background"]
    try:
        background.start_supervisor(job, argv, {**os.environ, "JOBCTL_STATE_DIR": str(job.state)})
    except DeployError as error:
        raise PartlyDone(f"job `{job.name}` is as asked, but {error.message}", error.hint) from error
    except OSError as error:  # a full disk, no more processes
        message = f"job `{job.name}` is as asked, but no supervisor can be started: {error.strerror}"
        raise PartlyDone(message, "`jobctl up` again starts it") from error


def leave_none(job: JobDir, reporter: Reporter) -> None:
    """End the supervisor that an earlier `up` has left behind; one that a person has started goes on."""
    from jobctl.jobspec.deploy.targets.background import end_left_behind

    if end_left_behind(job):
        reporter.say("the supervisor that an earlier `jobctl up` left behind has ended")


def leave_teller(job: JobDir) -> None:
    """Leave a process behind that tells people of a job without a supervisor, unless there is one, or no channel."""
    from jobctl.jobspec.deploy.store.lock import read_holder

    if job.channels.exists() and not read_holder(job.supervisor_lock):
        start_supervisor(job)


def tell_rest(job: JobDir, say: Callable[[str], None]) -> None:
    """Send what waits when the job has ended. The supervisor does it, which is no supervisor any more."""
    from jobctl.jobspec.notify.teller import LINGER

    left = _send(job, LINGER)
    if left:
        say(f"{left} could not be delivered; the next command that changes the job tries again")


def tell_now(job: JobDir, reporter: Reporter) -> None:
    """Send what waits, unless a supervisor does."""
    from jobctl.jobspec.deploy.store.lock import read_holder

    if job.channels.exists() and not read_holder(job.supervisor_lock):
        from jobctl.jobspec.notify.teller import COMMAND_LINGER

        left = _send(job, COMMAND_LINGER)
        if left:
            reporter.warn(f"{left} could not be delivered so far; `jobctl events` says why")


def tell_last(job: JobDir, reporter: Reporter) -> None:
    """Send what waits before the job is gone, and its channels are removed."""
    from jobctl.jobspec.deploy.store.lock import end_holder

    if not job.channels.exists():
        return
    from jobctl.jobspec.notify.teller import COMMAND_LINGER

    end_holder(job.outbox_lock)  # the supervisor of a job that has ended may still try
    left = _send(job, COMMAND_LINGER)
    if left:
        reporter.warn(f"{left} could not be delivered, and will not be; `jobctl events` says why")


def _send(job: JobDir, seconds: float) -> str:
    """Send what waits, for at most so long; return in words what nobody has taken."""
    try:
        left = teller_of(job).linger(seconds)
    except OSError as error:  # a full disk, mostly
        return f"notifications ({error})"
    if not left:
        return ""
    kinds = ", ".join(sorted({message.event for message in left}))
    return f"{counted(len(left), 'notification')} ({kinds})"
