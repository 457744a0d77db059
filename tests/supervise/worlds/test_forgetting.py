"""Launchers that forget, in random worlds of clusters. JOBCTL_TEST_WORLDS says how many."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.peers.done_nodes import DoneNodes
from jobctl.jobspec.launcher.peers.incarnations import Incarnation, Incarnations
from jobctl.jobspec.launcher.peers.orders import PeerOrders

from .clock import Clock, made
from .endings import BOUND
from .faults import mishap
from .forgetting import ForgettingBugs, ForgettingHost, ForgettingSim
from .search import WORLDS, find, hold_all
from .world import DT, Twice

pytestmark = pytest.mark.usefixtures("simulated")
SLOW = ((0.0, 0.0), (5.0, 0.0), (5.0, 0.0), (0.0, 5.0), (2.0, 2.0))  # how late messages from and to a host are


def live(seed: int, bugs: ForgettingBugs | None = None) -> ForgettingSim:
    """Let a world live through a random schedule of faults. In some of them nodes end well, too.

    In each fourth one launchers are started again faster than messages arrive.
    """
    chance = random.Random(seed)
    if seed % 4 == 3:
        return hurry(seed, chance, bugs)
    sim = made(ForgettingSim, chance.choice((3, 3, 3, 4, 5)), 0, seed, bugs=bugs)
    sim.lost, sim.late, sim.doubled = chance.choice(((0.0, 0.03, 0.0), (0.05, 0.2, 0.1), (0.3, 0.03, 0.1)))
    ends_well = chance.random() < 0.4
    for host in sim.hosts.values():
        if chance.random() < 0.2:
            host.power_off()  # its first launcher comes later
    sim.run(chance.choice((0.5, 1.0, 3.0, 5.0)))
    for _ in range(chance.randint(2, 10)):
        if chance.random() < 0.35:
            mishap(sim, chance)
        else:
            lose(sim, chance, ends_well)
        if run(sim, chance.choice((0.25, 0.5, 1.0, 2.0, 5.0, 9.0, 25.0)) * sim.timeout / 6):
            return sim
    return sim


def run(sim: ForgettingSim, seconds: float) -> bool:
    """Let time pass, until all nodes have ended well; say whether they have.

    From then on no cut lasts longer than a lease, and no disk is lost: nobody would be left who could tell of the end.
    """
    until = sim.now + seconds
    while sim.now < until and not sim.all_done():
        sim.run(DT)
    return sim.all_done()


def hurry(seed: int, chance: random.Random, bugs: ForgettingBugs | None) -> ForgettingSim:
    """Let a small job lose one launcher after another while it begins, and later, with messages that come late."""
    sim = made(ForgettingSim, chance.choice((2, 2, 3)), 0, seed, bugs=bugs)
    sim.late, sim.doubled = chance.choice((0.0, 0.3, 0.6)), 0.2
    sim.lost, sim.slow = chance.choice((0.0, 0.0, 0.6)), {"h0": chance.choice(SLOW)}
    for _ in range(chance.randint(5, 25)):
        host = chance.choice(list(sim.hosts.values()))
        assert isinstance(host, ForgettingHost)
        match chance.choice(("forget", "forget", "forget", "kill", "fail", "slow", "slow")):
            case "forget":
                host.forget()
            case "slow":
                sim.slow = {host.name: chance.choice(SLOW)}
            case "kill":
                sim.kill(host)
            case "fail":
                sim.fail(host)
        sim.run(chance.choice((0.25, 0.5, 0.75, 1.0, 2.0, 4.0)))
    return sim


def lose(sim: ForgettingSim, chance: random.Random, ends_well: bool) -> None:
    """Start launchers again, with what they kept or without; or let nodes end well."""
    hosts = [host for host in sim.hosts.values() if isinstance(host, ForgettingHost)]
    some = chance.sample(hosts, chance.choice((1, 1, 1, 2, 2, len(hosts))))
    if ends_well and chance.random() < 0.4:
        for host in some if chance.random() < 0.5 else hosts:
            sim.finish(host)
            if run(sim, chance.choice((0.0, 0.25, 1.0))):
                sim.lost = sim.late = 0.0  # the others leave soon, and the next one has to hear them before
                sim.kill(chance.choice(hosts))
                sim.run(chance.choice((0.0, 1.0, 2.0)))
                break
        return
    for host in some:
        match chance.choice(("forget", "forget", "evict", "kill", "fail")):
            case "forget":
                host.forget()
            case "evict":  # the next one comes later
                host.forget()
                host.power_off()
            case "kill":
                sim.kill(host)
            case "fail":
                sim.fail(host)
        sim.run(chance.choice((0.0, 0.0, 0.25, 0.5)))


def end(sim: ForgettingSim, chance: random.Random) -> str | None:
    """Repair everything; say what is wrong with how the world is after that. Half of them end well then."""
    sim.heal(0.0)
    for _ in range(round(2 * sim.timeout + BOUND)):
        if sim.all_train() or sim.ended:
            break
        sim.heal(1.0)
    else:
        return "does not train"
    if not sim.ended and chance.random() < 0.5:
        return None
    sim.datagrams = []  # one that comes late from a launcher that is gone may tell of another order
    for _ in range(round(BOUND)):
        for host in sim.hosts.values():
            sim.finish(host)
        if sim.all_left():
            return None
        sim.heal(1.0)
    return "does not end"


def play(seed: int, bugs: ForgettingBugs | None = None) -> str | None:
    """Return what is wrong with a world."""
    return end(live(seed, bugs), random.Random(seed))


@pytest.mark.parametrize("batch", range(4))
def test_no_node_begins_twice_and_all_train_together(batch: int) -> None:
    hold_all(range(batch, WORLDS, 4), play)


def test_all_begin_again_where_a_node_fails_after_others_have_ended_well() -> None:
    sim = made(ForgettingSim, 3, 0, 1)
    sim.late = 0.0
    sim.run(5.0)
    for name in ("h0", "h1"):
        sim.finish(sim.hosts[name])
    sim.run(5.0)
    assert ([x.succeeded for x in sim.launchers], sim.ended) == ([True, True, False], False)
    sim.fail(sim.hosts["h2"])
    sim.run(5.0)
    assert [(x.trains, x.number) for x in sim.launchers] == [(True, 2)] * 3
    for host in sim.hosts.values():
        sim.finish(host)
    sim.run(5.0)
    assert sim.all_left()


class BeginsUnmet(Incarnations):
    """Begins with those that it has met, whether they have met it or not."""

    def is_ready(self, node: int) -> bool:
        return node in self.met


class MeetsAnother(Incarnations):
    """Meets the next launcher of a node, too, in the same order."""

    def hear(self, node: int, said: Incarnation, others: Sequence[int], now: float) -> None:
        super().hear(node, said, others, now)
        if self.met:
            self.met[node] = said


class NeverForgot(Incarnations):
    """Does not know that another launcher of its node was met."""

    def hear(self, node: int, said: Incarnation, others: Sequence[int], now: float) -> None:
        super().hear(node, said, others, now)
        self.forgot = False


class TrustsAny(Incarnations):
    """Takes any launcher's word that it is met, also that of one that it has not met."""

    def is_ready(self, node: int) -> bool:
        return node in self.met and any(n == node for n, _ in self.knowing)


class HearsOlderOrders(PeerOrders):
    """Takes what launchers say of each other in an older order for what they say in this one."""

    def hear(self, node: int, tick: str, order: list[Any] | None, **more: Any) -> None:
        super().hear(node, tick, order, **more)
        known, said = self.incarnations, more.get("incarnation")
        if known is not None and said is not None and order is not None and known.age is not None and order < known.age:
            known.hear(node, said, list(self.lease.heard), Clock.now())


class KnowsLastAddress(PeerOrders):
    """Looks for each node where its launcher was that it has heard last, in whatever order messages come."""

    def located(self, order: Order) -> Order:
        known = self.incarnations
        assert known is not None
        said = {node: one.address for node, (one, _) in known.heard.items()}
        return order.at({member.address: said.get(member.node, member.address) for member in order.members})


class SaysItOnce(DoneNodes):
    """Does not say again that its node has ended well to one that was started again."""

    @property
    def ended(self) -> bool:
        return False

    @ended.setter
    def ended(self, value: bool) -> None:
        """Forget it."""


class LeavesAlone(DoneNodes):
    """Leaves as soon as all that are there know that its node has ended well."""

    def are_all(self, order: Order) -> bool:
        self.nodes |= set(order.nodes)
        return super().are_all(order)


def kind_of(seed: int, bugs: ForgettingBugs) -> str | None:
    """Return what is wrong with a world: a sentence, or the name of the rule that is broken."""
    try:
        return play(seed, bugs)
    except Twice as broken:
        return type(broken).__name__


@pytest.mark.parametrize(
    ("bugs", "wrong", "first"),
    [
        (ForgettingBugs(known=BeginsUnmet), "TooSoon", 0),
        (ForgettingBugs(known=BeginsUnmet, too_soon=True), "Unmet", 21),
        (ForgettingBugs(known=BeginsUnmet, too_soon=True), "BegunTwice", 14),
        (ForgettingBugs(known=MeetsAnother, too_soon=True), "Unmet", 24),
        (ForgettingBugs(known=NeverForgot), "does not train", 3),
        (ForgettingBugs(known=TrustsAny), "TooSoon", 619),
        (ForgettingBugs(orders=HearsOlderOrders), "TooSoon", 2),
        (ForgettingBugs(orders=HearsOlderOrders, too_soon=True), "Unmet", 339),
        (ForgettingBugs(says_early=True), "Apart", 28),
        (ForgettingBugs(orders=KnowsLastAddress), "Misled", 139),
        (ForgettingBugs(done=SaysItOnce), "does not end", 0),
        (ForgettingBugs(done=LeavesAlone), "EndsAlone", 0),
    ],
    ids=lambda value: value.name if isinstance(value, ForgettingBugs) else None,
)
def test_a_bug_in_what_launchers_know_of_each_other_is_found(bugs: ForgettingBugs, wrong: str, first: int) -> None:
    find(lambda seed: kind_of(seed, bugs) == wrong, first)
