"""The state of a job as text, as JSON, and live."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jobctl import console
from jobctl.jobspec.deploy.apply.clock import pause
from jobctl.jobspec.deploy.model.stragglers import stragglers
from jobctl.jobspec.launcher.telling.words import counted
from jobctl.jobspec.operations.inspect.as_json import state_json
from jobctl.jobspec.operations.inspect.status import ended, look_on, observe, tail_of
from jobctl.options import Format
from jobctl.views.live import draw_live, draws_live

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle
    from jobctl.jobspec.deploy.model.observed import Observed
    from jobctl.jobspec.operations.inspect.status import JobState

INTERVAL = 0.5  # seconds between two looks of --watch


def show_status(handle: Handle, wide: bool) -> None:
    """Print the state as a table."""
    console.out(status_text(handle, observe(handle), wide))


def status_text(handle: Handle, observed: Observed, wide: bool) -> str:
    """Return the state as text: a head line, why it is so, and a table of nodes (or of processes)."""
    data = state_json(handle, observed)
    lines = head_lines(data, observed)
    if data["nodes"]:
        lines += ["", _processes_table(data) if wide else _nodes_table(data)]
    if observed.spares:
        lines += ["", f"spares: {', '.join(f'{spare.host} {spare.state}' for spare in observed.spares)}"]
    if slow := stragglers(observed.members):
        lines += ["", *(f"node {one.node} on {one.host} makes the others wait: {one}" for one in slow)]
    if data["phase"] == "failed":
        tail = tail_of(observed)
        lines += ["", *tail] if tail else []
    if handle.failures:
        lines += ["", *(f"{error.message}" for error in handle.failures.values())]
    return "\n".join(lines)


def head_lines(data: dict[str, Any], observed: Observed) -> list[str]:
    """Return how the job is, and below that why."""
    head = f"{data['job']}: {data['phase']}"
    if observed.verdict is not None and observed.nodes:
        head += f", nodes {data['replicas']}"
    elif data["generation"]:
        over = data["phase"] in ("succeeded", "failed", "stopped")
        nodes = counted(len(observed.nodes), "node") if over else f"nodes {data['replicas']}"
        head += f", generation {data['generation']}, {nodes}"
        head += "" if data["supervised"] or over else ", NOT supervised"
    return [head, f"  {data['reason']}"] if data["reason"] else [head]


def _nodes_table(data: dict[str, Any]) -> str:
    rows = [
        (
            _text(node["node"] if node["name"] is None else node["name"]),
            node["role"],
            _text(node["host"]),
            node["state"],
            _text(node["exit_code"]),
            str(node["restarts"]),
            _text(node["progress"]),
            _age(node["started_at"]),
            _ranks(node["processes"]),
        )
        for node in data["nodes"]
    ]
    return console.table(("NODE", "ROLE", "HOST", "STATE", "EXIT", "RESTARTS", "PROGRESS", "AGE", "RANKS"), rows)


def _processes_table(data: dict[str, Any]) -> str:
    """Return a row for each process, and one for each node of which none is known."""
    rows = [
        (
            _text(process.get("rank")),
            _text(node["node"] if node["name"] is None else node["name"]),
            _text(node["host"]),
            process["state"],
            _text(process["exit_code"]),
            _text(process.get("pid")),
            _text(process.get("device")),
        )
        for node in data["nodes"]
        for process in node["processes"] or [node]
    ]
    return console.table(("RANK", "NODE", "HOST", "STATE", "EXIT", "PID", "DEVICE"), rows)


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def _ranks(processes: list[dict[str, Any]]) -> str:
    ranks = sorted(process["rank"] for process in processes)
    if not ranks:
        return "-"
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}-{ranks[-1]}"


def _age(started: str | None) -> str:
    if started is None:
        return "-"
    seconds = int(time.time() - datetime.fromisoformat(started).timestamp())
    if seconds < 120:
        return f"{max(0, seconds)}s"
    return f"{seconds // 60}m" if seconds < 7200 else f"{seconds // 3600}h{seconds // 60 % 60:02}m"


def watch_status(handle: Handle, wide: bool, output: Format) -> None:
    """Show the state until the job ends: a live table on a terminal, a text (or line of JSON) for each change elsewhere."""
    look_on(handle)
    if output is Format.text and draws_live():
        _watch_live(handle, wide)
    else:
        _watch_lines(handle, wide, output)


def _watch_live(handle: Handle, wide: bool) -> None:
    def frames() -> Iterator[str]:
        while True:
            observed = observe(handle)
            yield status_text(handle, observed, wide)
            if ended(handle, observed):
                return
            pause(max(INTERVAL, handle.interval))

    draw_live(frames())


def _watch_lines(handle: Handle, wide: bool, output: Format) -> None:
    last: object = None
    while True:
        observed = observe(handle)
        now = state_json(handle, observed)
        if now != last:
            if output is Format.json:
                console.out_json_line(now)
            else:
                console.out(status_text(handle, observed, wide) + "\n")
            last = now
        console.pass_on()
        if ended(handle, observed):
            return
        pause(max(INTERVAL, handle.interval))


def show_result(handle: Handle, state: JobState) -> None:
    """Print how a job ended."""
    if state.phase == "succeeded":
        console.say(f"job `{handle.job.name}` succeeded")
    else:
        console.error(f"job `{handle.job.name}` {state.phase}: {state.reason}")
        show_tail(state.observed)


def show_tail(observed: Observed) -> None:
    """Print the last lines of whatever failed last."""
    for line in tail_of(observed):
        console.say(line)
