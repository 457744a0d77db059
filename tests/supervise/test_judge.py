"""What is done about a failure: again after a pause, or an end, by the budget and by what it tells."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobctl.jobspec.deploy.model.control import Ledger
from jobctl.jobspec.plan.recovery import Failure, Recovery, Rule
from jobctl.jobspec.supervise.decisions import (
    GiveUp,
    Restart,
)
from jobctl.jobspec.supervise.failures import judge

from .observed_jobs import NOW, POLICY, failure

WORDS = "node 1: rank 1 exited with code 7"
NOT_STARTED, ENDED = failure(kind="start", rank=None, progress=None, reason="it ended"), "node 1: it ended"
NO_LEADER = replace(NOT_STARTED, tail=("etcd3.exceptions.ConnectionFailedError: etcd connection failed",))


@pytest.mark.parametrize(
    ("now", "earlier", "policy", "decision"),
    [
        # The budget: as many restarts as it says, then the end.
        (
            failure(generation=2, progress=60),
            [failure()],
            POLICY,
            Restart(WORDS, failure(generation=2, progress=60), 0.0),
        ),
        (
            failure(generation=2, progress=60),
            [failure()],
            replace(POLICY, max_restarts=1),
            GiveUp(
                f"{WORDS}; all 1 restarts of `recovery.max_restarts` are used up",
                failure(generation=2, progress=60),
            ),
        ),
        (
            failure(),
            [],
            replace(POLICY, max_restarts=0),
            GiveUp(f"{WORDS}; all 0 restarts of `recovery.max_restarts` are used up", failure()),
        ),
        # A window forgets.
        (
            failure(generation=2, progress=60),
            [failure(at=100.0)],
            replace(POLICY, max_restarts=1, window=600.0),
            Restart(WORDS, failure(generation=2, progress=60), 0.0),
        ),
        # A bug: the same rank, the same code, no further than last time.
        (
            failure(generation=2),
            [failure()],
            POLICY,
            GiveUp(f"{WORDS}, again, before any progress: a bug, not a fault", failure(generation=2)),
        ),
        (
            failure(generation=2, progress=None, ran=3.0),
            [failure(progress=None, ran=3.0)],
            POLICY,
            GiveUp(
                f"{WORDS}, again, before any progress: a bug, not a fault",
                failure(generation=2, progress=None, ran=3.0),
            ),
        ),
        # No bug: another rank, another code, or a long run of a script that counts no steps.
        (failure(generation=2), [failure(rank=0)], POLICY, Restart(WORDS, failure(generation=2), 1.0)),
        (failure(generation=2), [failure(exit_code=8)], POLICY, Restart(WORDS, failure(generation=2), 1.0)),
        (
            failure(generation=2, progress=None, ran=61.0),
            [failure(progress=None, ran=3.0)],
            POLICY,
            Restart(WORDS, failure(generation=2, progress=None, ran=61.0), 0.0),
        ),
        # Rules come first.
        (
            failure(),
            [],
            replace(POLICY, rules=(Rule(None, 7, "fail"),)),
            GiveUp(f"{WORDS}; a rule of `recovery.rules` says not to retry", failure()),
        ),
        (
            failure(),
            [],
            replace(POLICY, rules=(Rule("b.om", None, "fail"),)),
            GiveUp(f"{WORDS}; a rule of `recovery.rules` says not to retry", failure()),
        ),
        (
            failure(),
            [],
            replace(POLICY, rules=(Rule("nothing like it", 7, "fail"),)),
            Restart(WORDS, failure(), 0.0),
        ),
        (
            failure(generation=2),
            [failure()],
            replace(POLICY, rules=(Rule(None, 7, "restart"),)),
            Restart(WORDS, failure(generation=2), 1.0),
        ),
        # What cannot be started: only a rule has it tried again.
        (NOT_STARTED, [], POLICY, GiveUp("node 1: it ended; what cannot be started is not retried", NOT_STARTED)),
        (NOT_STARTED, [], replace(POLICY, rules=(Rule("boom", None, "restart"),)), Restart(ENDED, NOT_STARTED, 0.0)),
        (NO_LEADER, [], POLICY, Restart(ENDED, NO_LEADER, 0.0)),
    ],
)
def test_judge(now: Failure, earlier: list[Failure], policy: Recovery, decision: object) -> None:
    assert judge(now, earlier, policy, NOW) == decision


@pytest.mark.parametrize("code", [129, 130, 137, 143])
def test_what_is_killed_from_outside_is_no_bug(code: int) -> None:
    killed = failure(generation=2, kind="signal", exit_code=code)
    assert isinstance(judge(killed, [replace(killed, generation=1)], POLICY, NOW), Restart)


def test_a_crash_by_its_own_signal_can_be_a_bug() -> None:
    segfault = failure(generation=2, kind="signal", exit_code=139)
    assert isinstance(judge(segfault, [replace(segfault, generation=1)], POLICY, NOW), GiveUp)


@pytest.mark.parametrize(
    ("now", "before", "bug"),
    [
        ({"rank": 3, "alike": ((0, 2), (3, 2))}, {"rank": 0, "alike": ((0, 2), (3, 2))}, True),
        ({"rank": 3, "alike": ((3, 2),)}, {"rank": 0, "alike": ((0, 2), (3, 2))}, True),
        ({"rank": 3, "alike": ((0, 2), (3, 2))}, {"rank": 0, "alike": ((0, 2),)}, True),
        ({"rank": 3, "alike": ((3, 2),)}, {"rank": 0, "alike": ((0, 2),)}, False),
        ({"rank": 3, "alike": ((3, 2),)}, {"rank": 0, "alike": ((3, 5),)}, False),
        ({"rank": 3, "alike": ((3, 2),), "progress": 60}, {"rank": 3, "alike": ((3, 2),)}, False),
        # A rank that fails because another was killed fails alike each time.
        ({"rank": 0, "alike": ((0, 2),)}, {"rank": 1, "exit_code": 137, "alike": ((0, 2),)}, False),
    ],
)
def test_a_bug_fails_on_many_ranks_in_any_order(now: dict[str, Any], before: dict[str, Any], bug: bool) -> None:
    base: dict[str, Any] = {"exit_code": 2, "progress": 50}
    decision = judge(failure(generation=2, **{**base, **now}), [failure(**{**base, **before})], POLICY, NOW)
    assert isinstance(decision, GiveUp) == bug


def test_two_ranks_with_one_bug_may_take_turns_at_being_first() -> None:
    first, second, third = (failure(generation=g, rank=g % 2, alike=((g % 2, 7),)) for g in (1, 2, 3))
    assert isinstance(judge(second, [first], POLICY, NOW), Restart)
    assert isinstance(judge(third, [first, second], POLICY, NOW), GiveUp)
    further = replace(second, progress=60)
    assert isinstance(judge(replace(third, progress=70), [first, further], POLICY, NOW), Restart)


@pytest.mark.parametrize("kind", ["setup", "start"])
def test_what_cannot_even_start_is_not_retried(kind: str) -> None:
    assert isinstance(judge(failure(kind=kind, reason="no"), [], POLICY, NOW), GiveUp)


def test_without_progress_the_pauses_grow() -> None:
    policy = replace(POLICY, max_restarts=100)
    earlier: list[Failure] = []
    delays = []
    for generation in range(1, 9):
        now = failure(generation=generation, exit_code=137, kind="signal")
        decision = judge(now, earlier, policy, NOW)
        assert isinstance(decision, Restart)
        delays.append(decision.delay)
        earlier.append(now)
    assert delays == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


codes = st.sampled_from([1, 7, 137, 139])


@given(
    st.lists(st.tuples(st.integers(0, 3), codes, st.none() | st.integers(0, 5)), max_size=12),
    st.integers(0, 5),
)
def test_no_run_takes_more_restarts_than_its_budget(faults: list[tuple[int, int, int | None]], budget: int) -> None:
    policy = replace(POLICY, max_restarts=budget)
    earlier: list[Failure] = []
    for number, (rank, code, progress) in enumerate(faults, 1):
        kind = "signal" if code > 128 else "exit"
        now = failure(generation=number, rank=rank, exit_code=code, progress=progress, kind=kind, ran=1.0)
        decision = judge(now, earlier, policy, NOW)
        assert isinstance(decision, Restart | GiveUp)
        if isinstance(decision, GiveUp):
            break
        assert 0.0 <= decision.delay <= 30.0
        earlier.append(now)
    assert len(earlier) <= budget


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_window_counts_by_the_clock_of_the_supervisor(hours: int) -> None:
    """That of the host whose node failed may be far ahead, or behind."""
    policy, apart = replace(POLICY, max_restarts=1, window=3600.0), hours * 3600.0
    ledger = Ledger(0.0).with_failure(failure(at=NOW + apart), NOW)
    second = failure(generation=2, progress=60, at=NOW + 60 + apart)
    assert isinstance(judge(second, ledger.failures, policy, NOW + 60), GiveUp)
    assert isinstance(judge(second, ledger.failures, policy, NOW + 3601), Restart)
