"""Metrics over HTTP, for Prometheus and similar programs: one page, no input but its path."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import OperationError
from jobctl.jobspec.operations.serve.http_server import PlainServer, QuietHandler

if TYPE_CHECKING:
    from jobctl.jobspec.operations.inspect.metrics import MetricsSource

_PATHS = ("/", "/metrics")


class MetricsServer(PlainServer):
    """Serves the metrics of a source."""

    def __init__(self, address: tuple[str, int], source: MetricsSource) -> None:
        self.source = source
        super().__init__(address, _Handler)

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"{self.origin}/metrics"


class _Handler(QuietHandler):
    server: MetricsServer

    def do_GET(self) -> None:
        """Answer with the metrics, in the older format to a client that knows no other."""
        from jobctl.jobspec.report.openmetrics import CONTENT_TYPE, PLAIN_TYPE, plain, wants_plain

        named = self.headers.get("Host")
        if self.server.on_loopback and named is not None and named not in self.server.names():
            # Else a page in a browser here, whose name leads to this machine (DNS rebinding), could read them.
            self.send_error(HTTPStatus.FORBIDDEN, explain="this server answers to its own address only")
            return
        if self.path.partition("?")[0] not in _PATHS:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            text = self.server.source.text()
        except (OSError, OperationError) as error:
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, explain=str(error))
            return
        older = wants_plain(self.headers.get("Accept", ""))
        body = (plain(text) if older else text).encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", PLAIN_TYPE if older else CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.write_body(body)
