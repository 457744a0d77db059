"""A node that makes the others wait, from its progress file to `status` and `events`."""

from __future__ import annotations

from typing import Any

import pytest

SCRIPT = """\
import os, time
step, own = 0, {"1": 0.02}.get(os.environ["JOBCTL_NODE"], 0.01)
while not os.path.exists("end"):
    time.sleep(0.05)
    step += 1
    with open(os.environ["JOBCTL_PROGRESS_FILE"] + ".new", "w") as file:
        file.write(f"{step} {own}")
    os.replace(file.name, os.environ["JOBCTL_PROGRESS_FILE"])
"""


@pytest.mark.long
def test_a_slow_node_is_named_with_its_time_and_the_median(jobs: Any, eventually: Any) -> None:
    (jobs.directory / "counter.py").write_text(SCRIPT)
    jobs.ok("up", "--set", "nodes=3")
    state = eventually(lambda: (state := jobs.status())["nodes"][1].get("straggler") and state)
    assert [node.get("straggler") for node in state["nodes"]] == [
        None,
        {"rank": 1, "seconds": 0.02, "median": 0.01},
        None,
    ]
    (event,) = eventually(lambda: [event for event in jobs.events() if event["event"] == "straggler"])
    assert (event["node"], event["rank"], event["seconds"], event["median"]) == (1, 1, 0.02, 0.01)
    assert "node 1 on localhost makes the others wait: rank 1 needs 0.02 s for its part of each step" in jobs.ok(
        "status"
    )
    (jobs.directory / "end").touch()
    assert jobs.run("wait").returncode == 0


@pytest.mark.long
def test_without_a_supervisor_launchers_name_it(jobs: Any, eventually: Any) -> None:
    (jobs.directory / "counter.py").write_text(SCRIPT)
    jobs.ok("up", "--set", "nodes=3", "--no-supervise")
    (event,) = eventually(lambda: [event for event in jobs.events() if event["event"] == "straggler"])
    named = {name: event[name] for name in ("node", "rank", "host", "generation", "seconds", "median")}
    assert named == {"node": 1, "rank": 1, "host": "localhost", "generation": 1, "seconds": 0.02, "median": 0.01}
    said = "rank 1 needs 0.02 s for its part of each step, 2.0 times the median (0.01 s)"
    assert event["message"] == f"node 1 on localhost is a straggler: {said}"
    jobs.ok("up", "--set", "nodes=3")  # its supervisor does not name it again
    eventually(lambda: any(event["event"] == "supervisor-started" for event in jobs.events()))
    (jobs.directory / "end").touch()
    assert jobs.run("wait").returncode == 0
    assert len([event for event in jobs.events() if event["event"] == "straggler"]) == 1
