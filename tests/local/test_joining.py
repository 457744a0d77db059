"""More nodes for a job that trains: it goes on until the new node can begin at once. With a stand-in for JAX."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Any

import pytest

from tests.tools.processes import hurry
from tests.tools.waiting import eventually

from .conftest import kill

# While there is a file `wait` beside it, no import comes to its end.
JAX = """\
import os, time
__version__ = "0"
while os.path.exists(os.path.join(os.path.dirname(__file__), "wait")):
    time.sleep(0.05)
"""
TRAIN = """\
import os, time
import jax
step = 0
while True:
    step += 1
    with open(os.environ["JOBCTL_PROGRESS_FILE"], "w") as file:
        file.write(str(step))
    time.sleep(0.05)
"""
SPEC = """\
name: learner
framework: jax
script: train.py
nodes: "1:2"
stop_grace_period: 5s
env: {{PYTHONPATH: {packages}}}
"""


@pytest.fixture
def alone(jobs: Any) -> Any:
    """A job that trains on one node, which has its standby, and may have two; no other import comes to its end."""
    packages = jobs.directory.parent / "packages"
    packages.mkdir()
    (packages / "jax.py").write_text(JAX)
    (jobs.directory / "train.py").write_text(TRAIN)
    (jobs.directory / "job.yaml").write_text(SPEC.format(packages=packages))
    jobs.ok("up", "--skip-check")
    jobs.ok("scale", "1")
    eventually(lambda: standby(jobs, 0) == "ready")
    jobs.wait = packages / "wait"
    jobs.wait.touch()
    return jobs


def node(jobs: Any, number: int) -> dict[str, Any]:
    """Return how a node is; the imports of all get their part of a machine that is never idle."""
    hurry(jobs.processes())
    return next((one for one in jobs.status()["nodes"] if one["node"] == number), {})


def standby(jobs: Any, number: int) -> str | None:
    found = node(jobs, number).get("standby") or {}
    return found.get("state")


def scale(jobs: Any) -> subprocess.Popen[str]:
    """Have it get the second node, and return once that imports."""
    command: subprocess.Popen[str] = jobs.popen("scale", "2")
    eventually(lambda: standby(jobs, 1) == "warming" or command.poll() is not None)
    assert command.poll() is None
    return command


def begun(jobs: Any, number: int) -> list[tuple[bool, str | None]]:
    """Return how a generation was started, once that is known."""

    def found() -> list[tuple[bool, str | None]]:
        events = [e for e in jobs.events() if e["event"] == "generation-begun" and e["generation"] == number]
        return [(event["standby"], event["cold_because"]) for event in events]

    return eventually(found)


def test_all_nodes_begin_from_standby_once_the_new_one_has_imported(alone: Any) -> None:
    command = scale(alone)
    before = node(alone, 0)["progress"]
    eventually(lambda: node(alone, 0)["progress"] > before + 10)
    state = alone.status()
    assert (state["phase"], state["generation"], state["replicas"]) == ("running", 2, "1[1:2]")
    alone.wait.unlink()
    eventually(lambda: hurry(alone.processes()) or command.poll() is not None)
    told = command.communicate()[1]
    assert (command.returncode, "starts cold" in told) == (0, False), told
    assert [line.split(":")[0] for line in told.splitlines()[:2]] == ["start node 1 on localhost", "generation 3"]
    assert begun(alone, 3) == [(True, None)]


def test_a_failure_meanwhile_begins_the_next_generation_at_once(alone: Any) -> None:
    command = scale(alone)
    os.kill(node(alone, 0)["processes"][0]["pid"], signal.SIGKILL)
    told = command.communicate()[1]
    assert command.returncode == 0, told
    assert "node 1 starts cold: what runs did not go on until its standby was ready" in told
    alone.wait.unlink()
    assert alone.running()["replicas"] == "2[1:2]"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_the_supervisor_makes_a_change_whose_command_has_ended(alone: Any, number: signal.Signals) -> None:
    command = scale(alone)
    command.send_signal(number)
    assert command.wait(60) == (130 if number == signal.SIGINT else -number)
    command.communicate()
    alone.wait.unlink()
    eventually(lambda: alone.status()["replicas"] == "2[1:2]")
    assert alone.running()["generation"] == 3


def test_down_does_not_wait_for_a_command_that_waits_for_nodes(alone: Any) -> None:
    """Nor does `scale` bring the job up again that it finds down."""
    command = scale(alone)
    alone.ok("down")
    told = command.communicate(timeout=60)[1]
    assert command.returncode == 2, told
    assert "was taken down while new nodes got ready: this command changed nothing" in told
    assert (alone.processes(), alone.status()["phase"]) == ({}, "stopped")


def test_down_leaves_nothing_of_a_node_that_was_to_join(alone: Any) -> None:
    """The fixture finds what is left."""
    kill(*alone.supervisors())
    command = scale(alone)
    kill(command.pid)
    command.communicate()
    assert alone.status()["reason"] == "a change waits until all hosts that it needs are ready"
    alone.ok("down")
    assert alone.processes() == {}
