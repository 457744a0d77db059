"""What is decided when there are hosts for more nodes: these get ready while the others train, and then all begin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobctl.jobspec.deploy.apply.joining import LIMIT
from jobctl.jobspec.deploy.model.control import Control, Ledger
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.model.spare_state import SpareState
from jobctl.jobspec.launcher.report.node_report import StandbyState
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.generation import RendezvousPoint
from jobctl.jobspec.supervise.decide import decide
from jobctl.jobspec.supervise.decisions import Continue, Decision, Grow, Restart
from jobctl.jobspec.supervise.timers import Joining

from .jobs_on_hosts import GENERATION, NOW, POLICY, failed, job, node, world

CAUSE = "there is a host for node 2 again"
ALL = frozenset({0, 1, 2})
START, BEGIN = Grow(CAUSE, frozenset({"h2"}), frozenset({2})), Grow(CAUSE, frozenset({"h2"}))


def two(*more: Any, **how: Any) -> Observed:
    """Two nodes that run, of three that there may be."""
    here = replace(GENERATION, members=GENERATION.members[:2])
    return replace(job(node(0), node(1), *more), control=Control(here, Ledger(900.0)), **how)


def third(state: str = "warming", reason: str | None = None, **how: Any) -> Any:
    """The third one, which has had no part in the job since its launcher began."""
    return replace(node(2, state="starting", generation=0, standby=StandbyState(state, reason)), **how)


def decided(observed: Observed, joining: dict[int, float] | None = None, **how: Any) -> Decision:
    return decide(observed, POLICY, NOW, world(**{"least": 2, "patient": ALL, "joining": joining or {}, **how}))


def test_a_node_is_started_first_and_no_generation_begins() -> None:
    assert decided(two()) == START


def test_a_launcher_from_before_is_started_anew() -> None:
    """It gets no standby ready any more, and has no part in what runs."""
    assert decided(two(node(2, state="fenced", generation=3))) == START


def test_the_others_train_until_all_nodes_can_begin_at_once() -> None:
    assert decided(two(third()), {2: 1.0}) == Continue()
    assert decided(two(third("ready")), {2: 1.0}) == BEGIN
    young = node(1, standby=StandbyState("warming", "it is begun after the first step"))
    begins = replace(two(third("ready")), nodes=(node(0), young, third("ready")))
    assert decided(begins, {2: 1.0}) == Continue()


def test_nobody_waits_for_ever_or_for_what_does_not_come() -> None:
    assert decided(two(third()), {2: LIMIT + 0.1}) == BEGIN
    assert decided(two(third("off", "memory is short")), {2: 1.0}) == BEGIN
    assert decided(two(), {2: 1.0}) == BEGIN  # its launcher has ended


def test_where_a_node_cannot_wait_the_generation_begins_at_once() -> None:
    assert decided(two(), patient=frozenset({0, 1})) == BEGIN
    hot = SpareState("h2", "ready", ArtefactId("hash"), 1)
    assert decided(two(spares=(hot,))) == BEGIN


def test_another_host_that_comes_meanwhile_is_waited_for_too() -> None:
    one = replace(two(), control=Control(replace(GENERATION, members=GENERATION.members[:1]), Ledger(900.0)))
    assert decided(replace(one, nodes=(node(0), third())), {2: 9.0}, least=1) == Grow(
        "there is a host for node 1, 2 again", frozenset({"h1"}), frozenset({1})
    )


@pytest.mark.parametrize("state", ["warming", "ready"])
def test_after_a_failure_nobody_waits(state: str) -> None:
    """All begin that are there: see reconcile."""
    broken = node(1, state="failed", failure=failed())
    assert isinstance(decided(replace(two(), nodes=(node(0), broken, third(state))), {2: 1.0}), Restart)


def test_a_supervisor_knows_since_when_nodes_get_ready_in_this_generation() -> None:
    joining, seen = Joining(), two(third())
    assert joining.look(two(node(2, generation=3)), 10.0) == {}
    joining.started(two(), [2], 10.0)
    assert joining.look(two(), 12.0) == {2: 2.0}
    assert joining.look(seen, 9.0) == {2: 0.0}  # the clock was set back
    assert Joining().look(seen, 12.0) == {2: 0.0}  # one that begins to watch in the midst of it
    begun = seen.control.generation
    assert begun is not None
    later = replace(begun, number=5, rendezvous=RendezvousPoint("10.0.0.0", 20000, "job-5"))
    assert joining.look(replace(two(), control=replace(seen.control, generation=later)), 13.0) == {}
