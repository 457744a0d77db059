"""The supervisor as a command."""

from __future__ import annotations

import contextlib
import signal
import sys
from datetime import datetime

from jobctl import console
from jobctl.console import Failed


def supervise_job(job: str | None, *, background: bool) -> None:
    """Watch the job until it ends. SIGTERM ends the supervisor, not the job."""
    from jobctl.jobspec.deploy.apply.clock import SystemClock
    from jobctl.jobspec.deploy.store.lock import Locked
    from jobctl.jobspec.supervise.loop import HostsChanged, Supervisor, is_over
    from jobctl.running import supervised_job

    deployer = supervised_job(job, "supervise")
    if deployer.plan is None:
        raise Failed(f"job `{deployer.job.name}` is not up", 2, "`jobctl up` starts it, and leaves a supervisor behind")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if background:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        while True:
            try:
                with deployer.follow() as feed:
                    why = Supervisor(deployer, SystemClock(), _say).run(feed)
                if is_over(deployer):
                    break
            except HostsChanged:
                deployer.close()
                deployer = supervised_job(job, "supervise")
    except Locked as taken:
        if background:
            return
        raise Failed(f"another supervisor watches `{deployer.job.name}`: {taken}", 5) from taken
    _say(f"nothing left to supervise: {why}")


def _say(message: str) -> None:
    with contextlib.suppress(OSError):  # its log lies on a disk that is full
        console.say(f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S} {message}")
