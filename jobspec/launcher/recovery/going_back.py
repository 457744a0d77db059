"""Launchers go on with what a command has stopped for a change, if nobody makes that. docs/protocol.md, rule 12, says when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.records import changed
from jobctl.jobspec.launcher.recovery.autonomy import next_rendezvous

if TYPE_CHECKING:
    from typing import Any, Optional, Tuple

    from jobctl.jobspec.launcher.order.order import Order
    from jobctl.jobspec.launcher.peers.orders import PeerOrders
CHANGE_TIMEOUT = 60.0  # seconds beside the grace of its stop in which a command makes its change, or begins to


class GoingBack:
    """Begins the generation after a stop for a change whose command was cut off, if this launcher is the one to do so."""

    def __init__(self, orders: PeerOrders) -> None:
        self.orders = orders
        self.since: Optional[float] = None  # when nobody was heard who could make the change
        self.stopped: Optional[Tuple[Any, ...]] = None  # how new the stop is that this was in

    def look(self, now: float) -> Optional[str]:
        """Do what is due now; return what the job waits for, None if for nothing that is known."""
        orders, order = self.orders, self.orders.order
        if order is None or not order.is_paused or orders.lease.supervised(now):
            self.since = None
            return None
        if self.since is None or self.stopped != order.age:
            self.since, self.stopped = now, order.age
        if now - self.since < order.grace + CHANGE_TIMEOUT:
            return None
        if orders.lease.generation is None:  # the change may have replaced it, and it has never run what the order says
            return "cannot go on as before: this launcher was started again since"
        gone = ", ".join(map(str, sorted(orders.gone)))
        if gone:
            return "cannot go on as before: the launcher of node %s is not heard, or was started again since" % gone
        if not orders.has_lease(now):
            return "has no lease, and so begins nothing"
        if orders.lease.me == min(order.nodes):
            orders.propose(successor(order), order.id)
        return None


def successor(order: Order) -> Order:
    """Return the generation after a stop for a change: of the same members, at the same places."""
    at = next_rendezvous(order, order.rendezvous.address)
    return changed(order, number=order.number + 1, command="run", grace=0.0, rendezvous=at)
