"""What is decided about nodes that make the others wait, where a rule says that they leave their hosts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.control import Control, Ledger
from jobctl.jobspec.deploy.model.observed import Observed, ObservedProcess
from jobctl.jobspec.plan.recovery import Failure
from jobctl.jobspec.supervise.decide import decide
from jobctl.jobspec.supervise.decisions import Change, Continue, Restart, Stay
from jobctl.jobspec.supervise.slow_nodes import MOVE_COOLDOWN

from .jobs_on_hosts import GENERATION, NOW, POLICY, failed, job, lost, node, world

MOVES = replace(POLICY, exclude_stragglers=True)
SLOW = "rank 1 needs 0.2 s for its part of each step, 2.0 times the median (0.1 s)"
MOVED = Failure(4, NOW, 1, "h1", None, None, "straggler", 7, 0.0, reason=SLOW)
CAUSE = "node 1 is a straggler; a rule excludes h1"


def paces(*seconds: float, ledger: Ledger | None = None, **how: Any) -> Observed:
    """A job whose nodes need so long for their parts of a step."""
    nodes = [
        node(rank, processes=(ObservedProcess(rank, 0, "running", 7, None, "cpu:0", own_seconds=own),), **how)
        for rank, own in enumerate(seconds)
    ]
    return job(*nodes, **({} if ledger is None else {"ledger": ledger}))


def test_a_slow_node_moves_to_a_spare() -> None:
    decision = decide(paces(0.1, 0.2, 0.1), MOVES, NOW, world(free_hosts=("s1", "s2")))
    assert decision == Restart(CAUSE, MOVED, 0.0, {1: "s1"}, frozenset(), frozenset({"h1"}))


def test_without_the_rule_it_does_not() -> None:
    assert decide(paces(0.1, 0.2, 0.1), POLICY, NOW, world(free_hosts=("s1",))) == Continue()
    assert decide(paces(0.1, 0.11, 0.1), MOVES, NOW, world(free_hosts=("s1",))) == Continue()


@pytest.mark.parametrize("spares", [{}, {"free_hosts": ("s1",), "unfit": frozenset({"s1"})}])
def test_without_a_host_that_can_take_it_the_node_stays(spares: Any) -> None:
    """The job runs, if slowly: what a failure would still try is no reason to end it."""
    stays = Stay(1, "h1", "no other host is free, and the job needs the node")
    assert decide(paces(0.1, 0.2, 0.1), MOVES, NOW, world(**spares)) == stays


def test_a_host_that_was_excluded_is_not_free() -> None:
    seen = paces(0.1, 0.2, 0.1, ledger=Ledger(900.0, excluded=("s1",)))
    assert isinstance(decide(seen, MOVES, NOW, world(free_hosts=("s1",))), Stay)


def test_a_job_that_can_do_with_fewer_goes_on_without_it() -> None:
    policy = replace(MOVES, on_host_loss="shrink")
    decision = decide(paces(0.1, 0.2, 0.1), policy, NOW, world(least=2))
    assert decision == Restart(CAUSE, MOVED, 0.0, {}, frozenset({1}), frozenset({"h1"}))
    assert isinstance(decide(paces(0.1, 0.2, 0.1), policy, NOW, world(least=3)), Stay)


@pytest.mark.parametrize(("ago", "again"), [(60.0, False), (MOVE_COOLDOWN - 1, False), (MOVE_COOLDOWN + 1, True)])
def test_a_node_that_is_slow_on_its_next_host_too_stays_for_a_while(ago: float, again: bool) -> None:
    before = replace(MOVED, generation=3, host="h9", at=NOW - ago)
    other = replace(failed(generation=2), at=NOW - 1)
    seen = paces(0.1, 0.2, 0.1, ledger=Ledger(900.0, failures=(before, other)))
    decision = decide(seen, MOVES, NOW, world(free_hosts=("s1",)))
    stays = Stay(1, "h1", "it was slow on h9 too, so the host is not why")
    assert (isinstance(decision, Restart), decision == stays) == (again, not again)


def test_another_node_may_move_all_the_same() -> None:
    """The slower one of the two has moved already."""
    before = replace(MOVED, generation=3, node=2, host="h9")
    seen = paces(0.1, 0.2, 0.3, ledger=Ledger(900.0, failures=(before,)))
    five = replace(GENERATION, members=(*GENERATION.members, *(replace(GENERATION.members[0], node=n) for n in (3, 4))))
    more = paces(0.1, 0.2, 0.3, 0.1, 0.1, ledger=seen.control.ledger).nodes
    seen = replace(seen, control=Control(five, seen.control.ledger), nodes=(*seen.nodes, *more[3:]))
    seen = replace(seen, nodes=tuple(replace(n, host="h0") if n.node > 2 else n for n in seen.nodes))
    decision = decide(seen, MOVES, NOW, world(free_hosts=("s1",)))
    assert isinstance(decision, Restart)
    assert (decision.moves, decision.exclude) == ({1: "s1"}, {"h1"})


def test_all_nodes_of_the_host_move() -> None:
    """It is used no more: a node that stayed there would have no part in the next generation."""
    server = replace(GENERATION.members[1], node=3, rank=3, roles=("server",))
    generation = replace(GENERATION, members=(*GENERATION.members, server))
    seen = paces(0.1, 0.2, 0.1)
    there = node(3, role="server", host="h1")
    seen = replace(seen, control=Control(generation, Ledger(900.0)), nodes=(*seen.nodes, there))
    decision = decide(seen, MOVES, NOW, world(free_hosts=("s1", "s2"), planned={}))
    assert isinstance(decision, Restart)
    assert decision.moves == {1: "s1", 3: "s1"}


def test_a_move_takes_nothing_from_the_budget() -> None:
    before = tuple(replace(MOVED, generation=n, node=2, at=NOW - 10) for n in (1, 2, 3))
    ledger = Ledger(900.0, failures=before)
    assert ledger.counted(None, NOW) == 0
    broken = job(node(0), node(1, state="failed", failure=failed()), node(2), ledger=ledger)
    assert isinstance(decide(broken, MOVES, NOW, world()), Restart)
    used = Ledger(900.0, failures=tuple(failed(generation=n) for n in (1, 2, 3)))
    assert isinstance(decide(paces(0.1, 0.2, 0.1, ledger=used), MOVES, NOW, world(free_hosts=("s1",))), Restart)


def test_what_is_wrong_or_asked_for_goes_first() -> None:
    spares = world(free_hosts=("s1",))
    seen = paces(0.1, 0.2, 0.1)
    assert isinstance(decide(seen, MOVES, NOW, replace(spares, change="a change")), Change)
    without = decide(job(*seen.nodes[:2], lost(2)), MOVES, NOW, spares)
    assert not isinstance(without, Restart)
    older = tuple(replace(n, generation=3) for n in seen.nodes)
    assert decide(replace(seen, nodes=older), MOVES, NOW, spares) == Continue()
