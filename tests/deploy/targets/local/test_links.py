"""What runs for a job is found by whatever links lead to its folder: HOME may have one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.processes import WORK_MARK, marked
from jobctl.jobspec.deploy.targets.background import end_left_behind, start_supervisor
from jobctl.jobspec.deploy.targets.local.processes import spawn

WAIT = "import sys; sys.stdin.read()"  # ends with what started it


@pytest.fixture
def jobs(tmp_path: Path) -> tuple[Path, Path]:
    """Two paths of one folder, the first by a link."""
    (tmp_path / "home").mkdir()
    (tmp_path / "link").symlink_to("home")
    return tmp_path / "link", tmp_path / "home"


def test_a_launcher_is_found_by_another_path(jobs: tuple[Path, Path]) -> None:
    (jobs[0] / "node-0.sh").write_text("exec sleep 600\n")
    process = spawn(jobs[0], 0, jobs[0] / "log", os.environ)
    try:
        assert [process.pid in marked(path, 0) for path in jobs] == [True, True]
    finally:
        process.kill()
        process.wait()


def test_what_an_earlier_version_has_started_is_found_by_the_same_path(jobs: tuple[Path, Path]) -> None:
    """It has left the link in the mark."""
    environ = {**os.environ, WORK_MARK: str(jobs[0])}
    with subprocess.Popen([sys.executable, "-c", WAIT], stdin=subprocess.PIPE, env=environ) as process:
        assert process.pid in marked(jobs[0])


def test_a_supervisor_is_ended_by_another_path(jobs: tuple[Path, Path]) -> None:
    """It has not got as far as to say that it is the supervisor."""
    first, second = (JobDir(path / "jobs" / "demo") for path in jobs)
    first.create()
    start_supervisor(first, ["sh", "-c", "sleep 600 & exit 0"], os.environ)
    assert end_left_behind(second)
    assert not end_left_behind(first)


def test_a_supervisor_does_not_belong_to_the_job_from_within_which_it_was_started(jobs: tuple[Path, Path]) -> None:
    job = JobDir(jobs[0] / "jobs" / "demo")
    job.create()
    start_supervisor(job, ["sh", "-c", "sleep 600 & exit 0"], {**os.environ, WORK_MARK: str(jobs[1])})
    try:
        assert list(marked(jobs[1])) == []
    finally:
        assert end_left_behind(job)
