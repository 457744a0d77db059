"""When a job gets nodes that its generation lacks: once they can begin at once, while the others train on. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from jobctl.jobspec.deploy.apply.joining import LIMIT, getting_ready
from jobctl.jobspec.deploy.model.observed import Observed, phase
from jobctl.jobspec.supervise.decisions import Grow, World


def grow(observed: Observed, world: World) -> Grow | None:
    """Return what to do about hosts that are there for more nodes, None if that is nothing for now.

    A launcher that has had a part in the job gets no standby ready any more. So each node is started again first, beside
    what runs. Where a node cannot get ready so, or takes long, the next generation begins at once.
    """
    more = missing_nodes(observed, world)
    if not more:
        return None
    cause = f"there is a host for node {', '.join(map(str, more))} again"
    hosts = frozenset(world.planned[node] for node in more)
    hot = any(spare.is_hot and spare.host in hosts for spare in observed.spares)
    if hot or not world.patient >= set(more):
        return Grow(cause, hosts)
    new = frozenset(more) - set(world.joining)
    if new:
        return Grow(cause, frozenset(world.planned[node] for node in new), joins=new)
    late = max(world.joining[node] for node in more) > LIMIT
    _, cold = getting_ready(observed, more, None)
    return Grow(cause, hosts) if late or cold is not None else None


def missing_nodes(observed: Observed, world: World) -> Sequence[int]:
    """Return the nodes that could join the generation: they are planned, on hosts that have answered for a while."""
    generation = observed.control.generation
    if generation is None or not world.settled or phase(observed)[0] != "running":
        return ()
    out = {*observed.unreachable, *observed.control.ledger.excluded_hosts, *world.unfit}
    joined = {member.node for member in generation.members}
    return tuple(sorted(node for node, host in world.planned.items() if node not in joined and host not in out))
