"""What a coordinator asks of Slurm, whose commands are played."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jobctl.jobspec.allocation.scheduler import COMMAND_TIMEOUT, Scheduler
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
