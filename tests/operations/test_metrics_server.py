"""The server of `jobctl metrics` over real sockets, without a job."""

from __future__ import annotations

import http.client
import threading
from types import SimpleNamespace
from typing import Any

from jobctl.jobspec.operations.serve.metrics_server import MetricsServer


def test_head_is_answered_as_get_without_the_body() -> None:
    source: Any = SimpleNamespace(text=lambda: "# EOF\n")
    with MetricsServer(("127.0.0.1", 0), source) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        host, port = server.server_address[:2]
        told = []
        for method in ("GET", "HEAD"):
            connection = http.client.HTTPConnection(str(host), port, timeout=60)
            connection.request(method, "/metrics")
            answer = connection.getresponse()
            told.append((answer.status, answer.headers["Content-Type"], answer.headers["Content-Length"]))
            assert answer.fp.read() == (b"# EOF\n" if method == "GET" else b"")
            connection.close()
        server.shutdown()
    assert told[0] == told[1]
    assert told[0][::2] == (200, "6")
