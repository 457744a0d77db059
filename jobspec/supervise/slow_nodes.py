"""What to do about nodes that make the others wait, where a rule of the spec says that they leave their hosts. Pure."""

from __future__ import annotations

from dataclasses import replace

from jobctl.jobspec.deploy.model.observed import Observed, phase
from jobctl.jobspec.deploy.model.stragglers import Straggler, stragglers
from jobctl.jobspec.plan.recovery import STRAGGLER, Recovery
from jobctl.jobspec.supervise.decisions import Continue, Restart, Stay, World
from jobctl.jobspec.supervise.host_loss import failure_of, new_homes

# A node that is slow on its next host too is slow by its work, its data or its image: another move would only cost time.
MOVE_COOLDOWN = 3600.0  # seconds after a move in which the node moves no more for that


def decide_stragglers(observed: Observed, policy: Recovery, now: float, world: World) -> Continue | Restart:
    """Return what to do about the nodes that all others wait for: the slowest that can leave its host does.

    One at a time: the median of those that are left says whether the next one is slow.
    """
    generation = observed.control.generation
    if generation is None or phase(observed)[0] != "running":
        return Continue()
    mine = [node for node in observed.members if node.generation == generation.number]
    slow = sorted(stragglers(mine), key=lambda one: one.median / one.seconds)
    verdicts = [_move(one, observed, policy, now, world) for one in slow]
    moves = [verdict for verdict in verdicts if isinstance(verdict, Restart)]
    return next(iter([*moves, *verdicts]), Continue())


def _move(one: Straggler, observed: Observed, policy: Recovery, now: float, world: World) -> Stay | Restart:
    ledger = observed.control.ledger
    before = [
        f for f in ledger.failures if f.kind == STRAGGLER and f.node == one.node and 0 <= now - f.at < MOVE_COOLDOWN
    ]
    if before:
        return Stay(one.node, one.host, f"it was slow on {before[-1].host} too, so the host is not why")
    how = "replace" if policy.on_host_loss in ("replace", "wait") else policy.on_host_loss
    fit = tuple(host for host in world.free_hosts if host not in world.unfit)
    # All nodes of the host, which is used no more.
    moving = [node for node in observed.members if node.host == one.host]
    moves, without = new_homes(moving, observed, how, replace(world, free_hosts=fit))
    if moves is None:
        return Stay(one.node, one.host, "no other host is free, and the job needs the node")
    failure = failure_of(one, observed, now, STRAGGLER, str(one))
    cause = f"node {one.node} is a straggler; a rule excludes {one.host}"
    return Restart(cause, failure, 0.0, moves, without, frozenset({one.host}))
