"""Fencing and liveness with etcd, in random worlds: its members die and are cut off, besides all that happens elsewhere.

JOBCTL_TEST_WORLDS says how many: a quarter of those.
"""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import pytest

from jobctl.jobspec.launcher.etcd.client import Quorum, text64
from jobctl.jobspec.launcher.etcd.session import EtcdSession
from jobctl.jobspec.launcher.etcd.session_lease import EtcdLease

from .clock import Clock, made
from .etcd import LOADING, EtcdBugs, EtcdSim
from .faults import etcd_fault, fault
from .search import WORLDS, find, hold_all, shows_twice

pytestmark = pytest.mark.usefixtures("simulated")


def live(seed: int, bugs: EtcdBugs | None = None) -> EtcdSim:
    """Let a world live through a random schedule of faults, and return it."""
    chance = random.Random(seed)
    nodes = chance.choice((1, 1, 2, 2, 3, 4))
    least = nodes if chance.random() < 0.6 else chance.randint(1, nodes)
    sim = made(EtcdSim, nodes, chance.choice((0, 1, 1, 2)), seed, least=least, bugs=bugs)
    sim.run(5.0)
    for _ in range(chance.randint(2, 8)):
        if chance.random() < 0.4:
            etcd_fault(sim, chance)
        else:
            fault(sim, chance)
        sim.run(chance.choice((0.5, 2.0, 5.0, 9.0, 12.0, 25.0)) * sim.timeout / 6)
    return sim


def end(sim: EtcdSim) -> str | None:
    """Repair everything; say what is wrong with how the world is after that."""
    sim.heal(60.0)
    for _ in range(25):  # a host that could not start a node is left alone for 10 minutes
        if sim.all_train():
            return None
        sim.heal(30.0)
    return "does not train"


@pytest.mark.parametrize("batch", range(8))
def test_no_node_trains_twice_and_all_train_again(batch: int) -> None:
    hold_all(range(batch, WORLDS // 4, 8), lambda seed: end(live(seed)))


def test_a_failed_process_goes_on_without_a_supervisor() -> None:
    sim = made(EtcdSim, 3, 0, 1)
    sim.run(5.0)
    sim.kill_supervisor()
    sim.fail(sim.hosts["h1"])
    sim.run(10.0)
    assert (sim.all_train(), sim.alone, sim.restarts) == (True, 1, 0) or sim.alone >= 1


def test_a_killed_launcher_is_the_cause_of_what_its_peers_say_before_it() -> None:
    sim = made(EtcdSim, 3, 0, 1)
    sim.run(5.0)
    sim.kill_supervisor()
    sim.run(LOADING + 4.0)
    sim.kill(sim.hosts["h1"])
    sim.hosts["h1"].launchers.append(sim.launcher(sim.hosts["h1"], 1))
    sim.run(10.0)
    order = json.loads(base64.b64decode(sim.store.items["/jobctl/me/sim/generation"].value))
    assert [(one["node"], one["kind"]) for one in order["autonomy"]["failures"]] == [(1, "launcher")]


def test_what_a_killed_launcher_causes_twice_is_no_bug() -> None:
    """Its peer fails with code 1 both times, and the second time no node has made a step since. Nobody watches."""
    sim = made(EtcdSim, 2, 0, 1)
    sim.run(5.0)
    sim.kill_supervisor()
    sim.run(LOADING + 4.0)
    for _ in range(2):
        sim.kill(sim.hosts["h1"])
        sim.run(2.25)  # its engine takes a while
        sim.hosts["h1"].launchers.append(sim.launcher(sim.hosts["h1"], 1))
        for _ in range(40):
            if not sim.all_train():
                sim.run(0.5)
        assert sim.all_train()


def test_a_lost_quorum_ends_nothing() -> None:
    sim = made(EtcdSim, 2, 1, 1)
    sim.run(5.0)
    sim.store.dead = {"e0", "e1"}
    for _ in range(60):
        sim.run(1.0)
        assert sim.all_train()
    sim.store.dead = set()
    sim.run(10.0)
    assert (sim.all_train(), sim.restarts, sim.alone) == (True, 0, 0)


def test_a_launcher_where_the_node_was_before_leaves_its_lease_alone() -> None:
    """With it the lease of a lost node would never be over, and the node could begin nowhere."""
    sim = made(EtcdSim, 2, 1, 1)
    sim.run(5.0)
    sim.partition({name: name == "h1" for name in (*sim.hosts, "s0", *sim.store.names)})
    sim.run(60.0)
    assert (sim.all_train(), [x.node for x in sim.hosts["h2"].launchers]) == (True, [1])
    sim.kill_supervisor()  # or it would remove the launcher on h1
    sim.partition({})
    sim.run(5.0)
    sim.hosts["h2"].power_off()
    sim.run(60.0)
    assert [x.node for x in sim.hosts["h1"].launchers] == [1]
    assert "/jobctl/me/sim/nodes/1" not in sim.store.items


def test_a_long_budget_ends_with_nobody_watching(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is longer than the failures that an order in etcd has."""
    monkeypatch.setattr(EtcdSim, "budget", 55)
    sim = made(EtcdSim, 2, 0, 1)
    sim.run(5.0)
    sim.kill_supervisor()
    for number in range(60):
        sim.run(LOADING + 5.0)
        sim.fail(sim.hosts[f"h{number % 2}"])
    order = json.loads(base64.b64decode(sim.store.items["/jobctl/me/sim/generation"].value))
    assert (order["number"], order["command"], sim.any_trains()) == (56, "stop", False)
    assert "max_restarts" in order["why"]
    assert (len(order["autonomy"]["failures"]), order["autonomy"]["earlier"]["count"]) == (50, 6)
    assert len(sim.newest().ledger.failures) == 56


class CountsFromNow(EtcdSession):
    """The lease counts from when it is told of, whenever it was renewed."""

    def say(self, problem: str | None) -> None:
        self.alive = Clock.now() if self.has_key else None
        super().say(problem)


class TakesWhatIsTaken(EtcdSession):
    """Another launcher's key is no hindrance."""

    def look_at_key(self, mine: Any) -> bool:
        put = {"key": text64(self.key), "value": text64(self.value), "lease": self.lease}
        if self.lease is not None and (mine is None or mine.get("lease") != self.lease):
            self.etcd.call("/v3/kv/txn", compare=[], success=[{"request_put": put}])
            return True
        return super().look_at_key(mine)


class BelievesItself(Quorum):
    """Whenever etcd does not answer this host, nobody has a quorum."""

    def paused(self, now: float) -> float | None:
        return now


class CountsOne(Quorum):
    """One member without a leader is enough."""

    def paused(self, now: float) -> float | None:
        return now if any(self.follows(member) == "nobody" for member in self.members if member) else None


class ForgivesAll(EtcdLease):
    """A lease that was over comes back."""

    def held(self, now: float) -> bool:
        validity = self.validity
        validity.over = False
        return validity.check(now if validity.had else self.renewed(), self.timeout, now)


@pytest.mark.parametrize(
    ("bugs", "first"),
    [
        pytest.param(EtcdBugs(session=CountsFromNow), 207, id="session counts from now"),
        pytest.param(EtcdBugs(session=TakesWhatIsTaken), 26, id="session takes what is taken"),
        pytest.param(EtcdBugs(quorum=BelievesItself), 207, id="believes itself"),
        pytest.param(EtcdBugs(quorum=CountsOne), 207, id="counts one"),
        pytest.param(EtcdBugs(etcd_lease=ForgivesAll), 207, id="forgives all"),
    ],
)
def test_bugs_put_there_on_purpose_are_found(bugs: EtcdBugs, first: int) -> None:
    find(shows_twice(lambda seed: live(seed, bugs)), first)
