"""What changed between two looks at a job, told as events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode, ObservedProcess, describe_failure
from jobctl.jobspec.plan.recovery import Failure

Event = tuple[str, str, dict[str, Any]]


def changes(before: Observed | None, now: Observed) -> Iterator[Event]:
    """Yield kind, message and details of what the nodes did since `before` (None: the first look)."""
    for node in now.nodes:
        last = before.node(node.node) if before else None
        # Not whether its launcher lives: one that has ended well goes a moment later, which is no news.
        if last is None or (last.state, last.generation) != (node.state, node.generation):
            message = _message(node)
            if message:
                yield "node", message, _details(node)
        elif node.process_restarts > last.process_restarts:
            message = f"node {node.node}: {node.restart_reason}; it was started again while the others went on"
            yield "process-restarted", message, {**_details(node), "process_restarts": node.process_restarts}


def _message(node: ObservedNode) -> str | None:
    where = f"node {node.node} on {node.host}"
    match node.state:
        case "running":
            return f"{where} runs generation {node.generation}"
        case "starting" if node.generation:  # else it has reported nothing yet
            return f"{where} starts generation {node.generation}"
        case "lost":
            return f"{where} is not heard"
        case "fenced":
            return f"{where}: {node.reason}"
        case "exited":
            return f"{where} " + ("was stopped" if node.exit_code is None else f"ended with code {node.exit_code}")
        case "failed":
            return f"{describe_failure(node)} (generation {node.generation})"
        case _:
            return None


def _details(node: ObservedNode) -> dict[str, Any]:
    return {
        "node": node.node,
        "host": node.host,
        "state": node.state,
        "generation": node.generation,
        "exit_code": node.exit_code,
        "progress": node.progress,
        "ranks": [process.rank for process in node.processes],
    }


GROUPS, NAMED = 8, 16  # of processes that stand at the same place, and of those in one group, that an event names


def failure_details(failure: Failure, observed: Observed) -> dict[str, Any]:
    """Return what an event about a failure holds beside its message."""
    stacks = _stacks(observed) if failure.kind == "hang" else []
    return {
        "generation": failure.generation,
        "node": failure.node,
        "rank": failure.rank,
        "exit_code": failure.exit_code,
        "kind": failure.kind,
        "progress": failure.progress,
        "log": failure.log,
        "tail": list(failure.tail),
        **({"stacks": stacks} if stacks else {}),
    }


def _stacks(observed: Observed) -> list[dict[str, Any]]:
    """Return where the processes of a job stand that hangs: each place once, the one with the fewest processes first."""
    groups: dict[str, list[tuple[str, ObservedProcess]]] = defaultdict(list)
    for node in observed.members:
        for process in node.processes:
            if process.where and node.role == "trainer":
                groups[process.where].append((f"node{node.node} rank{process.rank}", process))
    fewest = sorted(groups.items(), key=lambda group: len(group[1]))[:GROUPS]
    return [
        {
            "who": [who for who, _ in group[:NAMED]],
            "more": max(0, len(group) - NAMED),
            "where": where,
            "stack": list(group[0][1].stack),
        }
        for where, group in fewest
    ]
