"""Hot spares with etcd, in random worlds: lost nodes move there with nobody watching, and none runs twice.

JOBCTL_TEST_WORLDS says how many: a quarter of those.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from jobctl.jobspec.launcher.etcd.session_lease import TERMINATED
from jobctl.jobspec.launcher.recovery.etcd_replacement import NO_LEASE_SECONDS, NOBODY_LEFT

from .clock import made
from .etcd_spares import HotEtcdBugs, HotEtcdHost, HotEtcdSim
from .faults import etcd_fault, fault, mishap
from .search import WORLDS, hold_all

pytestmark = pytest.mark.usefixtures("simulated")
BOUND = 100.0  # seconds, beside twice the lease, within which all train once nothing fails any more


def live(seed: int, bugs: HotEtcdBugs | None = None) -> HotEtcdSim:
    """Let a world live through a random schedule of faults; in one of three somebody watches, now and then."""
    chance = random.Random(seed)
    sim = made(
        HotEtcdSim, chance.choice((1, 1, 2, 3, 4)), chance.choice((1, 1, 2)), seed, watched=seed % 3 == 0, bugs=bugs
    )
    for _ in range(chance.randint(2, 8)):
        if chance.random() < 0.3:
            etcd_fault(sim, chance)
        elif sim.watched:
            fault(sim, chance)
        else:
            mishap(sim, chance)
        sim.run(chance.choice((0.5, 2.0, 5.0, 9.0, 12.0, 25.0)) * sim.timeout / 6)
    return sim


def end(sim: HotEtcdSim) -> str | None:
    """Repair everything; say what is wrong with how the world is after that."""
    for _ in range(round(2 * sim.timeout + BOUND)):
        sim.heal(1.0)
        if sim.all_train() or sim.newest().ledger.result is not None:
            return None
    return "does not train"


@pytest.mark.parametrize("batch", range(4))
def test_no_node_trains_twice_and_all_train_again(batch: int) -> None:
    hold_all(range(batch, WORLDS // 4, 4), lambda seed: end(live(seed)))


@pytest.mark.parametrize(("nodes", "lost", "more"), [(3, 1, 0.0), (3, 0, 0.0), (2, 0, 0.0), (1, 0, NOBODY_LEFT)])
def test_a_lost_node_trains_on_a_hot_spare_with_nobody_watching(nodes: int, lost: int, more: float) -> None:
    """However many are left: the only node of a job, too. It stays there when its host comes back."""
    sim = made(HotEtcdSim, nodes, 1, 1, watched=False)
    sim.run(sim.timeout + 5.0)
    sim.hosts[f"h{lost}"].power_off()
    sim.run(sim.timeout + TERMINATED - 1.0)
    assert not sim.all_train()
    sim.run(NO_LEASE_SECONDS + more + 5.0)
    assert (sim.all_train(), sim.newest().placement[lost]) == (True, f"h{nodes}")
    sim.hosts[f"h{lost}"].on = True
    sim.run(2 * sim.timeout)
    assert (sim.all_train(), [one.trains for one in sim.hosts[f"h{lost}"].launchers]) == (True, [False])


@pytest.mark.parametrize("keeps", [False, True])
def test_a_node_that_takes_its_lease_again_as_it_is_moved_gives_it_up(keeps: bool) -> None:
    """Its host was cut off, and is back just before the others give the node away: the spare needs that lease."""
    sim = made(HotEtcdSim, 3, 1, 1, watched=False, bugs=HotEtcdBugs(keeps_keys=keeps))
    sim.run(sim.timeout + 5.0)
    away = sim.hosts["h1"]
    sim.partition({name: name == "h1" for name in (*sim.hosts, *sim.store.names)})
    while sim.newest().placement[1] == "h1":
        sim.run(0.25)
    sim.partition({})
    key, session = "/jobctl/me/sim/nodes/1", away.launchers[0].session  # type: ignore[attr-defined]
    assert key not in sim.store.items
    session.lease = session.grant()
    session.take_key(session.lease)
    session.has_key, session.alive = True, sim.now
    assert sim.store.items[key].lease == session.lease
    sim.run(15.0)
    assert (sim.all_train(), sim.newest().placement[1]) == (not keeps, "h3")


def test_launchers_leave_a_lost_node_to_a_supervisor() -> None:
    """It may have reasons to wait for the host."""
    sim = made(HotEtcdSim, 3, 1, 1, watched=True)
    sim.policy, sim.late = replace(sim.policy, on_host_loss="wait"), 0.0
    sim.hosts["h1"].power_off()
    sim.run(2 * sim.timeout + 20.0)
    assert (sim.all_train(), sim.alone, sim.newest().placement[1]) == (False, 0, "h1")


def test_a_node_that_has_ended_well_is_not_moved() -> None:
    sim = made(HotEtcdSim, 3, 1, 1, watched=False)
    sim.run(sim.timeout + 5.0)
    sim.finish(sim.hosts["h1"])
    sim.run(2 * sim.timeout + 20.0)
    assert sim.newest().placement[1] == "h1"
    assert [host.idle is not None for host in sim.hosts.values() if isinstance(host, HotEtcdHost)][3]


def test_a_launcher_that_is_started_again_a_second_after_its_lease_was_over_keeps_its_node() -> None:
    sim = made(HotEtcdSim, 3, 1, 1, watched=False)
    sim.run(2 * sim.timeout)
    host = sim.hosts["h1"]
    assert isinstance(host, HotEtcdHost)
    host.remove({1})
    sim.store.end(sim.store.items["/jobctl/me/sim/nodes/1"].lease)
    sim.run(1.25)
    host.containers.add(1)
    sim.run(20.0)
    assert (sim.all_train(), sim.newest().placement[1]) == (True, "h1")


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_job_that_has_ended_well_stays_ended(nodes: int) -> None:
    """Engines start the launchers again, and all hosts once more. No spare takes a node, and nobody holds a lease."""
    sim = made(HotEtcdSim, nodes, 1, 1, watched=False)
    sim.run(sim.timeout + 5.0)
    for host in sim.hosts.values():
        sim.end_well(host)
        sim.run(2.0)
    for _ in range(2):
        sim.run(2 * sim.timeout + NOBODY_LEFT + 20.0)
        generation = sim.newest().generation
        assert (sim.any_trains(), sim.leases(), generation and generation.number) == (False, [], 1)
        for host in sim.hosts.values():
            host.power_off()
            host.on = True


def until_all_have_ended(seed: int) -> str | None:
    """Have nodes end well one after the other, and things go wrong meanwhile; say what is wrong after that."""
    chance = random.Random(seed)
    sim = made(HotEtcdSim, chance.choice((1, 2, 3)), chance.choice((0, 1)), seed, watched=False)
    for _ in range(15):
        sim.run(chance.choice((0.5, 2.0, 5.0, 25.0)))
        match chance.choice(("end", "end", "end", "mishap", "etcd", "heal")):
            case "end":
                sim.end_well(chance.choice(list(sim.hosts.values())))
            case "mishap":
                mishap(sim, chance)
            case "etcd":
                etcd_fault(sim, chance)
            case _:
                sim.heal(5.0)
    for _ in range(round(8 * sim.timeout + BOUND)):
        for host in sim.hosts.values():
            sim.end_well(host)
        sim.heal(1.0)
        if sim.is_over():
            break
    else:
        return "does not end"
    sim.heal(2 * sim.timeout + NOBODY_LEFT + 20.0)
    if sim.any_trains():
        return "trains again"
    return f"holds {sim.leases()}" if sim.leases() else None


def test_jobs_end_whatever_happens_on_the_way() -> None:
    hold_all(range(WORLDS // 4), until_all_have_ended)
