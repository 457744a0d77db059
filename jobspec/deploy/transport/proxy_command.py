"""A ProxyCommand of the user's SSH configuration, as the socket that Paramiko speaks on.

Paramiko has one, which waits by select(2): that cannot watch the descriptors of a process that has many. And it runs the
command without a shell, as OpenSSH does not.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time

from jobctl.jobspec.deploy.transport.descriptors import for_child
from jobctl.jobspec.deploy.transport.ssh_problems import printed

MAX_STDERR_BYTES = 4096  # bytes of what the command says on stderr that are kept
END_TIMEOUT = 1.0  # seconds that it may take to end once its output has
REST_TIMEOUT = 0.1  # seconds in which what it has said is read


class ProxyCommand:
    """A command whose standard input and output lead to a host's sshd."""

    def __init__(self, command: str) -> None:
        self._timeout: float | None = None
        self._command = command
        self._heard = False  # whether anything has come
        self._said = b""
        self._process = subprocess.Popen(
            [os.environ.get("SHELL") or "/bin/sh", "-c", f"exec {command}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            preexec_fn=for_child(),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._input = self._process.stdin
        self._output, self._errors = self._process.stdout.fileno(), self._process.stderr.fileno()
        self._watch = select.poll()
        for one in (self._output, self._errors):
            self._watch.register(one, select.POLLIN)

    def settimeout(self, seconds: float | None) -> None:
        """Wait so long for what comes next."""
        self._timeout = seconds

    def recv(self, size: int) -> bytes:
        """Return what has come, nothing once the command has ended. Raises TimeoutError, or ProxyCommandFailure at the start."""
        self._wait(self._timeout)
        data = os.read(self._output, size)
        if not data and not self._heard:
            raise self._failure()
        self._heard = True
        return data

    def _wait(self, seconds: float | None) -> None:
        """Wait for output; what the command says on stderr meanwhile is kept. Raises TimeoutError."""
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            ready = dict(self._watch.poll(None if until is None else max(0.0, until - time.monotonic()) * 1000))
            if self._errors in ready:
                said = os.read(self._errors, MAX_STDERR_BYTES)
                self._said = (self._said + said)[-MAX_STDERR_BYTES:]
                if not said:
                    self._watch.unregister(self._errors)
            if self._output in ready:
                return
            if until is not None and time.monotonic() >= until:
                raise TimeoutError

    def _failure(self) -> Exception:
        """Return why there is no connection: the command has ended before the host said anything."""
        from paramiko.ssh_exception import ProxyCommandFailure

        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_TIMEOUT)
        self._watch.unregister(self._output)
        with contextlib.suppress(TimeoutError):
            self._wait(REST_TIMEOUT)
        code = self._process.poll()
        ended = "its ProxyCommand has closed its output" if code is None else f"its ProxyCommand ended with code {code}"
        return ProxyCommandFailure(self._command, ended + printed(b"".join(self._said.splitlines()[-1:])))

    def send(self, data: bytes) -> int:
        """Send some of `data`, and return how much that was."""
        try:
            return self._input.write(data) or 0
        except BrokenPipeError:
            if self._heard:
                raise
            return len(data)  # why it has ended is told by who reads

    def close(self) -> None:
        """End the command."""
        self._process.terminate()

    @property
    def _closed(self) -> bool:
        """Paramiko asks for it, as if this were a socket of Python's."""
        return self._process.poll() is not None
