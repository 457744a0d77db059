"""Which failure was the first, and whether a new generation begins because of it. Pure.

The rules are those of the spec's `recovery`; docs/recovery.md tells them to users.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from jobctl.jobspec.deploy.model.control import Ledger
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode, failure_words
from jobctl.jobspec.frameworks.failure_patterns import DEFAULT_RULES
from jobctl.jobspec.launcher.restart_policy import (
    FROM_OUTSIDE,
    delay,
    is_a_bug,
    made_progress,
    matches,
    without_progress,
)
from jobctl.jobspec.plan.recovery import Failure, Recovery, Rule
from jobctl.jobspec.supervise.decisions import Decision, GiveUp, Rejoin, Restart

# Failures settle for this long, so that the first of several is taken for the cause, not the first one seen. When they
# were is said by the clocks of their hosts: one that is far ahead keeps nobody waiting.
SETTLE = 0.3  # seconds

# What hangs hangs on all nodes: the launcher that has seen it has the others write their stacks before it fails. Those
# that it could not tell, as datagrams do not come through, see the hang themselves, mostly within this time.
STACKS_WAIT = 6.0  # seconds

CONSEQUENCE = 60.0  # seconds in which peers fail because of a node that did

SAME_HOST = 3  # failures of a node in a row on one host, without progress, after which it moves


def first_failure(observed: Observed, now: float) -> Failure | None:
    """Return the failure that came first in this generation, None while there is none or it still settles.

    When one rank dies its peers fail in their collectives a moment later; only the first one is a cause.
    """
    generation = observed.control.generation
    if generation is None:
        return None
    failures = [
        replace(
            failure,
            generation=generation.number,
            progress=newest_step(observed),
            ran=failure.ran or has_run(observed, now),
            at=failure.at or now,
            alike=_ended_badly(observed, generation.number),
        )
        for node in observed.members
        if (failure := _failure_of(node, generation.number)) is not None
    ]
    if not failures:
        return None
    first = min(failures, key=_order)
    unfinished = [node for node in observed.members if node.alive and node.state == "running"]
    if unfinished and first.kind != "launcher" and abs(now - first.at) < SETTLE:
        return None
    silent = [node for node in unfinished if node.role == "trainer" and not node.stacks_written]
    if silent and first.kind == "hang" and abs(now - first.at) < STACKS_WAIT:
        return None
    if first.kind == "hang":
        return replace(first, reason="; ".join(filter(None, (first.reason, odd_rank_out(observed)))))
    return first


def odd_rank_out(observed: Observed) -> str | None:
    """Say which rank is not where the others are, in a job that hangs; None if none differs.

    The one that is a step behind keeps the others waiting; where all are at the same step, the one that is in another
    function than they. One that has ended well keeps nobody waiting.
    """
    trainers = [node for node in observed.members if node.role == "trainer"]
    processes = [p for node in trainers for p in node.processes if p.state != "exited"]
    steps = {p.rank: p.step for p in processes if p.step is not None}
    behind = [rank for rank, step in steps.items() if step == min(steps.values())]
    if len(behind) == 1 and len(steps) > 1:
        others = sorted({str(step) for rank, step in steps.items() if rank != behind[0]})
        return f"rank {behind[0]} is at step {steps[behind[0]]}, the others at {' and '.join(others)}"
    places = {p.rank: p.where for p in processes if p.where}
    counts = Counter(places.values())
    if len(counts) != 2 or len(places) < 3:
        return None
    (usual, _), (other, count) = counts.most_common()
    rank = next(rank for rank, place in places.items() if place == other)
    return f"rank {rank} is in {other}, the others in {usual}" if count == 1 else None


def _order(failure: Failure) -> tuple[bool, float]:
    # A launcher that was killed cannot say when; what its peers say of themselves then is a consequence.
    return failure.kind != "launcher", failure.at


def _failure_of(node: ObservedNode, generation: int) -> Failure | None:
    if not node.broken:
        return None
    if node.generation == generation and node.failure is not None:
        return node.failure
    if node.alive:
        return None
    reason = node.reason or "it was stopped"
    return Failure(generation, 0.0, node.node, node.host, None, None, "launcher", node.progress, 0.0, reason=reason)


def _ended_badly(observed: Observed, generation: int) -> tuple[tuple[int, int], ...]:
    """Return rank and exit code of the processes that ended badly by themselves."""
    processes = [p for node in observed.members if node.generation == generation for p in node.processes]
    ended = [(p.rank, p.exit_code) for p in processes if p.exit_code is not None]
    return tuple((rank, code) for rank, code in ended if code != 0 and code not in FROM_OUTSIDE)


def newest_step(observed: Observed) -> int | None:
    steps = [node.progress for node in observed.members if node.progress is not None]
    return max(steps, default=None)


def has_run(observed: Observed, now: float) -> float:
    """Return for how many seconds the generation has run, as its nodes say: a new launcher and a lost host do not."""
    generation = observed.control.generation
    number = generation.number if generation else 0
    began = [node.started_at for node in observed.members if node.generation == number and node.started_at is not None]
    return max((now - at for at in began if at < now), default=0.0)


def judge(failure: Failure, earlier: Sequence[Failure], policy: Recovery, now: float) -> Decision:
    """Decide about one failure, given those that caused earlier generations to end."""
    before = [other for other in earlier if other.generation != failure.generation or other.alone]
    rule = matching_rule(failure, (*policy.rules, *DEFAULT_RULES))
    words = f"node {failure.node}: {failure_words(failure)}"
    if rule is not None and rule.do == "fail":
        whose = (
            "a rule of `recovery.rules` says not to retry"
            if rule in policy.rules
            else rule.hint or "which no retry fixes"
        )
        return GiveUp(f"{words}; {whose}", failure)
    if failure.kind == "setup":
        return GiveUp(f"{words}; a failed `setup` is not retried", failure)
    if failure.kind == "exhausted":
        return GiveUp(words, failure)
    if failure.kind == "start" and (rule is None or rule.do != "restart"):
        return GiveUp(f"{words}; what cannot be started is not retried", failure)
    if rule is None and any(is_a_bug(failure, other) for other in without_progress(failure, before)):
        return GiveUp(f"{words}, again, before any progress: a bug, not a fault", failure)
    if Ledger(0.0, failures=tuple(before)).counted(policy.window, now) >= policy.max_restarts:
        within = "" if policy.window is None else f" within {policy.window:g} s"
        return GiveUp(
            f"{words}; all {policy.max_restarts} restarts of `recovery.max_restarts` are used up{within}",
            failure,
        )
    return Restart(words, failure, delay(failure, before))


def judge_alone(failure: Failure, earlier: Sequence[Failure], policy: Recovery, now: float) -> Decision:
    """Decide about the failure of a node that all others can do without for a while.

    One that follows soon upon another's, with no progress in between, is its consequence, and does not count. Later it does:
    a node that fails by itself all the time must not do so for ever.
    """
    failure = replace(failure, alone=True)
    last = earlier[-1] if earlier else None
    soon = last is not None and failure.at - last.at <= CONSEQUENCE
    if last is not None and soon and last.alone and last.node != failure.node and not made_progress(failure, last):
        return Rejoin(f"node {failure.node}: {failure_words(failure)}", failure, 0.0, counts=False)
    verdict = judge(failure, earlier, policy, now)
    return Rejoin(verdict.cause, verdict.failure, verdict.delay) if isinstance(verdict, Restart) else verdict


def not_before(verdict: Decision, least: float, now: float) -> Decision:
    """Return the verdict, with a node started again no sooner than `least` seconds after it failed."""
    if not isinstance(verdict, Rejoin):
        return verdict
    return replace(verdict, delay=max(verdict.delay, min(least, verdict.failure.at + least - now)))


def matching_rule(failure: Failure, rules: Sequence[Rule]) -> Rule | None:
    return next((rule for rule in rules if matches(rule.exit, rule.log, failure)), None)


def fails_again(failure: Failure, earlier: Sequence[Failure]) -> bool:
    """Say whether a node has failed on the same host so often, without progress in between, that the host may be why."""
    before = [other for other in earlier if other.generation != failure.generation][-(SAME_HOST - 1) :]
    line = [*before, failure]
    same = all((other.node, other.host) == (failure.node, failure.host) for other in line)
    fruitless = not any(made_progress(later, last) for last, later in pairwise(line))
    return len(line) == SAME_HOST and same and fruitless
