"""SSH clients in pods: what OpenSSH gets by `ssh-config`, and one command's connection when it is slow or lost."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.kubernetes.pod_commands import PodCommand
from jobctl.jobspec.deploy.kubernetes.ports import PodPorts
from jobctl.jobspec.deploy.kubernetes.session import OUT, RESULT
from jobctl.jobspec.deploy.model.errors import PortClosed
from tests.kube.world import World
from tests.tools.waiting import PATIENCE, promptly

UP = ("up", "--target", "kubernetes")
ONE = "resnet-1-abcde"


@pytest.fixture
def config(jobctl: Any, world: World, here: Path) -> Path:
    """Return the configuration for SSH clients of a job that is up."""
    if shutil.which("ssh") is None:
        (pytest.fail if os.environ.get("JOBCTL_TOOLS") == "required" else pytest.skip)("there is no ssh")
    assert jobctl(*UP).code == 0
    told = jobctl("ssh-config", "resnet")
    assert told.code == 0, told.err
    path = here / "config"
    path.write_text(told.out)
    return path


def ssh(config: Path, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["ssh", "-F", str(config), *words], input=given, capture_output=True, timeout=PATIENCE, check=False
    )


def test_clients_are_inside_of_a_pod(config: Path, world: World) -> None:
    data = os.urandom(3_000_000)
    told = ssh(config, "jobctl-resnet-1", f"head -c {len(data)}; echo err >&2; exit 7", given=data)
    assert (told.returncode, told.stdout == data, told.stderr) == (7, True, b"err\n")
    (begun,) = [request for request in world.api.requests if "/exec" in request]
    assert f"/pods/{ONE}/exec" in begun
    with socket.create_server(("127.0.0.1", 0)) as pod:
        threading.Thread(target=_answer, args=(pod,), daemon=True).start()
        argv = ["ssh", "-F", str(config), "-W", f"localhost:{pod.getsockname()[1]}", "jobctl-resnet-1"]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            assert client.stdout.read(6) == b"node 1"
    missing = ssh(config, "jobctl-resnet-1", "no-such-command")
    assert missing.returncode == 127


def _answer(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.sendall(b"node 1")


def test_a_command_whose_client_has_gone_hangs_up(config: Path, world: World) -> None:
    """The cluster would let it go on: a second command looks for the first one's mark."""
    argv = ["ssh", "-F", str(config), "-tt", "jobctl-resnet-1", "tty; sleep 777; true"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline().startswith(b"/dev/pts/")
        (begun,) = _marks(world)
        client.terminate()
    promptly(lambda: len(_marks(world)) > 1)
    assert _marks(world) == [begun, begun]


def test_a_connection_ends_when_its_pod_runs_no_more(config: Path, world: World) -> None:
    idle = ["ssh", "-F", str(config), "-N", "-o", "LogLevel=DEBUG1", "jobctl-resnet-1"]
    with subprocess.Popen(idle, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as client:
        assert client.stderr is not None
        assert any("Entering interactive session" in line for line in client.stderr)
        world.end(ONE, 137)
        assert f"error: pod {ONE} runs no more\n" in client.communicate(timeout=PATIENCE)[1]


def _marks(world: World) -> list[str]:
    words = [word for request in world.api.requests if "/exec" in request for word in request.split("&")]
    return [word.partition("JOBCTL_SESSION%3D")[2] for word in words if "JOBCTL_SESSION%3D" in word]


def test_a_port_that_answers_and_hangs_up_at_once_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection may be over before anybody looks at it. So is that of a port at which nothing listens."""
    pod = SimpleNamespace(name=ONE)
    ports = PodPorts(SimpleNamespace(), lambda node: pod)  # type: ignore[arg-type, return-value]

    def answer(words: bytes) -> None:
        here, there = socket.socketpair()
        there.sendall(words)
        there.close()
        forward = SimpleNamespace(connected=False, socket=lambda port: here)
        monkeypatch.setattr(PodPorts, "_open", lambda *where: forward)

    answer(b"node 1")
    assert ports.dial(1, 6006).recv(100) == b"node 1"
    answer(b"")
    with pytest.raises(PortClosed):
        ports.dial(1, 6006)


# One command.


class Websocket:
    """A connection to a command that repeats what it is given, and reads nothing while nobody takes what it prints."""

    def __init__(self) -> None:
        self.line, self._there = socket.socketpair()
        self.sock = SimpleNamespace(sock=self.line)
        self._open, self._come, self._result = True, b"", b'{"status": "Success"}'
        threading.Thread(target=self._repeat, daemon=True).start()

    def _repeat(self) -> None:
        while data := self._there.recv(65536):
            self._there.sendall(data)
        self._there.close()

    def is_open(self) -> bool:
        return self._open

    def write_channel(self, channel: int, data: bytes) -> None:
        self.line.sendall(data)

    def close_channel(self, channel: int) -> None:
        self.line.shutdown(socket.SHUT_WR)

    def update(self, timeout: float) -> None:
        data = self.line.recv(65536)
        self._come += data
        self._open = data != b""

    def read_channel(self, channel: int) -> bytes:
        if channel == RESULT:
            told, self._result = (b"", self._result) if self._open else (self._result, b"")
            return told
        data, self._come = (self._come, b"") if channel == OUT else (b"", self._come)
        return data

    def close(self) -> None:
        self.line.close()


def test_a_client_that_takes_nothing_makes_the_command_wait_and_loses_nothing() -> None:
    """It is not kept in memory, nor does it keep the connection from being read: more is sent than it holds."""
    command, data, sent = PodCommand(Websocket(), lambda: None), os.urandom(20 << 20), [0]

    def send() -> None:
        for start in range(0, len(data), 1 << 16):
            command.send(data[start : start + (1 << 16)])
            sent[0] += 1 << 16
        command.end_input()

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    before = -1
    while before != sent[0]:
        before = sent[0]
        time.sleep(0.5)
    assert before < 8 << 20
    got = b"".join(iter(command.output, b""))
    sender.join(60)
    assert (got == data, command.errors(), command.wait()) == (True, b"", 0)


def test_a_connection_that_is_lost_is_the_end_of_the_command() -> None:
    websocket, hung_up = Websocket(), []
    websocket.read_channel = lambda channel: b""  # type: ignore[method-assign]  # of its end it says nothing
    command = PodCommand(websocket, lambda: hung_up.append(True))
    command.end_input()
    assert (command.output(), command.wait()) == (b"", 255)
    with pytest.raises(BrokenPipeError):
        command.send(b"x")
    command.resize(80, 24)
    command.close()
    assert hung_up == [True]
