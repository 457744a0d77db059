"""Jobs as plain data: what `-o json` of the commands prints, and what the page of `jobctl ui` gets."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.deploy.model.stragglers import stragglers
from jobctl.jobspec.operations.errors import failures_json
from jobctl.jobspec.operations.inspect.status import observe, restarts
from jobctl.jobspec.operations.resolve.names import SERVICES

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle
    from jobctl.jobspec.deploy.model.log_lines import Line
    from jobctl.jobspec.deploy.model.observed import (
        Observed,
        ObservedNode,
        ObservedProcess,
        ObservedService,
    )
    from jobctl.jobspec.deploy.model.slurm_state import SlurmState
    from jobctl.jobspec.deploy.store.past import PastJob


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
        "spares": [{"host": s.host, "state": s.state} for s in observed.spares],
        **({"unreachable": unreachable} if unreachable else {}),
    }


def _slurm(state: SlurmState) -> dict[str, Any]:
    return {
        "job_id": state.job_id,
        "state": state.state,
        "reason": state.reason,
        "position": state.position,
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


def iso(seconds: float) -> str:
    """Return a time as RFC 3339 in local time, to the millisecond."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")


def line_json(line: Line) -> dict[str, Any]:
    """Return a line as `logs -o json` has it."""
    return {
        "time": iso(line.time),
        "node": line.node,
        "rank": line.rank,
        "generation": line.generation,
        "log": line.log,
        "line": line.text.decode(errors="replace"),
    }


def past_json(past: PastJob) -> dict[str, Any]:
    """Return a job that is down as `list --all -o json` has it."""
    return {
        "job": past.job.name,
        "framework": past.framework,
        "target": past.target,
        "phase": "unknown" if past.doubt else past.phase,
        **dict.fromkeys(("generation", "replicas")),
        "supervised": False,
        **dict.fromkeys(("owner", "spec")),
        "down": None if past.doubt else True,
        "down_since": None if past.doubt else timestamp(past.since),
        "reason": past.doubt,
        "bytes": past.size,
    }
