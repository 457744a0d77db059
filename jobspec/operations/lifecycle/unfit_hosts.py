"""Plans of `up` with nodes on other hosts: where hosts are not fit, or nodes have moved meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from jobctl.jobspec.operations.resolve.data import versions_in
from jobctl.jobspec.operations.resolve.planning import plan_of
from jobctl.jobspec.plan.homes import homes_of

if TYPE_CHECKING:
    from jobctl.jobspec.operations.resolve.job import Compiled
    from jobctl.jobspec.plan.types import Plan


def has_enough(plan: Plan, left: Collection[str]) -> bool:
    """Say whether a job can start without some hosts: it has a range of nodes, and as many as it needs are elsewhere."""
    return sum(1 for node in plan.nodes if node.host.name not in left) >= plan.min_nodes


def plan_on_spares(compiled: Compiled, plan: Plan, left: Collection[str], never: Collection[str]) -> Plan | None:
    """Return the plan with a spare in the place of each host in `left`, None if there are not enough.

    Spares in `never` were found unfit before, or do not answer. Where checkpoints are on a host's own disk, no node moves.
    """
    if plan.checkpoint is not None and not plan.checkpoint.shared:
        return None
    homes = {node.host.name for node in plan.nodes}
    room = {host.name: host.nodes for host in compiled.hosts}
    free = [h for h in compiled.hosts if h.spare and h.trains and h.name not in homes and h.name not in never]
    new: dict[str, str] = {}
    for host in sorted(homes & set(left)):
        spare = next((one for one in free if one.nodes >= room.get(host, 1)), None)
        if spare is None:
            return None
        free.remove(spare)
        new[host] = spare.name
    return plan_on(compiled, plan, {n.index: new[n.host.name] for n in plan.nodes if n.host.name in new})


def plan_on(compiled: Compiled, plan: Plan, moves: Mapping[int, str]) -> Plan:
    """Return the plan with nodes on other hosts."""
    placement = homes_of(plan) | dict(moves)
    services = {service.name: service.host.name for service in plan.services}
    count = len(plan.nodes) if plan.elastic else None
    return plan_of(compiled, placement, count, services, dict(plan.counted) or None, versions_in(plan))


def plan_with(compiled: Compiled, plan: Plan, before: Mapping[int, str], now: Mapping[int, str]) -> Plan:
    """Return the plan with nodes that have got another host than `before` on the host that they have `now`."""
    here = {host.name for host in compiled.hosts}
    moved = {n: host for n, host in now.items() if n < len(plan.nodes) and host in here and before.get(n, host) != host}
    return plan_on(compiled, plan, moved) if moved else plan
