"""What the servers of jobctl share: an address to listen on, and a server of HTTP that asks no DNS."""

from __future__ import annotations

import re
import threading
import time
from abc import abstractmethod
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from socket import AF_INET6, SO_REUSEADDR, SOL_SOCKET
from typing import Any

from jobctl.jobspec.operations.errors import Refused

LOOPBACK = "127.0.0.1"
SLOW = 20.0  # seconds after which a client that says nothing is left
CLOSE_TIMEOUT = 2.0  # seconds for which answers that are being made are awaited at the end


def parse_address(text: str) -> tuple[str, int]:
    """Return address and port of `ADDR:PORT`, `:PORT` or `PORT`; without an address, that of loopback. Raises Refused."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise Refused(f"`{text}` is not an address to listen on", "write `127.0.0.1:PORT`, or a port alone")
    return host or LOOPBACK, int(port)


def is_loopback(host: str) -> bool:
    """Say whether an address, not a name, is one of loopback."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class PlainServer(ThreadingHTTPServer):
    """Serves HTTP with a thread for each connection."""

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._at_work: list[threading.Thread] = []
        self._given = address[0].lower()  # a name of this machine, maybe
        self.address_family = AF_INET6 if ":" in address[0] else self.address_family
        try:
            super().__init__(address, handler)
        except OSError as error:
            where = f"{address[0]}:{address[1]}"
            hint = "choose another port, or an address of this machine: `--listen 127.0.0.1:9186`"
            raise Refused(f"cannot listen on {where}: {error.strerror}", hint) from error

    @property
    def origin(self) -> str:
        """The scheme, address and port."""
        host, port = self.server_address[:2]
        name = str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}"

    @property
    def on_loopback(self) -> bool:
        """Whether it listens where nobody but this machine reaches it."""
        return is_loopback(str(self.server_address[0]))

    def names(self) -> frozenset[str]:
        """Return what the header Host may say: with another name, DNS of somebody else points here."""
        port = self.server_address[1]
        every = {self.origin.removeprefix("http://"), f"localhost:{port}", f"{self._given}:{port}"}
        return frozenset(every | {name.removesuffix(":80") for name in every})  # which clients leave out

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread that does not keep the process alive."""
        thread = threading.Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        self._at_work = [*(one for one in self._at_work if one.is_alive()), thread]
        thread.start()

    def server_close(self) -> None:
        """Serve no longer. Answers that are being made get a moment: Python may crash as it ends beside such threads."""
        super().server_close()
        end = time.monotonic() + CLOSE_TIMEOUT
        for thread in self._at_work:
            thread.join(max(0.0, end - time.monotonic()))

    def server_bind(self) -> None:
        """Bind, without asking DNS for this machine's name as the base class does: that may take long."""
        self.socket.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client has gone."""


class QuietHandler(BaseHTTPRequestHandler):
    """Answers without a word on stderr, and leaves a client that says nothing. HEAD is answered as GET, without the body."""

    timeout = SLOW
    server_version, sys_version = "jobctl", ""

    @abstractmethod
    def do_GET(self) -> None:
        """Answer; what follows the headers goes through `write_body`."""

    def do_HEAD(self) -> None:
        """Answer with the headers that GET has."""
        self.do_GET()

    def write_body(self, body: bytes) -> None:
        """Send what follows the headers, unless the request is HEAD."""
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing of each request."""
