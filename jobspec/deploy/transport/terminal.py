"""A command on a host that has this terminal until it ends.

By hand, as Fabric's runner decodes what it passes on; here bytes stay as they are.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from jobctl.jobspec.deploy.transport.base import CHUNK

STDIN = 0
# Seconds without anything from the command, after which it is asked whether its host is there at all
SILENCE_TIMEOUT = 10.0


class Begin(Protocol):
    """What starts the command on a channel."""

    def __call__(self, *, terminal: bool) -> None:
        """Start it; `terminal`: it has one."""


class StreamFailed(Exception):
    """Why a stream of this process's own, called `name`, cannot be read or written: nobody reads it, for example."""

    def __init__(self, name: str, problem: OSError) -> None:
        super().__init__(str(problem))
        self.problem = problem
        problem.filename = name


def interact(channel: Any, begin: Begin, ask: Callable[[], None]) -> int:
    """Have a command on an open SSH channel joined to this process's terminal (or pipes); return its exit code.

    With a terminal the host gives one too: keys go there as they are typed, Ctrl-C included, and its size follows.
    `ask` is called while nothing comes, and raises what ends it all if the host is gone. Raises StreamFailed.
    """
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if terminal:
        size = window()
        channel.get_pty(os.environ.get("TERM", "xterm"), size.columns, size.lines)
    begin(terminal=terminal)

    with (
        raw() if terminal else contextlib.nullcontext(),
        resizes() if terminal else contextlib.nullcontext() as changes,
    ):
        _join(channel, ask, changes)
    code: int = channel.recv_exit_status()
    return code if code >= 0 else 255


def _join(channel: Any, ask: Callable[[], None], changes: Resizes | None) -> None:
    channel.setblocking(False)
    typed, heard = _Typed(channel), time.monotonic()
    while True:
        over = channel.closed or (channel.eof_received and channel.exit_status_ready())
        moved = _print(channel)
        if over:  # before the last look
            return
        if moved | typed.pass_on():
            heard = time.monotonic()
        elif time.monotonic() - heard > SILENCE_TIMEOUT:
            ask()
            heard = time.monotonic()
        if changes is not None and (size := changes.taken()):
            with contextlib.suppress(OSError):  # the command has ended
                channel.resize_pty(size.columns, size.lines)
        typed.wait(changes)


class _Typed:
    """This process's stdin, for a command that may read on only once what it has printed is taken from it."""

    def __init__(self, channel: Any) -> None:
        self._channel, self._ended = channel, False
        self._left = b""  # what was read, and is not sent yet

    def wait(self, changes: Resizes | None) -> None:
        """Wait until there may be something to do. Nothing tells when the command reads on: that is looked for."""
        watch = select.poll()
        watch.register(self._channel, select.POLLIN)
        if changes is not None:
            watch.register(changes, select.POLLIN)
        if self._left:
            watch.poll(20)
            return
        if not self._ended:
            watch.register(STDIN, select.POLLIN)
        if any(number == STDIN for number, _ in watch.poll(500)):
            try:
                self._left = os.read(STDIN, CHUNK)
            except OSError as problem:
                raise StreamFailed("standard input", problem) from problem
            if not self._left:
                self._ended = True
                with contextlib.suppress(OSError):  # the command has ended
                    self._channel.shutdown_write()

    def pass_on(self) -> bool:
        """Send what can be sent now; say whether any was."""
        sent = False
        try:
            while self._left and self._channel.send_ready():
                self._left = self._left[self._channel.send(self._left) :]
                sent = True
        except OSError:  # the command has ended
            self._left = b""
        return sent


def _print(channel: Any) -> bool:
    """Print what has come; say whether any has."""
    moved = False
    try:
        while channel.recv_ready():
            sys.stdout.buffer.write(channel.recv(CHUNK))
            moved = True
        while channel.recv_stderr_ready():
            sys.stderr.buffer.write(channel.recv_stderr(CHUNK))
            moved = True
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError as problem:
        raise StreamFailed("standard output", problem) from problem
    return moved


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


class Resizes:
    """Changes of the window's size. They are only noted: what the signal interrupts may hold a lock of the connection."""

    def __init__(self) -> None:
        self._noted, self._note = os.pipe()
        os.set_blocking(self._noted, False)
        os.set_blocking(self._note, False)

    def fileno(self) -> int:
        """Return what can be read when the size has changed."""
        return self._noted

    def note(self, number: int, frame: object) -> None:
        """Note a change: a handler of signals."""
        with contextlib.suppress(OSError):  # as many as fit are noted already
            os.write(self._note, b"\0")

    def taken(self) -> os.terminal_size | None:
        """Return the size if it has changed since the last call."""
        try:
            os.read(self._noted, CHUNK)
            return window()
        except OSError:
            return None

    def close(self) -> None:
        """Note nothing any more."""
        os.close(self._note)
        os.close(self._noted)


@contextlib.contextmanager
def resizes() -> Iterator[Resizes]:
    """Note when the window changes its size, for the other side."""
    with contextlib.closing(Resizes()) as changes:
        before = signal.signal(signal.SIGWINCH, changes.note)
        try:
            yield changes
        finally:
            signal.signal(signal.SIGWINCH, before)
