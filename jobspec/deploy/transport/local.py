"""`localhost` in the hosts file: this machine, with its own Docker Engine and without SSH."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterable, Sequence
from typing import IO, Any

from jobctl.jobspec.deploy.model.errors import HostError, PortClosed
from jobctl.jobspec.deploy.transport.aside import aside
from jobctl.jobspec.deploy.transport.base import TIMEOUT, Result, RunningCommand, Stdin, TerminalSize, in_english
from jobctl.jobspec.deploy.transport.descriptors import for_child
from jobctl.jobspec.deploy.transport.foreground import run_in_foreground
from jobctl.jobspec.deploy.transport.running import ProcessCommand


def _run(argv: Sequence[str], stdin: Stdin, timeout: float) -> subprocess.CompletedProcess[bytes]:
    if isinstance(stdin, bytes):
        return subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            timeout=timeout,
            check=False,
            env=in_english(os.environ),
            preexec_fn=for_child(),
        )
    reader, writer = os.pipe()
    feed = _Feed(writer, stdin)
    with os.fdopen(reader, "rb") as theirs:
        fed = aside(feed.write, "input")
        try:
            return _fed(argv, theirs, feed, timeout)
        finally:
            theirs.close()  # nobody reads it any more: who feeds it ends
            fed.result()


def _fed(argv: Sequence[str], theirs: IO[bytes], feed: _Feed, timeout: float) -> subprocess.CompletedProcess[bytes]:
    """Run a command that is fed; it is given up when it has read nothing for `timeout` seconds, and not ended."""
    pipe, environ = subprocess.PIPE, in_english(os.environ)
    with subprocess.Popen(argv, stdin=theirs, stdout=pipe, stderr=pipe, env=environ, preexec_fn=for_child()) as process:
        try:
            while True:
                written = feed.written
                try:
                    out, err = process.communicate(timeout=timeout)
                except subprocess.TimeoutExpired:
                    if feed.written == written:
                        raise
                else:
                    return subprocess.CompletedProcess(argv, process.returncode, out, err)
        except BaseException:
            process.kill()
            raise


class _Feed:
    """The input of a command, written piece by piece as long as somebody reads it."""

    def __init__(self, writer: int, pieces: Iterable[bytes]) -> None:
        self._writer, self._pieces = writer, pieces
        self.written = 0  # bytes

    def write(self) -> None:
        """Write all of it."""
        with contextlib.suppress(BrokenPipeError), os.fdopen(self._writer, "wb", buffering=0) as file:
            for piece in self._pieces:
                left = memoryview(piece)
                while left:
                    count = file.write(left)
                    left = left[count:]
                    self.written += count


def open_port(host: str, address: str, port: int) -> socket.socket:
    """Return a socket that is connected to a TCP port; `host` is what its machine is called. Raises PortClosed."""
    try:
        made = socket.create_connection((address, port), TIMEOUT)
    except OSError as error:
        if isinstance(error, ConnectionRefusedError):
            raise PortClosed(f"{host}: nothing listens at {address}:{port}") from error
        raise PortClosed(f"{host}: cannot reach {address}:{port}: {error.strerror or error}") from error
    made.settimeout(None)
    return made


class LocalTransport:
    """A Transport to this machine."""

    def __init__(self, name: str = "localhost") -> None:
        self._name = name

    @property
    def host(self) -> str:
        """The host's name in the hosts file."""
        return self._name

    def preconnect(self) -> None:
        """There is nothing to connect to."""

    def run(self, argv: Sequence[str], stdin: Stdin = b"", *, timeout: float = TIMEOUT) -> Result:
        """Run a command with `stdin` as its input; given up after `timeout` seconds, of silence if it is fed in pieces."""
        try:
            done = _run(argv, stdin, timeout)
        except subprocess.TimeoutExpired:
            message = f"`{argv[0]}` has not ended after {timeout:g} s"
            raise HostError(self.host, "silent", message, "look whether it hangs, on a disk for example") from None
        except OSError as error:
            return Result(127, b"", f"{argv[0]}: {error.strerror}".encode())
        code = done.returncode
        return Result(code if code >= 0 else 128 - code, done.stdout, done.stderr)

    def dial(self, argv: Sequence[str]) -> Any:
        """Start a command and return a socket that is connected to its stdin and stdout."""
        ours, its = socket.socketpair()
        with its:
            subprocess.Popen(
                list(argv),
                stdin=its.fileno(),
                stdout=its.fileno(),
                stderr=subprocess.DEVNULL,
                env=in_english(os.environ),
                start_new_session=True,
                preexec_fn=for_child(),
            )
        return ours

    def open_socket(self, path: str) -> Any:
        """Return a socket that is connected to a Unix socket, None if nobody listens there or lets us in."""
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(TIMEOUT)
        try:
            made.connect(path)
        except OSError:
            made.close()
            return None
        return made

    def open_port(self, address: str, port: int) -> Any:
        """Return a socket that is connected to a TCP port. Raises PortClosed if nothing listens there."""
        return open_port(self.host, address, port)

    def interact(self, argv: Sequence[str]) -> int:
        """Run a command that has this process's terminal until it ends; return its exit code."""
        return run_in_foreground(argv, os.environ, None)

    def start(self, argv: Sequence[str], terminal: TerminalSize | None = None) -> RunningCommand:
        """Start a command, with a terminal or with pipes, and return it."""
        return ProcessCommand(argv, os.environ, None, terminal)

    def close(self) -> None:
        """There is nothing to let go of."""
