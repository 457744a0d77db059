"""Files of jobs that cannot be read, as of a job that `sudo jobctl up` has started: they hide no other job, and nobody takes them for none.

Folders and links to themselves stand for them: root, who runs the tests, may read any file.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

from jobctl import console
from jobctl.jobspec.deploy.store.jobdir import state_dir
from jobctl.jobspec.operations.resolve.settings import all_settings
from jobctl.jobspec.spec.user_config import config_path
from tests.cli.test_prune import past

JOBS = Path("state/jobs")


@pytest.fixture
def theirs(jobctl: Any) -> Any:
    """Jobs whose files cannot be read: of one what it was started with, of another its folder."""
    (JOBS / "theirs" / "job.json").mkdir(parents=True)
    (JOBS / "theirs-too").symlink_to("theirs-too")
    (JOBS / "mine").mkdir()
    (JOBS / "mine" / "job.json").write_text(json.dumps({"target": "local", "spec": "job.yaml"}))
    return jobctl


@pytest.mark.parametrize("options", [(), ("--all",)])
def test_unreadable_jobs_hide_no_other(theirs: Any, options: tuple[str, ...]) -> None:
    ran = theirs("list", "-o", "json", *options)
    jobs = json.loads(ran.out)
    assert (ran.code, [job["job"] for job in jobs]) == (0, ["mine", "theirs", "theirs-too"])
    assert [job["phase"] == "unknown" for job in jobs] == [False, True, True]
    assert len({tuple(job) for job in jobs}) == 1
    assert [job["down"] for job in jobs] == [False] * 3 if options else "down" not in jobs[0]
    for name, why in (("theirs", "Is a directory"), ("theirs-too", "Too many levels of symbolic links")):
        path = (JOBS / name / "job.json").absolute()
        assert f"error: job `{name}`: cannot read {path}: {why}\n" in ran.err


def test_unreadable_jobs_keep_nobody_from_planning_another(theirs: Any) -> None:
    ran = theirs("plan")
    assert (ran.code, "start node 0" in ran.out) == (10, True), ran.err


@pytest.mark.parametrize("command", ["down", "status", "stop"])
def test_a_job_whose_file_is_empty_is_not_taken_for_one_that_is_down(jobctl: Any, command: str) -> None:
    """As after a power cut: `down` would leave it on its hosts, and forget it."""
    path = JOBS / "train" / "job.json"
    path.parent.mkdir(parents=True)
    path.touch()
    ran = jobctl(command, "train")
    assert (ran.code in (0, 4), path.exists()) == (False, True)
    assert f"cannot read {path.absolute()}" in ran.err
    assert "`--hosts`" in ran.err


@pytest.mark.parametrize("command", ["list", "metrics", "prune --yes"])
def test_a_folder_of_jobs_that_cannot_be_read_is_not_taken_for_no_jobs(jobctl: Any, command: str) -> None:
    JOBS.parent.mkdir()
    JOBS.symlink_to("jobs")
    ran = jobctl(*command.split())
    message = f"error: {JOBS.absolute()}: Too many levels of symbolic links"
    assert (ran.code, ran.out, ran.err.splitlines()[0]) == (2, "", message)


@pytest.mark.parametrize("command", ["list", "metrics", "prune --yes"])
def test_a_file_in_the_place_of_the_history_is_not_taken_for_no_jobs(jobctl: Any, command: str) -> None:
    JOBS.parent.write_text("")
    ran = jobctl(*command.split())
    assert (ran.code, ran.out, ran.err.splitlines()[0]) == (2, "", f"error: {JOBS.absolute()}: Not a directory")


def test_an_unreadable_history_is_kept_and_hides_no_other(jobctl: Any) -> None:
    past("ended", 40)
    (JOBS / "theirs" / "events.jsonl").mkdir(parents=True)
    ran = jobctl("prune", "--yes", "-o", "json")
    document = json.loads(ran.out)
    assert (ran.code, [job["job"] for job in document["jobs"]]) == (0, ["ended"])
    (kept,) = document["kept"]
    path = (JOBS / "theirs" / "events.jsonl").absolute()
    assert (kept["job"], kept["reason"].partition(";")[0]) == ("theirs", f"cannot read {path}: Is a directory")
    assert [path.name for path in JOBS.iterdir()] == ["theirs"]


def test_a_file_system_without_locks_is_named(jobctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Lustre has none, unless it was mounted with `flock`."""

    def flock(*of: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", flock)
    before = set(os.listdir("/proc/self/fd"))
    ran = jobctl("up", "--no-supervise")
    assert (ran.code, ran.out) == (2, "")
    place = (JOBS / "small" / "lock").absolute()
    hint = "that file system knows no locks (flock): name a folder on another one with JOBCTL_STATE_DIR"
    assert ran.err.endswith(
        f"error: {place}: Function not implemented\nhint: {hint}; JOBCTL_STATE_DIR says that jobctl keeps its history there\n"
    )
    left = {os.path.realpath(f"/proc/self/fd/{one}") for one in set(os.listdir("/proc/self/fd")) - before}
    assert str(place) not in left


@pytest.mark.parametrize(
    ("environ", "hint"),
    [
        ({"JOBCTL_STATE_DIR": "gone/state"}, "JOBCTL_STATE_DIR says that jobctl keeps its history there"),
        (
            {"HOME": "gone"},
            "jobctl keeps its history in {here}/gone/.local/state/jobctl: JOBCTL_STATE_DIR names another folder for it",
        ),
    ],
)
def test_a_history_that_cannot_be_kept_is_named_with_what_says_where(
    environ: dict[str, str], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("JOBCTL_STATE_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    missing, other = (console.file_error(FileNotFoundError(2, "no", f"{tmp_path}/{one}")) for one in ("gone", "out"))
    assert (missing[1], other[1]) == (hint.format(here=tmp_path), None)
    (tmp_path / "gone").mkdir()  # what is wrong there has other causes
    assert console.file_error(FileNotFoundError(2, "no", f"{tmp_path}/gone"))[1] is None


def test_a_user_without_a_home_has_the_same_history_in_each_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a job would be unknown in another folder, and be brought up there a second time."""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 54321)  # whom no machine knows
    assert state_dir({}) == Path("/.local/state/jobctl")
    assert config_path({}) == Path("/.config/jobctl/config.yaml")


@pytest.mark.parametrize("relative", ["state", "./state", "~/state"])
def test_a_relative_folder_of_xdg_does_not_count(
    relative: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its specification says so. A job would be unknown in another folder here, too."""
    monkeypatch.setenv("HOME", str(tmp_path))
    environ = {"XDG_STATE_HOME": relative, "XDG_CONFIG_HOME": relative}
    assert state_dir(environ) == tmp_path / ".local/state/jobctl"
    assert config_path(environ) == tmp_path / ".config/jobctl/config.yaml"
    assert state_dir({**environ, "XDG_STATE_HOME": "/state"}) == Path("/state/jobctl")
    assert config_path({**environ, "XDG_CONFIG_HOME": "/config"}) == Path("/config/jobctl/config.yaml")
    shown = [all_settings({**environ, **more}).values["state_dir"] for more in ({}, {"XDG_STATE_HOME": "/state"})]
    assert [(one.origin, one.place) for one in shown] == [("default", None), ("environment", "XDG_STATE_HOME")]
