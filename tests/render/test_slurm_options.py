"""What the batch script of a job asks Slurm for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobctl.jobspec.render.slurm import batch_options
from tests.render.plans import SLURM, planned

HOUR = 3600.0


@pytest.mark.parametrize(
    ("options", "memory"),
    [((), "0"), (("--nice=5",), "0"), (("--mem-per-cpu=4G",), None), (("--mem-per-gpu=9G",), None)],
)
def test_sbatch_is_told_once_how_much_memory(options: tuple[str, ...], memory: str | None) -> None:
    """It refuses `--mem` beside `--mem-per-cpu`, and `--mem-per-gpu`."""
    plan = planned(dict(SLURM)["slurm-full"], "slurm")
    assert plan.slurm is not None
    container = replace(plan.nodes[0].container, memory=None)
    nodes = tuple(replace(node, container=container) for node in plan.nodes)
    plan = replace(plan, nodes=nodes, slurm=replace(plan.slurm, exclusive=True, options=options))
    assert dict(batch_options(plan)).get("--mem") == memory


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
