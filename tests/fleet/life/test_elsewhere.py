"""A job that two machines know, each with a state directory of its own."""

from __future__ import annotations

import json
from pathlib import Path

from tests.fleet.jobs import SPEC, Elsewhere, Jobs
from tests.tools.waiting import eventually


def told(jobs: Jobs, event: str) -> list[str]:
    """What a machine tells of supervisors that have begun there, or ended."""
    found = map(json.loads, jobs.run("events", "counter", "-o", "json").stdout.splitlines())
    return [one["message"] for one in found if one["event"] == event]


def test_a_supervisor_leaves_a_job_that_another_machine_has_changed(jobs: Jobs, tmp_path: Path) -> None:
    """It would bring the second node back. The other machine's goes on, also when a process fails."""
    assert jobs.up().returncode == 0
    other = Elsewhere(jobs, tmp_path / "other")
    jobs.spec(SPEC.replace("nodes: 2", "nodes: 1"))
    up = other.up()
    assert up.returncode == 0, up.stderr
    eventually(lambda: told(jobs, "supervisor-ended"))
    assert "it is another one now than is known here" in told(jobs, "supervisor-ended")[0]
    eventually(lambda: told(other, "supervisor-started"))
    (jobs.checkpoints / "fail-0").touch()
    other.trains(generation=3)
    assert [len(names) for names in jobs.containers()] == [1, 0]
    restart = jobs.run("restart")
    assert (restart.returncode, "was changed from" in restart.stderr) == (5, True), restart.stderr
    jobs.spec(SPEC)
    assert jobs.run("up", "--skip-check").returncode == 0
    eventually(lambda: told(other, "supervisor-ended"))
    jobs.trains(generation=4)
    assert [len(names) for names in jobs.containers()] == [1, 1]
