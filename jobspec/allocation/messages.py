"""Datagrams between the coordinator and the node runners: JSON, with a token that only the job knows."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.system.files import parse_json

if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, Tuple

    from jobctl.jobspec.launcher.system.files import Json
TOKEN = "JOBCTL_ALLOCATION_TOKEN"
TICK = 0.5  # seconds between two ticks of a node runner
RUNNER_SILENCE_TIMEOUT = 3.0  # seconds after which a node runner is called unheard
MARGIN = 2.0  # seconds between the end of a lease and the moment when the node may start elsewhere
LINGER = 10.0  # seconds that launchers get to hear of the end from each other
# What a message says at least, and of which type: that of a node runner, and the coordinator's answer.
TICK_KEYS = {"who": str, "tick": int, "host": str, "slot": int, "names": int}
ANSWER_KEYS = {"who": str, "tick": int, "seq": int, "leave": bool}


def say(message: str) -> None:
    """Tell a person who reads Slurm's log of the job."""
    with contextlib.suppress(OSError):
        sys.stderr.write("%s jobctl: %s\n" % (time.strftime("%Y-%m-%d %H:%M:%S"), message))
        sys.stderr.flush()


class Datagrams:
    """A socket for the job's own messages. `keys` are those of the messages that it receives."""

    def __init__(self, token: str, keys: Dict[str, type]) -> None:
        self.token, self.keys = token, keys
        # Each message ends with the token, so nothing of what a stranger sends is parsed.
        self.end = json.dumps({"token": token})[1:].encode()
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
            if not data.endswith(self.end):
                continue
            try:
                message = parse_json(data.decode())
            except ValueError:
                continue
            if isinstance(message, dict) and all(isinstance(message.get(key), kind) for key, kind in self.keys.items()):
                yield message, sender
