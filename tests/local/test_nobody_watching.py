"""Jobs on this machine that nobody watches: their launchers recover them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.tools.mindsporescripts import LIGHT


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
    told = [f"{words}; the launchers decided" for words in told]
    eventually(lambda: [event["message"] for event in jobs.events() if event["event"] == "failure"] == told)
    eventually(lambda: generations(jobs) == [(2, "launchers"), (3, "launchers")])
    # From now on it decides, unless it has not answered yet, or stands still for three seconds.
    assert any(begun_after_a_kill(jobs, eventually, number) == "supervisor" for number in range(4, 8))
    jobs.ok("stop")
    assert jobs.status()["phase"] == "stopped"
    (jobs.directory / "hold").unlink()
    jobs.ok("up")
    jobs.ok("wait", "--timeout", "60s")


SCHEDULED = """\
name: learner
framework: mindspore
script: train.py
nodes: 2
checkpoint: {directory}/checkpoints
recovery: {{max_restarts: 9, standby: "off"}}
"""


def test_launchers_recover_a_job_one_of_whose_nodes_comes_back_alone(jobs: Any, eventually: Callable[..., Any]) -> None:
    """A worker that dies costs a generation, and MindSpore's scheduler none, before and after that."""
    (jobs.directory / "checkpoints").mkdir()
    (jobs.directory / "train.py").write_text(LIGHT)
    (jobs.directory / "job.yaml").write_text(SCHEDULED.format(directory=jobs.directory))
    jobs.ok("up", "--no-supervise", "--skip-check")
    for number in (1, 2):
        before = eventually(lambda number=number: running(jobs, number))
        os.kill(before[2], signal.SIGKILL)
        after = eventually(
            lambda before=before, number=number: (r := running(jobs, number)) and r[2] != before[2] and r
        )
        assert after[:2] == before[:2]
        os.kill(after[0], signal.SIGKILL)
    eventually(lambda: running(jobs, 3))
    assert generations(jobs) == [(number, "launchers") for number in (2, 3)]
    (jobs.directory / "checkpoints" / "end").touch()
    jobs.ok("wait", "--timeout", "60s")


def running(jobs: Any, generation: int) -> list[int] | None:
    """The pids of all processes, once all of them run in a generation."""
    state, pids = jobs.status(), ranks(jobs)
    return pids if state["generation"] == generation and state["phase"] == "running" and len(pids) == 3 else None


LONGER = """\
import os, socket, time
if os.environ["JOBCTL_ROLE"] != "trainer":  # serves until all trainers have ended
    at = os.environ.get("JOBCTL_SERVERS", "127.0.0.1:0").rsplit(":", 1)
    listening = socket.create_server((at[0], int(at[1])))
    while True:
        listening.accept()
open(os.environ["JOBCTL_PROGRESS_FILE"], "w").write("1")
if os.environ["JOBCTL_NODE"] == "0":
    time.sleep(8)  # a lease of 3 s ends in that time
    print("saved", flush=True)
"""
TOGETHER = "framework: torch\ncommand: [python3, train.py]\nper: node\n"
BESIDE_A_SCHEDULER = "framework: mindspore\nscript: train.py\n"
JOINING_AGAIN = "framework: torch\nscript: train.py\nmode: ps\nps: {servers: 1, trainers: 3}\ntorch: {rejoin: true}\n"


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(TOGETHER, id="together"),
        pytest.param(BESIDE_A_SCHEDULER, id="scheduler", marks=pytest.mark.long),
        pytest.param(JOINING_AGAIN, id="rejoin"),
    ],
)
def test_a_node_may_work_for_longer_than_its_lease_after_all_others_have_ended(
    jobs: Any, eventually: Callable[..., Any], kind: str
) -> None:
    """As one that evaluates the model in the end. Launchers that have nothing left to do stay until it has ended, too."""
    (jobs.directory / "train.py").write_text(LONGER)
    checkpoints = jobs.directory / "checkpoints"
    checkpoints.mkdir(exist_ok=True)
    recovery = 'recovery: {host_timeout: 3s, standby: "off"}'
    (jobs.directory / "job.yaml").write_text(f"name: longer\n{kind}nodes: 3\ncheckpoint: {checkpoints}\n{recovery}\n")
    jobs.ok("up", "--no-supervise", "--skip-check")
    assert jobs.run("wait", "--timeout", "60s").returncode == 0, jobs.ok("events")
    assert "saved" in jobs.ok("logs", "--node", "0")
    eventually(lambda: jobs.processes() == {})
