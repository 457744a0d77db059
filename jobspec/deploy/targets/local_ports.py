"""The TCP ports of nodes on this machine, each at its node's own loopback address."""

from __future__ import annotations

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
