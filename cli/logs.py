"""Printing logs: merged, prefixed by node and rank; what a terminal would obey stays off terminals."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from jobctl import console
from jobctl.console import Failed
from jobctl.jobspec.deploy.apply.clock import pause
from jobctl.options import Format

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Deployer, Failures, Handle
    from jobctl.jobspec.deploy.model.errors import DeployError
    from jobctl.jobspec.deploy.model.log_lines import Line, LineSelection, Reader

INTERVAL = 0.1  # seconds between two looks of -f
_COLOURS = (36, 33, 32, 35, 34, 31)


@dataclass(frozen=True, slots=True)
class Choice:
    """The options of `logs`; `current` begins with the current generation."""

    follow: bool = False
    node: int | None = None
    rank: int | None = None
    generation: int | None = None
    tail: int | None = None
    since: float | None = None
    timestamps: bool = False
    launcher: bool = False
    current: bool = False


def since_time(text: str) -> float:
    """Return the moment that `--since` means: a time, or so long ago. Ends with 2 for anything else."""
    from jobctl.options import duration

    with suppress(ValueError, OverflowError):
        return datetime.fromisoformat(text).timestamp()
    try:
        return time.time() - duration(text)
    except Failed:
        raise Failed(f"`{text}` is no time", 2, "write how long ago, `10m`, or when, `2026-01-31T14:00:00`") from None


def stream(deployer: Handle, choice: Choice, output: Format) -> int:
    """Print the chosen lines, and with `follow` those that come until the job ends; return 4 if hosts were missing."""
    from jobctl.views.status import ended, look

    logs = _reader(deployer, _selection(deployer, choice), choice.tail)
    _refuse_unknown(deployer, logs, choice)
    show = _printer(choice, output)
    over = not choice.follow or ended(deployer, look(deployer))
    told = _tell_problems(logs, deployer.failures, frozenset())
    if not _print(logs.lines(final=over), show):
        _refuse_unknown_rank(deployer, choice)
    looked = time.monotonic()
    while not over:
        pause(logs.interval)
        # Asked before reading, so that nothing written till then is missed; on hosts that is not for nothing.
        if time.monotonic() - looked >= deployer.interval:
            over, looked = ended(deployer, look(deployer)), time.monotonic()
        _print(logs.lines(final=over), show)
        told = _tell_problems(logs, {}, told)
    return 4 if told else 0


def show_service(deployer: Deployer, service: str, choice: Choice, output: Format) -> int:
    """Print what a service has printed, as it is; return the exit code. Ends with 2 for options that are about ranks."""
    if output is Format.json or choice != Choice(follow=choice.follow, tail=choice.tail):
        raise Failed(f"`logs --node {service}` takes `-f` and `--tail` only", 2, "it has no ranks and no generations")
    return deployer.show_log(service, choice.tail, follow=choice.follow)


def _tell_problems(logs: Reader, missing: Failures, told: frozenset[str]) -> frozenset[str]:
    """Say once for each host that its logs cannot be read now."""
    now: dict[str, DeployError] = {**missing, **logs.problems}
    for host, error in now.items():
        if host not in told:
            console.error(error.message, error.hint)
    return frozenset(now)


def _refuse_unknown(deployer: Handle, logs: Reader, choice: Choice) -> None:
    """End with 2 where a node or a generation is asked for that never was: a slip is no empty log."""
    name = deployer.job.name
    for what, asked, known in (
        ("node", choice.node, logs.nodes if choice.node is not None else None),
        ("generation", choice.generation, logs.generations if choice.generation is not None else None),
    ):
        there = known() if known else set()
        if asked is not None and asked not in there:
            names = ", ".join(map(str, sorted(there)))
            hint = f"there is {what} {names}" if there else f"no {what} of it is known"
            raise Failed(f"job `{name}` has no {what} {asked}", 2, hint)


def _refuse_unknown_rank(deployer: Handle, choice: Choice) -> None:
    """End with 2 where a rank is asked for, in vain, that is more than the job has."""
    if deployer.plan is None or choice.rank is None:
        return
    count = sum(node.launch.nproc for node in deployer.plan.nodes if node.role == "trainer")
    if choice.rank >= count:
        hint = "its only rank is 0" if count == 1 else f"its ranks are 0 to {count - 1}"
        raise Failed(f"job `{deployer.job.name}` has no rank {choice.rank}", 2, hint)


def _reader(deployer: Handle, selection: LineSelection, last: int | None) -> Reader:
    """Return what reads the logs: where the job runs, or else in what `down` collected."""
    from jobctl.jobspec.deploy.logs.files import Folder
    from jobctl.jobspec.deploy.logs.reader import Logs

    reader = deployer.logs(selection, last)
    if reader is not None:
        return reader
    collected = sorted(deployer.job.history.glob("*"), key=lambda path: path.stat().st_mtime)
    if not collected:
        raise Failed(f"job `{deployer.job.name}` has no logs here", 2, "`jobctl up` starts it")
    return Logs(Folder(collected[-1]), selection, last)


def _selection(deployer: Handle, choice: Choice) -> LineSelection:
    from jobctl.jobspec.deploy.model.log_lines import LineSelection

    since = choice.since
    if choice.current:
        since = deployer.observe().control.ledger.began or None
    return LineSelection(choice.node, choice.rank, choice.generation, since, choice.launcher)


def _print(lines: Iterable[Line], show: Callable[[Line], None]) -> bool:
    """Print lines; say whether there were any."""
    any_ = False
    for line in lines:
        show(line)
        any_ = True
    sys.stdout.flush()
    return any_


def _printer(choice: Choice, output: Format) -> Callable[[Line], None]:
    if output is Format.json:
        return _show_json
    colour = console.colourful(sys.stdout)

    def show(line: Line) -> None:
        who = f"node{line.node} {_writer(line)}"
        if colour:
            number = _COLOURS[(line.rank if line.rank is not None else line.node) % len(_COLOURS)]
            who = f"\x1b[{number}m{who}\x1b[0m"
        stamp = f"{_stamp(line.time)} " if choice.timestamps else ""
        console.out_log(f"{stamp}{who} | ", line.text)

    return show


def _writer(line: Line) -> str:
    """Say in one word who wrote a line: a rank, a server, or one of the launchers."""
    if line.rank is None:
        return line.log.removesuffix(".log")
    role = line.log.partition("log.")[0]
    return f"rank{line.rank}" if role == "worker" or line.log.startswith("stack.") else f"{role}{line.rank}"


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")


def _show_json(line: Line) -> None:
    console.out_json_line(
        {
            "time": _stamp(line.time),
            "node": line.node,
            "rank": line.rank,
            "generation": line.generation,
            "log": line.log,
            "line": line.text.decode(errors="replace"),
        }
    )
