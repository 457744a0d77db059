"""What `stop` and `down` do."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl import console
from jobctl.bringup import grace_of, locked, locked_by
from jobctl.console import Failed
from jobctl.options import Format
from jobctl.outcome import SETTLED, report, tell_failures
from jobctl.ownership import refuse_owner
from jobctl.views.progress import Progress

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Deployer, Failures, Handle


def stop_job(deployer: Deployer, timeout: str | None, break_it: bool, take_over: bool, output: Format) -> None:
    """End all processes and keep everything in place."""
    from jobctl.jobspec.deploy.model.control import JobResult
    from jobctl.jobspec.deploy.model.observed import phase
    from jobctl.jobspec.deploy.store import events

    with locked(deployer, "stop", break_it):
        observed = deployer.observe()
        refuse_owner(deployer, observed, take_over)
        if observed.control.generation is None:
            raise Failed(f"job `{deployer.job.name}` is not up: there is nothing to stop", 2)
        now, _ = phase(observed)
        if now in SETTLED:
            console.say(f"job `{deployer.job.name}` is {now} already")
            _report_if(deployer, output)
            return
        # The wish first: whoever finds it without its fulfilment goes on with that.
        deployer.keep(replace(observed.control.ledger, result=JobResult("stopped", "stopped by the user", time.time())))
        with Progress(quiet=output is Format.json) as progress:
            deployer.tell = progress.show
            deployer.stop_processes(grace_of(deployer, timeout))
        events.record(deployer.job.events, time.time(), "stopped", "job stopped by the user")
    console.say(f"job `{deployer.job.name}` stopped; `jobctl up` resumes it from its last checkpoint")
    _report_if(deployer, output)
    if deployer.failures:
        tell_failures(deployer.failures)
        raise Failed("", 4)


def _report_if(deployer: Handle, output: Format) -> None:
    if output is Format.json:
        report(deployer)


def down_job(deployer: Handle, timeout: str | None, break_it: bool, take_over: bool, output: Format) -> None:
    """Collect logs, end everything, remove everything but logs, outputs and checkpoints."""
    from jobctl.jobspec.deploy.store import events

    directory, grace = deployer.job, grace_of(deployer, timeout)
    if not _anything(deployer, take_over) and not _comes_up(deployer, take_over, break_it):
        console.say(f"nothing of job `{directory.name}` is {_where(deployer)}")
        directory.forget()
        _down_report(output, deployer, None, {})
        return
    with locked(deployer, "down", break_it):
        with Progress(quiet=output is Format.json, aloud=True) as progress:
            deployer.tell = progress.show
            collected, failures = deployer.take_down(grace)
        if not failures:
            directory.forget()
        events.record(directory.events, time.time(), "down", "job taken down", failed=sorted(failures))
    directory.lock.unlink(missing_ok=True)
    _say_down(deployer, collected, failures)
    _down_report(output, deployer, collected, failures)
    if failures:
        raise Failed("", 3 if set(failures) >= _hosts(deployer) else 4)


def _anything(deployer: Handle, take_over: bool) -> bool:
    """Say whether anything of the job is anywhere, as far as hosts answer."""
    observed = deployer.observe()
    refuse_owner(deployer, observed, take_over)
    seen = observed.nodes or observed.strays or observed.control.generation or observed.supervised
    return bool(seen or observed.unreachable or deployer.job.about() is not None or deployer.has_files())


def _comes_up(deployer: Handle, take_over: bool, break_it: bool) -> bool:
    """Wait for a command on this machine that has the lock, and say whether it has left anything."""
    from jobctl.jobspec.deploy.store.lock import Locked, break_lock, hold

    job = deployer.job
    if not job.lock.exists():
        return False
    if break_it:
        break_lock(job.lock)
    try:
        with hold(job.lock, "down"):
            return _anything(deployer, take_over)
    except Locked as taken:
        raise locked_by(deployer, taken) from taken


def _hosts(deployer: Handle) -> set[str]:
    return set(deployer.where())


def _where(deployer: Handle) -> str:
    hosts = deployer.where()
    return "on this machine" if hosts == ("localhost",) else f"on {', '.join(hosts)}"


def _say_down(deployer: Handle, collected: Path | None, failures: Failures) -> None:
    logs = f"; its logs are in {collected}" if collected else ""
    name = deployer.job.name
    if not failures:
        console.say(f"job `{name}` is down{logs}")
        return
    tell_failures(failures)
    console.error(
        f"job `{name}` is down, but not on {', '.join(sorted(failures))}{logs}",
        f"`jobctl down {name}` again cleans up there once that is mended",
    )


def _down_report(output: Format, deployer: Handle, collected: Path | None, failures: Failures) -> None:
    if output is Format.json:
        hosts = [
            {
                "host": host,
                "reachable": host not in failures,
                "error": failures[host].message if host in failures else None,
            }
            for host in deployer.where()
        ]
        logs = str(collected) if collected else None
        console.out_json({"job": deployer.job.name, "down": not failures, "hosts": hosts, "logs": logs})
