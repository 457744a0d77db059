"""What is wrong with how a simulated world is once everything in it is mended."""

from __future__ import annotations

from .alone import AloneSim
from .world import Sim

BOUND = 30.0  # seconds, beside twice the lease, within which all train once nothing fails any more


def end_watched(sim: Sim) -> str | None:
    """Repair everything; say what is wrong with how the world is after that."""
    sim.heal(60.0)
    ledger = sim.newest().ledger
    if sim.counted() > sim.policy.max_restarts:
        return f"{sim.counted()} restarts, of {sim.policy.max_restarts}"
    if ledger.result is not None:
        if ledger.result.phase == "succeeded":
            return "trains on after it has succeeded" if sim.any_trains() else None
        used_up = len(ledger.failures) > sim.policy.max_restarts
        return "trains on after it has failed" if sim.any_trains() else None if used_up else ledger.result.reason
    for _ in range(25):  # a host that could not start a node is left alone for 10 minutes
        if sim.all_train():
            return None
        sim.heal(30.0)
    return "does not train"


def end_alone(sim: AloneSim) -> str | None:
    """Repair everything; say what is wrong with how the world is after that."""
    sim.heal(0.0)
    for _ in range(round(2 * sim.timeout + BOUND + (60.0 if sim.watched else 0.0))):
        if sim.all_train() or sim.newest().ledger.result is not None:
            return None
        sim.heal(1.0)
    for _ in range(25 if sim.watched else 0):  # a host that could not start a node is left alone for 10 minutes
        if sim.all_train() or sim.newest().ledger.result is not None:
            return None
        sim.heal(30.0)
    return "does not train"
