"""The server of `jobctl ui` for jobs that really run, asked over loopback as its page does."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from jobctl.jobspec.deploy.store.lock import hold
from tests.tools.ports import free_ports
from tests.tools.ui_client import UiClient

from .conftest import Jobs, ui


def test_the_page_shows_a_job(jobs: Jobs, eventually: Callable[..., Any]) -> None:
    (jobs.directory / "hold").touch()
    jobs.ok("up")
    eventually(lambda: all(node["progress"] == 5 for node in jobs.status()["nodes"]))
    with ui(jobs) as (url, _):
        client = UiClient(url)
        client.meet()
        (row,) = eventually(lambda: (rows := client.data("/api/jobs")["jobs"])[0]["phase"] != "unknown" and rows)
        assert (row["job"], row["phase"], row["step"], row["down"]) == ("counter", "running", 5, False)
        job = eventually(lambda: (seen := _with_story(client, eventually))["samples"] and "1" in seen["loads"] and seen)
        assert [node["state"] for node in job["nodes"]] == ["running", "running"]
        assert job["loads"]["1"]["memory"] > 0
        seen = job["samples"][-1]["number"]
        again = client.data("/api/job", job="counter", since=str(seen), story=job["story"]["version"])
        assert all(one["number"] > seen for one in again["samples"])
        found = client.data("/api/logs", job="counter", node="1", text="step 4")
        assert [(line["node"], line["line"]) for line in found["lines"]] == [(1, "step 4")]
        more = client.data("/api/logs", job="counter", node="1", text="step 4", since=found["at"])
        assert (more["lines"], more["more"]) == ([], True)
        _report_opens_once(client)
        for name in ("nobody", "..%2F..%2Fetc", ""):
            status, _, body = client.signed("GET", f"/api/job?job={name}")
            assert (status, "error" in json.loads(body)) == (503, True)
    jobs.ok("down")


def test_a_program_reads_the_address_alone(jobs: Jobs) -> None:
    with ui(jobs) as (url, server):
        assert server.stdout is not None
        assert server.stdout.readline() == f"{url}\n"


def _with_story(client: UiClient, eventually: Callable[..., Any]) -> dict[str, Any]:
    """Return the job once its story has been told, for which no look waits."""
    found: dict[str, Any] = eventually(
        lambda: (job := client.data("/api/job", job="counter"))["story"]["events"] and job
    )
    return found


def _report_opens_once(client: UiClient) -> None:
    ticket = client.data("/api/ticket", job="counter")["ticket"]
    status, headers, body = client.send("GET", f"/report?ticket={ticket}")
    assert (status, headers["Content-Security-Policy"].startswith("sandbox;")) == (200, True)
    assert b"counter" in body
    assert client.send("GET", f"/report?ticket={ticket}")[0] == 404


def _done(client: UiClient, action: str, eventually: Callable[..., Any]) -> dict[str, Any]:
    """Return how the last action ended."""

    def over() -> dict[str, Any] | None:
        last: dict[str, Any] = client.data("/api/job", job="counter")["actions"][0]
        return last if last["state"] != "running" else None

    found: dict[str, Any] = eventually(over)
    assert found["action"] == action
    return found


# As long as there is a file `busy`, processes take their time to end.
BUSY = """\
import os, signal, sys, time
def end(*_):
    while os.path.exists("busy"):
        time.sleep(0.02)
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
"""


def test_buttons_do_what_commands_do(jobs: Jobs, eventually: Callable[..., Any]) -> None:
    script, busy = jobs.directory / "counter.py", jobs.directory / "busy"
    script.write_text(BUSY + script.read_text())
    jobs.set(STEPS="100000", DELAY="0.05")
    jobs.ok("up")
    jobs.running()
    with ui(jobs, "--allow-actions") as (url, _):
        client = UiClient(url)
        client.meet()
        assert client.data("/api/jobs")["actions"] is True
        words = client.data("/api/ask", job="counter", action="restart")["words"]
        assert "Job `counter` is running. Its processes end, and generation 2 begins" in words
        busy.touch()
        assert client.act("counter", "restart")[0] == 200
        status, said = client.act("counter", "stop")
        assert (status, "job `counter` is locked by" in said["error"]) == (409, True)
        busy.unlink()
        found = _done(client, "restart", eventually)
        assert (found["state"], found["text"]) == ("done", "job `counter` is running, generation 2")
        jobs.running()
        assert "kills a process of node 0" in client.data("/api/ask", job="counter", action="drill", node="0")["words"]
        assert client.act("counter", "drill", node="0")[0] == 200
        found = _done(client, "drill", eventually)
        assert found["text"].startswith("killed a process of node 0 on localhost: ")
        assert found["state"] == "done"
        with hold(jobs.state / "jobs" / "counter" / "lock", "restart"):
            status, said = client.act("counter", "stop")
            assert (status, "locked by `restart` (pid" in said["error"]) == (409, True)
        assert client.act("counter", "stop")[0] == 200
        assert _done(client, "stop", eventually)["text"] == "job `counter` is stopped"
        refused = eventually(lambda: _unless_locked(client.signed("GET", "/api/ask?job=counter&action=drill")))
        assert (refused[0], b"is stopped: a drill needs one that runs" in refused[2]) == (503, True)
    assert jobs.status()["phase"] == "stopped"
    jobs.ok("down")


def _unless_locked(answer: tuple[int, Any, bytes]) -> tuple[int, Any, bytes] | None:
    """Return an answer, unless somebody is at work on the job: its supervisor is, as it ends."""
    return None if answer[0] == 409 else answer


def test_a_new_server_goes_on_with_token_and_port(jobs: Jobs) -> None:
    """So that pages that are open go on; what others could have read counts no longer."""
    (port,) = free_ports(1)  # which nobody gets that asks for any
    with ui(jobs, "--listen", str(port)) as (url, server):
        client = UiClient(url)
        client.meet()
        server.kill()
        server.wait()
    kept = jobs.state / "ui.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    with ui(jobs) as (again, _):
        assert again == url
        status, _, _ = client.signed("GET", "/api/jobs")
        assert status == 401  # what was signed for the server before
        client.meet()
        assert client.signed("GET", "/api/jobs")[0] == 200
    with ui(jobs, "--new-token") as (changed, _):
        assert UiClient(changed).token != client.token


def test_a_job_that_is_down_is_listed_with_its_report(jobs: Jobs, eventually: Callable[..., Any]) -> None:
    jobs.ok("up")
    jobs.ok("wait")
    jobs.ok("down")
    with ui(jobs, "--allow-actions") as (url, _):
        client = UiClient(url)
        client.meet()
        (row,) = client.data("/api/jobs")["jobs"]
        assert (row["job"], row["phase"], row["down"]) == ("counter", "succeeded", True)
        job = _with_story(client, eventually)
        assert (job["down"], job["nodes"], job["story"]["phase"]) == (True, [], "succeeded")
        lines = client.data("/api/logs", job="counter", text="step 5")["lines"]
        assert sorted(line["rank"] for line in lines) == [0, 1]
        _report_opens_once(client)
        refused = client.signed("GET", "/api/ask?job=counter&action=restart")
        assert (refused[0], b"job `counter` is down" in refused[2]) == (503, True)


SMI = """\
#!/bin/sh
echo '0, NVIDIA H100, 75, 61440, 81920, 400.0, 60, 0, 0'
"""


def test_devices_and_step_rates_are_sampled(jobs: Jobs, eventually: Callable[..., Any]) -> None:
    tool = jobs.directory / "nvidia-smi"
    tool.write_text(SMI)
    tool.chmod(0o755)
    jobs.set(STEPS="100000", DELAY="0.05", PATH=f"{jobs.directory}:{jobs.environ['PATH']}")
    jobs.ok("up")
    jobs.running()
    with ui(jobs) as (url, _):
        client = UiClient(url)
        client.meet()
        job = eventually(
            lambda: (found := client.data("/api/job", job="counter"))["loads"].get("0", {}).get("rate") and found
        )
        used = {"device": "gpu:0", "name": "NVIDIA H100", "use": 0.75, "used": 60 * 2**30, "memory": 80 * 2**30}
        assert job["loads"]["0"]["devices"] == [used]
        assert job["samples"][-1]["busy"] == {"0": [[75, 75]], "1": [[75, 75]]}
    jobs.ok("down")
