"""A Docker Engine that only remembers what it was asked to create: enough for the real `docker run` and `docker compose create`."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    created: list[Any]


_CONTAINER = {
    "Id": "0" * 64,
    "State": {},
    "Config": {"Labels": {}},
    "NetworkSettings": {"Networks": {}},
    "Mounts": [],
}
# Nothing runs, every image is there. The first ending that fits holds.
_THERE: tuple[tuple[str, Any], ...] = (
    ("/_ping", {}),
    ("/info", {"OSType": "linux"}),
    ("/version", {"ApiVersion": "1.41"}),
    ("/containers/json", []),
    ("/networks", []),
    ("/volumes", {"Volumes": []}),
    (f"/containers/{'0' * 64}/json", _CONTAINER),
    ("2.13.0/json", {"Id": "sha256:" + "0" * 64, "Config": {}}),
)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def address_string(self) -> str:
        return "unix socket"

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(200, b"")

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        found = next((answer for end, answer in _THERE if path.endswith(end)), None)
        self._answer(404 if found is None else 200, json.dumps({} if found is None else found).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "/containers/create" in self.path:
            self.server.created.append(json.loads(body))
            self._answer(201, json.dumps({"Id": "0" * 64, "Warnings": []}).encode())
        else:
            self._answer(204, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Api-Version", "1.41")
        self.send_header("Ostype", "linux")
        self.send_header("Content-Type", "application/json")
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def engine(socket: Path) -> Iterator[list[Any]]:
    """Listen at `socket`; yield the list of what was created, as the Engine's API says it."""
    with _Server(str(socket), _Handler) as server:
        server.created = []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.created
        finally:
            server.shutdown()
            thread.join()
