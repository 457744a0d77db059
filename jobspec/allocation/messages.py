"""Datagrams between the coordinator and the node runners: JSON, with a token that only the job knows."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Iterator, Tuple

    from jobctl.jobspec.launcher.files import Json
TOKEN = "JOBCTL_ALLOCATION_TOKEN"
TICK = 0.5  # seconds between two ticks of a node runner
SILENT = 3.0  # seconds after which a node runner is called unheard
MARGIN = 2.0  # seconds between the end of a lease and the moment when the node may start elsewhere


def say(message: str) -> None:
    """Tell a person who reads Slurm's log of the job."""
    with contextlib.suppress(OSError):
        sys.stderr.write("%s jobctl: %s\n" % (time.strftime("%Y-%m-%d %H:%M:%S"), message))
        sys.stderr.flush()


class Datagrams:
    """A socket for the job's own messages."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self.socket.bind(("0.0.0.0", 0))
        self.socket.setblocking(False)

    @property
    def port(self) -> int:
        """Where others reach it."""
        return int(self.socket.getsockname()[1])

    def send(self, message: Json, to: Any) -> None:
        """Send a message; one that is lost is sent again with the next tick."""
        with contextlib.suppress(OSError):
            self.socket.sendto(json.dumps({**message, "token": self.token}).encode(), to)

    def receive(self) -> Iterator[Tuple[Json, Any]]:
        """Yield what has come, with the sender's address."""
        while True:
            try:
                data, sender = self.socket.recvfrom(65536)
            except OSError:
                return
            with contextlib.suppress(ValueError):
                message = json.loads(data.decode())
                if isinstance(message, dict) and message.get("token") == self.token:
                    yield message, sender
