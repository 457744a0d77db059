"""The standby of an idle launcher, whose host has no node yet: on a hot spare, and of a node that is about to join.

What a node would be started with there takes the place of a Run. The launcher of a spare may become any of the job's
nodes. What depends on that (the variables that change, argv, the paths of logs) is given to what waits when the node
starts; where something else turns out to depend on it, the node starts cold.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.failure import Problem
from jobctl.jobspec.launcher.order.order import Member, Rendezvous
from jobctl.jobspec.launcher.records import changed
from jobctl.jobspec.launcher.run.environment import Environment, Folders
from jobctl.jobspec.launcher.standby.guard import differing
from jobctl.jobspec.launcher.standby.messages import Trial
from jobctl.jobspec.launcher.standby.standby import MAX_FIRST_IMPORT_BYTES
from jobctl.jobspec.launcher.system.network import resolved

if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Tuple

    from jobctl.jobspec.launcher.node.agent import Launcher
    from jobctl.jobspec.launcher.order.order import Order
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
            address=own_address(launch.host, order, launcher.pause),
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
        return TRIED if self.launch.start else MAX_FIRST_IMPORT_BYTES


def any_port() -> int:
    """Return a port of this host that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def own_address(host: str, order: Order, pause: Callable[[float], object]) -> str:
    """Return the address of this host: as the order has it; otherwise that from which the first node is reached.

    A name that is not resolved soon goes through `pause`. Raises OSError.
    """
    spares = order.autonomy.spares if order.autonomy is not None else ()
    named = [spare.address for spare in spares if spare.host == host]
    if named:
        return named[0]
    first = min(order.members, key=lambda member: member.rank).address
    address = resolved(first, pause)
    if address is None:
        raise OSError("the name %s cannot be resolved" % first)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # sends nothing
        return str(probe.getsockname()[0])


class IdleStandby:
    """The standby of a launcher that has no processes: it begins with the first generation that the launcher knows."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        self.expected: Optional[Expected] = None  # None while there is none to look after

    def allow(self) -> None:
        """Have the first generation of a node begin in it."""
        standby = self.launcher.standby
        standby.used, standby.waits = True, "it is begun with a generation"
        if self.launcher.launch.setup:
            standby.off = "`setup` comes before all imports, and begins once a node is here"

    def joins(self, order: Optional[Order]) -> bool:
        """Say whether the node of this launcher may be in the generation after `order`.

        It is in none, and was in none since this launcher began: its host has come back, or is a new one.
        """
        launch, never = self.launcher.launch, self.launcher.began == 0
        together = not launch.regroups and launch.rejoin is None and not launch.has_session
        return order is not None and order.command == "run" and never and together and order.member(launch.node) is None

    def join(self, order: Optional[Order]) -> None:
        """Get ready for the generation after `order`, if the node may be in it."""
        if order is not None and self.joins(order):
            self.expect(order)

    def expect(self, order: Order) -> None:
        """Find out what a node would begin with here, and say if there is no standby for that."""
        self.look_ahead(order)
        self.tell()

    def look_ahead(self, order: Order) -> None:
        """Find out what a node would begin with here; what waits for another beginning is of no use."""
        before, standby = self.expected, self.launcher.standby
        if before is None:
            self.allow()
        if standby.off is not None:
            return
        try:
            self.expected = Expected(self.launcher, order)
        except (OSError, Problem) as error:
            standby.give_up(str(error))
            return
        if before is None:
            return
        if differing(before.environment.environ, self.expected.environment.environ, standby.changing):
            standby.drop()

    def look(self) -> None:
        """See that there is a standby as long as the job runs."""
        launcher, order = self.launcher, self.launcher.orders.order
        if self.expected is None or order is None or order.command != "run":
            return
        launcher.standby.look(self.expected, running=True)
        self.tell()

    def tell(self) -> None:
        """Report how the standby is, where that is new."""
        if self.launcher.report.fields.standby != self.launcher.standby.state():
            self.launcher.say()
