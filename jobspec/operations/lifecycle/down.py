"""Taking a job down, wherever it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.report.event_log import key_of
from jobctl.jobspec.launcher.telling.words import id_of
from jobctl.jobspec.operations.inspect.status import state_of
from jobctl.jobspec.operations.lifecycle.applying import completing, grace_of, locked, locked_by
from jobctl.jobspec.operations.lifecycle.telling import tell_last, tell_now
from jobctl.jobspec.operations.resolve.job import AS_STARTED
from jobctl.jobspec.operations.resolve.ownership import refuse_owner
from jobctl.jobspec.operations.targets.choose import target_of
from jobctl.jobspec.operations.targets.table import finder_of
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Failures, Handle
    from jobctl.jobspec.deploy.model.errors import DeployError
    from jobctl.jobspec.deploy.model.observed import Observed
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.deploy.store.lock import JobLock
    from jobctl.jobspec.operations.lifecycle.base import JobRequest
    from jobctl.jobspec.operations.reporter import Reporter

_ELSEWHERE = "`--hosts`, `--context` and `--namespace`"  # the options that have `down` look in other places


@dataclass(frozen=True, slots=True)
class TakenDown:
    """What `down` did: whether there was `anything`, where the logs went, and the hosts where something is left.

    `hosts` are those where it looked, and those of the job that it did not know how to reach: these have `failed`.
    `lost` are hosts that the user has called gone for good, and that did not answer: what is there was given up.
    """

    hosts: tuple[str, ...]
    anything: bool = True
    logs: Path | None = None
    failed: Failures = field(default_factory=dict)
    lost: Failures = field(default_factory=dict)


def take_down(handle: Handle, request: JobRequest, reporter: Reporter) -> TakenDown:
    """Collect logs, end everything, remove everything but logs, outputs and checkpoints.

    Raises ChangedMeanwhile if another command has brought the job to hosts, say, that this handle does not know.
    """
    grace, since = grace_of(handle, request.grace), handle.job.stamp()
    observed = _observed(handle, request)
    if not _anything(handle, observed) and _is_gone(handle, request, reporter):
        return TakenDown(handle.places(), anything=False)
    if set(handle.places()) <= _given_up(handle.failures, request.lost)[0].keys():
        return _give_up(handle, request, observed, reporter)
    with locked(handle, "down", request.break_lock, since):
        with reporter.waiting(aloud=True) as waiting:
            handle.tell = waiting.show
            handle.events().gather()
            handle.check_here()
            with completing():
                logs, failed = handle.take_down(grace)
                handle.check_here()
        done = _taken_down(handle, request, logs, failed)
        _note(handle, observed, done, reporter, handle.check_here)
    if done.failed:
        tell_now(handle.job, reporter)
    return done


def _give_up(handle: Handle, request: JobRequest, observed: Observed, reporter: Reporter) -> TakenDown:
    """Forget a job of which no host answers: the user calls all of them gone for good."""
    from jobctl.jobspec.deploy.targets.background import end_supervisor

    with _locked_here(handle, request) as here:
        end_supervisor(handle.job)
        done = _taken_down(handle, request, None, handle.failures)
        with completing():
            here.check()
        _note(handle, observed, done, reporter, here.check)
    return done


def _taken_down(handle: Handle, request: JobRequest, logs: Path | None, failed: Failures) -> TakenDown:
    """Return what came of `down`: where something is left, also beyond the hosts of `handle`, and where it was given up."""
    elsewhere = _elsewhere(handle)
    _, failed = _given_up(failed, handle.job.unreached_hosts())  # nothing of the job can be there
    lost, failed = _given_up({**failed, **elsewhere}, request.lost)
    return TakenDown((*handle.places(), *elsewhere), logs=logs, failed=failed, lost=lost)


def _note(handle: Handle, observed: Observed, done: TakenDown, reporter: Reporter, check: Callable[[], None]) -> None:
    """Write down what came of `down`, and forget the job unless something is left. Only with the lock held: see `_clear`."""
    from jobctl.jobspec.deploy.store import events

    # Of a cluster the objects that are left may have failed, which are no place where the job may be.
    elsewhere = sorted(done.failed.keys() & set(done.hosts) - set(handle.places()))
    if not done.failed:
        handle.job.forget()
    told = {"failed": sorted(done.failed), "elsewhere": elsewhere, "lost": sorted(done.lost)}
    events.record(handle.job.events, time.time(), "down", "job taken down", **told, **_ending(handle, observed))
    if not done.failed:
        _clear(handle.job, reporter, check)


def _observed(handle: Handle, request: JobRequest) -> Observed:
    """Observe the job, which must not be somebody else's. Raises AllUnreachable if a host may yet answer, but none does."""
    from jobctl.jobspec.deploy.apply.deployer import AllUnreachable

    try:
        observed = handle.observe()
    except AllUnreachable as nothing:
        if _given_up(nothing.failures, request.lost)[1]:
            raise
        observed = nothing.observed
    refuse_owner(handle, observed, request.take_over)
    return observed


def _given_up(failed: Failures, lost: Iterable[str]) -> tuple[Failures, Failures]:
    """Part hosts that are lost, and do not answer, from others where something is left."""
    from jobctl.jobspec.deploy.model.errors import may_be_gone

    gone = {host: error for host, error in failed.items() if host in lost and may_be_gone(error)}
    return gone, {host: error for host, error in failed.items() if host not in gone}


def _anything(handle: Handle, observed: Observed) -> bool:
    """Say whether anything of the job is anywhere, as far as hosts answer."""
    seen = observed.nodes or observed.strays or observed.control.generation or observed.supervised
    there = seen or observed.unreachable or handle.job.job_record() is not None or handle.has_files()
    return bool(there or _elsewhere(handle))


def _elsewhere(handle: Handle) -> dict[str, DeployError]:
    """Return where something of the job is, or may be, beyond the hosts of `handle`, and the remedy.

    That is where it was brought up from here, where its hosts said that it runs when they were last observed, and what the
    last `down` left as it was.
    """
    from jobctl.jobspec.deploy.model.errors import UnlistedHost
    from jobctl.jobspec.deploy.store.past import left_elsewhere

    job, there = handle.job, handle.places()
    told = {host: error for host, error in handle.failures.items() if host not in there}
    hints = dict.fromkeys(left_elsewhere(job), "`--hosts hosts.txt` names all hosts of the job")
    hints |= dict.fromkeys(_homes(job), f"`jobctl down {job.name}` without {_ELSEWHERE} goes there")
    words = f"job `{job.name}` was brought up there, and it is not among the places of this command"
    known = {host: UnlistedHost(host, words, hint) for host, hint in hints.items() if host not in there}
    return {**told, **known}


def _homes(job: JobDir) -> list[str]:
    """Return where `up` has noted here that the job is, whichever target it is on.

    Without a record, a plan says nothing: an `up` or a `down` was killed between two files.
    """
    return [] if job.job_record() is None else finder_of(target_of(job, AS_STARTED)).homes(job)


def _ending(handle: Handle, observed: Observed) -> dict[str, str | None]:
    """Return how the job had ended before it was taken down: its supervisor may not have got round to writing it.

    `ends` is the id of that event, by which launchers and supervisors know it.
    """
    state, generation = state_of(handle, observed), observed.control.generation
    if state.phase not in ("succeeded", "failed"):
        return {}
    key = key_of({"event": state.phase, "generation": generation.number}) if generation is not None else None
    known = {"ends": id_of(generation.began, key)} if generation is not None and key is not None else {}
    return {"phase": state.phase, "reason": state.reason, **known}


def _is_gone(handle: Handle, request: JobRequest, reporter: Reporter) -> bool:
    """Clear what is left here of a job of which nothing is anywhere, once no other command on this machine has the lock.

    False if one that had it has brought the job up.
    """
    job = handle.job
    if not job.root.exists():
        return True
    with _locked_here(handle, request) as here:
        if _anything(handle, _observed(handle, request)):
            return False
        here.check()
        job.forget()
        _clear(job, reporter, here.check)
        return True


@contextmanager
def _locked_here(handle: Handle, request: JobRequest) -> Iterator[JobLock]:
    """Hold the job's lock on this machine alone. Raises NotYours if another command keeps it."""
    from jobctl.jobspec.deploy.store.lock import JobLock, Locked

    try:
        with JobLock(handle.job.lock).hold("down", break_it=request.break_lock) as here:
            yield here
    except Locked as taken:
        raise locked_by(handle, taken) from taken


def _clear(job: JobDir, reporter: Reporter, check: Callable[[], None]) -> None:
    """Send what waits, and remove channels and lock. Only with the lock held: the next command may bring the job up.

    To send takes seconds, in which this process may be stopped: it removes nothing unless `check` says that it has the lock.
    """
    from jobctl.jobspec.deploy.store.files import remove_file

    tell_last(job, reporter)
    with completing():
        check()
    for path in (job.channels, job.outbox, job.outbox_lock, job.lock):
        remove_file(path)
