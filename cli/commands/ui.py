"""`jobctl ui`: jobs in a browser."""

from __future__ import annotations

import signal
import sys
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from jobctl import console
from jobctl.views.failure import command

if TYPE_CHECKING:
    from jobctl.jobspec.operations.serve.ui_actions import PageActions


@command
def ui(
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="ADDR:PORT",
            help="Where to serve it: an address of loopback, a port. Default: the port of the last time.",
        ),
    ] = "127.0.0.1:0",
    allow_actions: Annotated[
        bool, typer.Option("--allow-actions", help="Show buttons that restart, stop and drill jobs.")
    ] = False,
    new_token: Annotated[
        bool, typer.Option("--new-token", help="Make another token: pages that are open have to be opened again.")
    ] = False,
) -> None:
    """Show the jobs of this machine in a browser, live.

    Serves one page on this machine, and prints its address, which holds a token. Without --allow-actions it only looks:
    nothing can be changed through it. Until Ctrl-C.

    Example: jobctl ui --listen 9187
    """
    from jobctl.jobspec.operations.serve.http_server import parse_address
    from jobctl.jobspec.operations.serve.ui import open_ui
    from jobctl.jobspec.operations.serve.ui_actions import PageActions

    actions = PageActions() if allow_actions else None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with closing(open_ui(parse_address(listen), actions, new_token=new_token)) as server:
        console.say(f"open {server.url}")
        if not sys.stdout.isatty():  # a program reads it
            console.out(server.url)
            console.deliver()
        try:
            server.serve_forever()
        finally:
            if actions is not None:
                _finish(actions)


def _finish(actions: PageActions) -> None:
    """Wait for what was begun through the page; another Ctrl-C leaves it, as it leaves a command."""
    if at_work := actions.at_work():
        console.say(f"waiting for {', '.join(at_work)}; Ctrl-C again leaves it")
        with suppress(KeyboardInterrupt):
            actions.wait()
