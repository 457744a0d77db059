"""Connections to ports of nodes: they go where the node is now. This machine plays the hosts, with an address for each."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.apply.deployer import AllUnreachable
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.model.control import Control, JobResult, Ledger
from jobctl.jobspec.deploy.model.errors import DeployError, HostError, NothingToEnter, PortClosed
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.slurm.login import LoginNode
from jobctl.jobspec.deploy.slurm.ports import AllocationPorts
from jobctl.jobspec.deploy.targets import node_ports
from jobctl.jobspec.deploy.targets.hosts import Hosts
from jobctl.jobspec.deploy.targets.node_ports import home_of
from jobctl.jobspec.deploy.transport import relay as relaying
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.deploy.transport.relay import listen, relay, serve
from jobctl.jobspec.plan.generation import Generation, first_generation
from jobctl.jobspec.plan.types import HostRef
from jobctl.jobspec.render.payload import control_json
from jobctl.jobspec.spec.hosts import Host
from tests.deploy.apply.test_executor import TWO
from tests.deploy.targets.test_hosts import hosts
from tests.tools.waiting import PROMPT, promptly

__all__ = ["hosts"]
ADDRESSES = {"h0": "127.0.0.21", "h1": "127.0.0.22", "s0": "127.0.0.23"}


def generation(number: int, *homes: str) -> Generation:
    """A generation whose nodes are on these hosts."""
    first = first_generation(TWO)
    members = [
        replace(member, host=home, address=ADDRESSES[home]) for member, home in zip(first.members, homes, strict=False)
    ]
    return replace(first, number=number, members=tuple(members))


def give(host_job: HostJob, made: Generation) -> None:
    host_job.hand_over(b"", control_json(made))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_ports, "INTERVAL", 0.02)
    monkeypatch.setattr(relaying, "TICK", 0.02)


@contextlib.contextmanager
def answering(*names: str) -> Iterator[int]:
    """Have hosts of these names listen at one port, each at its own address, and answer with their names; yield the port.

    All others have the port too, and do not listen: no program of this machine can answer in their place.
    """
    with contextlib.ExitStack() as stack:
        while True:
            sockets = {name: stack.enter_context(socket.socket()) for name in ADDRESSES}
            port = 0
            try:
                for name, one in sockets.items():
                    one.bind((ADDRESSES[name], port))
                    port = one.getsockname()[1]
            except OSError:  # somebody has this port at one of the addresses, or at all
                continue
            break
        for name in names:
            sockets[name].listen()
            threading.Thread(target=_answer, args=(sockets[name], name.encode()), daemon=True).start()
        yield port


def _answer(listener: socket.socket, name: bytes) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(name)


def said(connection: Any) -> bytes:
    with connection:
        connection.settimeout(30)
        return bytes(connection.recv(100))


@pytest.mark.usefixtures("quick")
def test_connections_follow_a_node_to_another_host(hosts: Hosts) -> None:
    give(hosts.host_jobs["h0"], generation(1, "h0", "h1"))
    with answering("h0", "h1", "s0") as port, hosts.ports() as ports:
        assert [said(ports.dial(node, port)) for node in (0, 1)] == [b"h0", b"h1"]
        give(hosts.host_jobs["s0"], generation(2, "h0", "s0"))  # the only host that has it so far
        promptly(lambda: ports.place(1).host == "s0")
        assert said(ports.dial(1, port)) == b"s0"


class Lost(LocalTransport):
    """A host whose connection is lost a number of times."""

    def __init__(self, name: str, times: int) -> None:
        super().__init__(name)
        self.times = times

    def open_port(self, address: str, port: int) -> Any:
        if self.times:
            self.times -= 1
            raise HostError(self.host, "lost", "Connection reset by peer")
        return super().open_port(address, port)


@pytest.mark.usefixtures("quick")
def test_a_connection_that_was_lost_is_made_again_once(hosts: Hosts) -> None:
    give(hosts.host_jobs["h0"], generation(1, "h0", "h1"))
    with answering("h0") as port, hosts.ports() as ports:
        hosts.host_jobs["h0"].transport = Lost("h0", 1)
        assert said(ports.dial(0, port)) == b"h0"
        hosts.host_jobs["h0"].transport = Lost("h0", 2)
        with pytest.raises(HostError, match="Connection reset by peer"):
            ports.dial(0, port)


class Gone(LocalTransport):
    """A host that does not answer, after a while."""

    def __init__(self, name: str, wait: threading.Event) -> None:
        super().__init__(name)
        self.wait = wait

    def run(self, *args: object, **how: object) -> Any:
        self.wait.wait(30)
        raise HostError(self.host, "unreachable", "no route to it")


@pytest.mark.usefixtures("quick")
def test_a_host_that_does_not_answer_delays_no_other(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_ports, "SETTLED", 0.0)
    give(hosts.host_jobs["h0"], generation(1, "h0", "h1"))
    wait = threading.Event()
    hosts.host_jobs["h1"].transport = Gone("h1", wait)
    with answering("h0") as port, hosts.ports() as ports:
        assert said(ports.dial(0, port)) == b"h0"
        assert ports.place(1).problem is None  # nobody knows yet
        wait.set()
        assert promptly(lambda: ports.place(1).problem) == "h1: no route to it"


@pytest.mark.usefixtures("quick")
def test_a_connection_to_a_host_that_is_gone_waits_until_its_node_has_moved(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead host may also not say so: the connection leads to the new one at once."""
    monkeypatch.setattr(node_ports, "HOST_TIMEOUT", PROMPT)
    give(hosts.host_jobs["h0"], generation(1, "h0", "h1"))
    gone, hangs, asked = threading.Event(), threading.Event(), threading.Semaphore(0)
    gone.set()
    found: list[bytes] = []

    def connects(ports: Any, port: int) -> threading.Thread:
        thread = threading.Thread(target=lambda: found.append(said(ports.dial(1, port))))
        thread.start()
        return thread

    class Hangs(LocalTransport):
        def open_port(self, address: str, port: int) -> Any:
            asked.release()
            hangs.wait()
            raise HostError(self.host, "lost", "it is dead")

    hosts.host_jobs["h1"].transport = Hangs("h1")
    with answering("h0", "s0") as port, hosts.ports() as ports:
        threads = [connects(ports, port)]
        assert asked.acquire(timeout=PROMPT)
        hosts.host_jobs["h1"].transport = Gone("h1", gone)
        promptly(lambda: ports.place(1).problem)
        threads.append(connects(ports, port))
        give(hosts.host_jobs["s0"], generation(2, "h0", "s0"))
        for thread in threads:
            thread.join(PROMPT)
    hangs.set()
    assert found == [b"s0", b"s0"]


@pytest.mark.usefixtures("quick")
def test_a_connection_waits_for_a_host_that_is_gone_only_so_long(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_ports, "HOST_TIMEOUT", 0.1)
    give(hosts.host_jobs["h0"], generation(1, "h0", "h1"))
    gone = threading.Event()
    gone.set()
    hosts.host_jobs["h1"].transport = Gone("h1", gone)
    with hosts.ports() as ports:
        promptly(lambda: ports.place(1).problem)
        with pytest.raises(HostError, match="h1: no route to it"):
            ports.dial(1, 6006)


def test_where_no_host_answers_nothing_is_forwarded(hosts: Hosts) -> None:
    wait = threading.Event()
    wait.set()
    for name, host_job in hosts.host_jobs.items():
        host_job.transport = Gone(name, wait)
    with pytest.raises(AllUnreachable) as error, hosts.ports():
        pass
    assert sorted(error.value.failures) == ["h0", "h1", "s0"]


def test_a_port_at_which_nothing_listens(hosts: Hosts) -> None:
    give(hosts.host_jobs["h0"], generation(1, "h0", "h1"))
    with answering("h0") as port, hosts.ports() as ports, pytest.raises(PortClosed, match="h1: nothing listens at"):
        ports.dial(1, port)


@pytest.mark.parametrize(
    ("node", "made", "kind", "message"),
    [
        (0, None, NothingToEnter, "node 0 is on no host: the job does not run"),
        (7, generation(3, "h0", "h1"), DeployError, "the job has no node 7"),
        (1, generation(3, "h0"), NothingToEnter, "node 1 is on no host: generation 3 has the nodes 0"),
        ("etcd-0", None, DeployError, "the job has no etcd-0"),
    ],
)
def test_a_node_that_is_nowhere(node: int | str, made: Generation | None, kind: type, message: str) -> None:
    with pytest.raises(DeployError) as error:
        home_of(node, Control(made, Ledger(0.0)), TWO)
    assert (type(error.value), error.value.message) == (kind, message)


def test_a_node_of_a_job_that_has_ended_is_nowhere() -> None:
    ended = Ledger(0.0, result=JobResult("failed", "node 0: rank 0 exited with code 3", 1.0))
    with pytest.raises(NothingToEnter, match="node 0 is on no host: the job does not run"):
        home_of(0, Control(generation(3, "h0", "h1"), ended), TWO)


def test_a_node_is_where_its_generation_has_it() -> None:
    assert home_of(1, Control(generation(3, "h0", "s0")), TWO) == HostRef("s0", ADDRESSES["s0"])


def test_ports_of_an_allocation_are_those_of_its_nodes_addresses(tmp_path: Path) -> None:
    """The login node, which is this machine here, connects to them."""
    made = Observed(Control(generation(1, "h0", "h1")), (), supervised=None)
    login = LoginNode(Inventory((Host("localhost"),)), "job", str(tmp_path))
    ports = AllocationPorts(login, lambda: made, TWO)
    with answering("h1") as port:
        assert (ports.place(1).host, said(ports.dial(1, port))) == ("h1", b"h1")
        with pytest.raises(PortClosed) as error:
            ports.dial(0, port)
        assert "start it with `--host 0.0.0.0`" in (error.value.hint or "")


# Passing on.


def test_a_port_that_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DeployError) as error:
            listen(port)
    assert error.value.message == f"port {port} of this machine is in use"


def test_bytes_go_both_ways_until_both_sides_have_ended() -> None:
    (client, ours), (theirs, server) = socket.socketpair(), socket.socketpair()
    passing = threading.Thread(target=relay, args=(ours, theirs))
    passing.start()
    client.sendall(b"question")
    client.shutdown(socket.SHUT_WR)
    with server.makefile("rb") as file:
        assert file.read() == b"question"
    server.sendall(b"answer")  # after the client's side has ended
    server.close()
    with client.makefile("rb") as file:
        assert file.read() == b"answer"
    passing.join(30)
    assert not passing.is_alive()
    client.close()


def test_a_side_that_breaks_ends_the_other() -> None:
    class Broken:
        def __init__(self, end: socket.socket) -> None:
            self.end = end

        def recv(self, size: int) -> bytes:
            raise EOFError

        def sendall(self, data: bytes) -> None:
            raise OSError("broken")

        def shutdown(self, how: int) -> None:
            pass

        def close(self) -> None:
            self.end.close()

    client, ours = socket.socketpair()
    relay(ours, Broken(ours))
    with client.makefile("rb") as file:
        assert file.read() == b""
    client.close()


@pytest.mark.usefixtures("quick")
def test_connections_are_served_side_by_side() -> None:
    class Enough(Exception):
        pass

    both, done = threading.Barrier(2), threading.Semaphore(0)

    def answer(connection: socket.socket) -> None:
        both.wait(30)
        connection.sendall(b"hello")
        done.release()

    def look() -> None:
        if done.acquire(blocking=False) and done.acquire(timeout=30):
            raise Enough

    with listen(0) as listener:
        clients = [socket.create_connection(listener.getsockname()) for _ in range(2)]
        with pytest.raises(Enough):
            serve({listener: answer}, look)
        assert [said(client) for client in clients] == [b"hello"] * 2
