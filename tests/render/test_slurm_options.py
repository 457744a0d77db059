"""What the batch script of a job asks Slurm for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plans import SLURM, planned

from jobctl.jobspec.render.slurm import batch_options

HOUR = 3600.0


@pytest.mark.parametrize(
    ("grace", "limit", "seconds"),
    [
        (45.0, None, 75),
        (45.0, 100.0, 50),  # half of the time is for work
        (20 * HOUR, None, 65535),
        (20 * HOUR, 48 * HOUR, 65535),
        (20 * HOUR, 24 * HOUR, 43200),
    ],
)
def test_slurm_signals_as_early_as_processes_need_and_slurm_can(
    grace: float, limit: float | None, seconds: int
) -> None:
    plan = planned(dict(SLURM)["slurm-full"], "slurm")
    assert plan.slurm is not None
    plan = replace(plan, stop_grace=grace, slurm=replace(plan.slurm, time=limit))
    assert dict(batch_options(plan))["--signal"] == f"B:USR1@{seconds}"
