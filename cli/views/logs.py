"""Printing logs: merged, prefixed by node and rank; what a terminal would obey stays off terminals."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from jobctl import console
from jobctl.jobspec.deploy.apply.clock import pause
from jobctl.jobspec.operations.inspect.as_json import iso, line_json
from jobctl.jobspec.records import dataclass
from jobctl.options import Format

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Failures, Handle
    from jobctl.jobspec.deploy.model.log_lines import Line, Reader
    from jobctl.jobspec.operations.inspect.logs import Choice

_COLOURS = (36, 33, 32, 35, 34, 31)


@dataclass(frozen=True, slots=True)
class Form:
    """How lines are shown: for how long, whether with their times, and as what."""

    follow: bool = False
    timestamps: bool = False
    output: Format = Format.text


def show_logs(handle: Handle, choice: Choice, form: Form) -> Failures:
    """Print the chosen lines, and to follow those that come until the job ends; return why hosts are missing."""
    from jobctl.jobspec.operations.inspect.logs import open_logs, refuse_unknown_rank
    from jobctl.jobspec.operations.inspect.status import ended, look_on, observe

    if form.follow:
        look_on(handle)
    logs = open_logs(handle, choice)
    show = _printer(form)
    over = not form.follow or ended(handle, observe(handle))
    told = _tell_problems(logs, handle.failures, {})
    if not _print(logs.lines(final=over), show):
        refuse_unknown_rank(handle, choice)
    told = _tell_problems(logs, handle.failures, told)  # also of those whose logs could not be read now
    looked = time.monotonic()
    while not over:
        pause(logs.interval)
        # Asked before reading, so that nothing written till then is missed; on hosts that is not for nothing.
        if time.monotonic() - looked >= handle.interval:
            over, looked = ended(handle, observe(handle)), time.monotonic()
        _print(logs.lines(final=over), show)
        told = _tell_problems(logs, handle.failures, told)
    return told


def follow_job(handle: Handle, output: Format) -> int:
    """Stream the job's logs until it ends and return its result. Ctrl-C leaves the job alone, and ends the command."""
    from jobctl.jobspec.operations.inspect.logs import Choice
    from jobctl.jobspec.operations.lifecycle.wait import wait_until_ended
    from jobctl.views.status import show_result

    name = handle.job.name
    try:
        _show_once_seen(handle, Choice(current=True), Form(follow=True, output=output))
        state = wait_until_ended(handle)
    except KeyboardInterrupt:
        console.say(
            f"\ndetached; job `{name}` goes on: `jobctl status {name}`, `jobctl logs {name} -f`, `jobctl down {name}`"
        )
        raise
    show_result(handle, state)
    return 0 if state.phase == "succeeded" else 1


def _show_once_seen(handle: Handle, choice: Choice, form: Form) -> None:
    """Stream the logs of a job that was just started, as soon as a host answers."""
    from jobctl.jobspec.deploy.apply.deployer import AllUnreachable

    told = False
    while True:
        try:
            show_logs(handle, choice, form)
            return
        except AllUnreachable as nothing:
            if not told:
                hosts = ", ".join(nothing.failures)
                console.say(f"no answer from {hosts}: whether job `{handle.job.name}` runs is not known; still waiting")
            told = True
        pause(handle.interval)


def _tell_problems(logs: Reader, missing: Failures, told: Failures) -> Failures:
    """Say once for each host that its logs cannot be read now, and return why."""
    now = {**missing, **logs.problems}
    for host, error in now.items():
        if host not in told:
            console.error(error.message, error.hint)
    return now


def _print(lines: Iterable[Line], show: Callable[[Line], None]) -> bool:
    """Print lines; say whether there were any."""
    any_ = False
    for line in lines:
        show(line)
        any_ = True
    console.pass_on()
    return any_


def _printer(form: Form) -> Callable[[Line], None]:
    if form.output is Format.json:
        return _show_json
    colour = console.colourful(sys.stdout)

    def show(line: Line) -> None:
        who = f"node{line.node} {line.writer}"
        if colour:
            number = _COLOURS[(line.rank if line.rank is not None else line.node) % len(_COLOURS)]
            who = f"\x1b[{number}m{who}\x1b[0m"
        stamp = f"{iso(line.time)} " if form.timestamps else ""
        console.out_log(f"{stamp}{who} | ", line.text)

    return show


def _show_json(line: Line) -> None:
    console.out_json_line(line_json(line))
