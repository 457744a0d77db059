"""The server of `ui` and `metrics`: how it ends."""

from __future__ import annotations

import socket
import threading

from jobctl.jobspec.operations.serve.http_server import PlainServer, QuietHandler
from tests.tools.waiting import PROMPT


def test_an_answer_that_is_being_made_is_awaited_as_the_server_ends() -> None:
    """The interpreter may crash if it ends while another thread is in the middle of something."""
    begun, end, done = threading.Event(), threading.Event(), threading.Event()

    class Slow(QuietHandler):
        def do_GET(self) -> None:
            begun.set()
            end.wait(PROMPT)
            done.set()

    server = PlainServer(("127.0.0.1", 0), Slow)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    with socket.create_connection(server.server_address[:2]) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert begun.wait(PROMPT)
        server.shutdown()
        serving.join(PROMPT)
        threading.Timer(0.1, end.set).start()
        server.server_close()
        assert done.is_set()
