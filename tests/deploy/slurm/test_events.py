"""What happened to a job in Slurm, collected from its directory into this machine's history."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.slurm.events import AllocationEvents
from jobctl.jobspec.deploy.slurm.queue import QueueEntry, SlurmLook
from jobctl.jobspec.deploy.store import events
from jobctl.jobspec.deploy.store.events import KnownEvents
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.views.events import event_text

BEGAN = 100.0
PLACES = {"0": {"host": "s1"}, "1": {"host": "s3"}}


class PlayedLogin:
    """A job's directory: what the coordinator has written, and what the launchers of nodes have kept."""

    def __init__(self) -> None:
        self.lines, self.kept, self.began, self.cut = list[dict[str, Any]](), dict[int, Any](), BEGAN, False
        self.slurm: dict[str, Any] = {}  # what Slurm says
        self.result: dict[str, Any] | None = None

    def look(self) -> SlurmLook:
        if self.cut:
            raise HostError("login", "unreachable", "the login node does not answer")
        reports = {
            PurePosixPath(f"node-{node}/report.json"): {"events": {"file": str(node), "count": len(told)}}
            for node, told in self.kept.items()
        }
        start, allocation = PurePosixPath("run/start.json"), PurePosixPath("run/allocation.json")
        files = {**reports, start: {"began": self.began}, allocation: {"nodes": PLACES, "result": self.result}}
        return SlurmLook("7", 110.0, files=files, **self.slurm)

    def events(self, offset: int) -> bytes:
        return "".join(json.dumps(line) + "\n" for line in self.lines).encode()[offset:] + b'{"time": 9'

    def kept_events(self, node: int, file: str) -> Any:
        return {"version": 1, "file": str(node), "dropped": 0, "events": self.kept[node]}


def begins(number: int, **more: Any) -> dict[str, Any]:
    told = {"event": "generation", "time": 103.0 + number, "began": BEGAN, "generation": number, "by": "launchers"}
    return {**told, "members": [0, 1], "hosts": {"0": "node-0", "1": "node-1"}, "cause": None, **more}


@pytest.fixture
def login() -> PlayedLogin:
    return PlayedLogin()


def gathered(login: PlayedLogin, job: JobDir) -> list[dict[str, Any]]:
    """Return what is new after each of two commands has collected."""
    told: Any = login
    reading = AllocationEvents(told, job, login.look)
    reading.gather()
    AllocationEvents(told, job, login.look).gather()
    reading.gather()
    return reading.new()


def test_each_event_is_kept_once_whoever_collects_and_names_machines(login: PlayedLogin, tmp_path: Path) -> None:
    job = JobDir(tmp_path / "jobs" / "tiny")
    job.create()
    events.record(job.events, 101.0, "submitted", "job 7 of Slurm was submitted")
    login.lines = [{"time": 102.0, "event": "placed", "message": "generation 1 on s1, s3", "generation": 1}]
    login.kept = {node: [begins(1), begins(2)] for node in (0, 1)}
    failure = {"event": "failure", "time": 104.5, "began": BEGAN, "generation": 1, "node": 1, "host": "node-1"}
    login.kept[1].append({**failure, "reason": "rank 1 was killed", "tail": []})
    told = gathered(login, job)
    assert [event["event"] for event in told] == ["submitted", "placed", "generation", "failure", "generation"]
    assert (told[2]["hosts"], told[3]["host"]) == ({"0": "s1", "1": "s3"}, "s3")
    assert told[3]["message"] == "node 1: rank 1 was killed"  # there is never a supervisor

    login.lines.append({"time": 110.0, "event": "succeeded", "message": "job succeeded"})
    assert [event["event"] for event in gathered(login, job)][-1] == "succeeded"
    login.cut = True
    assert len(gathered(login, job)) == 6
    # Another run writes from the first byte on again.
    login.cut, login.began, login.kept = False, 200.0, {}
    login.lines = [{"time": 202.0, "event": "placed", "message": "generation 1 on s1, s3", "generation": 1}]
    assert [event["time"] for event in gathered(login, job)][-2:] == [110.0, 202.0]


def test_what_only_slurm_tells_is_kept_once(login: PlayedLogin, tmp_path: Path) -> None:
    """A coordinator that was killed says nothing, and there is none yet while the job is held."""
    job = JobDir(tmp_path / "jobs" / "tiny")
    job.create()
    login.slurm = {"entry": QueueEntry("7", "PENDING", "JobHeldUser", expected_start=200.0), "asked": True}
    (held,) = gathered(login, job)
    assert (held["event"], held["lasting"], "scontrol release" in held["message"]) == ("waiting", True, True)
    for entry in (QueueEntry("7", "PENDING", "Resources"), QueueEntry("7", "RUNNING"), QueueEntry("7", "CANCELLED")):
        login.slurm = {"entry": entry, "asked": True}
        assert len(gathered(login, job)) == 1
    for silent in ({"asked": False}, {"asked": True, "problem": "Unable to contact slurm controller"}):
        login.slurm = silent
        assert len(gathered(login, job)) == 1
    login.result = {"phase": "failed", "reason": "node 0 ended with code 1"}  # its event comes from the coordinator
    login.slurm = {"entry": QueueEntry("7", "FAILED"), "asked": True, "said": "Killed"}
    assert len(gathered(login, job)) == 1
    login.result = None
    told = gathered(login, job)[-1]
    assert (told["event"], told["message"]) == (
        "failed",
        "job failed: job 7: it ended in Slurm as FAILED without a result; slurm.out ends with: Killed",
    )


def test_what_a_full_disk_does_not_take_is_read_again(
    login: PlayedLogin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = JobDir(tmp_path / "jobs" / "tiny")
    job.create()
    login.lines = [{"time": 102.0, "event": "placed", "message": "generation 1 on s1, s3", "generation": 1}]
    told: Any = login
    reading = AllocationEvents(told, job, login.look)
    with monkeypatch.context() as full:
        full.setattr(KnownEvents, "add", _full)
        reading.gather()
    assert reading.new() == []
    reading.gather()
    assert [event["event"] for event in reading.new()] == ["placed"]


def _full(events: KnownEvents, told: Any) -> Any:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    "odd", [{"message": 5}, {"event": ["failure"]}, {"tail": 5}, {"tail": ["a", 5]}, {"message": None}]
)
def test_what_a_process_has_written_there_is_read_all_the_same(
    login: PlayedLogin, tmp_path: Path, odd: dict[str, Any]
) -> None:
    """It stays in this machine's history, which each later command reads."""
    job = JobDir(tmp_path / "jobs" / "tiny")
    job.create()
    login.lines = [{"time": 102.0, "event": "failure", "message": "rank 1 died", **odd}]
    (told,) = gathered(login, job)
    assert event_text(told).startswith("1970-01-01 ")
    assert [type(told[name]) for name in ("event", "message")] == [str, str]
