"""People are told of a real job by a real webhook, whatever becomes of its supervisors."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.tools.contents import holding

from .conftest import Jobs, kill


class Server(ThreadingHTTPServer):
    """A webhook that keeps what it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/hook/very-secret"

    def told(self, event: str) -> list[dict[str, Any]]:
        """Return the messages about such an event, each once: what was on its way may come twice."""
        return [*{message["id"]: message for message in self.got if message["event"] == event}.values()]


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append(json.loads(body))
        self.server.paths.append(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    thread = threading.Thread(target=found.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()


EVENTS = "[failed, recovered, hang, host-lost, waiting, succeeded]"


@pytest.mark.long
def test_each_failure_is_told_though_supervisors_are_killed(
    jobs: Jobs, server: Server, eventually: Callable[..., Any]
) -> None:
    spec = jobs.directory / "job.yaml"
    spec.write_text(f"{spec.read_text()}notify: [{{on: {EVENTS}, webhook: HOOK}}]\n")
    hold = jobs.directory / "hold"
    hold.touch()
    jobs.set(HOOK=server.url)
    jobs.ok("up")

    def break_it() -> None:
        kill(jobs.running()["nodes"][1]["processes"][0]["pid"])

    break_it()
    (first,) = eventually(lambda: server.told("recovered"))
    assert first["text"].startswith("node 1")
    assert (first["job"], first["nodes"], first["generation"]) == ("counter", [1], 2)

    jobs.kill_supervisor()  # and nobody watches while the next one happens
    break_it()
    eventually(lambda: jobs.status()["generation"] == 3)
    jobs.set(HOOK=f"{server.url}-again")  # `up` takes the URL of now
    jobs.ok("up")
    eventually(lambda: len(server.told("recovered")) == 2)
    assert [path.name for path in holding(jobs.state, b"very-secret")] == ["channels.json"]

    hold.unlink()
    eventually(lambda: server.told("succeeded"))
    jobs.left()
    jobs.ok("down")
    assert list(jobs.state.rglob("channels.json")) == []
    assert max(Counter(message["id"] for message in server.got).values()) <= 2
    assert {message["event"] for message in server.got} == {"recovered", "succeeded"}


@pytest.mark.long
def test_a_webhook_that_is_away_keeps_no_job_and_no_down(jobs: Jobs, eventually: Callable[..., Any]) -> None:
    spec = jobs.directory / "job.yaml"
    spec.write_text(f"{spec.read_text()}notify: [{{webhook: HOOK}}]\n")
    done = jobs.run("up")
    assert (done.returncode, "HOOK" in done.stderr) == (2, True)
    jobs.set(HOOK="http://127.0.0.1:1/very-secret")
    jobs.ok("up")
    eventually(lambda: any(event["event"] == "notify-failed" for event in jobs.events()))
    done = jobs.run("down")
    assert done.returncode == 0
    assert "1 notification (succeeded) could not be delivered, and will not be" in done.stderr
    told = "\n".join(event["message"] for event in jobs.events())
    assert "cannot tell by webhook HOOK (json): Connection refused; tries again" in told
    assert "very-secret" not in told


def test_launchers_tell_where_nobody_watches(jobs: Jobs, server: Server, eventually: Callable[..., Any]) -> None:
    """Each failure once, though nobody watches; and what they have told, the next supervisor does not tell again."""
    spec = jobs.directory / "job.yaml"
    spec.write_text(f"{spec.read_text()}notify: [{{on: {EVENTS}, webhook: HOOK, from_hosts: true}}]\n")
    jobs.hold()
    jobs.set(HOOK=f"{server.url}-old")
    jobs.ok("up", "--no-supervise")
    jobs.set(HOOK=server.url)
    jobs.ok("up", "--no-supervise")  # which restarts nothing, and gives the launchers the URL of now
    assert jobs.running()["generation"] == 1
    holders = holding(jobs.state, b"very-secret")
    assert sorted(path.name for path in holders) == ["channels.json", "notify.json"]
    assert {path.stat().st_mode & 0o777 for path in holders} == {0o600}

    jobs.kill_rank(1)
    eventually(lambda: server.told("recovered"))
    jobs.kill_rank(0)
    eventually(lambda: len(server.told("recovered")) == 2)
    first, second = server.told("recovered")
    assert (first["job"], first["nodes"], first["generation"]) == ("counter", [1], 2)
    assert first["text"].startswith("node 1: rank 1 was killed by SIGKILL; the launchers decided. It runs again after")
    assert second["text"].startswith("node 0: rank 0 was killed by SIGKILL")
    assert not any(b"very-secret" in environ for environ in environs(jobs))

    jobs.ok("up")  # leaves a supervisor
    eventually(lambda: [e for e in jobs.events() if e["event"] == "generation-begun" and e["generation"] == 3])
    jobs.kill_supervisor()
    jobs.release()
    eventually(lambda: server.told("succeeded"))
    jobs.ok("wait", "--timeout", "60s")
    jobs.ok("down")
    told = {message["id"]: message["event"] for message in server.got}
    assert list(told.values()) == ["recovered", "recovered", "succeeded"], server.got
    assert set(server.paths) == {"/hook/very-secret"}
    assert not any("very-secret" in line for line in jobs.ok("logs").splitlines())
    assert list(jobs.state.rglob("notify.json")) == []


def environs(jobs: Jobs) -> list[bytes]:
    """Return environment and arguments of all processes of the job; one that sends a message ends soon."""
    found = []
    for path in (Path(f"/proc/{pid}/{name}") for pid in jobs.processes() for name in ("environ", "cmdline")):
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            found.append(path.read_bytes())
    return found
