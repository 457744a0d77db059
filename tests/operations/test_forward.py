"""What `forward` is asked for, and what it tells while it serves connections."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from jobctl.jobspec.deploy.apply.deployer import NodePlace
from jobctl.jobspec.deploy.model.errors import DeployError, PortClosed
from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.operations.inspect.forward import PortForward, _Route, is_port_forward, parse_port_forward
from jobctl.jobspec.operations.reporter import Silent


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("6006", PortForward(6006, "0", 6006)),
        ("6006:1", PortForward(6006, "1", 6006)),
        ("16006:1:6006", PortForward(16006, "1", 6006)),
        ("2379:etcd-0", PortForward(2379, "etcd-0", 2379)),
    ],
)
def test_what_is_forwarded(text: str, meant: PortForward) -> None:
    assert is_port_forward(text)
    assert parse_port_forward(text) == meant


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "`0`: 0 is not a valid port"),
        ("6006:0:65536", "`6006:0:65536`: 65536 is not a valid port"),
        ("6006:", "`6006:` does not say what to forward"),
        ("6006:0:", "`6006:0:` does not say what to forward"),
        ("6006:0:http", "`6006:0:http` does not say what to forward"),
    ],
)
def test_what_is_not_understood(text: str, message: str) -> None:
    with pytest.raises(Refused) as error:
        parse_port_forward(text)
    assert error.value.message == message


@pytest.mark.parametrize("job", ["resnet", "job.yaml", "1.yaml", "./1.yaml", "2024/job.yaml"])
def test_a_job_is_not_taken_for_a_port(job: str) -> None:
    assert not is_port_forward(job)


class Said(Silent):
    """Keeps what was said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def new(self) -> list[str]:
        found, self.lines = self.lines, []
        return found


class Ports:
    """The ports of a node that is where a test says."""

    def __init__(self) -> None:
        self.now: NodePlace | DeployError = NodePlace("gpu01")
        self.answer: socket.socket | DeployError = PortClosed("gpu01: nothing listens at 127.0.0.1:6006")

    def place(self, node: int | str) -> NodePlace:
        if isinstance(self.now, DeployError):
            raise self.now
        return self.now

    def dial(self, node: int | str, port: int) -> Any:
        if isinstance(self.answer, DeployError):
            raise self.answer
        return self.answer


def test_a_route_tells_where_it_leads_and_each_problem_once() -> None:
    ports, said = Ports(), Said()
    route = _Route(PortForward(6006, "1", 6006), 1, ports, frozenset({6006}), said)
    route.begin()
    assert said.new() == ["127.0.0.1:6006 -> port 6006 of node 1 on gpu01"]
    route.look()
    assert said.new() == []
    for _ in range(2):
        ports.now = NodePlace("gpu01", "gpu01: no route to its address")
        route.look()
    assert said.new() == ["gpu01: no route to its address; trying again"]
    ports.now = NodePlace("gpu01")
    route.look()
    assert said.new() == ["gpu01 answers again"]
    ports.now = NodePlace("gpu02")
    route.look()
    route.look()
    assert said.new() == ["node 1 is on gpu02 now: 127.0.0.1:6006 leads there"]
    ports.now = DeployError("node 1 is on no host: the job does not run")
    route.look()
    route.look()
    assert said.new() == ["node 1 is on no host: the job does not run"]


def test_a_connection_that_leads_nowhere_is_told_once_until_one_does() -> None:
    ports, said = Ports(), Said()
    route = _Route(PortForward(6006, "0", 6006), 0, ports, frozenset({6006}), said)
    closed = ["node 0: gpu01: nothing listens at 127.0.0.1:6006"]
    for expected in (closed, []):
        route.connect(socket.socketpair()[0])
        assert said.new() == expected
    (client, ours), (ports.answer, server) = socket.socketpair(), socket.socketpair()
    passing = threading.Thread(target=route.connect, args=(ours,))
    passing.start()
    for end in (client, server):
        end.shutdown(socket.SHUT_WR)
    passing.join(30)
    ports.answer = PortClosed("gpu01: nothing listens at 127.0.0.1:6006")
    route.connect(socket.socketpair()[0])
    assert said.new() == closed


def test_problems_that_take_turns_are_told_once_each() -> None:
    ports, said = Ports(), Said()
    route = _Route(PortForward(6006, "0", 6006), 0, ports, frozenset({6006}), said)
    route.begin()
    for _ in range(2):
        for problem in ("gpu01: it is gone", "gpu01: no route to its address"):
            ports.now = NodePlace("gpu01", problem)
            route.look()
    assert said.new()[1:] == [
        "gpu01: it is gone; trying again",
        "gpu01: no route to its address; trying again",
    ]


def test_connections_to_where_a_node_was_end_when_it_moves() -> None:
    """Its host may be dead, and say nothing: a browser would wait on a connection that it keeps."""
    ports, said = Ports(), Said()
    route = _Route(PortForward(6006, "1", 6006), 1, ports, frozenset({6006}), said)
    route.begin()
    (client, ours), (ports.answer, _server) = socket.socketpair(), socket.socketpair()
    client.settimeout(30)
    passing = threading.Thread(target=route.connect, args=(ours,), daemon=True)
    passing.start()
    client.sendall(b"question")
    assert _server.recv(8) == b"question"
    route.look()
    ports.now = NodePlace("gpu02")
    route.look()
    assert client.recv(1) == b""
    passing.join(30)
    assert not passing.is_alive()


def test_a_port_that_leads_to_itself_is_refused() -> None:
    ports = Ports()
    ports.now = NodePlace("localhost", here=True)
    route = _Route(PortForward(6006, "0", 6006), 0, ports, frozenset({6006}), Said())
    with pytest.raises(DeployError, match="node 0 is on this machine: port 6006 would lead to itself"):
        route.begin()
    _Route(PortForward(16006, "0", 6006), 0, ports, frozenset({16006}), Said()).begin()
