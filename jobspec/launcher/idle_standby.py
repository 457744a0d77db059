"""What a node would be started with on the host of an idle launcher: in the place of a Run, for its standby.

The launcher may become any of the job's nodes. What depends on that (the variables that change, argv, the paths of logs) is
given to what waits when the node starts; where something else turns out to depend on it, the node starts cold.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.environment import Environment, Folders
from jobctl.jobspec.launcher.order import Member, Rendezvous
from jobctl.jobspec.launcher.records import changed
from jobctl.jobspec.launcher.standby import FIRST
from jobctl.jobspec.launcher.standby_messages import Trial

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

    from jobctl.jobspec.launcher.agent import Launcher
    from jobctl.jobspec.launcher.order import Order
TRIED = 300 << 20  # bytes that a framework's launcher takes at most; torchrun takes 0.16 to 0.25 GB


class Expected:
    """The only node of a generation of its own. Raises Problem, OSError."""

    def __init__(self, launcher: Launcher, order: Order) -> None:
        self.launch = launch = launcher.launch
        member = Member(
            node=launch.node,
            rank=0,
            roles=[launch.role],
            host=launch.host,
            address=own_address(launch.host, order),
            nproc=launch.nproc,
            port=None,
            ports=[],
            rest={},
        )
        at = Rendezvous("127.0.0.1", any_port(), "rehearsal")
        self.folders = Folders(launcher.dir, 0)
        self.environment = Environment(launcher, changed(order, members=[member], rendezvous=at), member, self.folders)

    def surroundings(self) -> Tuple[List[Dict[str, str]], bool, Optional[Trial]]:
        """Return what the framework's launcher does where it is tried."""
        argv = self.environment.argv(self.launch.start)
        return [], False, Trial(argv[3:], self.environment.guard(), self.launch.nproc)

    def footprint(self) -> int:
        """Return how much memory the framework's launcher may take, or the first process where there is none, in bytes."""
        return TRIED if self.launch.start else FIRST


def any_port() -> int:
    """Return a port of this host that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def own_address(host: str, order: Order) -> str:
    """Return the address of this host: as the order has it; otherwise that from which the first node is reached."""
    spares = order.autonomy.spares if order.autonomy is not None else ()
    named = [spare.address for spare in spares if spare.host == host]
    if named:
        return named[0]
    address = min(order.members, key=lambda member: member.rank).address
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # sends nothing
        return str(probe.getsockname()[0])
