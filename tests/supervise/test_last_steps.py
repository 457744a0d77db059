"""Whether a generation got anywhere, as a supervisor judges it where the part that fails does not know."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobctl.jobspec.deploy.model.control import Ledger
from jobctl.jobspec.supervise.decide import decide
from jobctl.jobspec.supervise.decisions import Restart
from jobctl.jobspec.supervise.last_steps import LastSteps
from tests.tools.failures import dead_launcher

from .observed_jobs import NOW, POLICY, job, node

KILLED = dead_launcher(generation=2, at=NOW, node=1, host="localhost", reason="it was killed")


def test_the_steps_of_a_lost_node_are_remembered_until_the_next_generation() -> None:
    """Its own last ones, where it counts alone; not those of an earlier generation that a report still has."""
    steps, gone = LastSteps(), node(0, "lost", progress=None, generation=0, reachable=False)
    other = node(1, progress=None)
    before, after = job(node(0), other), job(gone, other)
    assert steps.complete(after) == after
    assert steps.complete(before) == before
    assert [one.progress for one in steps.complete(after).nodes] == [50, None]
    late = job(node(0, generation=1), other, number=2)
    assert steps.complete(late) == late
    assert steps.complete(job(gone, other, number=2)).nodes[0].progress is None


@pytest.mark.parametrize(("ran", "delay"), [(59.0, 1.0), (60.0, 0.0)])
def test_a_generation_that_counts_nothing_has_run_as_long_as_its_other_nodes_say(ran: float, delay: float) -> None:
    """Neither a new launcher nor a lost host can say so; the other nodes can. A clock that is ahead says nothing."""
    earlier = replace(KILLED, generation=1, at=900.0)
    fields = {"generation": 2, "progress": None}
    nodes = (
        node(0, started_at=NOW - ran, **fields),
        node(1, "failed", failure=KILLED, **fields),
        node(2, started_at=NOW + 99.0, **fields),
        node(3, started_at=NOW - 900.0, generation=1, progress=None),
    )
    decision = decide(job(*nodes, number=2, ledger=Ledger(800.0, failures=(earlier,))), POLICY, NOW)
    assert isinstance(decision, Restart)
    assert (decision.failure.ran, decision.delay) == (ran, delay)
