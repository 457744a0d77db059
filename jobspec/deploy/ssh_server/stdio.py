"""Standard input and output as the socket that Paramiko speaks on: a client has started this process as its ProxyCommand."""

from __future__ import annotations

import os

from jobctl.jobspec.deploy.transport.descriptors import wait_for


class Stdio:
    """Two files as one socket, as far as Paramiko uses it."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._timeout: float | None = None
        self._closed = False

    def settimeout(self, seconds: float | None) -> None:
        """Wait so long for what comes next."""
        self._timeout = seconds

    def recv(self, size: int) -> bytes:
        """Return what has come, nothing at the end. Raises TimeoutError."""
        if self._closed or not wait_for(self._reads, self._timeout):
            if self._closed:
                return b""
            raise TimeoutError
        return os.read(self._reads, size)

    def send(self, data: bytes) -> int:
        """Send some of `data`, and return how much that was."""
        if self._closed:
            raise OSError("closed")
        return os.write(self._writes, data)

    def close(self) -> None:
        """Send nothing more, and let the client see that, whatever this process still does."""
        self._closed = True
        nothing = os.open(os.devnull, os.O_RDWR)
        for handle in (self._reads, self._writes):  # whose numbers nobody else may get
            os.dup2(nothing, handle)
        os.close(nothing)
