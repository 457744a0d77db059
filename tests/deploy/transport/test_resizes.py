"""The window's size while a command has the terminal: its signal may come where a lock of the connection is held."""

from __future__ import annotations

import os
import pty
import signal
import socket
import sys
import termios
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from websocket import WebSocketConnectionClosedException

from jobctl.jobspec.deploy.kubernetes import session
from jobctl.jobspec.deploy.kubernetes.session import RESIZE, RESULT, PodSession
from jobctl.jobspec.deploy.transport import terminal


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Return the terminal that this process has."""
    ours, theirs = pty.openpty()
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    for module in (terminal, session):
        monkeypatch.setattr(module, "STDIN", theirs)
    yield theirs
    os.close(ours)
    os.close(theirs)


class Connection:
    """Its other end ends the command once it hears of another size."""

    def __init__(self, window: int) -> None:
        self.window, self.lock, self.sizes = window, threading.Lock(), list[tuple[int, int]]()
        self.near, self.far = socket.socketpair()

    def change(self) -> None:
        """Change the size once, in the middle of something that locks."""
        with self.lock:
            if not self.sizes:
                termios.tcsetwinsize(self.window, (20, 90))
                signal.raise_signal(signal.SIGWINCH)

    def tell(self, columns: int, lines: int) -> None:
        assert self.lock.acquire(blocking=False), "this would wait for ever"
        self.lock.release()
        self.sizes.append((columns, lines))


class Channel(Connection):
    """What paramiko has of a command."""

    eof_received = True

    def get_pty(self, kind: str, columns: int, lines: int) -> None:
        """Nothing is there that had a size before."""

    def setblocking(self, blocking: bool) -> None:
        """Nothing is read here."""

    @property
    def closed(self) -> bool:
        return bool(self.sizes)

    def exit_status_ready(self) -> bool:
        return self.closed

    def recv_ready(self) -> bool:
        self.change()
        return False

    def recv_stderr_ready(self) -> bool:
        return False

    def resize_pty(self, columns: int, lines: int) -> None:
        self.tell(columns, lines)

    def recv_exit_status(self) -> int:
        return 3

    def fileno(self) -> int:
        return self.near.fileno()


def test_a_size_is_told_between_two_things_and_not_within_one(window: int) -> None:
    channel = Channel(window)
    assert terminal.interact(channel, lambda *, terminal: None, lambda: None) == 3
    assert channel.sizes == [(90, 20)]


class Websocket(Connection):
    """What the client of Kubernetes has of a command; `broken`: as it is when it cannot be written to."""

    def __init__(self, window: int, *, broken: bool) -> None:
        super().__init__(window)
        self.broken, self.sock = broken, SimpleNamespace(sock=self.near)
        self.asked = 0
        self.said = b'{"status": "Success"}'

    def is_open(self) -> bool:
        return True

    def update(self, timeout: float) -> None:
        if self.asked == 1:  # after the first size
            self.sizes.clear()
            self.change()

    def write_channel(self, channel: int, data: bytes) -> None:
        assert channel == RESIZE
        self.asked += 1
        self.tell(self.asked, len(data))
        if self.broken:
            raise WebSocketConnectionClosedException("socket is already closed.")

    def read_channel(self, channel: int) -> bytes:
        said = b""
        if channel == RESULT and self.asked > 1:
            said, self.said = self.said, b""
        return said

    def close(self) -> None:
        """It has ended."""


@pytest.mark.parametrize("broken", [False, True])
def test_a_size_is_told_between_two_things_in_a_cluster_too(
    window: int, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    """Once the command has ended nobody hears it: what it ended with counts."""
    websocket = Websocket(window, broken=broken)
    monkeypatch.setattr(session, "open_exec", lambda *given: websocket)
    api: Any = SimpleNamespace(name="cluster")
    assert PodSession(api, "pod", "container").run(["top"]) == 0
    assert websocket.asked == 2
