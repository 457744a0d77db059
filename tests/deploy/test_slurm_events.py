"""What happened to a job in Slurm, collected from its directory into this machine's history."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.slurm.events import AllocationEvents
from jobctl.jobspec.deploy.slurm.queue import SlurmLook
from jobctl.jobspec.deploy.store import events
from jobctl.jobspec.deploy.store.jobdir import JobDir

BEGAN = 100.0
PLACES = {"0": {"host": "s1"}, "1": {"host": "s3"}}


class PlayedLogin:
    """A job's directory: what the coordinator has written, and what the launchers of nodes have kept."""

    def __init__(self) -> None:
        self.lines, self.kept, self.began, self.cut = list[dict[str, Any]](), dict[int, Any](), BEGAN, False

    def look(self) -> SlurmLook:
        if self.cut:
            raise HostError("login", "unreachable", "the login node does not answer")
        reports = {
            PurePosixPath(f"node-{node}/report.json"): {"events": {"file": str(node), "count": len(told)}}
            for node, told in self.kept.items()
        }
        start, allocation = PurePosixPath("run/start.json"), PurePosixPath("run/allocation.json")
        return SlurmLook("7", 0.0, files={**reports, start: {"began": self.began}, allocation: {"nodes": PLACES}})

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
