"""The way to an engine, and to a host: silence is told as silence, a bug of ours is not."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from http.client import BadStatusLine
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import paramiko
import pytest
from docker.errors import DockerException
from requests import ConnectionError as RequestsError
from urllib3.exceptions import ProtocolError

from jobctl.jobspec.deploy.host import engine as host_engine
from jobctl.jobspec.deploy.host.container_starter import ContainerStarter
from jobctl.jobspec.deploy.host.containers import Containers
from jobctl.jobspec.deploy.host.engine import Engine
from jobctl.jobspec.deploy.model.engine_kind import EngineKind
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.transport import ssh
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.deploy.transport.local import LocalTransport


class Dead(LocalTransport):
    """A host whose engine does not answer."""

    def run(self, *args: Any, **how: Any) -> Result:
        return Result(1, b"", b"Cannot connect to the Docker daemon")


SILENCE = [DockerException("x"), RequestsError("x"), ProtocolError("x"), BadStatusLine("x")]
SILENCE += [paramiko.SSHException("x"), EOFError(), BrokenPipeError()]


@pytest.mark.parametrize("error", SILENCE, ids=lambda error: type(error).__name__)
def test_what_breaks_on_the_way_is_the_engines_silence(error: Exception) -> None:
    with pytest.raises(HostError) as told, Engine(Dead()).asked():
        raise error
    assert told.value.code == "docker-down"


@pytest.mark.parametrize("bug", [KeyError("x"), AttributeError("x"), TypeError("x"), ValueError("x"), AssertionError()])
def test_a_bug_of_ours_is_our_own(bug: Exception) -> None:
    with pytest.raises(type(bug)), Engine(Dead()).asked():
        raise bug


@pytest.mark.parametrize("value", [None, [], "x", 5])
def test_an_answer_that_no_engine_gives(value: Any) -> None:
    with pytest.raises(HostError) as told:
        Engine(Dead()).answer(value, dict)
    assert told.value.code == "engine-failed"


class Cut(LocalTransport):
    """A host behind whose engine's socket something else answers, or an engine that ends in the midst of an answer."""

    body = b""

    def run(self, *args: Any, **how: Any) -> Result:
        return Result(0, b"docker\n/engine.sock\n", b"")

    def open_socket(self, path: str) -> socket.socket:
        ours, self.its = socket.socketpair()  # of which it reads nothing
        self.its.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" + self.body)
        self.its.shutdown(socket.SHUT_WR)
        return ours


@pytest.mark.parametrize("body", [b"<html>hello</html>\r\n", b'[{"Id": "12', b"\xff" * 20])
def test_an_answer_that_is_no_json_is_the_engines(body: bytes) -> None:
    host = Cut("h1")
    host.body = body
    with pytest.raises(HostError, match="its engine answers what none does") as told:
        Containers(Engine(host), "job").seen()
    host.its.close()
    assert told.value.code == "engine-failed"


class Hanging(LocalTransport):
    """A host whose engine takes connections, and says nothing until it `answers`."""

    answers = False

    def __init__(self) -> None:
        super().__init__("h1")
        self.ran, self.ends = list[str](), list[socket.socket]()

    def run(self, argv: Sequence[str], *args: Any, **how: Any) -> Result:
        self.ran.append(" ".join(argv))
        return Result(0, b"docker\n/engine.sock\n", b"")

    def open_socket(self, path: str) -> socket.socket:
        ours, its = socket.socketpair()
        self.ends.append(its)
        if self.answers:
            its.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n[]")
        return ours

    def asked(self) -> list[str]:
        """Return what the engine was asked."""
        return [end.recv(1000).decode().partition("?")[0].partition(" HTTP")[0] for end in self.ends]


def test_an_engine_that_hangs_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LISTING", "PING"):
        monkeypatch.setattr(host_engine, name, 0.05)
    monkeypatch.setattr(Engine, "kind", lambda engine: EngineKind("docker", "26.1.5", "layers"))
    host = Hanging()
    engine = Engine(host)
    containers, starter = Containers(engine, "job"), ContainerStarter(host, "ssh", engine)
    for ask in (containers.seen, containers.seen, lambda: starter.start(PurePosixPath("/w"), "node-0")):
        with pytest.raises(HostError, match="its Docker Engine hangs") as told:
            ask()
        assert told.value.code == "engine-failed"
    assert host.asked() == ["GET /v1.41/containers/json", *["GET /v1.41/_ping"] * 2]
    assert "node-0" not in " ".join(host.ran)
    host.answers = True
    assert containers.seen() == ()
    for end in host.ends:
        end.close()


class Newer(BaseHTTPRequestHandler):
    """An engine that knows no version of its API before 1.44, as Docker Engine 29."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[str]] = []
    sent: ClassVar[list[bytes]] = []

    def do_GET(self) -> None:
        size = self.headers.get("Content-Length")
        body = self.rfile.read(int(size)) if size else self.rest() if "chunked" in str(self.headers) else b""
        self.asked.append(f"{self.command} {self.path}")
        if self.path.startswith("/v1.41/"):
            words = "client version 1.41 is too old. Minimum supported API version is 1.44, please upgrade your client"
            self.tell(400, json.dumps({"message": words}).encode())
            return
        self.sent.append(body)
        self.tell(200, b"[]" if "json" in self.path else b'"OK"')

    do_POST = do_GET

    def rest(self) -> bytes:
        """Return a body that was sent piece by piece."""
        found = b""
        while size := int(self.rfile.readline(), 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def tell(self, status: int, body: bytes) -> None:
        """Answer."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """A connection to such an engine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Newer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setattr(Newer, "asked", [])
    monkeypatch.setattr(Newer, "sent", [])
    engine = Engine(LocalTransport("h"))
    monkeypatch.setattr(engine, "dial", lambda: socket.create_connection(server.server_address))
    yield engine
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_newer_engine_is_spoken_to_as_it_understands(newer: Engine) -> None:
    with newer.asked() as client:
        assert client.containers(all=True) == []
        assert client.containers() == []
    paths = [path.partition("?")[0] for path in Newer.asked]
    assert paths == [f"GET /v{version}/containers/json" for version in ("1.41", "1.44", "1.44")]


def test_containers_are_listed_as_the_engine_understands_it(newer: Engine) -> None:
    """They are listed without the SDK, which finds out what an engine means that refuses."""
    for _ in range(3):
        assert newer.listed("jobctl.job=a b") == []
    paths = [path.partition("?")[0] for path in Newer.asked]
    assert paths == [f"GET /v{version}/containers/json" for version in ("1.41", "1.41", "1.44", "1.44", "1.44")]
    wanted = {"all": ["1"], "filters": ['{"label": ["jobctl.job=a b"]}']}
    for path in Newer.asked:
        query = parse_qs(urlsplit(path.split()[1]).query)
        assert {key: query[key] for key in wanted} == wanted


def test_a_list_that_the_engine_refuses_is_told_in_its_words(newer: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Newer, "do_GET", lambda request: request.tell(500, b'{"message": "the disk is gone"}'))
    with pytest.raises(HostError, match="its engine refuses: the disk is gone"):
        newer.listed("x")


def test_what_cannot_be_sent_again_waits_for_the_version(newer: Engine) -> None:
    with newer.asked() as client:
        assert list(client.load_image(iter([b"an", b"image"]))) == ["OK"]
    assert [path.partition("?")[0] for path in Newer.asked][-1] == "POST /v1.44/images/load"
    assert Newer.sent[-1] == b"animage"


def test_a_connection_that_the_engine_has_closed_is_dialled_again(
    newer: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a word before, as one does that is started again."""
    answer, dial = Newer.tell, newer.dial
    dialled: list[socket.socket] = []

    def tell_and_close(request: Newer, status: int, body: bytes) -> None:
        answer(request, 200, b"[]")
        request.close_connection = True

    monkeypatch.setattr(Newer, "tell", tell_and_close)
    monkeypatch.setattr(newer, "dial", lambda: dialled.append(dial()) or dialled[-1])
    with newer.asked() as client:
        for ask in (client.containers, lambda: newer.listed("x"), client.containers):
            assert ask() == []
            assert dialled[-1].recv(1, socket.MSG_PEEK) == b""  # waits until it is closed
    assert len(dialled) == 3


class Mute(paramiko.ServerInterface):
    """An sshd that lets everybody in, gives sessions, and never says whether a command runs."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def check_auth_none(self, username: str) -> int:
        return paramiko.AUTH_SUCCESSFUL  # type: ignore[attr-defined,no-any-return]

    def get_allowed_auths(self, username: str) -> str:
        return "none"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED  # type: ignore[attr-defined,no-any-return]

    def check_channel_exec_request(self, channel: Any, command: bytes) -> bool:
        self.over.wait()
        return False


@pytest.fixture
def mute() -> Iterator[paramiko.Transport]:
    """A connection to such an sshd."""
    ours, its = socket.socketpair()
    server, client, host = paramiko.Transport(its), paramiko.Transport(ours), Mute()
    server.add_server_key(paramiko.ECDSAKey.generate())
    server.start_server(event=threading.Event(), server=host)
    client.start_client()
    client.auth_none("me")
    yield client
    host.over.set()
    client.close()
    server.close()


def test_an_sshd_that_never_says_whether_a_command_runs(mute: paramiko.Transport) -> None:
    with pytest.raises(TimeoutError):
        ssh._run_on(mute.open_session(), ["true"], 0.2)
    assert mute.is_active()
