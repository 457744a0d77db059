"""Metrics over HTTP, for Prometheus and similar programs: one page, no input but its path."""

from __future__ import annotations

from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6, SO_REUSEADDR, SOL_SOCKET
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.operations.errors import OperationError, Refused

if TYPE_CHECKING:
    from jobctl.jobspec.operations.inspect.metrics import MetricsSource

LOOPBACK = "127.0.0.1"
SLOW = 20.0  # seconds after which a client that says nothing is left
_PATHS = ("/", "/metrics")


def parse_address(text: str) -> tuple[str, int]:
    """Return address and port of `ADDR:PORT`, `:PORT` or `PORT`; without an address, that of loopback. Raises Refused."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise Refused(f"`{text}` is not an address to listen on", "write `127.0.0.1:9185`, or a port alone")
    return host or LOOPBACK, int(port)


class MetricsServer(ThreadingHTTPServer):
    """Serves the metrics of a source."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], source: MetricsSource) -> None:
        self.source = source
        self.address_family = AF_INET6 if ":" in address[0] else self.address_family
        try:
            super().__init__(address, _Handler)
        except OSError as error:
            where = f"{address[0]}:{address[1]}"
            hint = "choose another port, or an address of this machine: `--listen 127.0.0.1:9186`"
            raise Refused(f"cannot listen on {where}: {error.strerror}", hint) from error

    @property
    def url(self) -> str:
        """The address of the page."""
        host, port = self.server_address[:2]
        name = str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}/metrics"

    def server_bind(self) -> None:
        """Bind, without asking DNS for this machine's name as the base class does: that may take long."""
        self.socket.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client has gone."""


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer
    timeout = SLOW
    server_version, sys_version = "jobctl", ""

    def do_GET(self) -> None:
        """Answer with the metrics."""
        from jobctl.jobspec.report.openmetrics import CONTENT_TYPE

        if self.path.partition("?")[0] not in _PATHS:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            body = self.server.source.text().encode()
        except (OSError, OperationError) as error:
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, explain=str(error))
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing of each request."""
