"""What is done with jobs, for any front end: no printing, no options; words go to a Reporter, errors are typed.

Here are the functions that a program needs to bring a job up, look at it, wait for it, and take it down. docs/python-api.md
shows how. The command is built on the packages below, which have more of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from os import PathLike, fspath
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from jobctl.jobspec.operations.errors import (
        HostsFailed,
        InvalidHosts,
        InvalidSpec,
        NotYours,
        OperationError,
        PartlyDone,
        Refused,
        TimedOut,
        UnsupportedOnTarget,
    )
    from jobctl.jobspec.operations.inspect.status import JobState
    from jobctl.jobspec.operations.lifecycle.base import (
        Applied,
        JobChange,
        JobOnTarget,
        JobRequest,
        Planned,
        Stopped,
        Up,
        UpOptions,
    )
    from jobctl.jobspec.operations.lifecycle.down import TakenDown
    from jobctl.jobspec.operations.reporter import Reporter, Silent
    from jobctl.jobspec.operations.resolve.job import Compiled, Reached, Where

R = TypeVar("R")

__all__ = [
    "Applied",
    "Compiled",
    "HostsFailed",
    "InvalidHosts",
    "InvalidSpec",
    "JobChange",
    "JobRequest",
    "JobState",
    "NotYours",
    "OperationError",
    "PartlyDone",
    "Reached",
    "Refused",
    "Reporter",
    "Silent",
    "Stopped",
    "TakenDown",
    "TimedOut",
    "UnsupportedOnTarget",
    "Up",
    "UpOptions",
    "Where",
    "changes",
    "down",
    "status",
    "stop",
    "up",
    "wait",
]

# Where the types are. They are imported when they are asked for: every command imports this file, and few need them all.
_TYPES = {
    "errors": (
        *("HostsFailed", "InvalidHosts", "InvalidSpec", "NotYours", "OperationError", "PartlyDone"),
        *("Refused", "TimedOut", "UnsupportedOnTarget"),
    ),
    "inspect.status": ("JobState",),
    "lifecycle.base": ("Applied", "JobChange", "JobRequest", "Stopped", "Up", "UpOptions"),
    "lifecycle.down": ("TakenDown",),
    "reporter": ("Reporter", "Silent"),
    "resolve.job": ("Compiled", "Reached", "Where"),
}


if not TYPE_CHECKING:  # a type checker would take any name for one that is here

    def __getattr__(name: str) -> object:
        """Return a type that is defined in one of the modules below."""
        for module, names in _TYPES.items():
            if name in names:
                return getattr(import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def changes(job: Compiled, options: UpOptions | None = None, *, reached: Reached | None = None) -> JobChange:
    """Return the steps that `up` would take now, each with its cause. Nothing is changed."""
    from jobctl.jobspec.operations.lifecycle.base import UpOptions

    with _planned(job, reached) as planned:
        return planned.change(options or UpOptions())


def up(
    job: Compiled,
    options: UpOptions | None = None,
    *,
    reached: Reached | None = None,
    reporter: Reporter | None = None,
) -> Up:
    """Start a job, or change it to what its spec says, and wait until every node runs or the job has ended.

    A supervisor stays behind that restarts what dies, as after `jobctl up`. A job that failed at once is no error: its
    state says so; if its hosts do not answer any more, its phase is `unknown`. Raises HostsFailed or PartlyDone if the job could not be started, NotYours if it belongs to somebody else.
    """
    from jobctl.jobspec.operations.errors import HostsFailed, PartlyDone
    from jobctl.jobspec.operations.lifecycle.base import Up, UpOptions
    from jobctl.jobspec.operations.lifecycle.wait import wait_until_up
    from jobctl.jobspec.operations.reporter import SILENT

    with _planned(job, reached) as planned:
        done = planned.up(options or UpOptions(), reporter or SILENT)
        if not done.ready or (done.code == 3 and not done.held):
            error = HostsFailed if done.code == 3 else PartlyDone
            raise error(f"job `{done.plan.job}` is not up: hosts did not do their part", failures=done.failed)
        return Up(done, wait_until_up(planned.job.handle, reporter or SILENT, done.failed))


def status(job: Compiled | str | PathLike[str], *, reached: Reached | None = None) -> JobState:
    """Return how a job is, read from what really runs. Raises Refused if no such job is known here."""
    from jobctl.jobspec.operations.inspect.status import observe, state_of

    with _running(job, reached) as found:
        return state_of(found.handle, observe(found.handle))


def wait(
    job: Compiled | str | PathLike[str], timeout: float | None = None, *, reached: Reached | None = None
) -> JobState:
    """Wait until a job has ended, and return how. Raises TimedOut after `timeout` seconds."""
    from jobctl.jobspec.operations.errors import TimedOut
    from jobctl.jobspec.operations.lifecycle.wait import goes_on, wait_until_ended

    with _running(job, reached) as found:
        state = wait_until_ended(found.handle, timeout)
    if not state.over:
        raise TimedOut(goes_on(state, f"{timeout:g} s"))
    return state


def stop(
    job: Compiled | str | PathLike[str],
    request: JobRequest | None = None,
    *,
    reached: Reached | None = None,
    reporter: Reporter | None = None,
) -> Stopped:
    """End all processes of a job, and keep everything in place: `up` goes on from the last checkpoint."""
    from jobctl.jobspec.operations.lifecycle.base import JobRequest
    from jobctl.jobspec.operations.reporter import SILENT

    request = request or JobRequest()
    return _changed(job, reached, request, lambda found: found.stop(request, reporter or SILENT))


def down(
    job: Compiled | str | PathLike[str],
    request: JobRequest | None = None,
    *,
    reached: Reached | None = None,
    reporter: Reporter | None = None,
) -> TakenDown:
    """Stop and remove everything of a job but its logs, outputs and checkpoints. Safe to repeat.

    `failed` of the result has the hosts where something is left.
    """
    from jobctl.jobspec.operations.lifecycle.base import JobRequest
    from jobctl.jobspec.operations.lifecycle.down import take_down
    from jobctl.jobspec.operations.reporter import SILENT

    request = request or JobRequest()
    return _changed(job, reached, request, lambda found: take_down(found.handle, request, reporter or SILENT))


@contextmanager
def _planned(job: Compiled, reached: Reached | None) -> Iterator[Planned]:
    """Plan a job where it is to run, and let go of its connections at the end."""
    from jobctl.jobspec.operations.lifecycle.open import planned_job
    from jobctl.jobspec.operations.resolve.job import AS_STARTED
    from jobctl.jobspec.operations.resolve.moves import refuse_move

    reached = reached or AS_STARTED
    refuse_move(job, reached)
    planned = planned_job(job, reached)
    with closing(planned.job.handle):
        yield planned


@contextmanager
def _running(job: Compiled | str | PathLike[str], reached: Reached | None) -> Iterator[JobOnTarget]:
    """Find a job, and let go of its connections at the end."""
    from jobctl.jobspec.operations.lifecycle.open import running_job
    from jobctl.jobspec.operations.resolve.job import AS_STARTED

    file, name = _named(job)
    found = running_job(file, reached or AS_STARTED, name)
    with closing(found.handle):
        yield found


def _changed(
    job: Compiled | str | PathLike[str],
    reached: Reached | None,
    request: JobRequest,
    change: Callable[[JobOnTarget], R],
) -> R:
    """Change a job, and let go of its connections at the end; it has to come from its own folder."""
    from jobctl.jobspec.operations.lifecycle.open import change_job
    from jobctl.jobspec.operations.resolve.job import AS_STARTED

    def change_and_close(found: JobOnTarget) -> R:
        with closing(found.handle):
            return change(found)

    file, name = _named(job)
    return change_job(file, reached or AS_STARTED, request, change_and_close, name)


def _named(job: Compiled | str | PathLike[str]) -> tuple[str, str | None]:
    """Return what names a job, a file mostly, and the name of one that is compiled: only with its options that is certain."""
    from jobctl.jobspec.operations.resolve.job import Compiled

    return (fspath(job.path), job.spec.name) if isinstance(job, Compiled) else (fspath(job), None)
