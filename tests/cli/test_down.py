"""`down` of several jobs: each is taken down, whatever becomes of the others, and the exit code says what came of all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.errors import HostError, NotCollected
from jobctl.jobspec.deploy.store import lock
from jobctl.jobspec.operations.lifecycle.down import TakenDown
from jobctl.options import Format
from jobctl.views.down import code_of_all, finish_down
from tests.cli.conftest import SPEC


@pytest.mark.parametrize(
    ("codes", "code"),
    [((0, 0), 0), ((3, 3), 3), ((0, 3), 4), ((5, 0), 4), ((4, 3), 4), ((4, 4), 4), ((5, 3), 5), ((2, 2), 2)],
)
def test_the_exit_code_says_whether_all_some_or_no_jobs_are_down(codes: tuple[int, ...], code: int) -> None:
    assert code_of_all(codes) == code


@pytest.fixture
def locked(jobctl: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Of two specs, the job of the first is locked by a command at work."""
    monkeypatch.setattr(lock, "WAIT", 0.0)
    Path("other.yaml").write_text(SPEC.replace("small", "other"))
    with lock.hold(Path("state/jobs/small/lock"), "up"):
        yield jobctl


def test_a_job_that_cannot_be_taken_down_keeps_no_other_up(locked: Any) -> None:
    ran = locked("down", "job.yaml", "other.yaml", "job.yaml", "no-such")
    lines = ran.err.splitlines()
    assert (ran.code, ran.out) == (4, "")
    assert lines[0].startswith("error: job `small` is locked by `up` (pid ")
    assert "nothing of job `other` is on this machine" in lines
    assert lines[-2:] == [
        "error: 2 of 3 jobs are not down: job.yaml, no-such",
        "hint: `jobctl down job.yaml no-such` again takes them down once that is fixed",
    ]


def test_down_of_several_jobs_is_one_json_document(locked: Any) -> None:
    ran = locked("down", "job.yaml", "other.yaml", "-o", "json")
    failed, done = json.loads(ran.out)["jobs"]
    assert (ran.code, failed["job"], failed["down"], failed["error"]["code"]) == (4, "job.yaml", False, "not-yours")
    assert done == {
        "job": "other",
        "down": True,
        "hosts": [{"host": "localhost", "reachable": True, "error": None}],
        "lost": [],
        "logs": None,
    }


@pytest.mark.parametrize(
    ("error", "code", "reachable"),
    [
        (NotCollected("h0", "cannot"), 4, True),
        (HostError("h0", "no-route", "cannot"), 3, False),
        (HostError("h0", "key-refused", "cannot"), 3, False),
    ],
)
def test_a_job_that_was_ended_on_all_hosts_is_not_called_unchanged(
    error: HostError, code: int, reachable: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some logs could not be read, so its files stay."""
    done = TakenDown(("h0",), failed={"h0": error})
    assert finish_down("small", done, Format.json) == code
    assert json.loads(capsys.readouterr().out)["hosts"] == [
        {"host": "h0", "reachable": reachable, "error": "h0: cannot"}
    ]


def test_down_of_one_job_says_the_same_as_ever(jobctl: Any) -> None:
    ran = jobctl("down", "job.yaml", "-o", "json")
    assert (ran.code, json.loads(ran.out)["job"], ran.err) == (
        0,
        "small",
        "nothing of job `small` is on this machine\n",
    )


@pytest.mark.parametrize(
    ("command", "left"), [("stop", False), ("stop", True), ("restart", False), ("down", False), ("down", True)]
)
def test_nothing_is_left_of_a_job_that_is_not_up(jobctl: Any, command: str, left: bool) -> None:
    """An earlier version may have `left` its lock."""
    jobs = Path("state/jobs")
    if left:
        (jobs / "small").mkdir(parents=True)
        (jobs / "small" / "lock").touch()
    assert jobctl(command, "job.yaml").code == (0 if command == "down" else 2)
    assert list(jobs.glob("*")) == []


@pytest.mark.parametrize("command", ["stop", "down"])
def test_help_says_where_a_timeout_gives_processes_no_other_time(jobctl: Any, command: str) -> None:
    assert "In Kubernetes they get what the spec says" in " ".join(jobctl(command, "--help").out.split())
