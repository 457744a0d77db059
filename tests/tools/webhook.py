"""A webhook at an address of this machine that keeps what it gets."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

S = TypeVar("S", bound=Any)


class Webhook(ThreadingHTTPServer):
    """A webhook that answers as it is told. `got` has path, headers and body of each request."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        super().__init__((address, 0), _Handler)
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.answer: tuple[int, dict[str, str]] = (200, {})

    @property
    def url(self) -> str:
        """Its URL, which holds a secret."""
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}/hook/very-secret"

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The bodies, as JSON."""
        return [json.loads(body) for _, _, body in self.got]

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        """Keep a request; it is answered afterwards."""
        self.got.append((path, headers, body))


class _Handler(BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.take(self.path, dict(self.headers), body)
        code, headers = self.server.answer
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *args: Any) -> None:
        """Print nothing."""


@contextmanager
def served(server: S) -> Iterator[S]:
    """Have a server answer for the length of the block."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
