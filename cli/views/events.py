"""What happened to a job, as lines for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jobctl import console
from jobctl.jobspec.deploy.apply.clock import pause
from jobctl.jobspec.operations.inspect.as_json import iso
from jobctl.options import Format

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle

INTERVAL = 0.1  # seconds between two looks of -f


@dataclass(frozen=True, slots=True)
class EventChoice:
    """Which events are meant: those from a moment on, and of those so far the last `tail`."""

    since: float | None = None
    tail: int | None = None

    def of(self, events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return those that are meant of the events so far, the oldest first."""
        chosen = [event for event in events if self.since is None or event["time"] >= self.since]
        return chosen if self.tail is None else chosen[max(0, len(chosen) - self.tail) :]


def show_events(handle: Handle, choice: EventChoice, output: Format, *, follow: bool) -> None:
    """Print the chosen events of a job, and to follow those that come until it ends."""
    from jobctl.jobspec.operations.inspect.status import ended, observe

    events = handle.events()
    while True:
        last = not follow or ended(handle, observe(handle))
        events.gather()
        for event in choice.of(events.new()):
            if output is Format.json:
                console.out_json_line({**event, "time": iso(event["time"])})
            else:
                console.out(event_text(event))
        console.pass_on()
        choice = EventChoice()  # what comes from now on is all new
        if last:
            return
        pause(max(INTERVAL, handle.interval))


def event_text(event: dict[str, Any]) -> str:
    """Return an event as a line, with the last log lines of what failed below it."""
    line = f"{datetime.fromtimestamp(event['time']):%Y-%m-%d %H:%M:%S}  {event['message']}"
    tail = event.get("tail") or []
    return "\n".join([line, *(f"    {event.get('log')}: {text}" for text in tail)])
