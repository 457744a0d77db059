"""What runs for a job is found by whatever links lead to its folder: HOME may have one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.processes import SUPERVISES_MARK, WORK_MARK, environment, marked, with_folder
from jobctl.jobspec.deploy.targets.background import end_left_behind, start_supervisor
from jobctl.jobspec.deploy.targets.local.processes import spawn
from tests.tools.waiting import promptly

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
        for path in jobs:
            promptly(lambda path=path: process.pid in marked(path, 0))  # its environment is empty while it executes
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
    promptly(lambda: end_left_behind(second))  # as above
    assert not end_left_behind(first)


def test_a_supervisor_does_not_belong_to_the_job_from_within_which_it_was_started(jobs: tuple[Path, Path]) -> None:
    job = JobDir(jobs[0] / "jobs" / "demo")
    job.create()
    start_supervisor(job, ["sh", "-c", "sleep 600 & exit 0"], {**os.environ, WORK_MARK: str(jobs[1])})
    try:
        (begun,) = promptly(lambda: [found for pid in pids_of(job) if SUPERVISES_MARK in (found := environment(pid))])
        assert begun[SUPERVISES_MARK] == str(jobs[1] / "jobs" / "demo")
        assert WORK_MARK not in begun
    finally:
        promptly(lambda: end_left_behind(job))


def pids_of(job: JobDir) -> list[int]:
    return list(with_folder(SUPERVISES_MARK, job.root))
