"""Two folders with one name, two names for one job: nobody replaces or corrupts what is not theirs."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def slow(jobs: Any) -> Any:
    """A job that would run for minutes, and is up."""
    jobs.set(STEPS="10000", DELAY="0.02")
    jobs.ok("up", "--no-supervise")
    return jobs


@pytest.fixture
def copy(slow: Any, tmp_path: Path) -> Any:
    """The same job in another folder."""
    directory = tmp_path / "copy"
    shutil.copytree(slow.directory, directory, ignore=shutil.ignore_patterns("checkpoints"))  # those are written to
    return dataclasses.replace(slow, directory=directory)


def generation(jobs: Any) -> tuple[int, str]:
    state = jobs.status()
    return state["generation"], state["phase"]


def refused(jobs: Any, *args: str) -> str:
    """Run a command that has to be refused, and return the line that says why."""
    done = jobs.run(*args)
    assert done.returncode == 5, done.stderr
    return next(line for line in done.stderr.splitlines() if line.startswith("error: "))


def test_up_in_another_folder_leaves_the_first_job_alone(slow: Any, copy: Any) -> None:
    why = refused(copy, "up")
    assert why == f"error: job `counter` was started from {slow.directory}/job.yaml, and is running: it is left alone"
    assert why.removeprefix("error: ") in copy.run("plan").stderr
    assert "is left alone" not in copy.run("plan", "--take-over").stderr
    assert generation(slow) == (1, "running")
    copy.ok("up", "--take-over", "--no-supervise")
    assert refused(slow, "up") == why.replace("project", "copy")
    copy.ok("down", "--timeout", "1s")


def test_other_commands_leave_the_job_of_another_folder_alone(slow: Any, copy: Any) -> None:
    why = f"error: job `counter` was started from {slow.directory}/job.yaml, not from {copy.directory}/job.yaml, and is left alone"
    for command in (["down"], ["stop"], ["scale", "2"]):
        assert refused(copy, *command) == why
    assert generation(slow) == (1, "running")
    copy.ok("stop", "counter", "--timeout", "1s")  # who names it means it
    assert refused(copy, "up") == why.replace(f"not from {copy.directory}/job.yaml, and", "and is stopped: it")
    copy.ok("down", "--take-over", "--timeout", "1s")
    assert "counter" not in copy.ok("list")


def test_a_folder_that_has_moved_goes_on(slow: Any, tmp_path: Path) -> None:
    before = slow.directory
    slow.directory = before.rename(tmp_path / "moved")
    (change,) = json.loads(slow.run("plan", "-o", "json").stdout)["changes"]
    assert (change["key"], change["old"], change["new"]) == ("folder", str(before), str(slow.directory))
    done = slow.run("up", "--no-supervise")
    assert done.returncode == 0, done.stderr
    said = f"job `counter` was started from {before}/job.yaml, which is gone: it goes on from {slow.directory}/job.yaml"
    assert said in done.stderr.splitlines()


def test_a_job_that_has_ended_may_be_replaced(jobs: Any, tmp_path: Path) -> None:
    jobs.ok("up", "--follow")
    shutil.copytree(jobs.directory, tmp_path / "copy")
    copy = dataclasses.replace(jobs, directory=tmp_path / "copy")
    done = copy.run("up", "--set", "env.MORE=1", "--follow")
    assert (done.returncode, "becomes what" in done.stderr) == (0, True), done.stderr
    copy.ok("down")


def rename(jobs: Any, name: str, *more: tuple[str, str]) -> None:
    path = jobs.directory / "job.yaml"
    text = path.read_text().replace("name: counter", f"name: {name}")
    for old, new in more:
        text = text.replace(old, new)
    path.write_text(text)


@pytest.mark.long
def test_a_renamed_job_is_not_trained_twice(slow: Any) -> None:
    rename(slow, "other")
    kept = slow.directory / "checkpoints"
    why = f"error: job `counter` still runs, and it writes to {kept}: both jobs would write the same checkpoints"
    assert refused(slow, "up") == why
    assert slow.run("up", "--fresh", "--dry-run").returncode == 0
    for how in (
        ["--set", f"checkpoint={kept}/other"],
        ["--set", f"checkpoint={{dir: {kept}, per_job: true}}"],
        ["--take-over"],
    ):
        up = slow.run("up", "--no-supervise", *how)
        # Where both jobs write the same file, one may find it gone while it is renamed: that is why `up` refuses.
        assert up.returncode in ((0, 1) if how == ["--take-over"] else (0,)), up.stderr
        slow.ok("down", "other", "--timeout", "1s")
    slow.ok("stop", "counter", "--timeout", "1s")
    slow.ok("up", "--no-supervise")  # what is stopped writes nothing
    slow.ok("up", "--no-supervise")
    for name in ("counter", "other"):
        slow.ok("down", name, "--timeout", "1s")
    rename(slow, "counter", ("name: other", "name: counter"))


@pytest.mark.long
def test_a_renamed_job_without_a_checkpoint_is_not_trained_twice(slow: Any) -> None:
    rename(slow, "other", (f"checkpoint: {slow.directory}/checkpoints\n", ""))
    why = (
        f"error: job `counter` still runs, and it was started from {slow.directory}/job.yaml before its `name` changed"
    )
    assert refused(slow, "up").startswith(why)
    # One file for many jobs is something else.
    assert slow.run("up", "--set", "name=third", "--dry-run").stderr.count("refuses") == 0
    rename(slow, "counter", ("name: other", "name: counter"))


def test_a_job_on_another_machine_with_the_same_home_is_left_alone(slow: Any) -> None:
    """As on login nodes: no process of it can be seen here, and started again it would run twice."""
    file = slow.state / "jobs" / "counter" / "host" / "machine.json"
    here, before = json.loads(file.read_text()), slow.processes()
    for same in (
        {**here, "name": "renamed"},
        {**here, "boot": "another"},
        {},
    ):  # a new container, a reboot, an older jobctl
        file.write_text(json.dumps(same))
        assert slow.status()["phase"] == "running"
    file.write_text(json.dumps({"name": "login1", "boot": "another"}))
    state = slow.run("status", "-o", "json")
    assert (state.returncode, json.loads(state.stdout)["phase"]) == (3, "unknown")
    for command in (["status"], ["up"], ["stop"], ["down"], ["restart"]):
        done = slow.run(*command)
        assert done.returncode == 3, (command, done.stdout, done.stderr)
        assert "machine `login1`" in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
    assert slow.processes() == before
    file.write_text(json.dumps(here))
    assert generation(slow) == (1, "running")
