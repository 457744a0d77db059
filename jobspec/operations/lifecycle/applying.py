"""What operations that change a job have in common: its lock, and telling of each step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from jobctl.jobspec.operations.errors import (
    ChangedMeanwhile,
    HostsFailed,
    NotYours,
    OperationError,
    PartlyDone,
    Refused,
    failures_json,
)
from jobctl.jobspec.operations.lifecycle.base import Stopped

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Failures, Handle
    from jobctl.jobspec.deploy.apply.reconcile import Step
    from jobctl.jobspec.deploy.model.errors import DeployError
    from jobctl.jobspec.deploy.model.observed import Observed
    from jobctl.jobspec.operations.reporter import Reporter
    from jobctl.jobspec.plan.types import Plan


R = TypeVar("R")

SKIP_CHECK = "`--skip-check` goes on all the same"
TRIES = 5  # of a command that finds another job than it has looked at, once it has the lock


@contextmanager
def locked(
    deployer: Handle, what: str, break_it: bool, since: tuple[tuple[int, int], ...] | None = None
) -> Iterator[None]:
    """Hold the job's lock while steps are applied. Raises NotYours if someone else keeps it.

    `since` is the stamp of what the caller knows of the job. Raises ChangedMeanwhile if something else is known by now.
    """
    from jobctl.jobspec.deploy.store.lock import Locked

    try:
        with deployer.lock(what, break_it=break_it):
            if since is not None and deployer.job.stamp() != since:
                message = f"another command has changed job `{deployer.job.name}` meanwhile"
                raise ChangedMeanwhile(message, f"`jobctl {what}` again")
            yield
    except Locked as taken:
        raise locked_by(deployer, taken) from taken


def while_others_change(attempt: Callable[[], R]) -> R:
    """Return what `attempt` does. It opens the job again, and tries again, where others change the job before it has the lock."""
    for _ in range(TRIES - 1):
        with suppress(ChangedMeanwhile):
            return attempt()
    return attempt()


def locked_by(deployer: Handle, taken: Exception) -> NotYours:
    """Return the error of an operation that did not get the lock."""
    return NotYours(f"job `{deployer.job.name}` is {taken}", "wait for it, or `--break-lock` if it hangs")


def cut_off(error: DeployError, *, begun: bool, ran: bool = True) -> OperationError:
    """Return the error of an operation that `error` has ended; `begun`: something may be another already.

    Of a job of which nothing `ran` before, that is so only where the lock was lost: on some hosts all may be done.
    """
    from jobctl.jobspec.deploy.store.lock import LockLost

    if not (begun and (ran or isinstance(error, LockLost))):
        return HostsFailed(error.message, error.hint, failures=error.failures)
    hint = error.hint or "`jobctl up` again does what is missing"
    return PartlyDone(f"{error.message}; the change has begun, and was not completed", hint, failures=error.failures)


@contextmanager
def completing() -> Iterator[None]:
    """Go on with a change that has begun. Raises PartlyDone if the lock is lost meanwhile, HostsFailed if it had not begun yet."""
    from jobctl.jobspec.deploy.store.lock import LockLost

    try:
        yield
    except LockLost as lost:
        raise cut_off(lost, begun=lost.begun) from lost


def refuse_unfit(handle: Handle, plan: Plan, reporter: Reporter, refusal: str) -> None:
    """Ask the place of a job whether it is fit for it. Raises HostsFailed, with what `refusal` says, if it is not."""
    from jobctl.jobspec.deploy.model.unfit import failures_of

    findings = handle.preflight(plan, handle.places())
    reporter.findings([finding for finding in findings if finding.verdict in ("warning", "error")])
    unfit = failures_of(findings)
    if unfit:  # which the reporter has told, each cause with its remedy
        raise HostsFailed(f"{refusal}: nothing was changed", SKIP_CHECK, details=unfit_json(plan, unfit))


def not_fit(plan: Plan, unfit: Failures, message: str, remedy: str = "") -> HostsFailed:
    """Return the error of an `up` of which no host, or too few of them, are fit; `remedy` goes before that of not checking."""
    return HostsFailed(message, f"{remedy}{SKIP_CHECK}", details=unfit_json(plan, unfit), failures=unfit)


def unfit_json(plan: Plan, unfit: Failures) -> dict[str, Any]:
    """Return which hosts are not fit for a job, as plain data."""
    return {"job": plan.job, "failed_hosts": failures_json(unfit)}


@contextmanager
def ordering() -> Iterator[None]:
    """Give an allocation an order. Raises PartlyDone if it has the order, and has not followed it in time."""
    from jobctl.jobspec.deploy.model.errors import HostError

    try:
        yield
    except HostError as error:
        if error.code != "slurm-order":
            raise
        raise PartlyDone(error.message, error.hint) from error


def step_teller(deployer: Handle, reporter: Reporter, command: str) -> Callable[[Step], None]:
    """Return what records each step as an event of the job, as one of `command`, and tells the reporter of it."""
    from jobctl.jobspec.deploy.store import events

    def note(step: Step) -> None:
        events.record(deployer.job.events, time.time(), "step", str(step), **step.fields(), by=command)
        reporter.step(step)

    return note


def ended_already(job: str, observed: Observed, *, is_up: bool) -> Stopped | None:
    """Return what `stop` says of a job that has ended before, None of any other. Raises Refused if the job is not up."""
    from jobctl.jobspec.deploy.model.observed import SETTLED, phase

    if not is_up:
        raise Refused(f"job `{job}` is not up: there is nothing to stop")
    now, _ = phase(observed)
    return Stopped(now, already=True) if now in SETTLED else None


def grace_of(deployer: Handle, asked: float | None) -> float:
    """Return how many seconds processes get to end: as the caller asks, otherwise as the spec says."""
    if asked is not None:
        return asked
    return deployer.plan.stop_grace if deployer.plan else 10.0
