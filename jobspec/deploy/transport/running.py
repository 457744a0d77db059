"""Commands that run with a terminal of their own or with pipes: over SSH, or as a process of this machine."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.model.errors import CannotRun
from jobctl.jobspec.deploy.transport.base import CHUNK, TerminalSize
from jobctl.jobspec.deploy.transport.descriptors import for_child, restore

if TYPE_CHECKING:
    import paramiko


class ChannelCommand:
    """A command on a channel of SSH."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel

    def send(self, data: bytes) -> None:
        """Write to its input."""
        self._channel.sendall(data)

    def end_input(self) -> None:
        """End its input."""
        with contextlib.suppress(OSError):  # it has ended
            self._channel.shutdown_write()

    def output(self) -> bytes:
        """Return the next of what it prints on stdout."""
        return bytes(self._channel.recv(CHUNK))

    def errors(self) -> bytes:
        """Return the next of what it prints on stderr."""
        return bytes(self._channel.recv_stderr(CHUNK))

    def resize(self, columns: int, lines: int) -> None:
        """Give its terminal another size."""
        with contextlib.suppress(OSError):
            self._channel.resize_pty(columns, lines)

    def wait(self) -> int:
        """Return its exit code when it has ended."""
        code = self._channel.recv_exit_status()
        return code if code >= 0 else 255

    def close(self) -> None:
        """Close the channel, and with it the terminal there."""
        self._channel.close()


class ProcessCommand:
    """A command as a process of this machine, the first of a session. Raises CannotRun if it cannot be run."""

    def __init__(
        self, argv: Sequence[str], environ: Mapping[str, str], directory: str | None, terminal: TerminalSize | None
    ) -> None:
        self._master: int | None = None
        self._closing = threading.Lock()  # others write and resize until it has ended
        streams = _Streams(terminal)
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=streams.slave,
                stdout=streams.slave,
                stderr=streams.slave,
                env=dict(environ),
                cwd=directory,
                start_new_session=True,
                preexec_fn=_take_terminal if terminal else for_child(),
            )
        except OSError as error:
            streams.close()
            code = 127 if isinstance(error, FileNotFoundError) else 126
            raise CannotRun(f"{argv[0]}: {error.strerror}", code) from error
        self._master = streams.keep()

    def send(self, data: bytes) -> None:
        """Write to its input."""
        place = self._input()
        try:
            while data:
                data = data[os.write(place, data) :]
        finally:
            os.close(place)

    def _input(self) -> int:
        """Return a descriptor of the caller's own: to write may take long, and the terminal may be closed meanwhile."""
        with self._closing:
            if self._master is not None:
                return os.dup(self._master)
        if self._process.stdin is None or self._process.stdin.closed:
            raise BrokenPipeError(errno.EPIPE, "its input has ended")
        return os.dup(self._process.stdin.fileno())

    def end_input(self) -> None:
        """End its input, if that is a pipe."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def output(self) -> bytes:
        """Return the next of what it prints on stdout."""
        if self._master is None:
            return _read(self._process.stdout)
        try:
            return os.read(self._master, CHUNK)
        except OSError:  # nobody has the terminal any more
            return b""

    def errors(self) -> bytes:
        """Return the next of what it prints on stderr."""
        return _read(self._process.stderr)

    def resize(self, columns: int, lines: int) -> None:
        """Give its terminal another size."""
        with self._closing, contextlib.suppress(OSError):
            if self._master is not None:
                _set_size(self._master, columns, lines)

    def wait(self) -> int:
        """Return its exit code when it has ended. Its output is not read any more: its terminal is closed."""
        code = self._process.wait()
        with self._closing:
            if self._master is not None:
                os.close(self._master)
                self._master = None
        return code if code >= 0 else 128 - code

    def close(self) -> None:
        """Hang up: end what goes on at its terminal. Without one, what it has left running in the background goes on."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                end = os.kill if self._master is None else os.killpg
                end(self._process.pid, signal.SIGHUP)


def _read(file: object) -> bytes:
    if not hasattr(file, "fileno"):
        return b""
    return os.read(file.fileno(), CHUNK)


class _Streams:
    """The streams that a process is started with: a terminal, or pipes."""

    def __init__(self, terminal: TerminalSize | None) -> None:
        self._master: int | None = None
        self.slave = subprocess.PIPE
        if terminal is not None:
            self._master, self.slave = pty.openpty()
            _set_size(self._master, terminal.columns, terminal.lines)

    def keep(self) -> int | None:
        """Return our end of the terminal; the other one is the process's alone."""
        if self._master is not None:
            os.close(self.slave)
        return self._master

    def close(self) -> None:
        """Close both ends."""
        if self._master is not None:
            os.close(self._master)
            os.close(self.slave)


def _set_size(terminal: int, columns: int, lines: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def _take_terminal() -> None:
    """Make the terminal that a process has on stdin the one that controls its session (runs between fork and exec)."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    restore()
