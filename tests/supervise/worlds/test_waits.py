"""Simulated worlds in which a job waits for hosts for a while at most."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from .faults import fault
from .search import WORLDS, hold_all
from .world import DT, POLICY, Sim

LIMIT = 15.0  # `recovery.wait_timeout`


def live(seed: int) -> str | None:
    """Let a world live through a random schedule of faults, and say what is wrong with how the job has ended, if it has."""
    chance = random.Random(seed)
    sim = Sim(chance.choice((1, 2, 3, 3, 4, 5)), chance.choice((0, 0, 1)), seed)
    sim.policy = replace(POLICY, wait_timeout=LIMIT)
    sim.run(5.0)
    for _ in range(chance.randint(2, 8)):
        fault(sim, chance)
        sim.run(chance.choice((0.5, 2.0, 5.0, 9.0, 12.0, 25.0)) * sim.timeout / 6)
    return next((f"ended while all trained: {why}" for why, trained in sim.given_up if trained), None)


@pytest.mark.parametrize("batch", range(4))
def test_no_job_ends_while_all_of_its_nodes_train(batch: int) -> None:
    hold_all(range(batch, WORLDS, 4), live)


@pytest.mark.parametrize("spares", [0, 1])
def test_a_job_whose_host_is_gone_for_good_ends(spares: int) -> None:
    """Also where the spare cannot take its node."""
    sim = Sim(3, spares, 0)
    sim.late, sim.policy = 0.0, replace(POLICY, wait_timeout=LIMIT)
    sim.run(5.0)
    sim.hosts["h1"].power_off()
    if spares:
        sim.hosts["h3"].refuses = 1e9
    began = sim.now
    while not sim.given_up:
        sim.run(DT)
        assert sim.now < began + sim.timeout + 2 * LIMIT
    assert sim.now > began + LIMIT
    assert "waited for longer than" in sim.given_up[0][0]


def test_a_job_goes_on_whose_supervisor_does_not_hear_a_host() -> None:
    sim = Sim(3, 0, 0)
    sim.late, sim.policy = 0.0, replace(POLICY, wait_timeout=LIMIT)
    sim.run(5.0)
    sim.cuts = {frozenset(("s0", "h1"))}
    sim.run(10 * LIMIT)
    assert (sim.given_up, sim.all_train()) == ([], True)
