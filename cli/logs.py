"""Printing logs: merged, prefixed by node and rank, byte for byte what the processes wrote."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl import console
from jobctl.console import Failed
from jobctl.jobspec.deploy.clock import pause
from jobctl.options import Format

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.local import Local
    from jobctl.jobspec.deploy.logs import Line, Logs, Selection

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
    from jobctl.bringup import duration

    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return time.time() - duration(text)


def stream(deployer: Local, choice: Choice, output: Format) -> None:
    """Print the chosen lines, and with `follow` those that come until the job ends."""
    from jobctl.jobspec.deploy.logs import Logs
    from jobctl.status import ended

    root = _root(deployer)
    _refuse_unknown(deployer, root, choice)
    logs = Logs(root, _selection(deployer, choice))
    show = _printer(choice, output)
    over = not choice.follow or ended(deployer.observe())
    _print(_last(logs, root, choice.tail, final=over), show)
    while not over:
        pause(INTERVAL)
        over = ended(deployer.observe())  # asked before reading, so that nothing written till then is missed
        _print(logs.lines(final=over), show)


def _refuse_unknown(deployer: Local, root: Path, choice: Choice) -> None:
    """End with 2 where a node or a generation is asked for that never was: a slip is no empty log."""
    nodes = {path.name[5:] for path in root.glob("node-*") if path.is_dir()}
    generations = {path.name for path in root.glob("node-*/logs/*") if path.is_dir()}
    name = deployer.job.name
    for what, asked, known in (("node", choice.node, nodes), ("generation", choice.generation, generations)):
        if asked is not None and str(asked) not in known:
            there = ", ".join(sorted(known, key=int)) or "none"
            raise Failed(f"job `{name}` has no {what} {asked}", 2, f"there is {what} {there}")


def _root(deployer: Local) -> Path:
    if deployer.work.exists():
        return deployer.work
    collected = sorted(deployer.job.history.glob("*"), key=lambda path: path.stat().st_mtime)
    if not collected:
        raise Failed(f"job `{deployer.job.name}` has no logs here", 2, "`jobctl up` starts it")
    return collected[-1]


def _selection(deployer: Local, choice: Choice) -> Selection:
    from jobctl.jobspec.deploy.logs import Selection

    generation = choice.generation
    since = choice.since
    if choice.current:
        control = deployer.observe().control
        since = control.ledger.began or None
    return Selection(choice.node, choice.rank, generation, since, choice.launcher)


def _last(logs: Logs, root: Path, tail: int | None, *, final: bool) -> Iterable[Line]:
    """Return the lines so far, or of each process the last `tail` ones (as `docker compose logs` counts).

    The last lines of a process that is no more, because a later generation has fewer, are none of the last.
    """
    lines = logs.lines(final=final)
    if tail is None:
        return lines
    kept: dict[tuple[int, str], deque[tuple[int, Line]]] = {}
    for number, line in enumerate(lines):
        kept.setdefault((line.node, line.log), deque(maxlen=tail)).append((number, line))
    latest = max((line.generation for lines in kept.values() for _, line in lines), default=0)
    there = [
        pair
        for (node, log), pairs in kept.items()
        for pair in pairs
        if pair[1].generation == latest or (root / f"node-{node}" / "logs" / str(latest) / log).exists()
    ]
    return [line for _, line in sorted(there, key=lambda pair: pair[0])]


def _print(lines: Iterable[Line], show: Callable[[Line], None]) -> None:
    for line in lines:
        show(line)
    sys.stdout.flush()


def _printer(choice: Choice, output: Format) -> Callable[[Line], None]:
    if output is Format.json:
        return _show_json
    colour = console.colourful(sys.stdout)

    def show(line: Line) -> None:
        who = f"node{line.node} " + (f"rank{line.rank}" if line.rank is not None else line.log.removesuffix(".log"))
        if colour:
            number = _COLOURS[(line.rank if line.rank is not None else line.node) % len(_COLOURS)]
            who = f"\x1b[{number}m{who}\x1b[0m"
        stamp = f"{_stamp(line.time)} " if choice.timestamps else ""
        console.out_bytes(f"{stamp}{who} | ".encode() + line.text + b"\n")

    return show


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
