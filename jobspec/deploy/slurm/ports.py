"""The TCP ports of nodes in an allocation: the login node connects to them, as its SSH server reaches them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from jobctl.jobspec.deploy.apply.deployer import NodePlace
from jobctl.jobspec.deploy.model.control import NOTHING, Control
from jobctl.jobspec.deploy.model.errors import PortClosed
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.slurm.login import LoginNode
from jobctl.jobspec.deploy.targets.node_ports import INTERVAL, home_of
from jobctl.jobspec.plan.types import HostRef, Plan


class AllocationPorts:
    """The ports of nodes in an allocation; `observe` returns where they are. A program has to listen at more than loopback."""

    def __init__(self, login: LoginNode, observe: Callable[[], Observed], plan: Plan | None) -> None:
        self._login, self._observe, self._plan = login, observe, plan
        self._lock = threading.Lock()
        self._control: Control = NOTHING
        self._looked = float("-inf")

    def _home(self, node: int | str) -> HostRef:
        with self._lock:
            if time.monotonic() - self._looked > INTERVAL:
                self._control = self._observe().control
                self._looked = time.monotonic()
            return home_of(node, self._control, self._plan)

    def place(self, node: int | str) -> NodePlace:
        """Return where a node is now."""
        return NodePlace(self._home(node).name)

    def dial(self, node: int | str, port: int) -> Any:
        """Return a socket (or a channel, which is like one) to a port of a node's address."""
        home = self._home(node)
        try:
            return self._login.transport.open_port(home.address, port)
        except PortClosed as error:
            hint = "a program that listens at 127.0.0.1 only cannot be reached there: start it with `--host 0.0.0.0`"
            raise PortClosed(error.message, hint) from error
