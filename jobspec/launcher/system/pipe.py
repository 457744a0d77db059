"""The pipe between two processes of one launcher."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from typing import List

    from jobctl.jobspec.launcher.system.files import Json


class MessagePipe:
    """One end of a pair of sockets, for lines of JSON. It never blocks, neither to send nor to receive."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.socket, self.out, self.rest, self.closed = end, b"", b"", False

    def send(self, message: Json) -> None:
        """Send a message. What the socket has no room for goes with the next `flush`."""
        self.out += json.dumps(message).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send what is left to send, as far as the socket has room."""
        try:
            while self.out:
                self.out = self.out[self.socket.send(self.out) :]
        except BlockingIOError:
            pass
        except OSError:
            self.out, self.closed = b"", True

    def receive(self) -> List[Json]:
        """Return the messages that have come."""
        try:
            while True:
                data = self.socket.recv(65536)
                if not data:
                    self.closed = True
                    break
                self.rest += data
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        *lines, self.rest = self.rest.split(b"\n")
        return [json.loads(line.decode()) for line in lines]
