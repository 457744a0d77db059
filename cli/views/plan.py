"""A plan for people: what it says of the whole job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl import console

if TYPE_CHECKING:
    from jobctl.jobspec.plan.generation import Generation
    from jobctl.jobspec.plan.types import Node, Plan, Value


def explain_plan(plan: Plan) -> None:
    """Print ranks, roles, devices, endpoints and environment of every node."""
    from jobctl.jobspec.plan.generation import first_generation

    generation = first_generation(plan)
    meeting = generation.rendezvous
    console.out(f"job {plan.job}: {plan.framework} {plan.mode}, target {plan.target}, run id {generation.run_id}")
    console.out(f"rendezvous {meeting.address}:{meeting.port} (the first free port from here on), id {meeting.id}")
    if plan.checkpoint:
        console.out(f"checkpoint {plan.checkpoint.dir}")
    console.out()
    listening = any(member.ports for member in generation.members)
    head = ("NODE", "ROLE", "HOST", "ADDRESS", "RANKS", "DEVICES", *(("PORTS",) if listening else ()))
    console.out(console.table(head, _rows(plan, generation, listening)))
    roles = {node.role: node for node in reversed(plan.nodes)}  # the first of each
    for role in dict.fromkeys(node.role for node in plan.nodes):
        node = roles[role]
        console.out(f"\nenv of every {role if len(roles) > 1 else 'node'}:")
        for name, value in {**_environment(node), **own_variables(plan, generation, node)}.items():
            console.out(f"  {name}={_shown(value)}")
        if node.launch.start:
            words = (word.partition("\n") for word in map(_shown, node.launch.start))
            console.out("which starts:\n  " + " ".join(f"{first} …" if more else first for first, more, _ in words))
    console.out("each process runs:\n  " + " ".join(plan.nodes[0].launch.command))


def _environment(node: Node) -> dict[str, Value]:
    """Return what the launcher gives each process: of the spec's variables, those that it lets through."""
    from jobctl.jobspec.launcher.system.network import is_scrubbed
    from jobctl.jobspec.plan.types import Slot

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


def _rows(plan: Plan, generation: Generation, listening: bool) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    firsts: dict[str, int] = {}  # by role: each has ranks of its own
    for node, member in zip(plan.nodes, generation.members, strict=True):
        first = firsts.get(node.role, 0)
        last = first + member.nproc - 1
        ranks = str(first) if first == last else f"{first}-{last}"
        devices = ", ".join(node.launch.devices)
        ports = (", ".join(map(str, member.ports)) or "-",) if listening else ()
        rows.append((str(node.index), node.role, node.host.name, node.host.address, ranks, devices, *ports))
        firsts[node.role] = last + 1
    return rows
