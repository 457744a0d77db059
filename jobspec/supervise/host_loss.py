"""Where nodes run: what to do about hosts that are gone, that are back, or that are broken. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode, takes_part
from jobctl.jobspec.deploy.model.stragglers import Straggler
from jobctl.jobspec.frameworks.failure_patterns import DEFAULT_RULES
from jobctl.jobspec.launcher.peers.old_places import MARGIN
from jobctl.jobspec.plan.recovery import Failure, Recovery
from jobctl.jobspec.supervise.decisions import Decision, GiveUp, Rejoin, Repair, Restart, Wait, World
from jobctl.jobspec.supervise.failures import SAME_HOST, fails_again, has_run, judge, matching_rule, newest_step


def lost_nodes(observed: Observed) -> tuple[ObservedNode, ...]:
    """Return the members that nobody can look at: their hosts do not answer, or they are not where the generation has them."""
    homes = observed.control.placement
    return tuple(node for node in observed.members if not node.reachable or node.host != homes[node.node])


def decide_loss(
    observed: Observed, lost: Sequence[ObservedNode], policy: Recovery, now: float, world: World
) -> Decision:
    generation = observed.control.generation
    timeout = generation.host_timeout if generation else policy.host_timeout
    words = "; ".join(f"node {node.node}: {node.host} is not heard" for node in lost)
    open_ = [node for node in lost if node.node not in world.cleared]
    runs = bool(open_) and _runs_on(observed, lost)
    moves, without = new_homes(lost, observed, policy.on_host_loss, world)
    lease = generation.lease_limit if generation else timeout
    # A node that can move does so once its lease is over, also if hosts that refused it took longer: they are unfit now.
    patience = 0.0 if moves is None else lease + MARGIN
    moves_now = moves is not None and not open_ and world.unfit.isdisjoint(moves.values())
    limit = None if policy.wait_timeout is None or runs or moves_now else max(policy.wait_timeout, patience)
    if limit is not None and world.waited > limit:
        return GiveUp(f"{words}; waited for longer than `recovery.wait_timeout` ({policy.wait_timeout:g} s)", None)
    if open_ and world.too_few:
        why = "so is half of the job or more, so nobody can tell who is cut off: nothing is moved"
        return Wait(f"{words}; {why}", runs=runs)
    if open_:
        return Wait(f"{words}; moves once it cannot run there any more ({timeout:g} s)", lasting=False, runs=runs)
    reason = f"{', '.join(sorted({node.host for node in lost}))} is lost"
    failure = failure_of(min(lost, key=lambda node: node.node), observed, now, "host", reason)
    if policy.on_host_loss == "fail":
        return GiveUp(f"{words}; `recovery.on_host_loss` is `fail`", failure)
    if moves is None:
        failed = f" ({', '.join(sorted(world.unfit))} could not take a node)" if world.unfit else ""
        return Wait(f"{words}; there is no other host for it{failed}")
    verdict = judge(failure, observed.control.ledger.failures, policy, now)
    return replace(verdict, moves=moves, without=without) if isinstance(verdict, Restart) else verdict


def left_to_launchers(decision: Decision, observed: Observed) -> frozenset[int]:
    """Return the nodes that have failed while the supervisor waits for a host that it does not hear.

    It begins nothing without that host. If the launchers hear it, they can: once the supervisor gives a failed node no
    lease any more (rule 5 in docs/protocol.md).
    """
    if not isinstance(decision, Wait) or not lost_nodes(observed):
        return frozenset()
    return frozenset(node.node for node in observed.members if node.reachable and node.broken)


def _runs_on(observed: Observed, lost: Sequence[ObservedNode]) -> bool:
    """Say whether all nodes that are heard run, if any are: those that are `lost` may be cut off from us alone."""
    heard = [node for node in observed.members if node not in lost]
    return not observed.control.ordered_to_end and all(takes_part(observed, node) for node in heard)


def failure_of(first: ObservedNode | Straggler, observed: Observed, now: float, kind: str, reason: str) -> Failure:
    """Return the failure of nodes that have not told of one themselves, `first` of them first."""
    generation = observed.control.generation
    return Failure(
        generation=generation.number if generation else 0,
        at=now,
        node=first.node,
        host=first.host,
        rank=None,
        exit_code=None,
        kind=kind,
        progress=newest_step(observed),
        ran=has_run(observed, now),
        reason=reason,
    )


def new_homes(
    nodes: Sequence[ObservedNode], observed: Observed, how: str, world: World
) -> tuple[Mapping[int, str] | None, frozenset[int]]:
    """Return new hosts of `nodes`, and which are left out; (None, …) if neither is possible.

    `how` is `on_host_loss`.
    `replace` without enough free hosts leaves nodes out where the job can do with fewer.
    """
    free = [host for host in world.free_hosts if host not in observed.control.ledger.excluded_hosts]
    moves: dict[int, str] = {}
    for group in _housemates(nodes) if how == "replace" else ():
        wished = world.planned.get(group[0])
        home = wished if wished in free else (free[0] if free else None)
        if home is not None:
            moves |= dict.fromkeys(group, home)
            free.remove(home)
    without = frozenset(node.node for node in nodes) - set(moves)
    left = len(observed.members) - len(without)
    if without and (how == "wait" or left < world.least):
        return None, frozenset()
    return moves, without


def _housemates(nodes: Sequence[ObservedNode]) -> list[list[int]]:
    """Return nodes that share the room of one: on a host there is room for a node of each role."""
    rooms: dict[tuple[str, int], list[int]] = {}
    before: Counter[tuple[str, str]] = Counter()
    for node in sorted(nodes, key=lambda node: node.node):
        rooms.setdefault((node.host, before[node.host, node.role]), []).append(node.node)
        before[node.host, node.role] += 1
    return list(rooms.values())


def judge_placed(failure: Failure, observed: Observed, policy: Recovery, now: float, world: World) -> Decision:
    """Decide about a failure, and where the node goes if it does not stay: another host, or none.

    It goes where a rule says so, or where it has failed on the same host time and again without progress. The job uses
    that host no more, so the host's other nodes go along if there is room for them. Where there is no other host, and the
    job needs the node, it stays.
    """
    verdict = judge(failure, observed.control.ledger.failures, policy, now)
    if not isinstance(verdict, Restart):
        return verdict
    if refused_nodes(observed, world):
        return _place_refused(verdict, observed, policy, world)
    rule = matching_rule(failure, (*policy.rules, *DEFAULT_RULES))
    again = fails_again(failure, observed.control.ledger.failures)
    if not again and (rule is None or rule.do != "exclude_host"):
        return verdict
    how = _how(policy)
    mine = [node for node in observed.members if node.node == failure.node]
    leaving = [node for node in observed.members if node in mine or node.host == failure.host]
    moves, without = new_homes(leaving, observed, how, world)
    if moves is None:
        moves, without = new_homes(mine, observed, how, world)
    if moves is None:
        return verdict
    why = (
        f"it failed {SAME_HOST} times on {failure.host} without progress"
        if again
        else f"a rule excludes {failure.host}"
    )
    return replace(
        verdict, cause=f"{verdict.cause}; {why}", moves=moves, without=without, exclude=frozenset({failure.host})
    )


def _how(policy: Recovery) -> str:
    """Return what happens to a node whose host answers, and is not fit: there is nothing to wait for."""
    return "replace" if policy.on_host_loss == "wait" else policy.on_host_loss


def whole_hosts(observed: Observed) -> frozenset[str]:
    """Return the hosts that run all members which they have."""
    members = observed.members
    return frozenset(node.host for node in members) - {node.host for node in members if not node.alive}


def refused_nodes(observed: Observed, world: World) -> tuple[ObservedNode, ...]:
    """Return the members without a launcher whose hosts answer, and could not start one."""
    generation = observed.control.generation
    number = generation.number if generation else 0
    return tuple(
        node
        for node in observed.members
        if node.reachable and not node.alive and node.host in world.refusing
        if (node.state, node.generation) != ("exited", number) or node.broken
    )


def decide_refused(observed: Observed, policy: Recovery, now: float, world: World) -> Decision | None:
    """Return what to do about nodes that nothing is known of but that they cannot start, None if they have no other host."""
    refused = refused_nodes(observed, world)
    if not refused:
        return None
    first = min(refused, key=lambda node: node.node)
    failure = failure_of(first, observed, now, "launcher", f"it cannot start on {first.host}")
    placed = _place_refused(Restart("", failure, 0.0), observed, policy, world)
    if not placed.moves and not placed.without:
        return None
    verdict = judge(failure, observed.control.ledger.failures, policy, now)
    return replace(verdict, moves=placed.moves, without=placed.without) if isinstance(verdict, Restart) else verdict


def _place_refused(verdict: Restart, observed: Observed, policy: Recovery, world: World) -> Restart:
    """Have nodes that cannot start go to hosts that have refused none; the verdict as it is where there are too few."""
    refused = refused_nodes(observed, world)
    if policy.on_host_loss == "fail":  # no host is lost
        return verdict
    fit = replace(world, free_hosts=tuple(host for host in world.free_hosts if host not in world.unfit))
    moves, without = new_homes(refused, observed, _how(policy), fit)
    if moves is None:
        return verdict
    words = ", ".join(f"node {node.node} cannot start on {node.host}" for node in refused)
    return replace(verdict, cause=f"{verdict.cause}; {words}", moves=moves, without=without)


def hold(verdict: Decision, observed: Observed, policy: Recovery, world: World) -> Decision:
    """Say of a verdict that it starts nodes once more where they could not be started, as they can go nowhere else.

    What keeps a container from starting may pass: a full disk, an engine, an image that is being repaired.
    """
    refused = refused_nodes(observed, world)
    if not refused or not isinstance(verdict, Restart | Repair | Rejoin):
        return verdict
    if isinstance(verdict, Restart) and (verdict.moves or verdict.without):
        return verdict
    words = "; ".join(sorted({world.refusing[node.host] for node in refused}))
    if policy.wait_timeout is not None and world.waited > policy.wait_timeout:
        return GiveUp(f"{words}; waited for longer than `recovery.wait_timeout` ({policy.wait_timeout:g} s)", None)
    return replace(verdict, held=f"{words}; there is no other host for it, so it is tried again until it starts")
