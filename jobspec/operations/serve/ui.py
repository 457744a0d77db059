"""Opening the server of `jobctl ui`: with the token and the port of the last time, so that open pages go on."""

from __future__ import annotations

import os

from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.operations.serve.ui_access import KeptAccess, PageAccess
from jobctl.jobspec.operations.serve.ui_actions import PageActions
from jobctl.jobspec.operations.serve.ui_data import UiData
from jobctl.jobspec.operations.serve.ui_server import UiServer


def open_ui(address: tuple[str, int], actions: PageActions | None, *, new_token: bool = False) -> UiServer:
    """Return a server that listens; with port 0 on the port of the last time if that is free, otherwise on any.

    Raises Refused for an address that is not of loopback, or is taken.
    """
    from jobctl.jobspec.deploy.store.jobdir import state_dir

    kept = KeptAccess(state_dir(os.environ))
    access = PageAccess(kept.token(new=new_token))
    host, port = address
    server = None
    if port == 0 and (last := kept.port()):
        try:
            server = UiServer((host, last), UiData(), access, actions)
        except Refused:  # another one listens there; an address that is wrong is refused below
            server = None
    server = server or UiServer(address, UiData(), access, actions)
    try:
        kept.keep(access.token, server.server_address[1])
    except OSError as error:
        server.server_close()
        raise Refused(f"cannot write {kept.path}: {error.strerror}", "make room, or set JOBCTL_STATE_DIR") from error
    return server
