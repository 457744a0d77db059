"""How long the supervisor waits before it tries again, and before it trusts a host again."""

from __future__ import annotations

from jobctl.jobspec.supervise.pauses import AWAY_FOR, FIRST_PAUSE, LONGEST_PAUSE, UNFIT, Retry, Steady, Unfit


def test_what_fails_again_is_tried_after_pauses_that_grow() -> None:
    retry, now, pauses = Retry(), 100.0, []
    for _ in range(7):
        retry.failed("start", now)
        assert retry.waits("start", now + retry.pause - 0.01)
        assert not retry.waits("start", now + retry.pause)
        now += retry.pause
        pauses.append(retry.pause)
    assert pauses == [FIRST_PAUSE * 2**n for n in range(5)] + [LONGEST_PAUSE] * 2


def test_something_else_waits_for_nothing() -> None:
    retry = Retry()
    retry.failed("start", 100.0)
    assert not retry.waits("stop", 100.1)
    retry.done()
    assert not retry.waits("start", 100.1)


def test_a_clock_that_was_set_back_keeps_nobody_waiting() -> None:
    retry = Retry()
    retry.failed("start", 100.0)
    assert not retry.waits("start", 50.0)


def test_hosts_are_steady_once_all_have_answered_for_a_while() -> None:
    steady = Steady()
    assert not steady.look(["a", "b"], 100.0, 5.0)
    assert not steady.look(["a", "b"], 104.9, 5.0)
    assert steady.look(["a", "b"], 105.0, 5.0)
    steady.look(["a"], 106.0, 5.0)  # b was away in between
    assert not steady.look(["a", "b"], 107.0, 5.0)


def test_a_host_that_could_not_take_a_node_is_the_last_choice_after_a_while() -> None:
    """It is not ruled out: the job may have no other host, and the cause may be gone."""
    unfit = Unfit()
    unfit.failed("a", 100.0, "a: no room", away=False)
    assert unfit.order(["a", "b"], 100.0 + AWAY_FOR - 1) == ("b",)
    assert unfit.order(["a", "b"], 100.0 + AWAY_FOR) == ("b", "a")
    assert unfit.refusing(100.0 + UNFIT - 1) == {"a": "a: no room"}
    assert unfit.order(["a", "b"], 100.0 + UNFIT) == ("a", "b")
    assert unfit.refusing(100.0 + UNFIT) == {}


def test_a_host_that_only_did_not_answer_is_soon_like_the_others() -> None:
    unfit = Unfit()
    unfit.failed("a", 100.0, "a: not heard", away=True)
    assert unfit.refusing(101.0) == {}
    assert unfit.order(["a", "b"], 100.0 + AWAY_FOR - 1) == ("b",)
    assert unfit.order(["a", "b"], 100.0 + AWAY_FOR) == ("a", "b")
