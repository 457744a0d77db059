"""Commands that stay until something happens: wait, events -f, up --follow."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jobctl import console
from jobctl.console import Failed
from jobctl.jobspec.deploy.apply.clock import pause
from jobctl.options import Format

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle
    from jobctl.jobspec.deploy.model.observed import Observed

INTERVAL = 0.1  # seconds between two looks


def wait_for(deployer: Handle, timeout: str | None, output: Format) -> int:
    """Wait until the job ends; return 0 for success, 1 for failure or stop, 124 when `timeout` is over."""
    from jobctl.jobspec.deploy.model.observed import phase
    from jobctl.options import duration
    from jobctl.views.status import ended, look

    deadline = None if timeout is None else time.monotonic() + duration(timeout)
    while True:
        observed = look(deployer)
        now, reason = phase(observed)
        over = ended(deployer, observed)
        late = deadline is not None and time.monotonic() >= deadline
        if over or late:
            break
        pause(max(INTERVAL, deployer.interval))
    name = deployer.job.name
    told = {"job": name, "phase": now, "reason": reason}
    if not over:
        raise Failed(f"job `{name}` still {now} after {timeout}", 124, details=told)
    if output is Format.text:
        _say_result(deployer, observed)
    elif now == "succeeded":
        console.out_json(told)
    else:
        raise Failed(f"job `{name}` {now}: {reason}", 1, details=told)
    return 0 if now == "succeeded" else 1


def _say_result(deployer: Handle, observed: Observed) -> None:
    from jobctl.jobspec.deploy.model.observed import phase

    now, reason = phase(observed)
    if now == "succeeded":
        console.say(f"job `{deployer.job.name}` succeeded")
    else:
        console.error(f"job `{deployer.job.name}` {now}: {reason}")
        show_tail(observed)


def show_events(deployer: Handle, follow: bool, output: Format) -> None:
    """Print the events of a job, and go on until it ends with `follow`."""
    from jobctl.views.status import ended, look

    events = deployer.events()
    while True:
        last = not follow or ended(deployer, look(deployer))
        for event in events.new():
            if output is Format.json:
                console.out_json_line({**event, "time": iso(event["time"])})
            else:
                console.out(event_text(event))
        if last:
            return
        pause(max(INTERVAL, deployer.interval))


def iso(seconds: float) -> str:
    """Return a time as RFC 3339 in local time, to the millisecond."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")


def event_text(event: dict[str, Any]) -> str:
    """Return an event as a line, with the last log lines of what failed below it."""
    line = f"{datetime.fromtimestamp(event['time']):%Y-%m-%d %H:%M:%S}  {event['message']}"
    tail = event.get("tail") or []
    return "\n".join([line, *(f"    {event.get('log')}: {text}" for text in tail)])


def follow_job(deployer: Handle, output: Format) -> int:
    """Stream the job's logs until it ends and return its result; Ctrl-C leaves the job alone."""
    from jobctl.logs import Choice, stream

    name = deployer.job.name
    try:
        stream(deployer, Choice(follow=True, current=True), output)
        return wait_for(deployer, None, Format.text)
    except KeyboardInterrupt:
        console.say(
            f"\ndetached; job `{name}` goes on: `jobctl status {name}`, `jobctl logs {name} -f`, `jobctl down {name}`"
        )
        return 130


def show_tail(observed: Observed) -> None:
    """Print the last lines of whatever failed last."""
    failures = observed.control.ledger.failures
    if failures and failures[-1].tail:
        failure = failures[-1]
        console.say(f"last lines of node {failure.node}, {failure.log}:")
        for line in failure.tail:
            console.say(f"  {line}")
