"""Things that die while a job runs, one at a time; the run must end as if nothing had happened."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jobctl.commands import supervise
from jobctl.jobspec.deploy.apply.deployer import Feed
from jobctl.jobspec.supervise.decisions import Leave
from jobctl.jobspec.supervise.loop import Supervisor
from tests.tools.waiting import PROMPT

from .conftest import kill

STEPS = 60
# By the supervisor; or by the launchers, where that has stood still for three seconds.
RECOVERED = r"( at step \d+; restarting all nodes|; the launchers decided)"


@pytest.fixture
def counting(jobs: Any) -> Any:
    """A job that goes on until `ends_well` lets it, so that there is time to kill something."""
    jobs.set(STEPS=str(STEPS), DELAY="0.05")
    (jobs.directory / "hold").touch()
    jobs.ok("up")
    return jobs


def wait_for_step(jobs: Any, eventually: Any, step: int) -> dict[str, Any]:
    """Return the state once every node has got to `step`."""

    def there() -> dict[str, Any] | None:
        state = jobs.status()
        return state if all((node["progress"] or 0) >= step for node in state["nodes"]) else None

    return eventually(there)


def ends_well(jobs: Any) -> None:
    """All steps done, each node once at the end, and no more than a checkpoint lost on the way."""
    (jobs.directory / "hold").unlink(missing_ok=True)
    done = jobs.run("wait", "--timeout", "300s")
    assert done.returncode == 0, done.stderr
    assert [(jobs.directory / "checkpoints" / f"step-{node}").read_text() for node in (0, 1)] == [str(STEPS)] * 2
    state = jobs.status()
    assert (state["phase"], [n["exit_code"] for n in state["nodes"]]) == ("succeeded", [0, 0])


def launchers(jobs: Any, node: int) -> list[int]:
    """Return the pids of the launcher processes of a node, the outer one first."""
    return sorted(
        pid for pid, line in jobs.processes().items() if f"/node-{node} " in line + " " and "--control" in line
    )


def test_a_launcher_is_stopped_for_good(jobs: Any, eventually: Any) -> None:
    """With its guard, which would end it. `status` says so, and a supervisor replaces it once its lease is over."""
    jobs.hold()
    alone = "--set", "nodes=1", "--set", "recovery.host_timeout=3s"
    jobs.ok("up", "--no-supervise", *alone)
    jobs.running()
    for pid in launchers(jobs, 0):
        os.kill(pid, signal.SIGSTOP)
    words = "node 0 on localhost: its launcher is stopped, as by SIGSTOP: SIGCONT or `jobctl restart --node` goes on"
    eventually(lambda: (state := jobs.status())["phase"] == "degraded" and state["reason"] == words)
    jobs.ok("up", *alone)
    eventually(lambda: jobs.runs(2))
    assert "its launcher is stopped" in next(e["message"] for e in jobs.events() if e["event"] == "failure")
    jobs.release()
    jobs.ok("wait", "--timeout", "60s")


def test_a_training_process_is_killed(counting: Any, eventually: Any) -> None:
    state = wait_for_step(counting, eventually, 5)
    os.kill(state["nodes"][1]["processes"][0]["pid"], signal.SIGKILL)
    ends_well(counting)
    assert counting.left()["generation"] == 2
    story = [event["message"] for event in counting.events()]
    assert any(re.match(f"node 1: rank 1 was killed by SIGKILL{RECOVERED}", line) for line in story)
    assert any(line.startswith("generation 2 begins") for line in story)
    assert story[-2] == "job succeeded: all nodes ended with code 0"
    resumed = counting.ok("logs", "--generation", "2", "--rank", "0").splitlines()[0]
    assert int(resumed.rsplit(" ", 1)[1]) >= 5


def test_a_launcher_is_killed_with_all_its_guards(counting: Any, eventually: Any) -> None:
    wait_for_step(counting, eventually, 5)
    kill(*launchers(counting, 0))
    ends_well(counting)
    assert counting.status()["generation"] == 2


def test_the_supervisor_is_killed_and_started_again(counting: Any, eventually: Any) -> None:
    wait_for_step(counting, eventually, 2)
    counting.kill_supervisor()
    state = counting.status()
    assert (state["phase"], state["supervised"]) == ("running", False)
    os.kill(state["nodes"][0]["processes"][0]["pid"], signal.SIGKILL)
    eventually(lambda: counting.runs(2))  # the launchers do not wait for a supervisor
    assert counting.run("up").returncode == 0
    ends_well(counting)


def test_supervise_in_the_foreground(counting: Any, eventually: Any) -> None:
    wait_for_step(counting, eventually, 2)
    counting.kill_supervisor()
    pid = counting.status()["nodes"][1]["processes"][0]["pid"]
    os.kill(pid, signal.SIGKILL)
    (counting.directory / "hold").unlink()
    done = counting.run("supervise")
    assert (done.returncode, "job succeeded" in done.stderr) == (0, True)
    ends_well(counting)


def test_up_without_a_supervisor_ends_the_one_of_an_earlier_up(counting: Any, eventually: Any) -> None:
    """One that a person has started, in a terminal or by systemd, goes on."""
    wait_for_step(counting, eventually, 2)
    kill(*launchers(counting, 0))
    eventually(lambda: counting.runs(2))  # by the supervisor, whose end ends nothing that it has started
    done = counting.run("up", "--no-supervise")
    assert "the supervisor that an earlier `jobctl up` left behind has ended" in done.stderr
    state = counting.status()
    assert (state["phase"], state["supervised"], state["generation"]) == ("running", False, 2)
    own = counting.popen("supervise")
    eventually(lambda: counting.status()["supervised"])
    assert "has ended" not in counting.run("up", "--no-supervise").stderr
    assert counting.status()["supervised"] is True
    (counting.directory / "hold").unlink()
    assert own.wait(PROMPT) == 0
    ends_well(counting)


def test_a_job_that_is_brought_up_as_its_supervisor_leaves_keeps_it(jobs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`up` sees a supervisor, and so starts none; that has found nothing left to do, and has not ended yet."""
    jobs.set(STEPS="100000")
    jobs.ok("up", "--no-supervise")
    jobs.ok("stop")
    run, leave, runs = Supervisor.run, Supervisor._leave, []

    def leave_late(self: Supervisor, decision: Leave) -> str:
        if len(runs) == 1:
            jobs.ok("up")
        return leave(self, decision)

    def run_again(self: Supervisor, feed: Feed) -> str:
        runs.append(jobs.status()["phase"])
        if len(runs) == 2:
            jobs.ok("stop")
        return run(self, feed)

    monkeypatch.setenv("JOBCTL_STATE_DIR", str(jobs.state))
    monkeypatch.setattr(Supervisor, "_leave", leave_late)
    monkeypatch.setattr(Supervisor, "run", run_again)
    before = signal.getsignal(signal.SIGTERM)
    supervise.supervise("counter")
    signal.signal(signal.SIGTERM, before)
    assert runs == ["stopped", "running"]
    assert jobs.status()["supervised"] is False


def test_a_second_supervisor_steps_back(counting: Any) -> None:
    done = counting.run("supervise")
    assert (done.returncode, "another supervisor watches" in done.stderr) == (5, True)


def test_a_bug_is_not_retried_until_the_budget_is_gone(jobs: Any) -> None:
    (jobs.directory / "fail").write_text("3")
    done = jobs.run("up", "--follow")
    assert done.returncode == 1
    state = jobs.status()
    assert (state["phase"], state["reason"]) == (
        "failed",
        "node 1: rank 1 exited with code 3, again, before any progress: a bug, not a fault",
    ) or state["generation"] <= 4
    assert "cannot go on" in done.stderr
    assert jobs.run("wait").returncode == 1


def test_a_bug_of_all_ranks_is_seen_whoever_fails_first(jobs: Any) -> None:
    per = ("--set", "per=process", "--set", "devices=cpu:2", "--set", "nodes=1")
    jobs.ok("up", "--set", "command=[python3, nope.py]", *per)
    done = jobs.run("wait", "--timeout", "60s")
    assert done.returncode == 1
    assert "again, before any progress: a bug, not a fault" in done.stderr
    # The first to fail takes the other with it, so that the two may take turns once: of three, two are of one rank.
    assert jobs.status()["generation"] in (2, 3)


def test_a_program_that_is_not_there_is_not_tried_again(jobs: Any) -> None:
    assert jobs.run("up", "--set", "command=[nope]", "--follow").returncode == 1
    state = jobs.status()
    assert (state["phase"], state["generation"]) == ("failed", 1)
    assert "cannot start nope: No such file or directory; what cannot be started is not retried" in state["reason"]


@pytest.mark.long
def test_the_budget_ends(jobs: Any, eventually: Any) -> None:
    jobs.set(STEPS=str(STEPS), DELAY="10")
    jobs.ok("up")
    for generation in range(1, 5):
        state = eventually(lambda g=generation: runs(jobs, g))
        os.kill(state["nodes"][0]["processes"][0]["pid"], signal.SIGKILL)
    assert jobs.run("wait", "--timeout", "60s").returncode == 1
    used = "(all 3|the) restarts of `recovery.max_restarts` are used up"  # as a supervisor says it, or launchers
    assert re.fullmatch(f"node 0: rank 0 was killed by SIGKILL; {used}", jobs.status()["reason"])
    jobs.set(DELAY="0.01")
    jobs.ok("up")  # a fresh budget
    ends_well(jobs)
    assert jobs.status()["generation"] == 5


def runs(jobs: Any, generation: int) -> dict[str, Any] | None:
    """Return the state if all processes of `generation` run."""
    state: dict[str, Any] = jobs.status()
    states = [[process["state"] for process in node["processes"]] for node in state["nodes"]]
    return state if state["generation"] == generation and states == [["running"]] * 2 else None


@pytest.mark.long
def test_up_is_killed_at_random_moments(jobs: Any, eventually: Any) -> None:
    jobs.set(STEPS="100000")
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}")
    moments = random.Random(seed)
    for _ in range(int(os.environ.get("JOBCTL_TEST_KILLS", "3"))):
        up = jobs.popen("up", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            up.wait(timeout=moments.uniform(0.1, 1.6))
        except subprocess.TimeoutExpired:
            up.kill()
            up.wait()
        done = jobs.run("up")
        assert done.returncode == 0, done.stderr
        state = jobs.running()
        assert (state["phase"], state["supervised"]) == ("running", True)
        ranks = [p["rank"] for n in state["nodes"] for p in n["processes"] if p["state"] == "running"]
        assert ranks == [0, 1]
        training = [line for line in jobs.processes().values() if line.startswith("python3 counter.py")]
        assert len(training) == 2, jobs.processes()
        eventually(lambda: len(jobs.supervisors()) == 1)  # one that the killed `up` has left may be loading, and leaves
        jobs.ok("down", "--timeout", "1s")
        assert jobs.processes() == {}


def test_up_is_killed_while_it_replaces_launchers(jobs: Any) -> None:
    """The job was stopped, and whoever did it is no more: the next `up` brings it back, with the old spec or the new."""
    jobs.set(STEPS="100000")
    jobs.ok("up")
    moments = random.Random(1)
    for number in range(3):
        up = jobs.popen("up", "--set", f"env.Q={number}", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            up.wait(timeout=moments.uniform(0.4, 1.2))
        except subprocess.TimeoutExpired:
            up.kill()
            up.wait()
        done = jobs.run("up")
        assert done.returncode == 0, done.stderr
        state = jobs.status()
        assert (state["phase"], state["supervised"]) == ("running", True)


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_a_full_disk_is_waited_for(jobs: Any, eventually: Any) -> None:
    """What ended is told all the same, the job goes on once there is room, and `down` needs none."""
    jobs.set(STEPS="100000")
    jobs.state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(jobs.state)], check=True)
    try:
        jobs.ok("up")
        wait_for_step(jobs, eventually, 2)
        fill(jobs.state / "filler")  # the script cannot write its step down, and fails
        state = eventually(lambda: (s := jobs.status())["phase"] == "restarting" and s)
        assert "exited with code 1" in state["reason"]
        (jobs.state / "filler").unlink()
        # Some bytes that jobctl gave back may have been enough for generations that failed before there was room.
        eventually(lambda: (s := jobs.status())["phase"] == "running" and s["generation"] >= 2)
        fill(jobs.state / "filler")
        jobs.ok("down", "--timeout", "1s")
        assert jobs.processes() == {}
        assert not (jobs.state / "jobs" / "counter" / "host").exists()
    finally:
        print(jobs.run("events").stdout)  # they are gone with the disk
        jobs.run("down", "--timeout", "1s")
        subprocess.run(["umount", "--lazy", str(jobs.state)], check=True)


def fill(path: Path) -> None:
    """Leave no room on the disk of `path`."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def test_events_are_json_lines(counting: Any) -> None:
    for line in counting.ok("events", "-o", "json").splitlines():
        assert {"time", "event", "message"} <= set(json.loads(line))
