"""The state of a job as text, as JSON, and live."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from jobctl import console
from jobctl.console import failure_json
from jobctl.jobspec.deploy.apply.clock import pause
from jobctl.naming import SERVICES
from jobctl.options import Format

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle
    from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode, ObservedProcess, ObservedService

INTERVAL = 0.5  # seconds between two looks of --watch


def status_json(deployer: Handle) -> dict[str, Any]:
    """Return the state as CONTRACT's `status -o json` has it."""
    return _json(deployer, look(deployer))


def look(deployer: Handle) -> Observed:
    """Observe the job; where no host answers, that nothing is known is what there is to tell."""
    from jobctl.jobspec.deploy.apply.deployer import AllUnreachable

    try:
        return deployer.observe()
    except AllUnreachable as nothing:
        return nothing.observed


def _json(deployer: Handle, observed: Observed) -> dict[str, Any]:
    from jobctl.jobspec.deploy.model.observed import phase

    plan, generation = deployer.plan, observed.control.generation
    unreachable = [failure_json(host, error) for host, error in deployer.failures.items()]
    now, reason = phase(observed)
    return {
        "job": deployer.job.name,
        "framework": plan.framework if plan else None,
        "mode": plan.mode if plan else None,
        "target": plan.target if plan else None,
        "phase": now,
        "reason": reason,
        "generation": generation.number if generation else None if observed.supervised is None else 0,
        "supervised": observed.supervised,
        "replicas": _replicas(deployer, observed),
        "nodes": [*(_node(node, observed) for node in observed.nodes), *map(_service, observed.services)],
        **({"unreachable": unreachable} if unreachable else {}),
    }


def _replicas(deployer: Handle, observed: Observed) -> str:
    """Return `running[min:max]`, or `running/nodes` for a job of a fixed size."""
    running = sum(1 for node in observed.members if node.state == "running" and node.role not in SERVICES)
    plan = deployer.plan
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


def restarts(observed: Observed, node: ObservedNode | None = None) -> int:
    """Return how often the processes (those of `node`) were started again because of failures."""
    generation, failures = observed.control.generation, observed.control.ledger.failures
    together = sum(1 for f in failures if generation is not None and not f.alone and f.generation < generation.number)
    if node is None:
        return together
    return together + node.again + sum(1 for f in failures if f.alone and f.node == node.node)


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


def show_status(deployer: Handle, wide: bool) -> None:
    """Print the state as a table."""
    console.out(status_text(deployer, look(deployer), wide))


def status_text(deployer: Handle, observed: Observed, wide: bool) -> str:
    """Return the state as text: a head line, why it is so, and a table of nodes (or of processes)."""
    data = _json(deployer, observed)
    head = f"{data['job']}: {data['phase']}"
    if observed.verdict is not None and observed.nodes:
        head += f", nodes {data['replicas']}"
    elif data["generation"]:
        over = data["phase"] in ("succeeded", "failed", "stopped")
        count = len(observed.nodes)
        nodes = f"{count} node{'' if count == 1 else 's'}" if over else f"nodes {data['replicas']}"
        head += f", generation {data['generation']}, {nodes}"
        head += "" if data["supervised"] or over else ", NOT supervised"
    lines = [head]
    if data["reason"]:
        lines.append(f"  {data['reason']}")
    if data["nodes"]:
        lines += ["", _processes_table(data) if wide else _nodes_table(data)]
    if data["phase"] == "failed":
        lines += _tail(observed)
    if deployer.failures:
        lines += ["", *(f"{error.message}" for error in deployer.failures.values())]
    return "\n".join(lines)


def _tail(observed: Observed) -> list[str]:
    failures = observed.control.ledger.failures
    if not failures or not failures[-1].tail:
        return []
    failure = failures[-1]
    return ["", f"last lines of node {failure.node}, {failure.log}:", *(f"  {line}" for line in failure.tail)]


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


def watch_status(deployer: Handle, wide: bool, output: Format) -> None:
    """Show the state until the job ends: a live table on a terminal, a line (of JSON) for each change elsewhere."""
    if output is Format.text and sys.stdout.isatty():
        _watch_live(deployer, wide)
    else:
        _watch_lines(deployer, wide, output)


def _watch_live(deployer: Handle, wide: bool) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(), auto_refresh=False) as live:
        while True:
            observed = look(deployer)
            live.update(Text(console.plain(status_text(deployer, observed, wide))), refresh=True)
            if ended(deployer, observed):
                return
            pause(max(INTERVAL, deployer.interval))


def _watch_lines(deployer: Handle, wide: bool, output: Format) -> None:
    last: object = None
    while True:
        observed = look(deployer)
        now = _json(deployer, observed)
        if now != last:
            if output is Format.json:
                console.out_json_line(now)
            else:
                console.out(status_text(deployer, observed, wide) + "\n")
            last = now
        if ended(deployer, observed):
            return
        pause(max(INTERVAL, deployer.interval))


def ended(deployer: Handle, observed: Observed) -> bool:
    """Say whether the job has ended; one that a command has stopped to change it, and is at work on, has not."""
    from jobctl.jobspec.deploy.model.observed import phase
    from jobctl.jobspec.deploy.store.lock import read_holder

    now, _ = phase(observed)
    control = observed.control
    ordered = control.generation is not None and control.generation.command != "run"
    if now == "stopped" and ordered and control.ledger.result is None and read_holder(deployer.job.lock):
        return False
    return now in ("succeeded", "failed", "stopped")
