"""Why the framework's launcher has started a process again, where nobody looked between its end and its next start."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.launcher.process.guard import Recorder
from jobctl.jobspec.launcher.process.record import read_record
from jobctl.jobspec.launcher.run.verdict import Verdict
from tests.tools.launches import launch_of


def reason(folder: Path) -> str:
    """Return what the launcher says of the processes whose guards wrote their records into `folder`."""
    processes = [read_record(str(path)) for path in sorted(folder.glob("*.json"))]
    run: Any = SimpleNamespace(launch=launch_of(), processes=processes, folders=SimpleNamespace(logs=str(folder)))
    return Verdict(run, 0).restart_reason()


def start(folder: Path, local: int) -> Recorder:
    record = Recorder(str(folder / f"{local}.json"), str(local), str(local + 2))
    record.began(os.getpid(), False, None)
    return record


def test_it_is_the_failure_that_came_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000, 1100))
    monkeypatch.setattr("time.time", lambda: float(next(clock)))
    first = [start(tmp_path, 0), start(tmp_path, 1)]
    first[1].ended(137)
    first[0].ended(143)  # by the framework's launcher, because of that
    second = [start(tmp_path, 0), start(tmp_path, 1)]
    assert reason(tmp_path) == "rank 3 was killed by SIGKILL"
    second[0].ended(7)
    second[1].ended(0)
    third = [start(tmp_path, 0), start(tmp_path, 1)]
    assert reason(tmp_path) == "rank 2 exited with code 7"
    for record in third:
        record.ended(0)
        start(tmp_path, record.record.local_rank)
    assert reason(tmp_path) == "the framework's launcher ended its processes"


def test_a_process_whose_guard_was_killed_with_it_was_killed(tmp_path: Path) -> None:
    start(tmp_path, 0)
    start(tmp_path, 0)
    assert reason(tmp_path) == "rank 2 was killed by SIGKILL"
