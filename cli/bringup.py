"""What `up`, `stop`, `restart` and `down` do, told as it happens."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobctl import console
from jobctl.console import Failed
from jobctl.jobspec.deploy.clock import pause
from jobctl.options import Format
from jobctl.progress import Progress

if TYPE_CHECKING:
    from jobctl.jobs import Compiled
    from jobctl.jobspec.deploy.jobdir import JobDir
    from jobctl.jobspec.deploy.local import Local
    from jobctl.jobspec.deploy.observed import Observed
    from jobctl.jobspec.deploy.reconcile import Step, Wanted
    from jobctl.jobspec.plan.types import Plan

SETTLED = ("succeeded", "failed", "stopped")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `up`."""

    dry_run: bool
    follow: bool
    fresh: bool
    supervise: bool
    break_lock: bool
    output: Format


@contextmanager
def locked(job: JobDir, what: str, break_it: bool) -> Iterator[None]:
    """Hold the job's lock while steps are applied. Ends with 5 if someone else keeps it."""
    from jobctl.jobspec.deploy.lock import Locked, break_lock, hold

    if break_it:
        break_lock(job.lock)
    try:
        with hold(job.lock, what):
            yield
    except Locked as taken:
        raise Failed(f"job `{job.name}` is {taken}", 5, "wait for it, or `--break-lock` if it hangs") from taken


def up_job(compiled: Compiled, plan: Plan, options: Options) -> int:
    """Bring the job up and return the exit code."""
    from jobctl.jobs import job_of_name, refuse_target
    from jobctl.jobspec.deploy.local import Local

    refuse_target(plan)
    job = job_of_name(plan.job)
    deployer = Local(job)
    if options.output is Format.text:
        _say_target(compiled, plan)
    if options.dry_run:
        return _dry_run(deployer, plan, options)
    offset = job.events.stat().st_size if job.events.exists() else 0
    with locked(job, "up", options.break_lock):
        steps = _apply(deployer, compiled, plan, options)
    if not steps:
        return _nothing_to_do(deployer, plan, options)
    if options.follow:
        from jobctl.following import follow_job

        return follow_job(deployer, options.output)
    return _wait_until_up(deployer, options, offset)


def _say_target(compiled: Compiled, plan: Plan) -> None:
    unused = compiled.path.parent / "hosts.txt"
    if compiled.hosts_path is None and unused.is_file():
        console.say(
            f"target local: {len(plan.nodes)} nodes on this machine ({unused} lies there unused; --hosts {unused} uses it)"
        )


def _dry_run(deployer: Local, plan: Plan, options: Options) -> int:
    from jobctl.jobspec.deploy.reconcile import reconcile

    steps = reconcile(_wanted(deployer, plan, options), deployer.observe())
    if options.output is Format.json:
        console.out_json(
            {
                "job": plan.job,
                "steps": [{"kind": s.kind, "target": s.target, "cause": s.cause} for s in steps],
            }
        )
        return 0
    for step in steps:
        console.out(str(step))
    if not steps:
        console.say("nothing to do")
    return 0


def _wanted(deployer: Local, plan: Plan, options: Options) -> Wanted:
    from jobctl.jobspec.deploy.carry_out import wanted

    anew = "`--fresh`: a new run" if options.fresh else None
    return wanted(deployer, plan, anew=anew, supervise=options.supervise)


def _apply(deployer: Local, compiled: Compiled, plan: Plan, options: Options) -> tuple[Step, ...]:
    from jobctl.jobspec.deploy.carry_out import carry_out, fresh_run
    from jobctl.jobspec.deploy.clock import SystemClock
    from jobctl.jobspec.deploy.errors import DeployError
    from jobctl.jobspec.deploy.local import Start
    from jobctl.jobspec.deploy.reconcile import reconcile

    observed = deployer.observe()
    want = _wanted(deployer, plan, options)
    steps = reconcile(want, observed)
    _warn_of_another_spec(deployer, compiled)
    deployer.job.create()
    deployer.job.remember(_about(compiled, plan), plan)
    if not steps:
        return ()
    fresh = fresh_run(plan, observed.control.generation, os.path.exists) if options.fresh else None
    note = _teller(deployer, options)
    try:
        deployer.prepare(plan, Start(console.environ(), _secrets(compiled)))
        if fresh and fresh.checkpoint_dir:
            Path(fresh.checkpoint_dir).mkdir(parents=True, exist_ok=True)
        carry_out(deployer, want, steps, observed, SystemClock(), note, fresh=fresh)
    except DeployError as error:
        raise Failed(error.message, 3, error.hint) from error
    if any(step.kind == "supervise" for step in steps):
        start_supervisor(deployer.job)
    return steps


def _warn_of_another_spec(deployer: Local, compiled: Compiled) -> None:
    """Say that a job of this name was started from another file: who copies a project forgets to rename the job."""
    before = (deployer.job.about() or {}).get("spec")
    now = str(compiled.path.absolute())
    if before is not None and before != now and Path(before).exists() and not os.path.samefile(before, now):
        console.warning(f"job `{deployer.job.name}` was started from {before}, and becomes what {now} says")


def _teller(deployer: Local, options: Options) -> Any:
    from jobctl.jobspec.deploy import events

    def note(step: Step) -> None:
        events.record(deployer.job.events, time.time(), "step", str(step), node=step.node, by="up")
        if options.output is Format.text:
            console.say(str(step))

    return note


def _about(compiled: Compiled, plan: Plan) -> dict[str, Any]:
    return {
        "job": plan.job,
        "target": plan.target,
        "spec": str(compiled.path.absolute()),
        "hosts": str(compiled.hosts_path.absolute()) if compiled.hosts_path else None,
        "owner": plan.owner,
        "started_at": time.time(),
    }


def _secrets(compiled: Compiled) -> dict[str, str]:
    from jobctl.jobspec.deploy.secrets import SecretMissing, read_secrets

    try:
        return read_secrets(compiled.spec.secrets, compiled.directory, console.environ())
    except SecretMissing as missing:
        raise Failed(str(missing), 2, missing.hint) from missing


def start_supervisor(job: JobDir) -> None:
    """Leave a supervisor behind that outlives this command and its terminal."""
    from jobctl.jobspec.deploy.background import start_detached

    start_detached(
        [sys.executable, "-m", "jobctl", "supervise", job.name, "--background"],
        {**console.environ(), "JOBCTL_STATE_DIR": str(job.root.parent.parent)},
        job.supervisor_log,
        until=lambda: _is_supervised(job),
    )


def _is_supervised(job: JobDir) -> bool:
    from jobctl.jobspec.deploy.lock import read_holder

    return bool(read_holder(job.supervisor_lock))


def _nothing_to_do(deployer: Local, plan: Plan, options: Options) -> int:
    from jobctl.jobspec.deploy.observed import phase

    now, _ = phase(deployer.observe())
    console.say(f"job `{plan.job}` is {now} as the spec says; nothing to do")
    if options.output is Format.json:
        _report(deployer)
    if options.follow and now != "succeeded":
        from jobctl.following import follow_job

        return follow_job(deployer, options.output)
    return 0


def _wait_until_up(deployer: Local, options: Options, offset: int) -> int:
    """Wait until every node runs, or the job has ended; show progress on a terminal."""
    from jobctl.jobspec.deploy.observed import phase

    with Progress(quiet=options.output is Format.json) as progress:
        while True:
            observed = deployer.observe()
            now, reason = phase(observed)
            if now in ("running", "degraded", *SETTLED):
                break
            progress.show(f"{now}: {reason or ''}", _counts(observed))
            pause(0.1)
    if options.output is Format.json:
        _report(deployer)
        return 1 if now in ("failed", "degraded") else 0
    return _say_outcome(deployer, observed, now, reason)


def _counts(observed: Observed) -> tuple[int, int]:
    ready = [node for node in observed.members if node.state in ("running", "exited")]
    return len(ready), len(observed.members)


def _report(deployer: Local) -> None:
    from jobctl.status import status_json

    console.out_json(status_json(deployer))


def _say_outcome(deployer: Local, observed: Observed, now: str, reason: str | None) -> int:
    name = deployer.job.name
    if now == "running":
        generation = observed.control.generation
        number = generation.number if generation else 1
        console.say(
            f"job `{name}` runs: {_nodes(len(observed.members))}, generation {number}."
            f" See `jobctl status {name}`, `jobctl logs {name} -f`, `jobctl wait {name}`"
        )
        return 0
    if now == "succeeded":
        console.say(f"job `{name}` succeeded")
        return 0
    console.error(f"job `{name}` {now}: {reason}", f"`jobctl logs {name}` shows what its processes printed")
    show_tail(observed)
    return 1


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def show_tail(observed: Observed) -> None:
    """Print the last lines of whatever failed last."""
    failures = observed.control.ledger.failures
    if failures and failures[-1].tail:
        failure = failures[-1]
        console.say(f"last lines of node {failure.node}, {failure.log}:")
        for line in failure.tail:
            console.say(f"  {line}")


def stop_job(job: str | None, timeout: str | None, break_it: bool, output: Format) -> None:
    """End all processes and keep everything in place."""
    from jobctl.jobs import running_job
    from jobctl.jobspec.deploy import events
    from jobctl.jobspec.deploy.control import Result, write_ledger
    from jobctl.jobspec.deploy.observed import phase

    deployer = running_job(job)
    with locked(deployer.job, "stop", break_it):
        control = deployer.observe().control
        if control.generation is None:
            raise Failed(f"job `{deployer.job.name}` is not up: there is nothing to stop", 2)
        now, _ = phase(deployer.observe())
        if now in SETTLED:
            console.say(f"job `{deployer.job.name}` is {now} already")
            _report_if(deployer, output)
            return
        deployer.stop_processes(grace_of(deployer, timeout))
        ledger = deployer.observe().control.ledger
        write_ledger(deployer.work, replace(ledger, result=Result("stopped", "stopped by the user", time.time())))
        events.record(deployer.job.events, time.time(), "stopped", "job stopped by the user")
    console.say(f"job `{deployer.job.name}` stopped; `jobctl up` resumes it from its last checkpoint")
    _report_if(deployer, output)


def _report_if(deployer: Local, output: Format) -> None:
    if output is Format.json:
        _report(deployer)


def grace_of(deployer: Local, timeout: str | None) -> float:
    """Return how long processes get to end: as asked for, else as the spec says."""
    if timeout is not None:
        return duration(timeout)
    return deployer.plan.stop_grace if deployer.plan else 10.0


def duration(text: str) -> float:
    """Return the seconds that a duration such as `30s`, `10m` or a plain number means. Ends with 2 for others."""
    from jobctl.jobspec.spec.short import parse_duration

    try:
        return float(text) if text.replace(".", "", 1).isdigit() else parse_duration(text)
    except ValueError as error:
        raise Failed(f"`{text}` is not a duration", 2, "write it as `30s`, `10m` or `1h30m`") from error


def restart_job(job: str | None, node: str | None, break_it: bool, output: Format) -> None:
    """Begin a new generation, whatever runs."""
    from jobctl.jobs import running_job
    from jobctl.jobspec.deploy.carry_out import carry_out, wanted
    from jobctl.jobspec.deploy.clock import SystemClock
    from jobctl.jobspec.deploy.errors import DeployError
    from jobctl.jobspec.deploy.reconcile import reconcile

    deployer = running_job(job)
    plan = deployer.plan
    if plan is None:
        raise Failed(f"job `{deployer.job.name}` is not up", 2, "`jobctl up` starts it")
    anew = frozenset({node_number(node, len(plan.nodes))}) if node is not None else frozenset()
    options = Options(False, False, False, True, break_it, output)
    with locked(deployer.job, "restart", break_it):
        observed = deployer.observe()
        want = wanted(deployer, plan, anew="`jobctl restart`", replace=anew)
        steps = reconcile(want, observed)
        try:
            carry_out(deployer, want, steps, observed, SystemClock(), _teller(deployer, options))
        except DeployError as error:
            raise Failed(error.message, 3, error.hint) from error
        if any(step.kind == "supervise" for step in steps):
            start_supervisor(deployer.job)
    raise_code(_wait_until_up(deployer, options, 0))


def raise_code(code: int) -> None:
    """End the command with `code`, if it is not 0."""
    if code:
        raise Failed("", code)


def node_number(text: str, count: int) -> int:
    """Return the node that `--node` names. Ends with 2 if there is none such."""
    if not text.isdigit() or int(text) >= count:
        raise Failed(f"the job has no node `{text}`", 2, f"its nodes are 0 to {count - 1}")
    return int(text)


def down_job(job: str | None, timeout: str | None, break_it: bool, output: Format) -> None:
    """Collect logs, end everything, remove everything but logs, outputs and checkpoints."""
    from jobctl.jobs import job_of_name, name_of
    from jobctl.jobspec.deploy import events
    from jobctl.jobspec.deploy.collect import collect_logs
    from jobctl.jobspec.deploy.local import Local

    directory = job_of_name(name_of(job))
    deployer = Local(directory)
    if not directory.root.exists():
        console.say(f"nothing of job `{directory.name}` is on this machine")
        _down_report(output, directory.name, None)
        return
    with locked(directory, "down", break_it):
        was_up = directory.host.exists() or directory.about() is not None
        deployer.end_supervisor()
        deployer.finish(grace_of(deployer, timeout))
        collected = collect_logs(deployer.work, directory.history)
        deployer.erase()
        directory.forget()
        if was_up:
            events.record(directory.events, time.time(), "down", "job taken down")
        directory.lock.unlink(missing_ok=True)  # last: whoever waits for it locks a new file
    console.say(
        f"job `{directory.name}` is down" + (f"; its logs are in {collected}" if collected else "")
        if was_up
        else f"nothing of job `{directory.name}` is on this machine"
    )
    _down_report(output, directory.name, collected)


def _down_report(output: Format, name: str, collected: Path | None) -> None:
    if output is Format.json:
        hosts = [{"host": "localhost", "reachable": True, "error": None}]
        console.out_json({"job": name, "down": True, "hosts": hosts, "logs": str(collected) if collected else None})
