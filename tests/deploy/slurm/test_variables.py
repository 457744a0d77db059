"""Variables of this process that Slurm's commands do not get: they would ask for something else than the job."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.slurm.login import LoginNode
from jobctl.jobspec.deploy.slurm.variables import before_the_script, of_another_job
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.operations.lifecycle.in_allocation import SlurmJob
from jobctl.jobspec.spec.hosts import Host
from tests.render.plans import SLURM, planned

# As in a shell of `salloc --gpus=1`, of a user who has an account for `srun`.
INSIDE = {"SLURM_JOB_ID": "7", "SLURM_GPUS": "1", "SLURMD_NODENAME": "s1", "SLURM_CONF": "/x", "SLURM_ACCOUNT": "a"}
OF_JOB = {"SLURM_JOB_ID", "SLURM_GPUS", "SLURMD_NODENAME"}
PLANS = {name: planned(text, "slurm") for name, text in SLURM}


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in INSIDE.items():
        monkeypatch.setenv(name, value)


def test_variables_of_a_job_are_those_that_it_has_and_the_user_has_not() -> None:
    assert of_another_job(INSIDE) == OF_JOB
    assert of_another_job({"SLURM_GPUS": "1"}) == set()  # no job's: the user wants it


def test_what_the_batch_script_says_no_variable_says_otherwise() -> None:
    assert before_the_script(PLANS["slurm-full"]) >= {
        *("SBATCH_PARTITION", "SBATCH_ACCOUNT", "SBATCH_QOS", "SBATCH_TIMELIMIT", "SBATCH_CONSTRAINT", "SBATCH_GRES"),
        *("SBATCH_MEM_PER_NODE", "SBATCH_MEM_PER_CPU", "SBATCH_SIGNAL", "SBATCH_OUTPUT", "SBATCH_JOB_NAME"),
        *(
            "SBATCH_ARRAY_INX",
            "SBATCH_WAIT",
            "SBATCH_CLUSTERS",
            "SBATCH_REQUEUE",
            "SBATCH_NO_REQUEUE",
            "SBATCH_OPEN_MODE",
        ),
    }
    assert "SBATCH_ACCOUNT" not in before_the_script(PLANS["slurm"])  # which names none: the user's is taken


@pytest.mark.usefixtures("inside")
def test_a_job_that_is_submitted_has_nothing_of_the_one_whose_shell_this_is(tmp_path: Path) -> None:
    hidden: list[str] = []

    def submit(names: list[str], sent: bytes) -> tuple[str, bool]:
        hidden.extend(names)
        return "8", True

    login: Any = SimpleNamespace(submit=submit, write=lambda path, content: None)
    handle: Any = SimpleNamespace(
        job=JobDir(tmp_path / "tiny"), login=login, seen=lambda path: {}, forget_look=lambda: None
    )
    handle.job.create()
    SlurmJob(handle)._submit(PLANS["slurm-full"])
    assert set(hidden) == {"TOKEN", *OF_JOB, *before_the_script(PLANS["slurm-full"])}


@pytest.mark.usefixtures("inside")
def test_a_command_in_a_job_has_nothing_of_the_one_whose_shell_this_is() -> None:
    ran: list[list[str]] = []
    there: Any = SimpleNamespace(host="login", interact=lambda argv: ran.append(argv) or 0)
    login = LoginNode(Inventory((Host("localhost"),)), "tiny", "/shared/tiny", there)
    login.enter(("8", "s2"), ["hostname"], terminal=False)
    before = ran[0][: ran[0].index("srun")]
    assert set(before) >= OF_JOB
    assert not set(before) & {"SLURM_CONF", "SLURM_ACCOUNT"}


@pytest.fixture
def own_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_TIMELIMIT", "SLURM_LABELIO", "SRUN_OUTPUT", "SLURM_CONSTRAINT", "SLURM_CLUSTERS", "SLURM_QOS"):
        monkeypatch.setenv(name, "1")


# Prints which variables it has that users set for their steps.
SRUN = "#!/bin/sh\nenv | sed -nE 's/^((SLURM|SRUN)_[A-Z]*)=.*/\\1/p' | sort\n"


@pytest.mark.usefixtures("own_steps")
def test_a_command_in_a_job_is_no_step_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SLURM_TIMELIMIT ended it after a minute, and SLURM_LABELIO put numbers before all that it printed."""
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    said: list[list[str]] = []

    def interact(argv: list[str]) -> int:
        said.append(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())
        return 0

    there: Any = SimpleNamespace(host="login", interact=interact)
    login = LoginNode(Inventory((Host("localhost"),)), "tiny", "/shared/tiny", there)
    login.enter(("8", "s2"), ["hostname"], terminal=False)
    login.interact(["srun"], ["hostname"], terminal=False)  # which asks Slurm for a machine
    assert said == [["SLURM_CLUSTERS", "SLURM_QOS"], ["SLURM_CLUSTERS", "SLURM_CONSTRAINT", "SLURM_QOS"]]
