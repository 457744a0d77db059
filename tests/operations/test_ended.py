"""When a job counts as ended, for commands that wait for its end or follow it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jobctl.jobspec.deploy.model.control import Control, Ledger
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode
from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.report.story import about
from jobctl.jobspec.launcher.telling.telling import readable
from jobctl.jobspec.operations.inspect.status import ended, tail_of
from jobctl.jobspec.operations.lifecycle.down import _ending
from jobctl.jobspec.plan.generation import Generation, Member, RendezvousPoint
from jobctl.jobspec.render.artefact import control_json
from tests.tools.failures import failed

RUNS = Generation(
    job="demo",
    run_id="demo-1",
    number=2,
    command="run",
    grace=5.0,
    members=(Member(0, 0, ("trainer",), "a", "10.0.0.1", 1),),
    rendezvous=RendezvousPoint("10.0.0.1", 29500, "demo-2"),
    checkpoint_dir=None,
)


def seen(generation: Generation, state: Any) -> Observed:
    node = ObservedNode(0, "trainer", "a", state, generation=generation.number)
    return Observed(Control(generation, Ledger(0.0)), (node,), supervised=False)


def test_a_change_that_was_completed_since_the_job_was_observed_does_not_end_it(tmp_path: Path) -> None:
    """`up --follow` ended, now and then, when it had looked in the midst of a change, and the change was over then."""
    stopped = seen(replace(RUNS, command="stop"), "exited")
    looks = iter([seen(RUNS, "running"), stopped])
    handle: Any = SimpleNamespace(observe=lambda: next(looks), job=SimpleNamespace(lock=tmp_path / "lock"))
    assert not ended(handle, stopped)
    assert ended(handle, stopped)


def test_down_names_the_end_of_a_job_as_launchers_do() -> None:
    """Both may tell people of it: by the same id."""
    handle: Any = SimpleNamespace(job=SimpleNamespace(name="demo"), failures={})
    told = {
        **about(Order.from_json(json.loads(control_json(RUNS))), "succeeded", 9.0),
        "reason": "all nodes ended with code 0",
    }
    (known,) = readable([told])
    exited = ObservedNode(0, "trainer", "a", "exited", generation=RUNS.number, exit_code=0)
    observed = replace(seen(RUNS, "exited"), nodes=(exited,))
    assert _ending(handle, observed) == {
        "phase": "succeeded",
        "reason": None,
        "ends": known["id"],
    }
    assert _ending(handle, seen(RUNS, "running")) == {}


def test_a_job_that_the_next_command_changes_already_has_not_ended(tmp_path: Path) -> None:
    first = seen(replace(RUNS, command="stop"), "exited")
    looks = iter([seen(replace(RUNS, number=3, command="stop"), "exited"), first])
    handle: Any = SimpleNamespace(observe=lambda: next(looks), job=SimpleNamespace(lock=tmp_path / "lock"))
    assert not ended(handle, first)
    assert ended(handle, first)


def test_the_last_lines_are_those_of_the_report_where_launchers_have_ended_the_job() -> None:
    """They tell each other of a failure without these lines: `up` and `status` showed none if node 0 had not failed first."""
    told = failed(node=1, generation=2, log="workerlog.0")
    nodes = tuple(
        ObservedNode(
            node, "trainer", "a", "failed", generation=2, failure=replace(told, node=node, tail=(f"of {node}",))
        )
        for node in (0, 1)
    )
    seen = Observed(Control(RUNS, Ledger(0.0, failures=(told,))), nodes, supervised=False)
    assert tail_of(seen) == ["last lines of node 1, workerlog.0:", "  of 1"]
    later = Observed(Control(RUNS, Ledger(0.0, failures=(replace(told, generation=1),))), nodes, supervised=False)
    assert tail_of(later) == []
