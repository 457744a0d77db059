"""The supervisor of a job, until the job ends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.apply.clock import pause
from jobctl.jobspec.operations.errors import NotYours, Refused, UnknownJob
from jobctl.jobspec.operations.lifecycle.open import running_job
from jobctl.jobspec.operations.resolve.running import KNOWN
from jobctl.jobspec.operations.unsupported import refuse_unsupported
from jobctl.jobspec.spec.targets import traits_of

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Deployer, Handle
    from jobctl.jobspec.operations.lifecycle.base import JobOnTarget
    from jobctl.jobspec.plan.types import Plan

UNHEARD = 5.0  # seconds between two looks at a job that cannot be looked at
# Seconds between two looks of a process that only tells: at a job in its allocation, at one that waits for it, or is silent.
PACE, PACE_WAITING = 2.0, 15.0


def supervisable(job: str | None) -> JobOnTarget:
    """Return a job to supervise. Raises Refused where there is none, or somebody else takes care of it."""
    try:
        found = running_job(job)
    except UnknownJob as unknown:  # nobody can name hosts
        raise UnknownJob(unknown.message, KNOWN) from unknown
    if found.handle.plan is None:
        name = found.handle.job.name
        raise Refused(f"job `{name}` is not up", "`jobctl up` starts it, and leaves a supervisor behind")
    refuse_unsupported(found.handle.plan.target, "supervise")
    if not _recovers_itself(found):
        found.deployer("supervise")
    return found


def supervise(job: JobOnTarget, say: Callable[[str], None], *, background: bool = False) -> None:
    """Watch the job until it ends, telling what is done. Raises NotYours if somebody else watches it."""
    from jobctl.jobspec.deploy.targets.background import keep_mark
    from jobctl.jobspec.notify.teller import telling
    from jobctl.jobspec.operations.lifecycle.telling import tell_rest, teller_of

    keep_mark()
    with telling(teller_of(job.handle.job)):
        if _recovers_itself(job):
            why = _look_on(job.handle, say, background=background)
        else:
            why = _watch(job.deployer("supervise"), say)
    say(f"nothing left to supervise: {why}")
    tell_rest(job.handle.job, say)


def _recovers_itself(job: JobOnTarget) -> bool:
    """Say whether the job is recovered inside its allocation: a supervisor only tells of that."""
    plan = job.handle.plan
    return plan is not None and not traits_of(plan.target).is_supervised


def _look_on(handle: Handle, say: Callable[[str], None], *, background: bool) -> str:
    """Tell what happens to a job that is recovered elsewhere, until it ends; return how. Raises NotYours.

    A person may look on beside the process that `up` has left behind. That process is in no hurry, for days perhaps.
    """
    from jobctl.jobspec.deploy.store.lock import Locked, hold

    with ExitStack() as stack:
        try:
            stack.enter_context(hold(handle.job.supervisor_lock, "supervise", wait=0.0))
        except Locked as taken:
            if background:
                raise NotYours(f"another process tells of `{handle.job.name}`: {taken}") from taken
        return _tell_until_it_ends(handle, say, (PACE, PACE_WAITING) if background else (0.0, UNHEARD))


def _tell_until_it_ends(handle: Handle, say: Callable[[str], None], pace: tuple[float, float]) -> str:
    """Tell what happens, looking no more often than every `pace` seconds: of a job that runs, and of a silent one."""
    from jobctl.jobspec.deploy.apply.deployer import AllUnreachable
    from jobctl.jobspec.deploy.model.observed import SETTLED, phase

    name, events = handle.job.name, handle.events()
    say(f"job `{name}` is recovered inside its allocation: jobctl tells what happens there, and decides nothing")
    events.gather()
    events.new()  # what has happened before
    last = None
    while True:
        try:
            now, reason = phase(handle.observe())
        except AllUnreachable as nothing:
            now, reason = "unknown", "; ".join(error.message for error in nothing.failures.values())
        events.gather()
        for event in events.new():
            say(event["message"])
        if now in SETTLED:
            return f"the job {'was' if now == 'stopped' else 'has'} {now}{f': {reason}' if reason else ''}"
        waits = f"{now}: {reason}" if now in ("pending", "unknown") else None
        if waits is not None and waits != last:
            say(waits)
        last = waits
        pause(pace[1] if now == "unknown" else max(handle.interval, pace[1] if pace[0] and waits else pace[0]))


def _watch(deployer: Deployer, say: Callable[[str], None]) -> str:
    """Watch the job until it ends, and return why there is nothing to watch any more. Raises NotYours."""
    from jobctl.jobspec.deploy.apply.clock import SystemClock
    from jobctl.jobspec.deploy.store.lock import Locked
    from jobctl.jobspec.supervise.loop import HostsChanged, Supervisor, is_over

    name = deployer.job.name
    try:
        while True:
            _read_for_later(deployer.plan)
            try:
                with deployer.follow() as feed:
                    why = Supervisor(deployer, SystemClock(), say).run(feed)
                if is_over(deployer):
                    return why
            except HostsChanged:
                deployer.close()
                deployer = running_job(name).deployer("supervise")
    except Locked as taken:
        raise NotYours(f"another supervisor watches `{name}`: {taken}") from taken


def _read_for_later(plan: Plan | None) -> None:
    """Read what only a restart needs, as long as it is there: jobctl may be upgraded, or removed, while the job runs."""
    from jobctl.jobspec.deploy.host import scripts
    from jobctl.jobspec.deploy.transport import base
    from jobctl.jobspec.render.artefact import launcher, read_templates

    if plan is not None:
        launcher()
        read_templates(plan.target)
        if traits_of(plan.target).takes_hosts:
            scripts.SCRIPTS.read()
            base.SCRIPTS.read()
