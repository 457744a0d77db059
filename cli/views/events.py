"""What happened to a job, as lines for people and for programs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from jobctl import console
from jobctl.jobspec.deploy.apply.clock import pause
from jobctl.options import Format

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle

INTERVAL = 0.1  # seconds between two looks of -f


def show_events(handle: Handle, follow: bool, output: Format) -> None:
    """Print the events of a job, and go on until it ends with `follow`."""
    from jobctl.jobspec.operations.inspect.status import ended, observe

    events = handle.events()
    while True:
        last = not follow or ended(handle, observe(handle))
        for event in events.new():
            if output is Format.json:
                console.out_json_line({**event, "time": iso(event["time"])})
            else:
                console.out(event_text(event))
        if last:
            return
        pause(max(INTERVAL, handle.interval))


def iso(seconds: float) -> str:
    """Return a time as RFC 3339 in local time, to the millisecond."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")


def event_text(event: dict[str, Any]) -> str:
    """Return an event as a line, with the last log lines of what failed below it."""
    line = f"{datetime.fromtimestamp(event['time']):%Y-%m-%d %H:%M:%S}  {event['message']}"
    tail = event.get("tail") or []
    return "\n".join([line, *(f"    {event.get('log')}: {text}" for text in tail)])
