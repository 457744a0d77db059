"""Connections to many hosts: descriptors of high numbers, and the limit of them, which is not that of children."""

from __future__ import annotations

import gc
import os
import resource
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.targets.host_fleet import host_fleet
from jobctl.jobspec.deploy.transport import descriptors
from jobctl.jobspec.deploy.transport.ssh import Ssh
from jobctl.jobspec.spec.hosts import Host
from tests.tools.loopback import Loopback
from tests.tools.waiting import PROMPT

SELECT = 1024  # descriptors that select(2) can watch
RELAY = """\
import os, socket, sys, threading
open(sys.argv[2], "w").write(str(os.getpid()))
link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def send():
    while data := os.read(0, 65536):
        link.sendall(data)
threading.Thread(target=send, daemon=True).start()
while data := link.recv(65536):
    os.write(1, data)
"""
CHILDREN = """\
import os, resource, sys
from jobctl.jobspec.deploy.targets.local.processes import script_of, spawn
from jobctl.jobspec.deploy.transport.base import TerminalSize
from jobctl.jobspec.deploy.transport.descriptors import make_room
from jobctl.jobspec.deploy.transport.local import LocalTransport
from pathlib import Path

make_room(1)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
there, argv, folder = LocalTransport(), ["sh", "-c", "ulimit -Sn"], Path(sys.argv[1])
print(there.run(argv).out.decode().strip())
print(there.run(argv, iter([b"text"])).out.decode().strip())
print(there.start(argv).output().decode().strip())
print(there.start(argv, TerminalSize("vt100", 80, 24)).output().decode().strip())
print(there.dial(argv).recv(100).decode().strip())
sys.stdout.flush()
there.interact(argv)
script_of(folder, 0).write_text("ulimit -Sn")
spawn(folder, 0, folder / "log", os.environ).wait()
print((folder / "log").read_text().strip())
"""


@pytest.fixture
def crowd() -> Iterator[Callable[[], None]]:
    """Take all descriptors of this process that select(2) can watch; again, those that others have closed since."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard > 2 * SELECT
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * SELECT if 0 <= soft < 2 * SELECT else soft, hard))
    gc.collect()  # what earlier tests have left would close low ones in between
    null = os.open(os.devnull, os.O_RDONLY)
    taken = [null]

    def take() -> None:
        taken.append(os.dup(null))
        while taken[-1] < SELECT:
            taken.append(os.dup(null))

    take()
    with pytest.raises(ValueError, match="out of range"):
        select.select([taken[-1]], [], [], 0)
    yield take
    for one in taken:
        os.close(one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_host_is_talked_to_over_high_descriptors(crowd: Callable[[], None], server: Loopback) -> None:
    with server.client() as there:
        assert there.run(["echo", "one"]).out == b"one\n"
        assert there.run(["cat"], b"two").out == b"two"
        crowd()
        channel = there.dial(["cat"])
        channel.sendall(b"three")
        channel.shutdown_write()
        assert channel.fileno() > SELECT
        assert channel.makefile("rb").read() == b"three"


@pytest.fixture
def proxied(server: Loopback, tmp_path: Path) -> Iterator[Ssh]:
    """A connection through a command."""
    (tmp_path / "relay.py").write_text(RELAY)
    command = shlex.join([sys.executable, str(tmp_path / "relay.py"), str(server.port), str(tmp_path / "pid")])
    with server.client(f"ProxyCommand {command}") as there:
        yield there


@pytest.mark.usefixtures("crowd")
def test_a_proxy_command_is_read_over_high_descriptors(proxied: Ssh) -> None:
    assert proxied.run(["echo", "one"]).out == b"one\n"


def test_a_connection_ends_with_its_proxy_command(proxied: Ssh, tmp_path: Path) -> None:
    channel = proxied.dial(["cat"])
    channel.settimeout(PROMPT)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert channel.recv(1) == b""


def limited(soft: int, *argv: str) -> list[str]:
    """Run Python with another soft limit, and return the words that it prints."""
    shell = ["sh", "-c", f'ulimit -Sn {soft}; exec "$@"', "sh", sys.executable, *argv]
    return subprocess.run(shell, capture_output=True, text=True, check=True).stdout.split()


def test_children_have_the_limit_that_the_command_was_started_with(tmp_path: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = descriptors.MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, descriptors.MAX_DESCRIPTORS)
    ours, *theirs = limited(500, "-c", CHILDREN, str(tmp_path))
    assert (int(ours), theirs) == (most, ["500"] * 7)


@pytest.mark.parametrize(
    ("hosts", "before", "after"),
    [
        (0, (1024, 4096), None),
        (1, (1024, 4096), (4096, 4096)),
        (300, (1024, 1 << 30), (65536, 1 << 30)),
        (300, (1024, resource.RLIM_INFINITY), (65536, resource.RLIM_INFINITY)),
        (10_000, (1024, 1 << 20), (90_032, 1 << 20)),
        (300, (1 << 20, 1 << 20), None),
        (300, (resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ],
)
def test_the_limit_is_raised_as_far_as_hosts_need(
    monkeypatch: pytest.MonkeyPatch, hosts: int, before: tuple[int, int], after: tuple[int, int] | None
) -> None:
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(descriptors, "_before", [])
    monkeypatch.setattr(resource, "getrlimit", lambda kind: before)
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: raised.append(limits))
    descriptors.make_room(hosts)
    assert raised == ([after] if after else [])
    assert (descriptors.for_child() is not None) == bool(after)
    descriptors.restore()
    assert raised[1:] == ([before] if after else [])


def test_more_hosts_than_the_system_allows_are_refused_and_not_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, 1024))
    many = (Host("localhost"), *(Host(f"h{number}") for number in range(150)))
    with pytest.raises(DeployError) as caught:
        host_fleet(JobDir(tmp_path), "ssh", Inventory(many), None, lambda text: None)
    assert caught.value.message == ("150 hosts take about 1382 open files, and a process on this machine may have 1024")
    assert "ulimit -Hn" in str(caught.value.hint)
