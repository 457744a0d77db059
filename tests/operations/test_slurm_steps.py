"""What `up` is about to do to a job in Slurm, from how the job stands and what was sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.control import NOTHING
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.operations.lifecycle.base import UpOptions
from jobctl.jobspec.operations.lifecycle.in_allocation import SlurmJob, hashes_of
from tests.render.plans import SLURM, planned

PLAN = planned(dict(SLURM)["slurm"], "slurm")
SENT = hashes_of(PLAN)
FRESH = "`--fresh`: a new run"


def steps(phase: str, options: UpOptions, *, begins_runs: bool = True, **sent: str) -> list[str]:
    handle: Any = SimpleNamespace(plan=PLAN, sent=lambda: {**SENT, **sent}, begins_runs=lambda: begins_runs)
    observed = Observed(NOTHING, (), None, verdict=(phase, None))  # type: ignore[arg-type]
    return [str(step) for step in SlurmJob(handle)._steps(observed, (), options)]


@pytest.mark.parametrize(
    ("phase", "wanted"),
    [
        ("running", [f"generation 1: {FRESH}"]),
        ("degraded", [f"generation 1: {FRESH}"]),
        ("pending", [f"replace allocation: {FRESH}"]),  # its batch script may read the files just now
        ("stopped", [f"create allocation: {FRESH}"]),
        ("succeeded", [f"create allocation: {FRESH}"]),
    ],
)
def test_a_fresh_run_takes_the_allocation_that_runs(phase: str, wanted: list[str]) -> None:
    assert steps(phase, UpOptions(fresh=True)) == wanted


def test_a_fresh_run_needs_another_allocation_where_its_coordinator_cannot_begin_one() -> None:
    """That of an earlier version, or of a change that only Slurm can make."""
    assert steps("running", UpOptions(fresh=True), begins_runs=False) == [f"replace allocation: {FRESH}"]
    assert steps("running", UpOptions(fresh=True), **{"job.sbatch": "?"}) == [f"replace allocation: {FRESH}"]


def test_a_fresh_run_brings_changed_files() -> None:
    assert steps("running", UpOptions(fresh=True), **{"launch.json": "?"}) == [
        "change files: launch.json differs",
        f"generation 1: {FRESH}",
    ]


@pytest.mark.parametrize("phase", ["running", "pending", "succeeded"])
def test_without_a_change_there_is_nothing_to_do(phase: str) -> None:
    assert steps(phase, UpOptions()) == []
