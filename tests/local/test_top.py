"""`top` of a job on this machine."""

from __future__ import annotations

import json
from typing import Any

import pytest


@pytest.mark.long
def test_top_tells_how_fast_nodes_step_until_the_job_ends(jobs: Any, eventually: Any) -> None:
    jobs.set(STEPS="100000", DELAY="0.01")
    jobs.ok("up")
    jobs.running()

    def steps() -> dict[str, Any] | None:
        """Return what `top` has seen, unless a process stood still, or had not begun to count."""
        seen: dict[str, Any] = json.loads(jobs.ok("top", "--once", "-o", "json"))
        return seen if all(node["steps_per_second"] for node in seen["nodes"]) else None

    seen = eventually(steps)
    assert (seen["job"], seen["phase"], [node["node"] for node in seen["nodes"]]) == ("counter", "running", [0, 1])
    assert all(node["steps_per_second"] > 0 and node["memory"] > 0 for node in seen["nodes"])
    with jobs.popen("top") as live:  # a reader gets each text as soon as it is there
        assert live.stdout.readline() == "counter: running, generation 1, nodes 2/2\n"
        live.stdout.close()
        assert live.wait(60) == 141
    jobs.ok("stop")
    lines = [json.loads(line) for line in jobs.ok("top", "-o", "json").splitlines()]
    assert [line["phase"] for line in lines] == ["stopped"]
