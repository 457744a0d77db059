"""What `plan --explain` says of the whole job, for people and as plain data: both are made from it, and cannot differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobctl.jobspec.operations.inspect.masked_plan import masked_plan
from jobctl.jobspec.plan.generation import endpoint, first_generation
from jobctl.jobspec.plan.serial import plan_data
from jobctl.jobspec.plan.types import Slot
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobctl.jobspec.plan.generation import Generation, Member, RendezvousPoint
    from jobctl.jobspec.plan.types import HostRef, Node, Plan, Value


@dataclass(frozen=True, slots=True)
class ExplainedNode:
    """What a node gets in the first generation: each of its processes has a rank of its role, a device, perhaps a port.

    `env` is that of every process, `starts` the command line of the framework's own launcher, empty if there is none.
    What only the generation or the process knows is in angle brackets.
    """

    index: int
    role: str
    host: HostRef
    ranks: tuple[int, ...]
    devices: tuple[str, ...]
    ports: tuple[int, ...]
    env: Mapping[str, str]
    starts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A whole job as it starts. The ports are the first that are tried: those that are taken then are passed over."""

    plan: Plan
    run_id: str
    rendezvous: RendezvousPoint
    nodes: tuple[ExplainedNode, ...]

    def data(self) -> dict[str, Any]:
        """Return the plan as plain data, and beside its keys what is explained."""
        whole, meeting = plan_data(self.plan), self.rendezvous
        where = {"address": meeting.address, "endpoint": endpoint(meeting.address, meeting.port), "id": meeting.id}
        whole["rendezvous"] |= where
        for data, node in zip(whole["nodes"], self.nodes, strict=True):
            data |= _node_data(node)
        for data, service in zip(whole["services"], self.plan.services, strict=True):
            data["endpoint"] = endpoint(service.host.address, service.port)
        return whole


def explain(plan: Plan) -> Explanation:
    """Return ranks, devices, ports and variables of every node, without what looks secret among them."""
    plan = masked_plan(plan)
    generation = first_generation(plan)
    nodes: list[ExplainedNode] = []
    first: dict[str, int] = {}  # by role: each has ranks of its own
    for node, member in zip(plan.nodes, generation.members, strict=True):
        nodes.append(_explained(plan, generation, node, member, first.get(node.role, 0)))
        first[node.role] = first.get(node.role, 0) + member.nproc
    return Explanation(plan, generation.run_id, generation.rendezvous, tuple(nodes))


def _explained(plan: Plan, generation: Generation, node: Node, member: Member, first: int) -> ExplainedNode:
    variables = {**_environment(node), **own_variables(plan, generation, node)}
    return ExplainedNode(
        node.index,
        node.role,
        node.host,
        tuple(range(first, first + member.nproc)),
        node.launch.devices,
        member.ports,
        {name: _shown(value) for name, value in variables.items()},
        tuple(map(_shown, node.launch.start)),
    )


def _node_data(node: ExplainedNode) -> dict[str, Any]:
    return {
        "address": node.host.address,
        "ranks": list(node.ranks),
        "devices": list(node.devices),
        "ports": list(node.ports),
        "endpoints": [endpoint(node.host.address, port) for port in node.ports],
        "env": dict(node.env),
        "starts": list(node.starts),
    }


def _environment(node: Node) -> dict[str, Value]:
    """Return what the launcher gives each process: of the spec's variables, those that it lets through."""
    from jobctl.jobspec.launcher.system.network import is_scrubbed

    launch = node.launch
    interface = {name: Slot("interface") for name in launch.interface_env}
    passed = {name: value for name, value in node.container.env if not is_scrubbed(name, launch.scrub)}
    secrets = dict.fromkeys(launch.secrets, "<secret>")
    # Elsewhere the framework's own launcher numbers them.
    ranks = {} if launch.start else dict(zip(launch.rank_env, (Slot("rank"), Slot("local_rank")), strict=True))
    return {**interface, **passed, **dict(launch.env), **secrets, **ranks, **dict(launch.process_env)}


def own_variables(plan: Plan, generation: Generation, node: Node) -> dict[str, Value]:
    """Return the variables of jobctl's own: in a pod of an operator there are those alone that are the same in all."""
    alike = {"JOBCTL_JOB": generation.job, "JOBCTL_RUN_ID": generation.run_id, "JOBCTL_ROLE": node.role}
    if generation.checkpoint_dir:
        alike["JOBCTL_CHECKPOINT_DIR"] = generation.checkpoint_dir
    if plan.cluster is not None and plan.cluster.operator != "none":
        return dict(alike)
    nodes = str(len(generation.members))
    single = ("JOBCTL_NODE", "JOBCTL_ROLE_RANK", "JOBCTL_GENERATION", "JOBCTL_PROGRESS_FILE")
    shown = {name: f"<{name.removeprefix('JOBCTL_').lower()}>" for name in single}
    return {**alike, "JOBCTL_NODES": nodes, **shown}


def _shown(value: Value) -> str:
    """Return a value of the plan for people: what only the generation knows, by its name."""
    return value if isinstance(value, str) else f"<{value.slot}>"
