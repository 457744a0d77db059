"""A ProxyCommand of the user's SSH configuration, as the socket that Paramiko speaks on.

Paramiko has one, which waits by select(2): that cannot watch the descriptors of a process that has many.
"""

from __future__ import annotations

import os
import shlex
import subprocess

from jobctl.jobspec.deploy.transport.descriptors import for_child, wait_for


class ProxyCommand:
    """A command whose standard input and output lead to a host's sshd."""

    def __init__(self, command: str) -> None:
        self._timeout: float | None = None
        self._process = subprocess.Popen(
            shlex.split(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            preexec_fn=for_child(),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout

    def settimeout(self, seconds: float | None) -> None:
        """Wait so long for what comes next."""
        self._timeout = seconds

    def recv(self, size: int) -> bytes:
        """Return what has come, nothing once the command has ended. Raises TimeoutError."""
        if not wait_for(self._output, self._timeout):
            raise TimeoutError
        return os.read(self._output.fileno(), size)

    def send(self, data: bytes) -> int:
        """Send some of `data`, and return how much that was."""
        return self._input.write(data) or 0

    def close(self) -> None:
        """End the command."""
        self._process.terminate()

    @property
    def _closed(self) -> bool:
        """Paramiko asks for it, as if this were a socket of Python's."""
        return self._process.poll() is not None
