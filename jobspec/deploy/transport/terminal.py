"""A command on a host that has this terminal until it ends.

By hand, as Fabric's runner decodes what it passes on; here bytes stay as they are.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from typing import Any, Protocol

CHUNK = 32768
STDIN = 0


class Begin(Protocol):
    """What starts the command on a channel."""

    def __call__(self, *, terminal: bool) -> None:
        """Start it; `terminal`: it has one."""


def interact(channel: Any, begin: Begin) -> int:
    """Have a command on an open SSH channel joined to this process's terminal (or pipes); return its exit code.

    With a terminal the host gives one too: keys go there as they are typed, Ctrl-C included, and its size follows.
    """
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if terminal:
        size = window()
        channel.get_pty(os.environ.get("TERM", "xterm"), size.columns, size.lines)
    begin(terminal=terminal)

    def resize(size: os.terminal_size) -> None:
        channel.resize_pty(size.columns, size.lines)

    with raw() if terminal else contextlib.nullcontext(), resizes(resize) if terminal else contextlib.nullcontext():
        _join(channel)
    code: int = channel.recv_exit_status()
    return code if code >= 0 else 255


def _join(channel: Any) -> None:
    channel.setblocking(False)
    source = STDIN
    with selectors.DefaultSelector() as ready:
        ready.register(channel, selectors.EVENT_READ)
        with contextlib.suppress(PermissionError):  # a plain file is always ready, and epoll refuses it
            ready.register(source, selectors.EVENT_READ)
        if source not in ready.get_map():
            _send_all(channel, _all_of(source))
            _send_all(channel, b"")
        while True:
            for key, _ in ready.select(0.5):
                if key.fd == source:
                    data = os.read(source, CHUNK)
                    if not data:
                        ready.unregister(source)
                    _send_all(channel, data)
            _drain(channel)
            if channel.eof_received and channel.exit_status_ready() and not channel.recv_ready():
                _drain(channel)
                return
            if channel.closed:
                return


def _all_of(source: int) -> bytes:
    parts = []
    while data := os.read(source, CHUNK):
        parts.append(data)
    return b"".join(parts)


def _send_all(channel: Any, data: bytes) -> None:
    """Send what was typed; nothing is the end of input."""
    channel.setblocking(True)
    with contextlib.suppress(OSError):  # the command has ended
        if data:
            channel.sendall(data)
        else:
            channel.shutdown_write()
    channel.setblocking(False)


def _drain(channel: Any) -> None:
    while channel.recv_ready():
        sys.stdout.buffer.write(channel.recv(CHUNK))
    while channel.recv_stderr_ready():
        sys.stderr.buffer.write(channel.recv_stderr(CHUNK))
    sys.stdout.flush()
    sys.stderr.flush()


@contextlib.contextmanager
def raw() -> Iterator[None]:
    """Hand every key on as it is."""
    source = STDIN
    before = termios.tcgetattr(source)
    try:
        tty.setraw(source)
        yield
    finally:
        termios.tcsetattr(source, termios.TCSADRAIN, before)


def window() -> os.terminal_size:
    """Return the size of the terminal by its own word: COLUMNS and LINES may be there too, and older."""
    return os.get_terminal_size(STDIN)


@contextlib.contextmanager
def resizes(tell: Callable[[os.terminal_size], None]) -> Iterator[None]:
    """Tell the other side when the window changes its size."""

    def resized(number: int, frame: object) -> None:
        with contextlib.suppress(OSError):
            tell(window())

    before = signal.signal(signal.SIGWINCH, resized)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
