"""`jobctl ui`: jobs in a browser."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer

from jobctl import console
from jobctl.views.failure import command


@command
def ui(
    listen: Annotated[
        str, typer.Option("--listen", metavar="ADDR:PORT", help="Where to serve it: an address of loopback, a port.")
    ] = "127.0.0.1:0",
) -> None:
    """Show the jobs that are up in a browser, live.

    Serves one page on this machine, and prints its address, which holds a token. It only looks: nothing can be changed
    through it. Until Ctrl-C.

    Example: jobctl ui --listen 9187
    """
    from jobctl.jobspec.operations.inspect.http_server import parse_address
    from jobctl.views.ui_data import UiData
    from jobctl.views.ui_server import UiServer

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with UiServer(parse_address(listen), UiData()) as server:
        console.say(f"open {server.url}")
        server.serve_forever()
