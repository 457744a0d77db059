"""The state of a job as text, as JSON, and live."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from jobctl import console
from jobctl.jobspec.deploy.apply.clock import pause
from jobctl.jobspec.deploy.model.stragglers import stragglers
from jobctl.jobspec.operations.errors import failures_json
from jobctl.jobspec.operations.inspect.status import ended, observe, restarts, tail_of
from jobctl.jobspec.operations.resolve.names import SERVICES
from jobctl.options import Format
from jobctl.views.live import draw_live

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle
    from jobctl.jobspec.deploy.model.observed import (
        Observed,
        ObservedNode,
        ObservedProcess,
        ObservedService,
    )
    from jobctl.jobspec.deploy.model.slurm_state import SlurmState
    from jobctl.jobspec.operations.inspect.status import JobState

INTERVAL = 0.5  # seconds between two looks of --watch


def status_json(handle: Handle) -> dict[str, Any]:
    """Return the state as CONTRACT's `status -o json` has it."""
    return state_json(handle, observe(handle))


def state_json(handle: Handle, observed: Observed) -> dict[str, Any]:
    """Return an observed state likewise."""
    from jobctl.jobspec.deploy.model.observed import phase

    plan, generation = handle.plan, observed.control.generation
    unreachable = failures_json(handle.failures)
    now, reason = phase(observed)
    return {
        "job": handle.job.name,
        "framework": plan.framework if plan else None,
        "mode": plan.mode if plan else None,
        "target": plan.target if plan else None,
        "phase": now,
        "reason": reason,
        "generation": generation.number if generation else None if observed.supervised is None else 0,
        "supervised": observed.supervised,
        "replicas": _replicas(handle, observed),
        "nodes": [*(_node(node, observed) for node in observed.nodes), *map(_service, observed.services)],
        **({"slurm": _slurm(observed.slurm)} if observed.slurm else {}),
        **({"spares": [{"host": s.host, "state": s.state} for s in observed.spares]} if observed.spares else {}),
        **({"unreachable": unreachable} if unreachable else {}),
    }


def _slurm(state: SlurmState) -> dict[str, Any]:
    return {
        "job_id": state.job_id,
        "state": state.state,
        "reason": state.reason,
        "expected_start": timestamp(state.expected_start),
        "nodes": state.nodes,
        "time_left": state.time_left,
    }


def _replicas(handle: Handle, observed: Observed) -> str:
    """Return `running[min:max]`, or `running/nodes` for a job of a fixed size."""
    running = sum(1 for node in observed.members if node.state == "running" and node.role not in SERVICES)
    plan = handle.plan
    if plan is None:
        return str(running)
    most = plan.max_nodes - sum(node.role in SERVICES for node in plan.nodes)
    return f"{running}[{plan.min_nodes}:{plan.max_nodes}]" if plan.elastic else f"{running}/{most}"


def _node(node: ObservedNode, observed: Observed) -> dict[str, Any]:
    name = node.role if node.role in SERVICES else None
    return {
        "node": node.node if name is None else None,
        "role": node.role,
        "name": name,
        "host": node.host or None,
        "state": node.state,
        "reachable": node.reachable,
        "restarts": restarts(observed, node),
        "exit_code": node.exit_code,
        "container": node.container,
        "started_at": timestamp(node.started_at),
        "progress": node.progress,
        "reason": node.reason,
        "standby": _standby(node),
        **_straggler(node, observed),
        "processes": [_process(process) for process in node.processes],
    }


def _service(service: ObservedService) -> dict[str, Any]:
    return {
        "node": None,
        "role": service.role,
        "name": service.name,
        "host": service.host,
        "state": service.state,
        "reachable": service.reachable,
        "restarts": 0,
        "exit_code": None,
        "container": service.container,
        "started_at": None,
        "progress": None,
        "reason": service.reason,
        "standby": {"state": "off", "reason": "a service has none"},
        "processes": [],
    }


def _standby(node: ObservedNode) -> dict[str, Any]:
    if node.standby is None:
        return {"state": "off", "reason": "no launcher has told"}
    return {"state": node.standby.state, "reason": node.standby.reason}


def _straggler(node: ObservedNode, observed: Observed) -> dict[str, Any]:
    """Return what makes the others wait for a node, nothing where nothing does: most jobs do not tell."""
    found = next((one for one in stragglers(observed.members) if one.node == node.node), None)
    return {"straggler": {"rank": found.rank, "seconds": found.seconds, "median": found.median}} if found else {}


def _process(process: ObservedProcess) -> dict[str, Any]:
    return {
        "rank": process.rank,
        "local_rank": process.local_rank,
        "state": process.state,
        "pid": process.pid,
        "exit_code": process.exit_code,
        "device": process.device,
    }


def timestamp(seconds: float | None) -> str | None:
    """Return a time as RFC 3339 in UTC."""
    return (
        None
        if seconds is None
        else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    )


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
        count = len(observed.nodes)
        nodes = f"{count} node{'' if count == 1 else 's'}" if over else f"nodes {data['replicas']}"
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
    """Show the state until the job ends: a live table on a terminal, a line (of JSON) for each change elsewhere."""
    if output is Format.text and sys.stdout.isatty():
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
