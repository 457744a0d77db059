"""The server of `jobctl metrics` over real sockets, without a job."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.operations.serve.metrics_server import MetricsServer


@contextlib.contextmanager
def serving(address: str) -> Iterator[int]:
    """Serve an empty page; yield the port."""
    source: Any = SimpleNamespace(text=lambda: "# EOF\n")
    with MetricsServer((address, 0), source) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield int(server.server_address[1])
        server.shutdown()


def asked(port: int, method: str, host: str | None) -> tuple[HTTPResponse, bytes]:
    """Ask for the page by the name `host`; return the answer, and what it says."""
    with contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.putrequest(method, "/metrics", skip_host=True)
        if host is not None:
            connection.putheader("Host", host)
        connection.endheaders()
        answer = connection.getresponse()
        return answer, answer.fp.read()


def test_head_is_answered_as_get_without_the_body() -> None:
    told = []
    with serving("127.0.0.1") as port:
        for method, body in (("GET", b"# EOF\n"), ("HEAD", b"")):
            answer, said = asked(port, method, f"127.0.0.1:{port}")
            told.append((answer.status, answer.headers["Content-Type"], answer.headers["Content-Length"]))
            assert said == body
    assert told[0] == told[1]
    assert told[0][::2] == (200, "6")


@pytest.mark.parametrize(
    ("address", "host", "status"),
    [
        ("127.0.0.1", "127.0.0.1:{}", 200),
        ("127.0.0.1", "localhost:{}", 200),
        ("127.1", "127.1:{}", 200),  # as somebody calls this machine who gives it that name
        ("127.0.0.1", None, 200),
        ("127.0.0.1", "rebound.example:{}", 403),
        ("127.0.0.1", "", 403),
        ("0.0.0.0", "metrics.lab:{}", 200),
    ],
)
def test_on_loopback_it_answers_to_its_own_names(address: str, host: str | None, status: int) -> None:
    """With DNS rebinding, the name of somebody else's page leads to this machine. Elsewhere any name may be its own."""
    with serving(address) as port:
        assert asked(port, "GET", None if host is None else host.format(port))[0].status == status
