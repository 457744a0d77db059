"""What `up` would do, and what a plan says of the whole job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl import console

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from jobctl.jobs import Compiled
    from jobctl.jobspec.deploy.apply.deployer import Deployer
    from jobctl.jobspec.deploy.model.inventory import Inventory
    from jobctl.jobspec.plan.generation import Generation
    from jobctl.jobspec.plan.types import Node, Plan, Value


def planned(
    compiled: Compiled, ssh_config: Path | None, accept_new: bool, count: int | None = None
) -> tuple[Plan, Deployer]:
    """Return the plan of a compiled job whose nodes stay on the hosts where they are, and its deployer.

    Where they are is what `up` or the supervisor has noted on this machine, or else what the hosts tell. A hosts file in
    another order moves nothing; a node whose host is not in it any more gets the first that is free. `count`: how many
    nodes of its range an elastic job gets, default as many as there is room for.
    """
    from jobctl.counting import devices_of
    from jobctl.jobs import deployer_of, job_of_name, plan_of

    directory = job_of_name(compiled.spec.name)
    old = directory.plan()
    deployer = deployer_of(directory, compiled.target, inventory_for(compiled, ssh_config, accept_new), old)
    deployer.preconnect()
    services = {service.name: service.host.name for service in old.services} if old else {}
    devices = devices_of(compiled, deployer, old)
    made = deployer.plan = plan_of(compiled, None, count, services, devices)
    if made.target == "local":
        return made, deployer
    if old is None:
        homes = deployer.newest().placement
    else:
        homes = {} if old.target == "local" else {node.index: node.host.name for node in old.nodes}
    placement = _placement(compiled, made, homes)
    placed = plan_of(compiled, placement, count, services, devices) if placement else made
    deployer.plan = placed
    return placed, deployer


def _placement(compiled: Compiled, made: Plan, known: Mapping[int, str]) -> Mapping[int, str] | None:
    """Return where the nodes of a job belong, None if that is where `made` has them."""
    room = [host.name for host in compiled.hosts if not host.spare and host.trains for _ in range(host.nodes)]
    every = {host.name for host in compiled.hosts}
    homes = {node: host for node, host in known.items() if node < len(made.nodes) and host in every}
    for host in homes.values():
        if host in room:
            room.remove(host)
    rest = [node.index for node in made.nodes if node.index not in homes]
    placement = homes | dict(zip(rest, room, strict=False))
    if len(placement) < len(made.nodes) or all(node.host.name == placement[node.index] for node in made.nodes):
        return None
    return placement


def inventory_for(compiled: Compiled, ssh_config: Path | None, accept_new: bool) -> Inventory | None:
    """Return how the hosts of a compiled job are reached, None where it runs on this machine."""
    from jobctl.jobs import job_of_name, ssh_options
    from jobctl.jobspec.deploy.model.inventory import Inventory

    if compiled.target not in ("compose", "ssh"):
        return None
    known = job_of_name(compiled.spec.name).inventory()
    inventory = Inventory(compiled.hosts, ssh_options(ssh_config, accept_new, known))
    return inventory.with_hosts(known.hosts) if known else inventory


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
        for name, value in _environment(node).items():
            console.out(f"  {name}={_shown(value)}")
        if node.launch.start:
            words = (word.partition("\n") for word in map(_shown, node.launch.start))
            console.out("which starts:\n  " + " ".join(f"{first} …" if more else first for first, more, _ in words))
    console.out("each process runs:\n  " + " ".join(plan.nodes[0].launch.command))


def _environment(node: Node) -> dict[str, Value]:
    """Return what the launcher gives each process: of the spec's variables, those that it lets through."""
    from jobctl.jobspec.launcher.network import is_scrubbed
    from jobctl.jobspec.plan.types import Slot

    launch = node.launch
    interface = {name: Slot("interface") for name in launch.interface_env}
    passed = {name: value for name, value in node.container.env if not is_scrubbed(name, launch.scrub)}
    secrets = dict.fromkeys(launch.secrets, "<secret>")
    # Elsewhere the framework's own launcher numbers them.
    ranks = {} if launch.start else dict(zip(launch.rank_env, (Slot("rank"), Slot("local_rank")), strict=True))
    return {**interface, **passed, **dict(launch.env), **secrets, **ranks, **dict(launch.process_env)}


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
