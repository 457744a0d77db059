"""The page of `jobctl ui` for a job on hosts: one that falls silent holds up neither the page nor its buttons for long."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.fleet.fleet import Fleet
from tests.fleet.jobs import Jobs
from tests.tools.ui_client import UiClient
from tests.tools.waiting import eventually


def test_buttons_and_looks_share_hosts(hosts: Fleet, tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, hosts)
    assert jobs.up().returncode == 0
    jobs.trains(step=1)
    with jobs.popen("ui", "--allow-actions") as server:
        try:
            assert server.stderr is not None
            client = UiClient(server.stderr.readline().split()[-1])
            client.meet()
            # No look waits for the hosts.
            eventually(lambda: [state_of(client, jobs, number) for number in (0, 1)] == ["running"] * 2)
            assert client.act(jobs.name, "restart")[0] == 200

            def last() -> dict[str, Any] | None:
                """Look as a page does while the action goes on."""
                assert client.data("/api/jobs")["jobs"][0]["phase"] != "unknown"
                found: dict[str, Any] = client.data("/api/job", job=jobs.name)["actions"][0]
                return None if found["state"] == "running" else found

            done = eventually(last)
            assert (done["state"], done["text"]) == ("done", f"job `{jobs.name}` is running, generation 2")
            jobs.trains(step=1, generation=2)  # which has printed something by then
            lines = client.data("/api/logs", job=jobs.name, node="1", text="generation 2")["lines"]
            assert [line["rank"] for line in lines] == [1]
            hosts.hosts[1].pull_cable()
            try:
                # A silent host keeps nobody from seeing the others.
                eventually(lambda: state_of(client, jobs, 1) == "lost")
                eventually(lambda: looks_go_on(client, jobs))
                assert client.data("/api/jobs")["jobs"][0]["job"] == jobs.name
            finally:
                hosts.hosts[1].plug_cable()
            eventually(lambda: state_of(client, jobs, 1) == "running")
        finally:
            server.terminate()
            assert server.wait(60) == 0
    jobs.ok("down")


def looks_go_on(client: UiClient, jobs: Jobs) -> bool:
    """Say whether node 0 is seen to run, at each of many looks a moment before: who stood still may be asked again."""
    for _ in range(20):
        if state_of(client, jobs, 0) != "running" or client.data("/api/job", job=jobs.name)["age"] > 5:
            return False
        time.sleep(0.5)
    return True


def state_of(client: UiClient, jobs: Jobs, number: int) -> str | None:
    """The state of a node as the page shows it, None before its first look."""
    nodes = client.data("/api/job", job=jobs.name)["nodes"]
    return next((node["state"] for node in nodes if node["node"] == number), None)
