"""Commands on this machine that something kills in the middle, where nobody watches the job."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.launcher.recovery.going_back import CHANGE_TIMEOUT

GRACE = 10.0  # the spec's stop_grace_period, in which whoever kills a command may stand still
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


def begun(jobs: Any, *args: str) -> subprocess.Popen[str]:
    """Start a command whose job has to be killed."""
    return jobs.popen(*args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def told(jobs: Any) -> list[str]:
    """What the launchers were told last, as the control files of the job say."""
    files = Path(jobs.state).glob("jobs/*/**/run/control.json")
    return [json.loads(file.read_text())["command"] for file in files]


def cut_off(jobs: Any, eventually: Callable[..., Any], *args: str) -> None:
    """Kill a command that changes the job, once it has stopped what runs."""
    command = begun(jobs, *args)
    eventually(lambda: "stop" in told(jobs))
    command.kill()
    command.wait()


@pytest.mark.long
def test_launchers_go_on_as_before_where_up_was_killed_in_the_middle(jobs: Any, eventually: Callable[..., Any]) -> None:
    """The processes take their time to end; the command is killed meanwhile. Then the next one makes the change."""
    jobs.set(STEPS="100000")
    script, spec = jobs.directory / "counter.py", jobs.directory / "job.yaml"
    script.write_text(STUBBORN + script.read_text())
    spec.write_text(spec.read_text().replace("stop_grace_period: 5s", f"stop_grace_period: {GRACE:g}s"))
    jobs.ok("up", "--no-supervise")
    jobs.running()
    cut_off(jobs, eventually, "up", "--no-supervise", "--set", "env.Q=1")
    state = jobs.status()
    assert (state["phase"], state["supervised"]) == ("restarting", False)
    assert state["reason"].startswith("stopped for a change; `jobctl up` makes it"), state["reason"]
    eventually(lambda: jobs.runs(2), GRACE + CHANGE_TIMEOUT + 120.0)
    begins = [event for event in jobs.events() if event["event"] == "generation"]
    assert [(event["generation"], event["by"]) for event in begins] == [(2, "launchers")]
    assert "the command that stopped the job for a change was cut off" in begins[0]["message"]
    jobs.ok("up", "--no-supervise", "--set", "env.Q=1")
    eventually(lambda: jobs.runs(3))
    jobs.ok("down", "--timeout", "1s")
    assert jobs.processes() == {}


def test_the_first_up_of_a_job_is_killed(jobs: Any, eventually: Callable[..., Any]) -> None:
    """Launchers are there that have no order: they wait, and `status` says who hands it out."""
    jobs.set(STEPS="100000")
    up = begun(jobs, "up", "--no-supervise")
    eventually(lambda: list(Path(jobs.state).glob("jobs/*/**/report.json")))
    up.kill()
    up.wait()
    state = jobs.status()
    if told(jobs) == []:
        assert (state["phase"], "`jobctl up` hands it out" in state["reason"]) == ("starting", True)
    jobs.ok("up", "--no-supervise")
    eventually(lambda: jobs.runs(1))
    jobs.ok("down", "--timeout", "1s")
    assert jobs.processes() == {}


@pytest.mark.parametrize("command", [("down", "--timeout", "1s"), ("restart",), ("stop",)])
def test_a_command_is_killed_at_random_moments(
    jobs: Any, eventually: Callable[..., Any], command: tuple[str, ...]
) -> None:
    """The job trains, waits or is gone, and the next commands bring it up, and take it down."""
    jobs.set(STEPS="100000")
    jobs.ok("up", "--no-supervise")
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}")
    killed = begun(jobs, *command)
    try:
        killed.wait(timeout=random.Random(seed).uniform(0.3, 1.5))
    except subprocess.TimeoutExpired:
        killed.kill()
        killed.wait()
    look = jobs.run("status", "-o", "json")
    if look.returncode == 0:
        assert json.loads(look.stdout)["phase"] in ("running", "starting", "restarting", "stopped")
    jobs.ok("up", "--no-supervise")
    jobs.running()
    training = [line for line in jobs.processes().values() if line.startswith("python3 counter.py")]
    assert len(training) == 2, jobs.processes()
    jobs.ok("down", "--timeout", "1s")
    assert jobs.processes() == {}
