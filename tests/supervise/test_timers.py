"""How long the supervisor waits before it tries again, and before it trusts a host again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobctl.jobspec.deploy.model.control import Control, Ledger
from jobctl.jobspec.deploy.model.observed import phase
from jobctl.jobspec.launcher.peers.old_places import MARGIN
from jobctl.jobspec.supervise.decisions import GiveUp, Repair, Restart, Wait
from jobctl.jobspec.supervise.timers import (
    AWAY_FOR,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    OUT_AFTER,
    STEP,
    UNFIT,
    Paused,
    Retry,
    Steady,
    Unfit,
    Waited,
)

from .jobs_on_hosts import GENERATION, HOST_FAILURE, job, lost, node


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


def test_a_host_whose_engine_stays_away_refuses_in_the_end() -> None:
    unfit = Unfit()
    for now in range(100, 100 + int(OUT_AFTER), 5):
        unfit.failed("a", float(now), "a: its engine does not run", away=True)
        assert unfit.refusing(float(now)) == {}
    assert unfit.refusing(100.0 + OUT_AFTER) == {"a": "a: its engine does not run"}
    unfit.failed("a", 100.0 + OUT_AFTER, "a: its engine does not run", away=True)
    assert unfit.refusing(100.0 + OUT_AFTER) == {"a": "a: its engine does not run"}
    unfit.failed("a", 500.0, "a: its engine does not run", away=True)  # it had been back meanwhile
    assert unfit.refusing(500.0) == {}


@pytest.mark.parametrize(
    ("container", "why", "ended_by"),
    [
        pytest.param("c1", "its container is paused", "`docker unpause`", id="container"),
        pytest.param(None, "its launcher is stopped, as by SIGSTOP", "SIGCONT", id="local"),
    ],
)
def test_a_node_that_somebody_has_frozen_is_dead_once_its_lease_is_over(
    container: str | None, why: str, ended_by: str
) -> None:
    paused, limit = Paused(), GENERATION.lease_limit + MARGIN
    frozen = job(node(0), node(1, container=container, paused=True), node(2))
    words = f"node 1 on h1: {why}"
    assert phase(frozen) == ("restarting", f"{words}; the supervisor replaces it once its lease is over")
    alone = "degraded", f"{words}: {ended_by} or `jobctl restart --node` goes on"
    assert phase(replace(frozen, supervised=False)) == alone
    assert paused.look(frozen, 100.0) == frozen
    assert paused.look(frozen, 100.0 + limit - 0.1) == frozen
    seen = paused.look(frozen, 100.0 + limit).node(1)
    assert seen is not None
    assert (seen.broken, seen.alive, seen.reason) == (True, False, why)
    done = job(node(0), replace(frozen.node(1), state="exited", exit_code=0), node(2))
    assert paused.look(done, 100.0 + limit) == done
    assert phase(done)[0] == "running"
    paused.look(job(node(0), node(1, container=container), node(2)), 200.0)
    assert paused.look(frozen, 201.0) == frozen


def test_time_for_which_nobody_looked_is_not_waited() -> None:
    """A laptop that sleeps, or is cut off, comes back to hosts that are heard one by one: none of them waited for it."""
    waited = Waited()
    for now in (100.0, 100.5, 101.0):
        waited.wait(now)
    assert waited.so_far == 1.0
    waited.wait(200_000.0)
    assert waited.so_far == 1.0 + STEP
    waited.wait(150.0)  # its clock was set right
    assert waited.so_far == 1.0 + STEP
    waited.done()
    waited.wait(300.0)
    assert waited.so_far == 0.0


def test_a_wait_ends_with_the_next_generation_and_not_with_what_is_tried() -> None:
    """Also where a host has not received that one yet, so that it is sent again at each look."""
    waited, lost_one = Waited(), job(node(0), lost(1), node(2))
    wait, again = Wait("node 1: h1 is not heard"), Repair("h2 missed a generation")
    waited.look(wait, lost_one, 100.0)
    waited.look(Restart("h1 is lost", HOST_FAILURE, 0.0, {1: "s1"}), lost_one, 101.0)
    waited.look(GiveUp("waited for long", None), job(node(0), node(1), node(2)), 102.0)
    waited.look(again, lost_one, 103.0)
    assert waited.so_far == 3.0
    generation = replace(GENERATION, rendezvous=replace(GENERATION.rendezvous, id="job-5"))
    following = replace(job(node(0), node(1), node(2)), control=Control(generation, Ledger(900.0)))
    waited.look(again, following, 104.0)
    assert waited.so_far == 0.0


def test_a_wait_ends_while_the_job_runs_also_where_a_stray_is_removed_meanwhile() -> None:
    waited, lost_one = Waited(), job(node(0), lost(1), node(2))
    wait, removal = Wait("node 1: h1 is not heard"), Repair("node 1 on s1 belongs elsewhere now", runs=True)
    waited.look(wait, lost_one, 100.0)
    waited.look(wait, lost_one, 101.0)
    waited.look(removal, lost_one, 102.0)
    waited.look(wait, lost_one, 106.0)
    assert waited.so_far == 0.0


def test_hosts_are_steady_again_and_unfit_no_longer_after_a_clock_was_set_back() -> None:
    steady, unfit = Steady(), Unfit()
    steady.look(["h0"], 5000.0, 10.0)
    assert not steady.look(["h0"], 100.0, 10.0)
    assert steady.look(["h0"], 110.0, 10.0)
    unfit.failed("h1", 5000.0, "no such device", away=False)
    assert unfit.hosts(100.0) == {"h1"}
    assert not unfit.hosts(100.0 + UNFIT)


def test_a_host_that_runs_all_its_nodes_refuses_none_any_longer() -> None:
    """Its node may be killed later, and is started there again. Where others can take a node, it stays the last choice."""
    unfit = Unfit()
    unfit.failed("h1", 100.0, "no space left", away=False)
    unfit.failed("h2", 100.0, "no space left", away=False)
    assert unfit.refusing(101.0) == {"h1": "no space left", "h2": "no space left"}
    unfit.started({"h0", "h1"})
    assert (unfit.refusing(102.0), unfit.hosts(102.0)) == ({"h2": "no space left"}, {"h1", "h2"})
    unfit.failed("h1", 103.0, "no such device", away=False)
    assert unfit.refusing(104.0) == {"h1": "no such device", "h2": "no space left"}
