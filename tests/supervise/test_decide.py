"""The supervisor's decisions, one case a line: what was observed, and what is done about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.control import Control, JobResult, Ledger
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode
from jobctl.jobspec.plan.generation import Origin, Standing
from jobctl.jobspec.supervise.decide import decide
from jobctl.jobspec.supervise.decisions import (
    Change,
    Continue,
    GiveUp,
    Leave,
    Rejoin,
    Repair,
    Restart,
    Succeed,
    Wait,
    World,
)
from jobctl.jobspec.supervise.failures import SETTLE, first_failure
from tests.tools.failures import dead_launcher

from .observed_jobs import NOW, POLICY, failure, job, node


def test_all_run() -> None:
    assert decide(job(node(0), node(1)), POLICY, NOW) == Continue()


def test_some_have_ended_well() -> None:
    assert decide(job(node(0, "exited", exit_code=0, launcher=None), node(1)), POLICY, NOW) == Continue()


def test_all_have_ended_well() -> None:
    ended = [node(i, "exited", exit_code=0, launcher=None) for i in (0, 1)]
    assert decide(job(*ended), POLICY, NOW) == Succeed()


def test_ended_well_in_an_earlier_generation_is_not_success() -> None:
    ended = [node(i, "exited", exit_code=0) for i in (0, 1)]
    assert decide(job(*ended, number=2), POLICY, NOW) == Continue()


def test_a_process_fails() -> None:
    seen = job(node(0), node(1, "failed", failure=failure()))
    assert decide(seen, POLICY, NOW) == Restart("node 1: rank 1 exited with code 7", failure(), 0.0)


@pytest.mark.parametrize(("code", "words"), [(137, "was killed by SIGKILL"), (255, "exited with code 255")])
def test_a_killed_process_is_told_by_its_signal(code: int, words: str) -> None:
    seen = job(node(0), node(1, "failed", failure=failure(exit_code=code, kind="signal")))
    decision = decide(seen, POLICY, NOW)
    assert isinstance(decision, Restart)
    assert decision.cause == f"node 1: rank 1 {words}"


@pytest.mark.parametrize("kind", ["fenced", "hang", "host", "launcher", "lost", "process"])
def test_what_has_no_exit_code_is_told_by_its_reason(kind: str) -> None:
    found = failure(kind=kind, rank=None, exit_code=None, reason="it is gone")
    decision = decide(job(node(0), node(1, "failed", failure=found)), POLICY, NOW)
    assert decision == Restart("node 1: it is gone", found, 0.0)


def test_the_first_failure_is_the_cause() -> None:
    late = failure(node=0, rank=0, at=991.0, exit_code=1)
    seen = job(node(0, "failed", failure=late), node(1, "failed", failure=failure()))
    assert first_failure(seen, NOW) == failure()


def test_failures_settle_before_one_is_called_the_cause() -> None:
    fresh = failure(at=NOW - SETTLE / 2)
    assert decide(job(node(0), node(1, "failed", failure=fresh)), POLICY, NOW) == Continue()
    assert first_failure(job(node(0), node(1, "failed", failure=fresh)), NOW + SETTLE) == fresh


def test_a_failure_in_the_future_is_not_waited_for() -> None:
    """The clock of its host is ahead, or that of the supervisor was set back."""
    ahead = failure(at=NOW + 3600)
    assert first_failure(job(node(0), node(1, "failed", failure=ahead)), NOW) == ahead


def test_a_killed_launcher_is_the_cause_whatever_its_peers_say() -> None:
    killed = failure(kind="launcher", at=0.0, rank=None, exit_code=None)
    peer = failure(node=0, rank=0, at=989.0)
    seen = job(
        node(0, "failed", failure=peer),
        node(1, "failed", launcher=None, failure=killed, reason="its launcher was killed"),
    )
    assert decide(seen, POLICY, NOW) == Restart("node 1: its launcher was killed", replace(killed, at=NOW), 0.0)


def test_a_failure_of_an_earlier_generation_is_over() -> None:
    assert decide(job(node(0), node(1, "failed", failure=failure()), number=2), POLICY, NOW) == Continue()


def test_a_launcher_that_was_never_started() -> None:
    missing = ObservedNode(1, "trainer", "localhost", "pending")
    assert decide(job(node(0), missing), POLICY, NOW) == Repair("node 1 has no launcher")


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (Observed(Control(), (), True), "the job is not up"),
        (job(node(0), command="stop", ledger=Ledger(1.0, result=JobResult("stopped", "x", 2.0))), "the job stopped"),
        (job(node(0), ledger=Ledger(1.0, result=JobResult("failed", "x", 2.0))), "the job failed"),
    ],
)
def test_nothing_to_supervise(seen: Observed, why: str) -> None:
    assert decide(seen, POLICY, NOW) == Leave(why)


STOPPED = job(node(0), node(1), command="stop", ledger=Ledger(1.0, result=JobResult("stopped", "x", 2.0)))


def test_a_host_that_does_not_know_that_the_job_is_over_is_told_before_the_supervisor_leaves() -> None:
    told = Repair("localhost has not received that the job stopped")
    assert decide(replace(STOPPED, outdated=("localhost",)), POLICY, NOW) == told
    gone = tuple(replace(n, launcher=None) for n in STOPPED.nodes)
    assert decide(replace(STOPPED, outdated=("localhost",), nodes=gone), POLICY, NOW) == Leave("the job stopped")


def test_a_silent_host_is_waited_for_until_its_lease_is_over() -> None:
    silent = replace(STOPPED, nodes=(node(0), node(1, "lost", host="away", reachable=False)))
    waits = Wait("away may not know that the job stopped", lasting=False)
    assert decide(silent, POLICY, NOW, World(waited=31.0)) == waits
    assert decide(silent, POLICY, NOW, World(waited=33.0)) == Leave("the job stopped")


def test_a_change_that_a_command_did_not_finish_is_finished() -> None:
    half = job(node(0, "exited"), node(1, "exited"), command="stop")
    assert decide(half, POLICY, NOW) == Change("a command stopped the job to change it, and did not finish")


def test_a_change_that_waited_for_hosts_is_made_while_all_is_well() -> None:
    world = World(change="all hosts that the change needs answer", overdue=3.0)
    assert decide(job(node(0), node(1)), POLICY, NOW, world) == Change("all hosts that the change needs answer")
    broken = job(node(0), node(1, "failed", failure=failure()))
    assert isinstance(decide(broken, POLICY, NOW, world), Restart)
    over = decide(job(node(0), node(1)), replace(POLICY, max_duration=60.0), 961.0, world)
    assert isinstance(over, GiveUp)


def test_max_duration() -> None:
    policy, sure = replace(POLICY, max_duration=60.0), World(overdue=3.0)
    assert decide(job(node(0)), policy, 961.0, sure) == GiveUp("ran longer than `recovery.max_duration` (60 s)", None)
    assert decide(job(node(0)), policy, 959.0, sure) == Continue()
    assert decide(job(node(0)), policy, 961.0, World(overdue=2.9)) == Continue()


@pytest.mark.parametrize(
    "troubled", [node(1, "failed", failure=failure()), replace(node(1), state="lost", reachable=False)]
)
def test_a_job_in_trouble_has_no_more_time_than_another(troubled: ObservedNode) -> None:
    """It may wait for a host for ever."""
    policy, sure = replace(POLICY, max_duration=60.0), World(overdue=3.0)
    assert isinstance(decide(job(node(0), troubled), policy, 961.0, sure), GiveUp)
    assert not isinstance(decide(job(node(0), troubled), policy, 959.0, sure), GiveUp)


# Nodes that all others can do without for a while.

KILLED = dead_launcher(at=NOW, host="localhost", progress=50, reason="its launcher was killed")


def gone(index: int, **changes: object) -> ObservedNode:
    """A node whose launcher was killed."""
    killed = replace(KILLED, node=index, at=0.0, reason=None)
    return node(index, "failed", launcher=None, failure=killed, reason="its launcher was killed", **changes)


def test_a_node_joins_its_generation_again() -> None:
    alone = replace(KILLED, at=NOW, reason=None, alone=True)
    world = World(rejoining={0: 0.0, 1: 0.0})
    assert decide(job(node(0), gone(1)), POLICY, NOW, world) == Rejoin("node 1: its launcher was killed", alone, 0.0)
    assert isinstance(decide(job(node(0), gone(1)), POLICY, NOW), Restart)


@pytest.mark.parametrize(("ago", "delay"), [(1, 29.0), (12, 18.0), (31, 0.0)])
def test_a_node_that_others_have_to_give_up_first_is_away_so_long(ago: int, delay: float) -> None:
    """MindSpore's scheduler refuses a worker that it knows for half a minute."""
    ended = node(1, "failed", launcher=None, failure=failure(exit_code=1, at=NOW - ago))
    decision = decide(job(node(0), ended), POLICY, NOW, World(rejoining={1: 30.0}))
    assert isinstance(decision, Rejoin)
    assert decision.delay == delay


def test_joining_again_takes_from_the_budget() -> None:
    known = tuple(replace(KILLED, alone=True, at=NOW - 10 * n, progress=10 * n) for n in (3, 2, 1))
    decision = decide(
        job(node(0), gone(1), ledger=Ledger(900.0, failures=known)), POLICY, NOW, World(rejoining={1: 0.0})
    )
    assert isinstance(decision, GiveUp)
    assert "all 3 restarts of `recovery.max_restarts` are used up" in decision.reason


def test_what_follows_upon_another_nodes_failure_does_not_count() -> None:
    """Peers of a node that was killed fail in their collectives; only the first of them is a fault."""
    world = World(rejoining={0: 0.0, 1: 0.0})
    before = Ledger(900.0, failures=(replace(KILLED, node=0, alone=True, at=NOW - 5),))
    decision = decide(job(node(0), gone(1), ledger=before), POLICY, NOW, world)
    assert isinstance(decision, Rejoin)
    assert (decision.counts, decision.delay) == (False, 0.0)
    trained = decide(job(node(0), gone(1, progress=60), ledger=before), POLICY, NOW, world)
    assert isinstance(trained, Restart | Rejoin)
    assert trained.failure.progress == 60


def test_failures_that_a_generation_survived_are_all_kept() -> None:
    ledger = Ledger(900.0)
    for at in (1.0, 2.0):
        ledger = ledger.with_failure(replace(KILLED, at=at, alone=True))
    ledger = ledger.with_failure(replace(KILLED, at=3.0))
    assert [(f.at, f.alone) for f in ledger.with_failure(replace(KILLED, at=4.0)).failures] == [
        (1.0, True),
        (2.0, True),
        (4.0, False),
    ]


def test_a_launcher_that_is_about_to_end_is_waited_for() -> None:
    world = World(rejoining={1: 0.0}, ending=frozenset({1}))
    failed = failure(exit_code=1)
    assert decide(job(node(0), node(1, "failed", failure=failed)), POLICY, NOW, world) == Continue()
    ended = decide(job(node(0), node(1, "failed", launcher=None, failure=failed)), POLICY, NOW, world)
    assert isinstance(ended, Rejoin)
    framework = failure(kind="start", rank=None, exit_code=1, log="launch.log")
    assert decide(job(node(0), node(1, "failed", failure=framework)), POLICY, NOW, world) == Continue()
    passing = failure(kind="launcher", exit_code=None, log="workerlog.0")
    assert decide(job(node(0), node(1, "failed", failure=passing)), POLICY, NOW, world) == Continue()


@pytest.mark.parametrize(
    ("state", "failed", "decision"),
    [
        ("fenced", {"kind": "fenced", "exit_code": None, "log": None}, Restart),
        ("failed", {"kind": "launcher", "exit_code": None, "log": None}, Restart),
        ("failed", {"kind": "setup", "log": "setup.log"}, GiveUp),
        ("failed", {"kind": "start", "exit_code": 127, "log": None}, GiveUp),
    ],
)
def test_a_launcher_that_has_started_nothing_is_not_waited_for(
    state: str, failed: dict[str, Any], decision: type[Restart | GiveUp]
) -> None:
    """It never ends by itself: the job would hang."""
    world = World(rejoining={1: 0.0}, ending=frozenset({1}))
    broken = node(1, state, failure=failure(rank=None, reason="why", **failed))
    assert isinstance(decide(job(node(0), broken), POLICY, NOW, world), decision)


def test_the_trainers_decide_whether_a_job_is_done() -> None:
    trainer = node(0, "exited", exit_code=0, launcher=None)
    server = node(1, role="server")
    broken = node(1, "failed", role="server", failure=failure())
    assert decide(job(trainer, server), POLICY, NOW) == Succeed()
    assert decide(job(trainer, broken), POLICY, NOW) == Succeed()
    assert decide(job(node(0), replace(server, state="exited", exit_code=0)), POLICY, NOW) == Continue()


def test_a_node_that_fails_by_itself_all_the_time_counts() -> None:
    """Another's failure long ago explains nothing: else it would be started again for ever."""
    world = World(rejoining={0: 0.0, 1: 0.0})
    before = Ledger(900.0, failures=(replace(KILLED, node=0, alone=True, at=NOW - 61),))
    decision = decide(job(node(0), gone(1), ledger=before), POLICY, NOW, world)
    assert isinstance(decision, Rejoin)
    assert decision.counts


HERE, THERE = Origin("gpu-admin", "here", "2 nodes"), Origin("laptop", "there", "3 nodes")


def ordered_by(origin: Origin | None, *nodes: ObservedNode) -> Observed:
    """The job of these nodes, as somebody has ordered it."""
    observed = job(*nodes)
    generation = observed.control.generation
    assert generation is not None
    return replace(observed, control=replace(observed.control, generation=replace(generation, origin=origin)))


@pytest.mark.parametrize(
    ("origin", "agreed", "leaves"),
    [
        (THERE, None, True),
        (THERE, "job-0", True),  # `up` knew an order before that one
        (THERE, "job-1", False),  # it has compared the job with the plan since
        (replace(THERE, plan=HERE.plan), None, False),  # `restart`, for one
        (replace(HERE, plan="half made"), None, False),
        (HERE, None, False),
        (None, None, False),  # of an earlier version
    ],
)
def test_who_knows_another_job_than_runs_steps_aside(origin: Origin | None, agreed: str | None, leaves: bool) -> None:
    """Whatever happens there: by its plan it would undo what somebody has changed from another machine."""
    world = World(standing=Standing(HERE, agreed), planned={0: "localhost", 1: "localhost", 2: "localhost"})
    for state in ("running", "failed"):
        found = decide(ordered_by(origin, node(0, state, failure=None), node(1)), POLICY, NOW, world)
        assert isinstance(found, Leave) == leaves
