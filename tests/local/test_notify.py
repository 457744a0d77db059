"""People are told of a real job by a real webhook, whatever becomes of its supervisors."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from .conftest import Jobs, kill


class Server(ThreadingHTTPServer):
    """A webhook that keeps what it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[dict[str, Any]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/hook/very-secret"

    def told(self, event: str) -> list[dict[str, Any]]:
        return [message for message in self.got if message["event"] == event]


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append(json.loads(body))
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
    holders = [path for path in jobs.state.rglob("*") if path.is_file() and b"very-secret" in path.read_bytes()]
    assert [path.name for path in holders] == ["channels.json"]

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
