"""Jobs on this machine that nobody watches: their launchers recover them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def generations(jobs: Any) -> list[tuple[int, str]]:
    """The generations that began because of a failure, and by whom."""
    return [(event["generation"], event["by"]) for event in jobs.events() if event["event"] == "generation"]


def ranks(jobs: Any) -> list[int]:
    """The pids of all processes of the job that run."""
    return [p["pid"] for node in jobs.status()["nodes"] for p in node["processes"] if p["state"] == "running"]


def test_launchers_end_a_job_whose_restarts_are_used_up(jobs: Any, eventually: Callable[..., Any]) -> None:
    """As a supervisor would: all ranks end, everybody who looks sees why, and `up` goes on as after any failure."""
    jobs.hold()
    (jobs.directory / "fail").write_text("3")
    up = jobs.run("up", "--no-supervise")  # which may see the job run first, or fail first
    assert up.returncode in (0, 1), up.stderr
    wait = jobs.run("wait", "--timeout", "60s")
    assert wait.returncode == 1, wait.stderr
    state = jobs.status()
    reason = "node 1: rank 1 exited with code 3; the restarts of `recovery.max_restarts` are used up"
    assert (state["phase"], state["reason"], state["supervised"]) == ("failed", reason, False)
    eventually(lambda: ranks(jobs) == [])
    assert generations(jobs) == [(number, "launchers") for number in (2, 3, 4)]
    told = [event for event in jobs.events() if event["event"] in ("failure", "failed")]
    assert [(event["event"], event["generation"]) for event in told] == [
        *(("failure", number) for number in (1, 2, 3, 4)),
        ("failed", 4),
    ]
    assert told[-1]["message"] == f"job failed: {reason}"
    (jobs.directory / "fail").unlink()
    jobs.ok("up")
    eventually(lambda: jobs.runs(5))
    (jobs.directory / "hold").unlink()
    jobs.ok("wait", "--timeout", "60s")


def begun_after_a_kill(jobs: Any, eventually: Callable[..., Any], number: int) -> str:
    """Kill a rank, and return who has begun the generation of this number."""
    jobs.kill_rank(1)
    eventually(lambda: jobs.runs(number))
    eventually(lambda: generations(jobs)[-1][0] == number)
    return generations(jobs)[-1][1]


@pytest.mark.long
def test_launchers_recover_a_job_without_a_supervisor(jobs: Any, eventually: Callable[..., Any]) -> None:
    jobs.hold()
    spec = jobs.directory / "job.yaml"
    spec.write_text(spec.read_text() + "recovery: {max_restarts: 9}\n")
    jobs.ok("up", "--no-supervise")
    assert jobs.status()["supervised"] is False
    jobs.kill_rank(1)
    eventually(lambda: jobs.runs(2))
    jobs.kill_rank(0)
    eventually(lambda: jobs.runs(3))
    jobs.ok("up")  # changes nothing, and leaves a supervisor, which tells what it has missed
    eventually(lambda: jobs.status()["supervised"])
    told = ["node 1: rank 1 was killed by SIGKILL", "node 0: rank 0 was killed by SIGKILL"]
    told = [f"{words}; no supervisor was there" for words in told]
    eventually(lambda: [event["message"] for event in jobs.events() if event["event"] == "failure"] == told)
    eventually(lambda: generations(jobs) == [(2, "launchers"), (3, "launchers")])
    # From now on it decides, unless it has not answered yet, or stands still for three seconds.
    assert any(begun_after_a_kill(jobs, eventually, number) == "supervisor" for number in range(4, 8))
    jobs.ok("stop")
    assert jobs.status()["phase"] == "stopped"
    (jobs.directory / "hold").unlink()
    jobs.ok("up")
    jobs.ok("wait", "--timeout", "60s")
