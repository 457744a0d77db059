"""What Paramiko lacks on its side of a connection."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import paramiko

STREAMLOCAL = "direct-streamlocal@openssh.com"


def wire(sock: Any, known: Collection[str] = (), **options: Any) -> paramiko.Transport:
    """Return Paramiko's side of a connection, with `open_socket`, that sends what it has at once, as OpenSSH's does.

    Otherwise each session begins 40 ms later: the kernel keeps a small packet back until the last one is acknowledged, and
    that of the host is in no hurry to do so. The host is asked for a key of a kind that is `known`, if it has one: any
    other would look like a changed key.
    """
    with contextlib.suppress(OSError, AttributeError):  # a jump host's channel, a ProxyCommand
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made: paramiko.Transport = _transport()(sock, **options)
    offers = made.get_security_options()
    offers.key_types = sorted(offers.key_types, key=lambda one: _kind(one) not in known)
    return made


def _kind(algorithm: str) -> str:
    """Return the kind of the keys that an algorithm signs with."""
    return "ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm


@functools.cache
def _transport() -> Any:
    import paramiko

    class Transport(paramiko.Transport):
        """Paramiko's, with channels to Unix sockets of the other side (OpenSSH's PROTOCOL, 2.4).

        Paramiko opens channels of any kind, but says of none but its own what they lead to. So what it sends is completed on
        the way out, by a method that is its own affair: pyproject.toml bounds its version, and a test looks at what is sent.
        """

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._opens = threading.local()
            self.why_closed: str | None = None  # what went wrong with the connection, for others that use it

        def open_socket(self, path: str, timeout: float) -> paramiko.Channel:
            """Return a channel to a Unix socket. Raises ChannelException if the other side does not lead there."""
            self._opens.path = path
            try:
                return self.open_channel(STREAMLOCAL, timeout=timeout)
            finally:
                self._opens.path = None

        def _send_user_message(self, data: paramiko.Message) -> None:
            path, self._opens.path = getattr(self._opens, "path", None), None
            if path is not None:
                data.add_string(path)
                data.add_string("")  # both reserved
                data.add_int(0)
            super()._send_user_message(data)  # type: ignore[misc]  # not in the stubs

    return Transport
