"""Launchers that recover by themselves, in random worlds: without any supervisor, and with some that come and go.

JOBCTL_TEST_WORLDS says how many: half of those.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import median

import pytest

from jobctl.jobspec.deploy.model.liveness import FailureDetector
from jobctl.jobspec.launcher.peers.lease import TICK, UNSUPERVISED
from jobctl.jobspec.launcher.peers.old_places import OldPlaces
from jobctl.jobspec.launcher.recovery.autonomy import LEFT_FOR
from jobctl.jobspec.launcher.restart_policy import FIRST_DELAY
from jobctl.jobspec.plan.generation import Generation

from .alone import AloneBugs, AloneSim
from .clock import made
from .endings import end_alone
from .faults import fault, mishap
from .search import WORLDS, find, hold_all, shows_twice
from .world import DT

pytestmark = pytest.mark.usefixtures("simulated")
FINE = 0.02  # seconds of a step of the clock, where times are measured


class Trusting(FailureDetector):
    """A supervisor that takes it that its answers arrive."""

    def _are_confirmed(self, generation: Generation, now: float) -> bool:
        return True


class AlwaysClear(OldPlaces):
    """Launchers that forget whom they have answered elsewhere."""

    def is_clear(self, node: int, now: float) -> bool:
        return True


def live(seed: int, bugs: AloneBugs | None = None) -> AloneSim:
    """Let a world live through a random schedule of faults; in every other one nobody watches from the start."""
    chance = random.Random(seed)
    sim = made(
        AloneSim,
        chance.choice((1, 2, 2, 3, 3, 4, 5)),
        chance.choice((0, 1, 1, 2)),
        seed,
        watched=seed % 2 == 0,
        bugs=bugs,
    )
    return happen(sim, chance)


def live_with_hot_spares(seed: int, bugs: AloneBugs | None = None) -> AloneSim:
    """The same, where launchers move nodes to hot spares. In one of three worlds somebody watches, now and then."""
    chance = random.Random(seed)
    sim = made(AloneSim, chance.choice((3, 3, 4, 5)), chance.choice((1, 1, 2)), seed, watched=True, hot=True, bugs=bugs)
    sim.watched = seed % 3 == 0
    if chance.random() < 0.7:
        sim.kill_supervisor()
    return happen(sim, chance)


def happen(sim: AloneSim, chance: random.Random) -> AloneSim:
    """Let several things happen to a world."""
    for _ in range(chance.randint(2, 8)):
        if sim.watched:
            fault(sim, chance)
        else:
            mishap(sim, chance)
        sim.run(chance.choice((0.5, 2.0, 5.0, 9.0, 12.0, 25.0)) * sim.timeout / 6)
    return sim


@pytest.mark.parametrize("batch", range(4))
def test_no_node_trains_twice_and_all_train_again(batch: int) -> None:
    hold_all(range(batch, WORLDS // 2, 4), lambda seed: end_alone(live(seed)))


def test_a_launcher_that_comes_back_and_stays_silent_is_found() -> None:
    find(lambda seed: end_alone(live(2 * seed + 1, AloneBugs(stays_dead=True))) == "does not train", 0)


def test_a_job_that_lost_power_and_then_its_links_trains_again_by_itself() -> None:
    sim = made(AloneSim, 3, 0, 1, watched=False)
    for host in sim.hosts.values():
        host.power_off()
    sim.heal(12.0)
    assert (sim.all_train(), sim.newest().generation and sim.newest().generation.number) == (True, 2)
    sim.partition({"h0": True, "h1": False, "h2": False})
    sim.run(2 * sim.timeout)
    assert not any(launcher.trains for launcher in sim.hosts["h0"].launchers)
    sim.heal(12.0)
    assert sim.all_train()


@pytest.mark.parametrize("batch", range(4))
def test_no_node_trains_twice_where_launchers_move_nodes(batch: int) -> None:
    hold_all(range(batch, WORLDS // 2, 4), lambda seed: end_alone(live_with_hot_spares(seed)))


def test_launchers_that_answer_a_moved_node_at_once_are_found() -> None:
    find(shows_twice(lambda seed: live_with_hot_spares(seed, AloneBugs(places=AlwaysClear))), 975)


def test_a_supervisor_whose_answers_do_not_arrive_is_found() -> None:
    """Ticks do: it keeps a node alive that the launchers, to whom nobody answers, give to a spare."""
    find(shows_twice(lambda seed: live_with_hot_spares(seed, AloneBugs(detector=Trusting))), 5447)
    assert end_alone(live_with_hot_spares(2055)) is None


def test_a_lost_node_trains_on_a_hot_spare_with_nobody_watching() -> None:
    sim = made(AloneSim, 3, 1, 1, watched=False, hot=True)
    sim.hosts["h1"].power_off()
    sim.run(sim.timeout)
    assert not sim.all_train()
    sim.run(6.0)
    assert (sim.all_train(), sim.newest().placement[1]) == (True, "h3")
    sim.hosts["h1"].on = True
    sim.run(2 * sim.timeout)
    assert (sim.all_train(), [x.trains for x in sim.hosts["h1"].launchers]) == (True, [False])


def lose(phase: float, *, watched: bool, killed: bool) -> tuple[float, float]:
    """Lose a host that long after a tick; return when the move was ordered and all trained, in seconds after `host_timeout`."""
    sim = made(AloneSim, 3, 1, 1, watched=watched, hot=True)
    sim.late = 0.0
    sim.run(30.0)
    sim.step = FINE
    sim.run(1.0 + phase)
    sim.hosts["h1"].power_off()
    if killed:
        sim.watched = False
        sim.kill_supervisor()
    at = sim.now + sim.timeout
    sim.step = DT
    sim.run(sim.timeout)
    sim.step = FINE
    generation = sim.newest().generation
    ordered = 0.0
    while not sim.all_train() or generation is None or generation.number == 1:
        sim.run(FINE)
        assert sim.now < at + 10.0
        generation = sim.newest().generation
        ordered = ordered or (sim.now if generation is not None and generation.number > 1 else 0.0)
    return ordered - at, sim.now - at


@pytest.mark.parametrize(
    ("watched", "killed", "ordered", "trains"),
    [(True, False, 1.7, 2.0), (False, False, 1.7, 2.0), (True, True, 4.7, 5.0)],
)
def test_how_long_a_lost_host_takes(watched: bool, killed: bool, ordered: float, trains: float) -> None:
    """With a supervisor, where there never was one, and where it is lost with the host: launchers wait for 3 s more then.

    The margin of 2 s counts from the last tick that was answered, which is 0 to 1 s before the fault.
    """
    found = [lose(phase / 10, watched=watched, killed=killed) for phase in (1, 3, 5, 7, 9)]
    order, train = (median(column) for column in zip(*found, strict=True))
    assert (order <= ordered, train <= trains) == (True, True), found
    assert max(train - order for order, train in found) <= 0.5, found
    assert max(train for _, train in found) <= trains + 0.75, found


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_job_goes_on_whose_supervisor_hears_the_node_that_failed_first_but_not_all_others(nodes: int) -> None:
    """It waits for the host that it does not hear; so does that of the failed node, and the others failed because of it."""
    sim = made(AloneSim, nodes, 0, 1, watched=True)
    sim.late = 0.0
    sim.cuts = {frozenset(("s0", f"h{nodes - 1}"))}
    sim.run(15.0)
    sim.fail(sim.hosts["h0"])
    sim.run(0.5)
    sim.fail(sim.hosts[f"h{nodes - 1}"])
    sim.run(LEFT_FOR + 5.0)
    assert (sim.all_train(), sim.newest().generation and sim.newest().generation.number) == (True, 2)


@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_a_job_goes_on_whose_supervisor_does_not_hear_a_node_that_trains(nodes: int) -> None:
    """It waits for that node's host, which the launchers hear: they begin the next generation after a failure elsewhere."""
    sim = made(AloneSim, nodes, 0, 1, watched=True)
    sim.late = 0.0
    sim.cuts = {frozenset(("s0", f"h{nodes - 1}"))}
    sim.run(15.0)
    assert sim.all_train()
    sim.fail(sim.hosts["h0"])
    sim.run(UNSUPERVISED + 5.0)
    assert (sim.all_train(), sim.newest().generation and sim.newest().generation.number) == (True, 2)


def trains_again(bugs: AloneBugs, fault: Callable[[AloneSim], None]) -> list[float]:
    """Let node 1 fail five times, 10 s of training apart; return in how many seconds all trained again, each time.

    Node 0 alone counts steps.
    """
    sim, took = made(AloneSim, 3, 0, 1, watched=False, bugs=bugs), []
    sim.late, sim.pauses = 0.0, True
    for _ in range(5):
        sim.run(10.0)
        fault(sim)
        began = sim.now
        sim.run(DT)
        while not sim.all_train():
            sim.run(DT)
            assert sim.now < began + 20.0
        took.append(sim.now - began)
    return took


@pytest.mark.parametrize(
    "fault", [lambda sim: sim.fail(sim.hosts["h1"]), lambda sim: sim.kill(sim.hosts["h1"])], ids=["rank", "launcher"]
)
def test_no_restart_waits_longer_after_steps_that_another_node_has_counted(fault: Callable[[AloneSim], None]) -> None:
    first, *later = trains_again(AloneBugs(), fault)
    assert max(later) <= first + TICK
    first, *later = trains_again(AloneBugs(keeps_steps=True), fault)
    assert later[-1] > first + FIRST_DELAY


def test_a_long_budget_ends_with_nobody_watching(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is longer than the failures of which launchers tell each other."""
    monkeypatch.setattr(AloneSim, "budget", 55)
    sim = made(AloneSim, 3, 0, 1, watched=False)
    for number in range(60):
        sim.fail(sim.hosts[f"h{number % 3}"])
        sim.run(5.0)
    generation, ledger = sim.newest().generation, sim.newest().ledger
    assert generation is not None
    assert (generation.number, generation.command, sim.any_trains()) == (56, "stop", False)
    assert "max_restarts" in (generation.why or "")
    assert (len(ledger.failures), len({failure.generation for failure in ledger.failures})) == (56, 56)
