"""Fencing, liveness and the budget in random worlds: partitions, paused machines, hosts that die, supervisors that come and go.

JOBCTL_TEST_WORLDS says how many: a few in each run of the tests, thousands before a release.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from jobctl.jobspec.deploy.model import liveness as detector
from jobctl.jobspec.deploy.model.liveness import FailureDetector
from jobctl.jobspec.launcher.peers.lease import MajorityLease

from .endings import end_watched
from .faults import fault
from .search import WORLDS, find, hold_all, shows_twice
from .supervisors import IMPORTS
from .world import DT, POLICY, Bugs, Sim, Twice


def live(seed: int, bugs: Bugs | None = None) -> Sim:
    """Let a world live through a random schedule of faults, and return it."""
    chance = random.Random(seed)
    nodes = chance.choice((1, 2, 2, 3, 3, 4, 5))
    least = nodes if chance.random() < 0.6 else chance.randint(1, nodes)
    sim = Sim(nodes, chance.choice((0, 1, 1, 2)), seed, least=least, bugs=bugs)
    sim.policy = replace(POLICY, max_restarts=chance.choice((1000, 1000, 0, 1, 2, 4)))
    sim.run(5.0)
    for _ in range(chance.randint(2, 8)):
        fault(sim, chance)
        sim.run(chance.choice((0.5, 2.0, 5.0, 9.0, 12.0, 25.0)) * sim.timeout / 6)
    return sim


@pytest.mark.parametrize("batch", range(8))
def test_no_node_trains_twice_and_all_train_again(batch: int) -> None:
    hold_all(range(batch, WORLDS, 8), lambda seed: end_watched(live(seed)))


def test_a_generation_that_comes_after_a_newer_one_of_its_number_stops_nobody() -> None:
    """In this world a supervisor begins two of a number, and a host gets the older one last: its launcher reports the other."""
    assert end_watched(live(828)) is None


def test_a_node_moves_although_none_is_left_to_tell_of_it() -> None:
    """Launchers that have ended keep nobody alive; without that nobody could say so of the last one."""
    sim = Sim(4, 1, 0)
    sim.late = 0.0
    sim.run(5.0)
    for name in ("h0", "h1", "h2"):
        sim.finish(sim.hosts[name])
    sim.hosts["h3"].power_off()
    sim.run(sim.timeout + 12.0)
    generation = sim.newest().generation
    assert generation is not None
    assert (generation.number, sim.newest().placement[3], sim.all_train()) == (2, "h4", True)


class CountsFromArrival(MajorityLease):
    """Answers renew from when they come, not from when their tick was sent."""

    def answered(self, name: str, by: int | None) -> bool:
        sent = self.ticks.sent
        if name in sent and by is None:
            self.supervisor = max(sent.values())
        elif name in sent:
            self.answers[by or 0] = max(sent.values())
        return name in sent


class StartsUnasked(MajorityLease):
    """Whoever has a generation begins it."""

    def begin(self, generation: str | None, nodes: Sequence[int], me: int, timeout: float, now: float) -> None:
        super().begin(generation, nodes, me, timeout, now)
        self.supervisor = now


class CountsHalf(MajorityLease):
    """Half of the launchers are enough."""

    def renewed(self) -> float | None:
        needed = len(self.others) // 2
        times = sorted(self.answers.values(), reverse=True)
        times = times if needed else sorted(self.ticks.sent.values(), reverse=True)
        by = times[max(0, needed - 1)] if max(1, needed) <= len(times) else None
        found = [at for at in (self.supervisor, by) if at is not None]
        return max(found) if found else None


class ListensToNobody(FailureDetector):
    """What launchers say of others is not asked."""

    def _is_clear(self, node, said, generation, now):  # type: ignore[no-untyped-def]
        return now >= self._heard.get(node, self._began) + generation.host_timeout + detector.MARGIN


class Impatient(FailureDetector):
    """Does not wait until leases are over."""

    def _is_clear(self, node, said, generation, now):  # type: ignore[no-untyped-def]
        return now >= self._heard.get(node, self._began) + generation.host_timeout / 2


class TrustsHeirs(FailureDetector):
    """Whoever supervised before, elsewhere, is taken for dead."""

    def succeed(self) -> None:
        pass

    def _may_answer(self, generation, now):  # type: ignore[no-untyped-def]
        return True


class TakesTheMissingForSilent(FailureDetector):
    """Whoever does not run now is taken for one that never did."""

    def miss(self, looked: Mapping[int, float]) -> None:
        self._missed = {node: (at - 60.0, at) for node, at in looked.items()}


class MovesForAFew(FailureDetector):
    """Moves although less than half are heard."""

    def cleared(self) -> frozenset[int]:
        generation, now = self.generation, self.now()
        if generation is None:
            return frozenset()
        said = {node: s for node, s in self._said.items() if s.after >= now - detector.RECENT}
        nodes = {member.node for member in generation.members}
        return frozenset(node for node in nodes - set(said) if self._is_clear(node, said, generation, now))

    def too_few(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("bugs", "first"),
    [
        (Bugs(lease=CountsFromArrival, at_once=True), 829),
        (Bugs(lease=StartsUnasked, at_once=True), 332),
        (Bugs(lease=CountsHalf, at_once=True), 4),
        (Bugs(detector=ListensToNobody, at_once=True), 8),
        (Bugs(detector=Impatient, at_once=True), 4),
        (Bugs(detector=TrustsHeirs, at_once=True), 936),
        (Bugs(detector=TakesTheMissingForSilent, at_once=True), 1682),
        (Bugs(detector=MovesForAFew, at_once=True), 11),
    ],
    ids=lambda value: (
        (value.detector if value.lease is MajorityLease else value.lease).__name__ if isinstance(value, Bugs) else None
    ),
)
def test_bugs_put_there_on_purpose_are_found(bugs: Bugs, first: int) -> None:
    """Without rule 4 of docs/protocol.md, which would hide some of them: each of the two has to be right by itself."""
    find(shows_twice(lambda seed: live(seed, bugs)), first)


def test_a_generation_that_is_handed_out_only_once_is_found() -> None:
    find(lambda seed: end_watched(live(seed, Bugs(once=True))) == "does not train", 12)


def test_a_supervisor_that_forgets_what_it_has_spent_is_found() -> None:
    find(lambda seed: "restarts, of" in (end_watched(live(seed, Bugs(forgets=True))) or ""), 37)


def run_into_the_gap(bugs: Bugs) -> Sim:
    """Cut a launcher off when it has entered an order that nobody has answered; its node moves as its link comes back."""
    sim = Sim(3, 1, 0, bugs=bugs)
    sim.late = 0.0
    sim.run(5.0)
    sim.fail(sim.hosts["h1"])
    while sim.hosts["h0"].launchers[0].number < 2:
        sim.run(DT)
    sim.partition({name: name == "h0" for name in [*sim.hosts, "s0"]})
    sim.run(sim.timeout)
    for name in ("h1", "h2"):
        sim.hosts[name].full = True  # these hear of the move some seconds after the node's new host
    while sim.newest().placement[0] == "h0":
        sim.run(DT)
    sim.cuts = {frozenset(("h0", other)) for other in ("s0", "h3")}
    sim.run(2.5)
    sim.hosts["h1"].full = sim.hosts["h2"].full = False
    return sim


def test_a_launcher_that_nobody_has_answered_begins_nothing_once_its_node_has_moved() -> None:
    sim = run_into_the_gap(Bugs())
    assert sim.hosts["h0"].launchers[0].trains  # it was told of nothing, and others have answered it
    sim.run(2 * sim.timeout + 4.0)
    assert not any(launcher.trains for launcher in sim.hosts["h0"].launchers)
    assert (sim.newest().placement[0], sim.all_train()) == ("h3", True)


def test_a_node_that_begins_where_it_has_moved_without_asking_is_found() -> None:
    with pytest.raises(Twice):
        run_into_the_gap(Bugs(at_once=True))


def test_a_supervisor_after_one_that_took_over_needs_more_than_half_too() -> None:
    sim = Sim(4, 2, 0)
    sim.late = 0.0
    sim.run(5.0)
    sim.partition({name: name in ("s0", "h0", "h1") for name in [*sim.hosts, "s0", "s1"]})
    sim.run(20.0)
    sim.supervise("s1")
    sim.run(sim.timeout + 25.0)
    sim.end(next(one for one in sim.supervisors if one.machine == "s1"))
    sim.run(1.0)
    sim.supervise("s1")
    sim.run(2 * sim.timeout + 60.0)


def test_a_node_that_was_left_out_joins_again_although_its_first_host_is_gone_for_good() -> None:
    """Where it has never begun at its second place, and nobody else is new there, the one launcher that stays is enough."""
    sim = Sim(2, 1, 0, least=1)
    sim.late = 0.0
    sim.run(5.0)
    sim.hosts["h0"].power_off()
    while sim.newest().placement[0] == "h0":
        sim.run(DT)
    sim.hosts["h2"].power_off()
    while 0 in sim.newest().placement:
        sim.run(DT)
    sim.hosts["h2"].on = True
    sim.run(2 * sim.timeout + 20.0)
    assert (sim.newest().placement, sim.all_train()) == ({0: "h2", 1: "h1"}, True)


def test_a_job_trains_on_until_a_node_that_comes_back_is_ready_and_no_longer_after_a_failure() -> None:
    for fails in (False, True):
        sim = Sim(2, 0, 0, least=1)
        sim.late = 0.0
        sim.run(5.0)
        sim.hosts["h0"].power_off()
        while 0 in sim.newest().placement:
            sim.run(DT)
        sim.run(5.0)
        generation, home = sim.newest().generation, sim.hosts["h0"]
        assert generation is not None
        home.on = True
        while not any(one.node == 0 and not one.begun for one in home.launchers):
            sim.run(DT)
        began = sim.now
        if fails:
            sim.fail(sim.hosts["h1"])
        while sim.newest().generation == generation:
            assert fails or sim.hosts["h1"].launchers[0].trains
            sim.run(DT)
        assert (sim.now - began < IMPORTS) == fails
        sim.run(10.0)
        assert (sim.newest().placement, sim.all_train()) == ({0: "h0", 1: "h1"}, True)


def test_a_node_begins_where_it_has_moved_once_its_old_host_is_back_and_empty() -> None:
    """Of two nodes one is left, which is no majority, and a supervisor that took over from another machine's needs more."""
    sim = Sim(2, 1, 0)
    sim.late = 0.0
    sim.run(5.0)
    sim.hosts["h0"].power_off()
    while sim.newest().placement[0] == "h0":
        sim.run(DT)
    sim.kill_supervisor()
    sim.supervise("s1")
    sim.run(2 * sim.timeout + 30.0)
    assert not sim.all_train()
    sim.hosts["h0"].on = True
    sim.run(10.0)
    assert (sim.newest().placement[0], sim.all_train()) == ("h2", True)
