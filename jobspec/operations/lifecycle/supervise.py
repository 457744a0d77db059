"""The supervisor of a job, until the job ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import NotYours, Refused
from jobctl.jobspec.operations.lifecycle.open import running_job

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Deployer


def supervisable(job: str | None) -> Deployer:
    """Return the deployer of a job that jobctl recovers. Raises Refused where there is nothing to supervise."""
    deployer = running_job(job).deployer("supervise")
    if deployer.plan is None:
        name = deployer.job.name
        raise Refused(f"job `{name}` is not up", "`jobctl up` starts it, and leaves a supervisor behind")
    return deployer


def supervise(deployer: Deployer, say: Callable[[str], None]) -> None:
    """Watch the job until it ends, telling what is done. Raises NotYours if somebody else watches it."""
    from jobctl.jobspec.notify.teller import telling
    from jobctl.jobspec.operations.lifecycle.telling import tell_rest, teller_of

    with telling(teller_of(deployer.job)):
        why = _watch(deployer, say)
    say(f"nothing left to supervise: {why}")
    tell_rest(deployer.job, say)


def _watch(deployer: Deployer, say: Callable[[str], None]) -> str:
    """Watch the job until it ends, and return why there is nothing to watch any more. Raises NotYours."""
    from jobctl.jobspec.deploy.apply.clock import SystemClock
    from jobctl.jobspec.deploy.store.lock import Locked
    from jobctl.jobspec.supervise.loop import HostsChanged, Supervisor, is_over

    name = deployer.job.name
    try:
        while True:
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
