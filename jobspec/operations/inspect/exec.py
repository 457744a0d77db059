"""A command inside of a running node."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from jobctl.jobspec.deploy.apply.clock import pause
from jobctl.jobspec.operations.errors import CommandNotRun, Refused
from jobctl.jobspec.operations.resolve.names import is_service, node_number

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle
    from jobctl.jobspec.operations.reporter import Reporter

T = TypeVar("T")

START_TIMEOUT = 60.0  # seconds for which `exec` waits until a node that begins has something to enter


def exec_in_node(handle: Handle, node: str | None, argv: Sequence[str], reporter: Reporter) -> int:
    """Run `argv` inside of a node (on `local`, with the environment of its first process); return its exit code."""
    from jobctl.jobspec.deploy.model.errors import CannotRun, DeployError, HostError

    try:
        place = node if node and is_service(handle.plan, node) else node_number(handle.plan, node or "0")
        return entered(handle, place, lambda: handle.enter(place, argv), reporter)
    except HostError:
        raise
    except CannotRun as error:
        raise CommandNotRun(error.message, error.exit_code, error.hint) from error
    except DeployError as error:
        raise Refused(error.message, error.hint) from error


def entered(handle: Handle, where: int | str, enter: Callable[[], T], reporter: Reporter) -> T:
    """Return what `enter` returns, as soon as something runs there: `up` returns a moment before processes do."""
    from jobctl.jobspec.deploy.model.errors import NothingToEnter

    deadline = time.monotonic() + START_TIMEOUT
    with reporter.waiting() as waiting:
        while True:
            try:
                return enter()
            except NothingToEnter as nothing:
                if time.monotonic() > deadline or not _begins(handle, where):
                    raise
                waiting.show(f"{nothing.message} yet")
            pause(handle.interval)


def _begins(handle: Handle, where: int | str) -> bool:
    """Say whether something is about to run there."""
    from jobctl.jobspec.deploy.model.observed import phase

    observed = handle.observe()
    if phase(observed)[0] not in ("starting", "running", "degraded", "restarting"):
        return False
    there = observed.node(where) if isinstance(where, int) else None
    # What has failed in a job that is restarted begins again.
    return there is None or there.state in ("pending", "starting", "running") or phase(observed)[0] == "restarting"
