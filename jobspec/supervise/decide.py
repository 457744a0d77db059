"""What to do about what is observed: pure, so that every decision can be tested without a process."""

from __future__ import annotations

from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode, phase
from jobctl.jobspec.launcher.peers.old_places import MARGIN
from jobctl.jobspec.launcher.restart_policy import certain_after
from jobctl.jobspec.plan.generation import Generation, Standing
from jobctl.jobspec.plan.recovery import Failure, Recovery
from jobctl.jobspec.supervise.decisions import (
    NOTHING_KNOWN,
    Change,
    Continue,
    Decision,
    GiveUp,
    Leave,
    Repair,
    Succeed,
    Wait,
    World,
)
from jobctl.jobspec.supervise.failures import first_failure, judge_alone, not_before
from jobctl.jobspec.supervise.growth import grow
from jobctl.jobspec.supervise.host_loss import decide_loss, decide_refused, hold, judge_placed, lost_nodes
from jobctl.jobspec.supervise.slow_nodes import decide_stragglers


def decide(observed: Observed, policy: Recovery, now: float, world: World = NOTHING_KNOWN) -> Decision:
    """Return what the supervisor does now (`now`: seconds since the epoch)."""
    generation = observed.control.generation
    aside = superseded(generation, world.standing)
    if aside is not None:
        return aside
    left = why_over(observed)
    if left is not None:
        return _say_goodbye(left, observed, policy, world)
    if generation is None:
        return Continue()
    if phase(observed)[0] == "succeeded":
        return Succeed()
    if is_over_time(observed, policy, now) and world.overdue >= certain_after(policy.max_duration or 0.0):
        return GiveUp(f"ran longer than `recovery.max_duration` ({policy.max_duration:g} s)", None)
    lost = lost_nodes(observed)
    stale = [f"node {node.node} on {node.host}" for node in observed.strays]
    if lost:
        verdict = decide_loss(observed, lost, policy, now, world)
        # With etcd, a launcher that is no member any more may hold the lease of a lost node, which is never clear then.
        if stale and isinstance(verdict, Wait):
            return Repair(f"{', '.join(stale)} belongs elsewhere now", runs=verdict.runs)
        return verdict
    if generation.command != "run":
        return Change("a command stopped the job to change it, and did not finish")
    failure = first_failure(observed, now)
    if failure is not None and failure.node in world.ending and _has_ended_a_run(failure):
        node = observed.node(failure.node)
        if node is not None and node.alive:
            return Continue()  # its launcher is about to end
    joins_again = failure is not None and _joins_again(failure, observed, world)
    if failure is not None and not joins_again:
        return hold(judge_placed(failure, observed, policy, now, world), observed, policy, world)
    refused = decide_refused(observed, policy, now, world)
    if refused is not None:
        return refused
    if failure is not None:
        verdict = judge_alone(failure, observed.control.ledger.failures, policy, now)
        return hold(not_before(verdict, world.rejoining[failure.node], now), observed, policy, world)
    repair = _repair(observed, generation, stale)
    return hold(repair, observed, policy, world) if repair else _go_on(observed, policy, now, world)


def _repair(observed: Observed, generation: Generation, stale: list[str]) -> Repair | None:
    """Return what is missing of the current generation, None if nothing is."""
    missing = [str(node.node) for node in observed.members if _is_missing(node, generation)]
    if missing:
        return Repair(f"node {', '.join(missing)} has no launcher")
    down = [service.name for service in observed.services if service.reachable and service.state != "running"]
    if down:
        return Repair(f"{', '.join(down)} does not run")
    if stale:
        return Repair(f"{', '.join(stale)} belongs elsewhere now")
    if observed.outdated:
        return Repair(f"{', '.join(observed.outdated)} missed a generation")
    return None


def is_over_time(observed: Observed, policy: Recovery, now: float) -> bool:
    """Say whether the job has had its time by this clock, however it is: one that waits for a host would wait for ever."""
    began = observed.control.ledger.began
    return policy.max_duration is not None and bool(began) and now - began > policy.max_duration


def _go_on(observed: Observed, policy: Recovery, now: float, world: World) -> Decision:
    """Return what to do about a generation that runs as it should."""
    more = grow(observed, world)
    if more is not None:
        return more
    if world.change is not None:
        return Change(world.change)
    verdict = decide_stragglers(observed, policy, now, world) if policy.exclude_stragglers else Continue()
    if world.cold_spares and isinstance(verdict, Continue) and world.settled:
        return Repair(f"spare {', '.join(world.cold_spares)} has no launcher", world.cold_spares)
    return verdict


def _say_goodbye(left: Leave, observed: Observed, policy: Recovery, world: World) -> Decision:
    """Leave once every launcher has been told that the job is over, or cannot hold a lease any more."""
    behind = [host for host in observed.outdated if any(n.host == host and n.alive for n in observed.nodes)]
    if behind:
        return Repair(f"{', '.join(behind)} has not received that {left.why}")
    silent = sorted({node.host for node in observed.members if not node.reachable})
    generation = observed.control.generation
    limit = policy.host_timeout if generation is None else max(policy.host_timeout, generation.lease_limit)
    if silent and world.waited <= limit + MARGIN:
        return Wait(f"{', '.join(silent)} may not know that {left.why}", lasting=False)
    return left


def superseded(generation: Generation | None, standing: Standing | None) -> Leave | None:
    """Return why a supervisor that knows this much may do nothing about a generation, None if it may.

    By its own plan it would undo what somebody has changed from another machine: that one watches the job from then on.
    """
    other = standing.overruled_by(generation) if standing is not None else None
    if other is None:
        return None
    return Leave(f"the job was changed from {other.machine}: it is another one now than is known here")


def why_over(observed: Observed) -> Leave | None:
    """Return why there is nothing to supervise, None while there is, or may be where nobody can look."""
    generation, ledger = observed.control.generation, observed.control.ledger
    if generation is None:
        return None if observed.unreachable else Leave("the job is not up")
    return None if ledger.result is None else Leave(f"the job {ledger.result.phase}")


def _joins_again(failure: Failure, observed: Observed, world: World) -> bool:
    """Say whether all others can go on while the node that failed is started again: its launcher has ended."""
    node = observed.node(failure.node)
    return failure.node in world.rejoining and node is not None and not node.alive


def _has_ended_a_run(failure: Failure) -> bool:
    """Say whether processes of the node had been started: a launcher whose node has failed before that stays."""
    begun = failure.kind not in ("launcher", "start") or failure.log is not None
    return failure.kind not in ("fenced", "setup") and begun


def _is_missing(node: ObservedNode, generation: Generation) -> bool:
    """Say whether nothing watches a node: nothing runs, or it had ended well a moment before the next generation began."""
    ended = node.state == "exited" and node.generation < generation.number
    return not node.alive and (node.state == "pending" or ended)
