"""A job of three nodes, each on a host, as a supervisor observes it: builders that name only what differs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jobctl.jobspec.deploy.model.control import Control, Ledger
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode
from jobctl.jobspec.plan.generation import Generation, Member, RendezvousPoint
from jobctl.jobspec.plan.recovery import Failure, Recovery
from jobctl.jobspec.supervise.decisions import World
from tests.tools import failures

NOW = 1000.0
POLICY = Recovery(3, None, "replace", 30.0, None, None, ())
GENERATION = Generation(
    "job",
    "job-1",
    4,
    "run",
    0.0,
    tuple(Member(n, n, ("trainer",), f"h{n}", f"10.0.0.{n}", 1) for n in range(3)),
    RendezvousPoint("10.0.0.0", 20000, "job-4"),
    None,
)
HOMES = {0: "h0", 1: "h1", 2: "h2"}


def node(index: int, **how: Any) -> ObservedNode:
    made = ObservedNode(index, "trainer", f"h{index}", "running", launcher=1, generation=4, progress=7)
    return replace(made, **how)


def lost(index: int) -> ObservedNode:
    return ObservedNode(index, "trainer", f"h{index}", "lost", reachable=False)


def job(*nodes: ObservedNode, **how: Any) -> Observed:
    ledger = how.pop("ledger", Ledger(900.0))
    unreachable = {n.host: "not heard" for n in nodes if not n.reachable}
    return Observed(Control(GENERATION, ledger), nodes, True, unreachable, **how)


def failed(**how: Any) -> Failure:
    """Rank 1, which was killed in generation 4."""
    return failures.failed(**{"generation": 4, "at": NOW - 5, "exit_code": 137, "kind": "signal", **how})


def world(**how: Any) -> World:
    return replace(World(planned=HOMES, least=3), **how)


HOST_FAILURE = failures.lost(generation=4, at=NOW, progress=7)
