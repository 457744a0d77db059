"""What happened to a job, as lines for people and for programs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jobctl import console
from jobctl.jobspec.deploy.apply.clock import Clock, SystemClock
from jobctl.jobspec.deploy.store.events import ENDINGS
from jobctl.jobspec.operations.errors import failures_json
from jobctl.jobspec.operations.inspect.as_json import iso
from jobctl.jobspec.records import dataclass
from jobctl.options import Format
from jobctl.views.failure import Failed

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle

INTERVAL = 0.1  # seconds between two looks of -f
END_TIMEOUT = 10.0  # seconds for which -f waits, once the job has ended, for the event that says how
GATHER_TIMEOUT = 1.0  # seconds that hosts get to tell what they know, before what is known here is printed without that
_BEGINNINGS = ("up", "submitted", "generation", "generation-begun")


@dataclass(frozen=True, slots=True)
class EventChoice:
    """Which events are meant: those from a moment on, and of those so far the last `tail`."""

    since: float | None = None
    tail: int | None = None

    def of(self, events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return those that are meant of the events so far, the oldest first."""
        chosen = [event for event in events if self.since is None or event["time"] >= self.since]
        return chosen if self.tail is None else chosen[max(0, len(chosen) - self.tail) :]


def show_events(
    handle: Handle, choice: EventChoice, output: Format, *, follow: bool, clock: Clock | None = None
) -> None:
    """Print the chosen events of a job, and to follow those that come until the one that says how it has ended.

    Where hosts are slow to tell more, the events that this machine knows come first. A warning names hosts that do not
    answer.
    Raises Failed if none of them answers, and nothing is known here.
    """
    from jobctl.jobspec.operations.inspect.status import look_on

    look_on(handle)
    shown = _Shown(handle, choice, output)
    if follow:
        shown.follow(clock or SystemClock())
    else:
        shown.print_all()
    if not shown.any and handle.failures and set(handle.failures) >= set(handle.places()):
        silent = {"failed_hosts": failures_json(handle.failures)}  # which the warnings have named
        raise Failed("no host answers, and no event is known here", 3, details=silent)


class _Shown:
    """The events of a job that were printed, and the hosts that were named."""

    def __init__(self, handle: Handle, choice: EventChoice, output: Format) -> None:
        self.handle, self.events = handle, handle.events()
        self.any = False
        self._choice, self._output = choice, output
        self._warned: set[str] = set()
        self._began = self._ended = 0.0  # when a generation of the job began last, and when it ended last

    def print_all(self) -> None:
        """Print what is known here and what hosts tell, in order of time if they tell it soon."""
        problems: list[Exception] = []

        def gather() -> None:
            try:
                self.events.gather()
            except Exception as problem:
                problems.append(problem)

        collecting = threading.Thread(target=gather, daemon=True, name="gather")
        collecting.start()
        collecting.join(GATHER_TIMEOUT)
        self.print_new()
        collecting.join()
        self.print_new()
        self.warn_of_silent()
        if problems:
            raise problems[0]

    def follow(self, clock: Clock) -> None:
        """Print events as they come until the job has ended, and one of them says how, or nobody is there to say it."""
        from jobctl.jobspec.operations.inspect.status import ended, is_written, observe

        self.print_new()
        deadline: float | None = None
        while True:
            last = ended(self.handle, observe(self.handle))
            untold = last and is_written(self.handle.job)  # asked before the last look at what they have written
            self.events.gather()
            self.print_new()
            self.warn_of_silent()
            deadline = (deadline or clock.now() + END_TIMEOUT) if last else None
            if deadline is not None and (0 < self._ended >= self._began or not untold or clock.now() >= deadline):
                return
            clock.sleep(max(INTERVAL, self.handle.interval))

    def print_new(self) -> None:
        """Print what is chosen of the events that were not printed yet."""
        new = self.events.new()
        self.any = self.any or bool(new)
        self._began = max([self._began, *(event["time"] for event in new if event["event"] in _BEGINNINGS)])
        self._ended = max([self._ended, *(event["time"] for event in new if event["event"] in ENDINGS)])
        for event in self._choice.of(new):
            if self._output is Format.json:
                console.out_json_line({**event, "time": iso(event["time"])})
            else:
                console.out(event_text(event))
        console.pass_on()
        self._choice = EventChoice(self._choice.since)  # what comes from now on is all new

    def warn_of_silent(self) -> None:
        """Name the hosts that do not answer, each once as long as it is silent."""
        silent = {error.message for error in self.handle.failures.values()}
        for message in sorted(silent - self._warned):
            console.warning(f"{message}; what it knows is missing here")
        self._warned = silent


def event_text(event: dict[str, Any]) -> str:
    """Return an event as a line, with the last log lines of what failed below it."""
    line = f"{datetime.fromtimestamp(event['time']):%Y-%m-%d %H:%M:%S}  {event['message']}"
    tail = event.get("tail") or []
    return "\n".join([line, *(f"    {event.get('log')}: {text}" for text in tail)])
