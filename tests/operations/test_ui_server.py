"""The server of `jobctl ui` over real sockets, without a job: to whom it answers, and what it refuses."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.operations.serve import ui_actions
from jobctl.jobspec.operations.serve.ui import open_ui
from jobctl.jobspec.operations.serve.ui_access import KeptAccess, PageAccess
from jobctl.jobspec.operations.serve.ui_actions import PageActions, Wish
from jobctl.jobspec.operations.serve.ui_data import UiData
from jobctl.jobspec.operations.serve.ui_server import UiServer
from tests.tools.ports import free_ports
from tests.tools.ui_client import UiClient

Serve = Callable[[PageActions | None], AbstractContextManager[UiClient]]


@contextmanager
def _running(server: UiServer) -> Iterator[UiClient]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        client = UiClient(server.url)
        client.meet()
        yield client
    finally:
        server.shutdown()
        server.close()
        thread.join()


def _connected(client: UiClient) -> socket.socket:
    host, _, port = client.netloc.rpartition(":")
    return socket.create_connection((host, int(port)), 60)


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Serve a page where one job has a history; what a button would do is written down in `done`."""
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(tmp_path))
    (tmp_path / "jobs" / "resnet").mkdir(parents=True)
    event = {"time": 1_800_000_000.0, "event": "up", "message": "up", "framework": "torch", "target": "local"}
    (tmp_path / "jobs" / "resnet" / "events.jsonl").write_text(json.dumps(event) + "\n")

    def perform(wish: Wish, listener: object) -> str:
        with (tmp_path / "done").open("a") as file:
            file.write(f"{wish.verb} {wish.directory.name}\n")
        return "well"

    monkeypatch.setattr(ui_actions, "_perform", perform)
    return lambda actions: _running(UiServer(("127.0.0.1", 0), UiData(), PageAccess("t" * 43), actions))


def test_data_needs_a_signature_and_the_page_itself_tells_nothing(serve: Serve) -> None:
    with serve(None) as client:
        for path in ("/api/jobs", "/api/job?job=resnet", "/api/logs?job=resnet", "/api/ticket?job=resnet"):
            assert client.send("GET", path)[0] == 401, path
            assert client.send("GET", path, X_Jobctl_Signature="0" * 64)[0] == 401, path
        assert client.send("GET", f"/api/jobs?token={client.token}")[0] == 401
        other = client.mac("page", client.netloc, client.nonce, "GET", "/api/jobs", "")
        assert client.send("GET", "/api/job?job=resnet", X_Jobctl_Signature=other)[0] == 401
        assert client.data("/api/jobs")["jobs"][0]["job"] == "resnet"
        for path in ("/", "/page.js", "/page.css"):
            status, headers, body = client.send("GET", path)
            assert (status, b"resnet" in body, "Set-Cookie" in headers) == (200, False, False)
            assert "default-src 'none'; script-src 'self'" in headers["Content-Security-Policy"]
        for path in ("/../ui_server.py", "/%2e%2e/x", "/page.html", "/api/other"):
            assert client.signed("GET", path)[0] == 404, path


def test_head_is_answered_as_get_without_the_body(serve: Serve) -> None:
    with serve(None) as client:
        with _connected(client) as connection:
            connection.sendall(f"HEAD / HTTP/1.0\r\nHost: {client.netloc}\r\n\r\n".encode())
            told = connection.makefile("rb").read()
        length = client.send("GET", "/")[1]["Content-Length"]
        assert told.startswith(b"HTTP/1.0 200 ")
        assert f"Content-Length: {length}\r\n".encode() in told
        assert told.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("length", ["", "Content-Length: 0\r\n"])
def test_a_request_without_a_body_is_not_too_large(serve: Serve, length: str) -> None:
    with serve(None) as client, _connected(client) as connection:
        connection.sendall(f"POST /api/act HTTP/1.0\r\nHost: {client.netloc}\r\n{length}\r\n".encode())
        assert connection.makefile("rb").readline().startswith(b"HTTP/1.0 401 ")


def test_a_page_of_another_name_gets_nothing(serve: Serve) -> None:
    """As with DNS rebinding: the name of somebody else leads to this machine."""
    with serve(PageActions()) as client:
        port = client.netloc.rpartition(":")[2]
        for path in ("/", "/page.js", "/api/hello?challenge=1", "/report?ticket=x"):
            assert client.send("GET", path, Host=f"rebound.example:{port}")[0] == 403, path
        assert client.send("GET", "/", Host=f"localhost:{port}")[0] == 200
        assert client.act("resnet", "stop", headers={"Host": f"rebound.example:{port}"})[0] == 403


def test_a_page_that_only_looks_cannot_act(serve: Serve, tmp_path: Path) -> None:
    with serve(None) as client:
        assert client.data("/api/jobs")["actions"] is False
        for action in ("restart", "stop", "drill"):
            status, said = client.act("resnet", action)
            assert (status, "`jobctl ui --allow-actions`" in said["error"]) == (403, True)
            assert client.signed("GET", f"/api/ask?job=resnet&action={action}")[0] == 403
    assert not (tmp_path / "done").exists()


@pytest.mark.parametrize(
    ("status", "changed"),
    [
        (403, {"Origin": "http://127.0.0.1:1"}),
        (403, {"Origin": "null"}),
        (403, {"Origin": ""}),
        (401, {"X_Jobctl_Signature": ""}),
        (415, {"Content_Type": "text/plain"}),
    ],
)
def test_only_the_page_presses_a_button(serve: Serve, tmp_path: Path, status: int, changed: dict[str, str]) -> None:
    with serve(PageActions()) as client:
        assert client.act("resnet", "stop", headers=changed)[0] == status
        body = json.dumps({"job": "resnet", "action": "stop"})
        signature = client.mac("page", client.netloc, client.nonce, "POST", "/api/act", body)
        assert client.send("POST", "/api/act", body, X_Jobctl_Signature=signature)[0] == 403  # no origin at all
        origin = f"http://{client.netloc}"
        changed_body = client.send("POST", "/api/act", body + " ", X_Jobctl_Signature=signature, Origin=origin)
        assert changed_body[0] == 401
        assert client.data("/api/job", job="resnet")["actions"] == []
    assert not (tmp_path / "done").exists()


def test_a_button_is_pressed(serve: Serve, tmp_path: Path) -> None:
    actions = PageActions()
    with serve(actions) as client:
        assert client.signed("GET", "/api/act?job=resnet&action=stop")[0] == 404  # a link cannot
        assert client.signed("POST", "/api/act", "x" * 5000)[0] == 413
        assert client.act("resnet", "down")[0] == 503
        assert client.act("resnet", "drill", victim="cluster")[0] == 503
        assert client.act("../resnet", "stop")[0] == 503
        assert client.act("nobody", "stop")[0] == 503
        assert client.act("resnet", "stop")[0] == 200
        actions.wait()
        (done,) = client.data("/api/job", job="resnet")["actions"]
        assert (done["action"], done["state"], done["text"]) == ("stop", "done", "well")
    assert (tmp_path / "done").read_text() == "stop resnet\n"


def test_a_report_opens_once(serve: Serve) -> None:
    with serve(None) as client:
        ticket = client.data("/api/ticket", job="resnet")["ticket"]
        status, headers, body = client.send("GET", f"/report?ticket={ticket}")
        assert (status, headers["Content-Security-Policy"].startswith("sandbox;")) == (200, True)
        assert b"resnet" in body
        assert client.send("GET", f"/report?ticket={ticket}")[0] == 404
        assert client.send("GET", "/report?job=resnet")[0] == 404


def test_a_token_that_others_could_read_counts_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(tmp_path / "state"))
    with _running(open_ui(("127.0.0.1", 0), None)) as client:
        first = client.netloc, client.token
        with _running(open_ui(("127.0.0.1", 0), None)) as beside:
            assert (beside.token, beside.netloc != client.netloc) == (client.token, True)
    kept = KeptAccess(tmp_path / "state")
    (port,) = free_ports(1)  # nobody else gets it meanwhile
    kept.keep(first[1], port)
    with _running(open_ui(("127.0.0.1", 0), None)) as client:
        assert (client.netloc, client.token) == (f"127.0.0.1:{port}", first[1])
    assert kept.path.stat().st_mode & 0o777 == 0o600
    kept.path.chmod(0o640)
    assert KeptAccess(tmp_path / "state").token(new=False) != first[1]
    kept.path.chmod(0o600)
    assert KeptAccess(tmp_path / "state").token(new=False) == first[1]
    assert KeptAccess(tmp_path / "state").token(new=True) != first[1]


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.org"])
def test_only_loopback_is_served(host: str) -> None:
    with pytest.raises(Refused, match="on loopback only"):
        UiServer((host, 0), UiData(), PageAccess("t" * 43))
