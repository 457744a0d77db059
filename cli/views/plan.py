"""A plan for people: what it says of the whole job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from jobctl import console

if TYPE_CHECKING:
    from jobctl.jobspec.operations.inspect.explain import ExplainedNode, Explanation


def explain_plan(explained: Explanation) -> None:
    """Print ranks, roles, devices, endpoints and environment of every node."""
    from jobctl.jobspec.plan.generation import endpoint

    plan, meeting = explained.plan, explained.rendezvous
    console.out(f"job {plan.job}: {plan.framework} {plan.mode}, target {plan.target}, run id {explained.run_id}")
    where = endpoint(meeting.address, meeting.port)
    console.out(f"rendezvous {where} (the first free port from here on), id {meeting.id}")
    if plan.checkpoint:
        console.out(f"checkpoint {plan.checkpoint.dir}")
    console.out()
    _show_table(explained)
    for whose, node in _alike(explained.nodes):
        console.out(f"\nenv of {whose}:")
        for name, value in node.env.items():
            console.out(f"  {name}={value}")
        if node.starts:
            words = (word.partition("\n") for word in node.starts)
            console.out("which starts:\n  " + " ".join(f"{first} …" if more else first for first, more, _ in words))
    console.out("each process runs:\n  " + " ".join(plan.nodes[0].launch.command))


def _show_table(explained: Explanation) -> None:
    services = explained.plan.services
    rows = [
        (str(node.index), node.role, node.host.name, node.host.address)
        + (_ranks(node), ", ".join(node.devices), ", ".join(map(str, node.ports)) or "-")
        for node in explained.nodes
    ]
    rows += [(one.name, one.role, one.host.name, one.host.address, "-", "-", str(one.port)) for one in services]
    head = ("NODE", "ROLE", "HOST", "ADDRESS", "RANKS", "DEVICES", "PORTS")
    listening = bool(services) or any(node.ports for node in explained.nodes)
    columns = len(head) if listening else len(head) - 1
    console.out(console.table(head[:columns], [row[:columns] for row in rows]))


def _ranks(node: ExplainedNode) -> str:
    first, last = node.ranks[0], node.ranks[-1]
    return str(first) if first == last else f"{first}-{last}"


def _alike(nodes: Sequence[ExplainedNode]) -> Iterator[tuple[str, ExplainedNode]]:
    """Return one node of each role, and whose variables it has; where not all of a role have the same, one of each kind."""
    roles = dict.fromkeys(node.role for node in nodes)
    for role in roles:
        kinds: list[list[ExplainedNode]] = []
        for node in (node for node in nodes if node.role == role):
            same = next((kind for kind in kinds if (kind[0].env, kind[0].starts) == (node.env, node.starts)), None)
            if same is None:
                kinds.append([node])
            else:
                same.append(node)
        for kind in kinds:
            numbers = ", ".join(str(node.index) for node in kind)
            some = f"node {numbers}" if len(kind) == 1 else f"nodes {numbers}"
            every = f"every {role if len(roles) > 1 else 'node'}"
            yield every if len(kinds) == 1 else some, kind[0]
