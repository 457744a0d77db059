"""TCP ports of this machine whose connections are passed on to sockets elsewhere, or to channels, which are like sockets."""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.transport.base import CHUNK

LOOPBACK = "127.0.0.1"
TICK = 0.5  # seconds between two calls of what looks on while connections are served


def listen(port: int) -> socket.socket:
    """Return a socket that listens at a port of this machine's loopback address. Raises DeployError if it cannot."""
    try:
        return socket.create_server((LOOPBACK, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            hint = "choose another local port; `ss -ltnp` shows the program that listens there"
            raise DeployError(f"port {port} of this machine is in use", hint) from error
        if error.errno == errno.EACCES:
            raise DeployError(f"you may not listen at port {port} of this machine", "choose one above 1023") from error
        raise DeployError(f"cannot listen at port {port} of this machine: {error.strerror}") from error


def serve(listeners: Mapping[socket.socket, Callable[[socket.socket], None]], tick: Callable[[], None]) -> NoReturn:
    """Call what belongs to a listener with each of its connections, in a thread of its own; `tick` is called meanwhile.

    It goes on until `tick` raises something.
    """
    with selectors.DefaultSelector() as ready:
        for listener, serve_one in listeners.items():
            ready.register(listener, selectors.EVENT_READ, serve_one)
        while True:
            for key, _ in ready.select(TICK):
                listening: Any = key.fileobj
                with contextlib.suppress(OSError):  # it has gone again
                    connection, _ = listening.accept()
                    threading.Thread(target=_serve, args=(key.data, connection), daemon=True).start()
            tick()


def _serve(serve_one: Callable[[socket.socket], None], connection: socket.socket) -> None:
    with connection:
        serve_one(connection)


def is_at_end(one: Any) -> bool:
    """Say whether a socket has ended, and nothing is left to be read; wait for either."""
    return not one.recv(1, socket.MSG_PEEK)


def relay(one: Any, other: Any) -> None:
    """Pass bytes on between two sockets until both sides have ended, or one has broken; then both are closed."""
    back = threading.Thread(target=_pour, args=(other, one), daemon=True)
    back.start()
    _pour(one, other)
    back.join()
    for end in (one, other):
        with contextlib.suppress(OSError, EOFError):
            end.close()


def _pour(source: Any, sink: Any) -> None:
    """Pass on what comes from one side, and that it has ended; the other direction goes on, unless this one breaks."""
    try:
        while data := source.recv(CHUNK):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except (OSError, EOFError):
        for end in (source, sink):
            with contextlib.suppress(OSError, EOFError):
                end.shutdown(socket.SHUT_RDWR)
