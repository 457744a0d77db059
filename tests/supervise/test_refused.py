"""Nodes that cannot be started on their hosts: they move, or are tried again, and the job does not end for that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.control import Ledger
from jobctl.jobspec.deploy.model.observed import ObservedNode
from jobctl.jobspec.supervise.decide import decide
from jobctl.jobspec.supervise.decisions import Continue, Decision, GiveUp, Rejoin, Repair, Restart, World
from jobctl.jobspec.supervise.host_loss import whole_hosts
from tests.tools.failures import dead_launcher

from .jobs_on_hosts import NOW, POLICY, failed, job, lost, node, world

WHY = "h1: cannot start node 1: no space left on device"
WORDS = f"{WHY}; there is no other host for it, so it is tried again until it starts"
REFUSING = world(unfit=frozenset({"h1"}), refusing={"h1": WHY})
GONE = node(1, launcher=None, state="pending", failure=None)  # as it is once a start was tried
KILLED = node(1, launcher=None, state="failed", failure=dead_launcher(generation=4, at=NOW - 5))


def decided(mine: ObservedNode, around: World = REFUSING, policy: Any = POLICY, **how: Any) -> Decision:
    return decide(job(node(0), mine, node(2), **how), policy, NOW, around)


def moves(decision: Decision) -> tuple[dict[int, str], frozenset[int]]:
    """Which nodes a restart moves, and which it leaves out."""
    assert isinstance(decision, Restart), decision
    assert decision.held is None
    return dict(decision.moves), decision.without


@pytest.mark.parametrize("mine", [GONE, KILLED], ids=["pending", "killed"])
def test_a_node_that_cannot_start_moves_to_a_free_host(mine: ObservedNode) -> None:
    decision = decided(mine, replace(REFUSING, free_hosts=("s1", "s2")))
    assert moves(decision) == ({1: "s1"}, frozenset())
    assert isinstance(decision, Restart)
    assert "cannot start on h1" in decision.cause
    assert decision.exclude == frozenset()  # it is unfit for a while, not for good


def test_not_to_one_that_could_not_take_a_node_either() -> None:
    around = replace(REFUSING, free_hosts=("s2", "s1"), unfit=frozenset({"h1", "s2"}))
    assert moves(decided(GONE, around)) == ({1: "s1"}, frozenset())
    none = replace(around, free_hosts=("s2",))
    assert decided(GONE, none) == Repair("node 1 has no launcher", held=WORDS)


def test_without_another_host_it_is_tried_again_and_the_job_says_why() -> None:
    again = decided(KILLED)
    assert isinstance(again, Restart)
    assert (again.moves, again.held) == ({}, WORDS)
    assert decided(GONE) == Repair("node 1 has no launcher", held=WORDS)
    used_up = Ledger(900.0, failures=tuple(failed(generation=n, exit_code=n) for n in (1, 2, 3)))
    assert decided(GONE, ledger=used_up) == Repair("node 1 has no launcher", held=WORDS)


def test_an_elastic_job_goes_on_without_it() -> None:
    around, policy = replace(REFUSING, least=2), replace(POLICY, on_host_loss="shrink")
    assert moves(decided(GONE, around, policy)) == ({}, {1})
    assert decided(GONE, around, replace(policy, on_host_loss="fail")) == Repair("node 1 has no launcher", held=WORDS)


def test_a_node_that_could_begin_again_alone_moves_too() -> None:
    """Without another host it is tried again, and all others go on."""
    around = replace(REFUSING, rejoining={1: 0.0})
    assert moves(decided(KILLED, replace(around, free_hosts=("s1",)))) == ({1: "s1"}, frozenset())
    assert isinstance(decided(KILLED, around), Rejoin)


def test_a_move_counts_as_any_other_failure_does() -> None:
    used_up = Ledger(900.0, failures=tuple(failed(generation=n, exit_code=n) for n in (1, 2, 3)))
    assert isinstance(decided(GONE, replace(REFUSING, free_hosts=("s1",)), ledger=used_up), GiveUp)


def test_it_waits_no_longer_than_the_spec_says() -> None:
    policy = replace(POLICY, wait_timeout=60.0)
    assert decided(GONE, replace(REFUSING, waited=60.0), policy) == Repair("node 1 has no launcher", held=WORDS)
    late = decided(GONE, replace(REFUSING, waited=61.0), policy)
    assert late == GiveUp(f"{WHY}; waited for longer than `recovery.wait_timeout` (60 s)", None)


def test_a_node_that_runs_there_or_is_lost_or_has_ended_well_is_left_alone() -> None:
    free = replace(REFUSING, free_hosts=("s1",))
    assert decided(node(1), free) == Continue()
    ended = node(1, launcher=None, state="exited", exit_code=0)
    assert decided(ended, free) == Continue()
    assert not isinstance(decided(lost(1), free), Restart)  # it may still run there: that is not certain yet


def test_a_host_is_whole_if_all_nodes_that_it_has_run() -> None:
    beside = replace(node(2), host="h1")
    assert whole_hosts(job(node(0), GONE, beside)) == {"h0"}
    assert whole_hosts(job(node(0), node(1), beside)) == {"h0", "h1"}
