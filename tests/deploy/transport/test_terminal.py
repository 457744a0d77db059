"""A command on a host that has this process's stdin and stdout until it ends, over an SSH server of this process."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.transport import terminal
from jobctl.jobspec.deploy.transport.ssh import Ssh
from tests.tools.loopback import loopback

MUCH = os.urandom(6_000_000)  # bytes, more than both directions of a channel hold back


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Ssh]:
    with loopback(tmp_path) as server, server.client("StrictHostKeyChecking accept-new") as made:
        yield made


def feed(monkeypatch: pytest.MonkeyPatch, stdin: int) -> None:
    monkeypatch.setattr(terminal, "STDIN", stdin)


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_what_a_command_prints_while_it_reads_stops_neither(
    host: Ssh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], kind: str
) -> None:
    (tmp_path / "in").write_bytes(MUCH)
    stdin = os.open(tmp_path / "in", os.O_RDONLY)
    if kind == "pipe":
        stdin, ours = os.pipe()

        def write() -> None:
            with os.fdopen(ours, "wb") as file:
                file.write(MUCH)

        threading.Thread(target=write, daemon=True).start()
    feed(monkeypatch, stdin)
    ended: list[int] = []
    command = threading.Thread(target=lambda: ended.append(host.interact(["sh", "-c", "cat; exit 3"])), daemon=True)
    command.start()
    command.join(60)
    assert ended == [3]
    assert capfdbinary.readouterr().out == MUCH


def test_a_command_that_leaves_its_input_alone(
    host: Ssh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "in").write_bytes(MUCH)
    feed(monkeypatch, os.open(tmp_path / "in", os.O_RDONLY))
    assert host.interact(["echo", "done"]) == 0
    assert capfdbinary.readouterr().out == b"done\n"


class Unwritable:
    """A stdout that nobody reads any more, or whose disk is full."""

    def __init__(self, number: int) -> None:
        self.number, self.buffer = number, self

    def isatty(self) -> bool:
        return False

    def write(self, data: bytes) -> int:
        raise OSError(self.number, os.strerror(self.number))

    def flush(self) -> None:
        """There is nothing to write."""


@pytest.mark.parametrize(("number", "kind"), [(errno.EPIPE, BrokenPipeError), (errno.ENOSPC, OSError)])
def test_an_output_that_cannot_be_written_is_no_problem_of_the_host(
    host: Ssh, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[OSError]
) -> None:
    feed(monkeypatch, os.open("/dev/null", os.O_RDONLY))
    monkeypatch.setattr("sys.stdout", Unwritable(number))
    with pytest.raises(kind) as caught:
        host.interact(["yes"])
    assert (caught.value.errno, caught.value.filename) == (number, "standard output")
    assert host.run(["echo", "on"]).out == b"on\n"


def test_a_host_that_is_gone_ends_the_command(host: Ssh, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal takes no Ctrl-C meanwhile."""
    stdin, _ = os.pipe()
    feed(monkeypatch, stdin)
    monkeypatch.setattr(terminal, "SILENCE_TIMEOUT", 0.0)
    asked: list[Any] = []

    def ping(self: Ssh, channel: Any) -> None:
        asked.append(channel)
        if len(asked) > 1:
            raise EOFError

    monkeypatch.setattr(Ssh, "_ping", ping)
    with pytest.raises(HostError) as caught:
        host.interact(["sleep", "9"])
    assert caught.value.code == "lost"
