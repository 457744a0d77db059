"""A host that prints without end is told by name, and does not fill this machine's memory."""

from __future__ import annotations

import base64
import gzip
import socket
import threading
import time
from http.client import HTTPConnection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobctl.jobspec.deploy.host import engine, lock, watch, work_reader
from jobctl.jobspec.deploy.host.asker import END, Asker
from jobctl.jobspec.deploy.host.engine import Engine
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.watch import Following
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import SshOptions
from jobctl.jobspec.deploy.model.liveness import FailureDetector
from jobctl.jobspec.deploy.transport import answers, ssh
from jobctl.jobspec.deploy.transport.held_shell import HeldCommand, Login
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.spec.hosts import Host

MOST = 1 << 20
MANY = 100  # times as much, after which a host is given up by the test


class Chatty:
    """A channel of SSH whose command prints without end, on one stream or on both."""

    closed = eof_received = eof_sent = False

    def __init__(self, *streams: str) -> None:
        self.streams, self.read, self.is_closed = streams, 0, False

    def recv_ready(self) -> bool:
        return "out" in self.streams

    def recv_stderr_ready(self) -> bool:
        return "err" in self.streams

    def recv(self, size: int) -> bytes:
        self.read += size
        assert self.read < MANY * MOST, "it is read without end"
        return b"y" * size

    recv_stderr = recv

    def send_ready(self) -> bool:
        return False

    def settimeout(self, seconds: float | None) -> None:
        pass

    def sendall(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (answers, engine, ssh, work_reader):
        monkeypatch.setattr(module, "MAX_ANSWER_BYTES", MOST)
    for module in (lock, watch):
        monkeypatch.setattr(module, "MAX_LINE_BYTES", MOST)


def told(error: pytest.ExceptionInfo[HostError]) -> tuple[str, str]:
    assert error.value.hint
    return error.value.host, error.value.code


@pytest.mark.parametrize("streams", ["out", "err", "out err"])
def test_a_command_that_prints_without_end_is_given_up(streams: str, monkeypatch: pytest.MonkeyPatch) -> None:
    channel, there = Chatty(*streams.split()), ssh.Ssh(Host("h1"), SshOptions())
    monkeypatch.setattr(there, "_shell", lambda timeout: channel)
    with pytest.raises(HostError, match="h1: `df` has printed more than 1 MiB") as caught:
        there.run(["df"])
    assert told(caught) == ("h1", "answer-too-long")
    assert channel.is_closed


def test_an_answer_of_the_most_that_is_allowed_arrives_whole() -> None:
    command = HeldCommand(["cat"])
    end = b"\n%s 0\n"
    marks = [end % one.mark for one in command._ends]
    text = b"y" * (MOST - sum(map(len, marks)))
    out, err = [text + marks[0]], [marks[1]]
    channel = SimpleNamespace(
        closed=False,
        eof_received=False,
        settimeout=lambda seconds: None,
        recv_ready=lambda: bool(out),
        recv_stderr_ready=lambda: bool(err),
        recv=lambda size: out.pop(),
        recv_stderr=lambda size: err.pop(),
        send_ready=lambda: False,
    )
    there = ssh.Ssh(Host("h1"), SshOptions())
    assert there._talk(cast("Any", channel), command, b"", 1.0).out == text


@pytest.mark.parametrize("stream", ["out", "err"])
def test_a_login_that_prints_without_end_is_given_up(stream: str) -> None:
    channel, there = Chatty(stream), ssh.Ssh(Host("h1"), SshOptions())
    with pytest.raises(HostError, match="its login has printed more than 1 MiB") as caught:
        there._past_login(ssh.LoginSession(cast("Any", channel), Login()), 60.0)
    assert told(caught) == ("h1", "answer-too-long")
    assert channel.is_closed


def test_a_script_that_answers_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    channel, transport = Chatty("out"), LocalTransport("h1")
    monkeypatch.setattr(transport, "dial", lambda argv: channel)
    with pytest.raises(HostError) as caught:
        Asker(transport, ["sh"], "read the work directory", 30.0).ask()
    assert told(caught) == ("h1", "answer-too-long")
    assert channel.is_closed


def test_a_packed_answer_that_unpacks_without_end_is_none() -> None:
    text = b"\ncode 0"
    packed = [base64.b64encode(gzip.compress(one)) + END for one in (text, bytes(MOST) + text)]
    assert [work_reader.unpacked(one) is None for one in packed] == [False, True]


def test_an_engine_that_answers_without_end_is_given_up() -> None:
    here, there = socket.socketpair()

    def answer() -> None:
        with there:
            there.recv(65536)
            there.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MANY * MOST))
            try:
                for _ in range(MANY * 16):
                    there.sendall(b"y" * (MOST // 16))
            except OSError:
                return

    thread = threading.Thread(target=answer)
    thread.start()
    asked = SimpleNamespace(
        base_url="",
        adapter=SimpleNamespace(
            get_connection=lambda url: SimpleNamespace(
                _get_conn=lambda patience: connection, _put_conn=lambda one: None
            )
        ),
    )
    connection = HTTPConnection("localhost")
    connection.sock = here
    with pytest.raises(HostError) as caught:
        Engine(LocalTransport("h1"), None)._get(asked, "/containers/json", 60.0)
    thread.join(30)
    assert told(caught) == ("h1", "answer-too-long")


def test_a_lock_whose_keeper_prints_without_end_is_not_taken() -> None:
    with pytest.raises(HostError) as caught:
        lock._lines("h1", Chatty("out"), 3)
    assert told(caught) == ("h1", "answer-too-long")


def test_a_host_that_is_followed_and_never_ends_a_line_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    channel, transport = Chatty("out"), LocalTransport("h1")
    monkeypatch.setattr(transport, "dial", lambda argv: channel)
    following = Following(
        [HostJob(Host("h1"), transport, "job", "ssh")], FailureDetector(time.monotonic, "token"), "me"
    )
    with pytest.raises(HostError) as caught:
        list(following.hosts[0]._lines())
    assert told(caught) == ("h1", "answer-too-long")
    assert channel.is_closed
