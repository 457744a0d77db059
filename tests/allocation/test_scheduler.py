"""What a coordinator asks of Slurm, whose commands are played."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jobctl.jobspec.allocation.scheduler import COMMAND_TIMEOUT, Scheduler
from jobctl.jobspec.allocation.slurm_environ import step_environ
from tests.tools.waiting import PATIENCE


def scheduler(work: Path, monkeypatch: pytest.MonkeyPatch, squeue: str) -> Scheduler:
    """A scheduler whose `squeue` is a script."""
    tools = work / "bin"
    tools.mkdir()
    (tools / "squeue").write_text(f"#!/bin/sh\n{squeue}\n")
    (tools / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    return Scheduler(str(work), {}, "7")


def answer(slurm: Scheduler) -> list[str] | None:
    """Return what Slurm says in the end."""
    deadline = time.monotonic() + PATIENCE
    while (said := slurm.machines_soon(100.0)) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return said


def test_nobody_waits_for_what_slurm_says_of_the_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator answers node runners meanwhile: otherwise their leases end, and with them what runs."""
    os.mkfifo(tmp_path / "gate")
    slurm = scheduler(tmp_path, monkeypatch, f'read -r line < "{tmp_path}/gate"; echo "$line"')
    assert slurm.machines_soon(100.0) is None
    assert slurm.machines_soon(100.0 + COMMAND_TIMEOUT) is None
    (tmp_path / "gate").write_text("s[1-2],s7\n")
    assert answer(slurm) == ["s1", "s2", "s7"]


def test_slurm_that_gives_no_answer_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "gate")
    slurm = scheduler(tmp_path, monkeypatch, f'echo s1; exec cat "{tmp_path}/gate"')
    assert slurm.machines_soon(100.0) is None
    assert slurm.machines_soon(100.1 + COMMAND_TIMEOUT) == []
    (tmp_path / "bin" / "squeue").write_text("#!/bin/sh\necho s1; exit 1\n")
    assert answer(slurm) == []
    (tmp_path / "bin" / "squeue").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert slurm.machines_soon(100.0) == []


USERS = {"SQUEUE_STATES": "RUNNING", "SCANCEL_INTERACTIVE": "1", "SLURM_TIME_FORMAT": "relative", "SLURM_CLUSTERS": "b"}
SHOWN = 'echo "s1,${SQUEUE_STATES-}${SCANCEL_INTERACTIVE-}${SLURM_CLUSTERS-}$SLURM_TIME_FORMAT"'


def test_what_a_user_sets_for_slurms_commands_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQUEUE_PARTITION hides the job's machines, SLURM_TIME_FORMAT that it is preempted; SCANCEL_INTERACTIVE has one wait for ever."""
    for name, value in USERS.items():
        monkeypatch.setenv(name, value)
    slurm = scheduler(tmp_path, monkeypatch, SHOWN)
    assert slurm.machines() == ["s1", "standard"]
    assert answer(slurm) == ["s1", "standard"]


def test_the_step_of_node_runners_is_what_the_allocation_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has what Slurm says of the job. A limit of the user's own for steps would end it in the middle of a run."""
    of_job = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "s[1-2]",
        "SLURM_GPUS_PER_NODE": "8",
        "SLURM_RESTART_COUNT": "1",
    }
    of_user = dict.fromkeys(("SLURM_TIMELIMIT", "SLURM_IMMEDIATE", "SLURM_STDOUTMODE", "SRUN_CONTAINER"), "1")
    assert step_environ({**of_job, **of_user, "HOME": "/home/ada"}) == {**of_job, "HOME": "/home/ada"}
    slurm = scheduler(tmp_path, monkeypatch, "")
    (tmp_path / "bin" / "srun").write_text(
        f'#!/bin/sh\necho "${{SLURM_TIMELIMIT-none}} $JOBCTL_ALLOCATION_TOKEN" > {tmp_path}/said\n'
    )
    (tmp_path / "bin" / "srun").chmod(0o755)
    monkeypatch.setenv("SLURM_TIMELIMIT", "1")
    slurm.settings = {"runner_python": "python3"}
    assert slurm.start_runners(["s1"], 1, 30000, "secret").wait(60) == 0
    assert (tmp_path / "said").read_text() == "none secret\n"
