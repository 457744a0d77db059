"""The plan of a job some of whose nodes have moved: the planner's again, from what the job was brought up with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.store.jobdir import Pending
from jobctl.jobspec.plan.generation import Generation, Standing
from jobctl.jobspec.plan.homes import homes_of
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.planner.context import Context, Placement, PlanError
from jobctl.jobspec.planner.job import plan as make_plan
from jobctl.jobspec.spec.model import spec_recorded


def moved_meanwhile(plan: Plan | None, generation: Generation | None, standing: Standing | None) -> dict[int, str]:
    """Return the hosts of nodes that others have placed elsewhere than the plan has them.

    Their launchers may have moved them while nobody watched. Or another machine that knows the same job, maybe since before
    nodes moved, has begun the generation. `standing` is None where no machine can.
    """
    if plan is None or generation is None:
        return {}
    if not moved_by_launchers(generation) and not (standing is not None and standing.is_placed_elsewhere(generation)):
        return {}
    planned = homes_of(plan)
    homes = planned | {m.node: m.host for m in generation.members if m.node in planned}
    # A node that has no part in the generation leaves its host to one that has, for a host that such a one has left.
    free = list((Counter(planned.values()) - Counter(homes.values())).elements())
    taken = Counter(homes.values()) - Counter(planned.values())
    for node in sorted(homes.keys() - {m.node for m in generation.members}):
        if taken[homes[node]] > 0:
            taken[homes[node]] -= 1
            homes[node] = free.pop(0)
    return {node: host for node, host in homes.items() if host != planned[node]}


def places_of(pending: Pending, plan: Plan | None) -> dict[int, str]:
    """Return the hosts of the nodes of a change: as it says, but of a node that has moved in the job's `plan` since, where that is."""
    homes = homes_of(plan)
    moved = {node: host for node, host in homes.items() if pending.placement.get(node, host) != host}
    return {node: moved.get(node, host) for node, host in homes_of(pending.plan).items()}


def moved_by_launchers(generation: Generation) -> bool:
    """Say whether launchers have moved a node since a supervisor or a command has placed all of them."""
    return generation.autonomy is not None and generation.autonomy.moved is not None


def with_possible_moves(
    plan: Plan, source: Mapping[str, Any], inventory: Inventory, moves: Mapping[int, str]
) -> tuple[Plan, Mapping[str, HostError]]:
    """Return `plan` with those of `moves` that can be planned, and the hosts for which that cannot be done, each with why.

    A spare may have fewer devices than the node needs. `with_moves` says what the arguments are. Raises DeployError.
    """
    try:
        return with_moves(plan, source, inventory, moves), {}
    except PlanError:
        made, failed = plan, {}
    for host in dict.fromkeys(moves.values()):
        mine = {node: home for node, home in moves.items() if home == host}
        try:
            made = with_moves(made, source, inventory, mine)
        except PlanError as error:
            failed[host] = HostError(host, error.code, error.message, error.hint)
    return made, failed


def with_moves(plan: Plan, source: Mapping[str, Any], inventory: Inventory, moves: Mapping[int, str]) -> Plan:
    """Return `plan` with nodes on other hosts: `moves` has the new host of each that moves. Raises PlanError, DeployError.

    `source` is what JobDir.source keeps. The code stays the version that runs, whatever is in its folder by now.
    """
    nodes = homes_of(plan) | dict(moves)
    placement = Placement(nodes, {service.name: service.host.name for service in plan.services})
    try:
        spec, context, count = spec_recorded(source["spec"]), Context(**source["context"]), source["count"]
    except (KeyError, TypeError, ValueError) as error:
        message = f"cannot plan job `{plan.job}` on other hosts: another version of jobctl brought it up ({error})"
        raise DeployError(message, "`jobctl up` plans it again") from error
    made = make_plan(spec, inventory.hosts, context, placement, dict(plan.counted), count)
    # What changed on its way through the files of this version and of an older one is not for a move to bring in.
    moved = tuple(new if new.index in moves else old for new, old in zip(made.nodes, plan.nodes, strict=True))
    return replace(plan, nodes=moved)
