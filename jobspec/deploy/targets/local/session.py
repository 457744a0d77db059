"""The inside of a node on this machine: what its first process has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobctl.jobspec.deploy.model.errors import PortClosed
from jobctl.jobspec.deploy.targets.local.processes import HOST
from jobctl.jobspec.deploy.transport.base import RunningCommand, TerminalSize
from jobctl.jobspec.deploy.transport.local import open_port
from jobctl.jobspec.deploy.transport.relay import LOOPBACK
from jobctl.jobspec.deploy.transport.running import ProcessCommand


class ProcessSession:
    """Starts commands with the environment of a process, in its directory; `address` is the node's."""

    python = "python3"

    def __init__(self, environ: Mapping[str, str], directory: str | None, address: str) -> None:
        self._environ, self._directory, self._address = environ, directory, address

    def start(self, argv: Sequence[str], environ: Mapping[str, str], terminal: TerminalSize | None) -> RunningCommand:
        """Start a command."""
        kind = {"TERM": terminal.kind} if terminal else {}
        return ProcessCommand(argv, {**self._environ, **environ, **kind}, self._directory, terminal)

    def dial(self, port: int) -> Any:
        """Connect to a port of the node's address, otherwise of this machine's loopback address."""
        try:
            return open_port(HOST, self._address, port)
        except PortClosed:
            return open_port(HOST, LOOPBACK, port)

    def why_gone(self) -> None:
        """Never: what is here are a directory and an environment."""
