"""The TCP ports of nodes on this machine, each at its node's own loopback address."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import Any

from jobctl.jobspec.deploy.apply.deployer import NodePlace
from jobctl.jobspec.deploy.model.control import Control
from jobctl.jobspec.deploy.targets.node_ports import home_of
from jobctl.jobspec.deploy.transport.local import open_port
from jobctl.jobspec.deploy.transport.relay import LOOPBACK
from jobctl.jobspec.plan.types import Plan


class LocalPorts:
    """The ports of nodes on this machine, which do not move; `newest` returns the generation that runs."""

    def __init__(self, newest: Callable[[], Control], plan: Plan | None) -> None:
        self._newest, self._plan = newest, plan

    def place(self, node: int | str) -> NodePlace:
        """Return where a node is: here, at an address of its own."""
        home = home_of(node, self._newest(), self._plan)
        return NodePlace(home.name, here=home.address == LOOPBACK)

    def dial(self, node: int | str, port: int) -> Any:
        """Return a socket to a port of a node's address."""
        home = home_of(node, self._newest(), self._plan)
        return open_port(home.name, home.address, port)


def port_is_free(host: str, port: int) -> bool:
    """Say whether a server could listen on `port`: rendezvous stores bind to all addresses."""
    del host  # there is but one
    return is_free_at("", port)


def is_free_at(address: str, port: int) -> bool:
    """Say whether a server could listen on `port` at an IPv4 address, at all addresses if it is empty."""
    places = [(socket.AF_INET, address)] if address else [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")]
    for family, place in places:
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((place, port))
        except OSError as error:
            if family == socket.AF_INET or error.errno == errno.EADDRINUSE:
                return False
    return True
