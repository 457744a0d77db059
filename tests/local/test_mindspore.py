"""Jobs of the real MindSpore on this machine: they end well, and survive whatever dies."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.tools.frameworks import python_of
from tests.tools.mindsporescripts import COLLECTIVE, LIGHT, undisturbed

from .conftest import kill

SPEC = """\
name: learner
framework: mindspore
script: train.py
nodes: 2
checkpoint: {directory}/checkpoints
env: {{OMP_NUM_THREADS: "1", STEPS: "120", DELAY: "0.02", HOLD: "90", RANK_ID: "9"}}
recovery: {{max_restarts: 5, standby: "off"}}
"""


@pytest.mark.long
def test_it_ends_the_same_whatever_dies(jobs: Any, eventually: Any) -> None:
    """The scheduler's process and its launcher start again in place; a worker takes all along.

    A generation more does no harm before a kill or after all have trained: MindSpore itself may crash as it starts or ends.
    """
    directory = jobs.directory
    (directory / "checkpoints").mkdir()
    (directory / "train.py").write_text(COLLECTIVE)
    (directory / "job.yaml").write_text(SPEC.format(directory=directory))
    jobs.set(PATH=f"{python_of('mindspore').parent}{os.pathsep}{os.environ['PATH']}", MS_ROLE="MS_PSERVER")
    jobs.ok("up")

    def there(step: int, after: int = 0) -> dict[str, Any] | None:
        state: dict[str, Any] = jobs.status()
        far = all((node["progress"] or 0) >= step for node in state["nodes"] if node["role"] == "trainer")
        return state if far and state["generation"] > after and state["phase"] == "running" else None

    state = eventually(lambda: there(20), 480)
    assert [(node["node"], node["role"], node["name"]) for node in state["nodes"]] == [
        (0, "trainer", None),
        (1, "trainer", None),
        (None, "scheduler", "scheduler"),
    ]
    assert state["replicas"] == "2/2"
    first, before, workers = state["generation"], state["nodes"][2]["restarts"], pids(state)[:2]
    os.kill(*pids(state)[2:], signal.SIGKILL)
    eventually(lambda: jobs.status()["nodes"][2]["restarts"] == before + 1)
    state = eventually(lambda: there(40), 480)
    assert (state["generation"], pids(state)[:2]) == (first, workers)
    os.kill(workers[1], signal.SIGKILL)
    state = eventually(lambda: there(90, after=first), 480)  # all hold there
    assert not {*pids(state)} & {*workers}
    *workers, scheduler = pids(state)
    kill(*(pid for pid, line in jobs.processes().items() if "--control" in line and "node-2" in line))
    eventually(lambda: pids(jobs.status())[2:] not in ([], [scheduler]))
    again = jobs.status()
    assert (again["generation"], pids(again)[:2]) == (state["generation"], workers)
    (directory / "checkpoints" / "go").touch()  # while the scheduler imports: workers find it when it is there
    done = jobs.run("wait", "--timeout", "500s", timeout=540)
    assert done.returncode == 0, jobs.ok("events")
    assert finals(jobs.ok("logs")) == {(str(rank), "2", *undisturbed(120).split(), str(rank)) for rank in (0, 1)}
    assert "node2 scheduler | " in jobs.ok("logs", "--node", "scheduler")
    goes_on_with_msrun(jobs, there, eventually)


def pids(state: dict[str, Any]) -> list[int]:
    """The processes of all nodes; those that are starting have none."""
    return [process["pid"] for node in state["nodes"] for process in node["processes"]]


def finals(out: str) -> set[tuple[str, ...]]:
    """What ranks said at their end."""
    return {tuple(line.partition("final ")[2].split()) for line in out.splitlines() if "| final " in line}


def goes_on_with_msrun(jobs: Any, there: Any, eventually: Any) -> None:
    """The same job with light workers, one of which is killed; msrun ends well in the end, and none of its processes stays behind.

    How it ends with workers of the real MindSpore: tests/fleet.
    """
    before = jobs.status()["generation"]
    (jobs.directory / "train.py").write_text(LIGHT)
    jobs.ok("up", "--set", "mindspore.launcher=msrun")
    state = eventually(lambda: there(10, after=before), 480)
    started = [line for line in jobs.processes().values() if "mindspore.parallel.cluster.run" in line]
    assert len(started) == 2
    os.kill(state["nodes"][1]["processes"][0]["pid"], signal.SIGKILL)
    again = eventually(lambda: there(furthest(state), after=state["generation"]), 480)
    assert not {*pids(again)} & {*pids(state)}
    (jobs.directory / "checkpoints" / "end").touch()
    assert jobs.run("wait", "--timeout", "500s", timeout=540).returncode == 0, jobs.ok("events")
    ended = finals(jobs.ok("logs", "--generation", str(jobs.status()["generation"])))
    assert ended == {(str(rank), "2") for rank in (0, 1)}


def furthest(state: dict[str, Any]) -> int:
    """Return the furthest step of the workers."""
    return max(node["progress"] or 0 for node in state["nodes"])
