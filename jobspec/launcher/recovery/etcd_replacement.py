"""With etcd, launchers give a lost node to a hot spare, where nobody watches. docs/etcd.md says when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.peers.lease import NOBODY
from jobctl.jobspec.launcher.peers.old_places import MARGIN
from jobctl.jobspec.launcher.recovery.replacement import TURN, NodeReplacement, moved_to

if TYPE_CHECKING:
    from typing import Callable, List, Optional, Sequence, Set

    from jobctl.jobspec.launcher.etcd.session_lease import LeaseSession
    from jobctl.jobspec.launcher.order.autonomy_terms import HotSpare
    from jobctl.jobspec.launcher.order.launch import Launch
    from jobctl.jobspec.launcher.order.order import Order
# Seconds for which a node has had no lease: a launcher that is started again takes the next one sooner
NO_LEASE_SECONDS = MARGIN
NOBODY_LEFT = 10.0  # seconds more that idle launchers leave to a supervisor, of which they hear nothing


class EtcdReplacement(NodeReplacement):
    """Has launchers decide by the leases in etcd which nodes are lost.

    A node without one runs nowhere, and begins nowhere before etcd gives it the next one. So nobody else has to be asked,
    however many are left: where none is, the idle launcher of a spare begins the generation. Launchers of earlier
    versions leave as soon as their nodes have ended well.
    """

    def __init__(self, session: LeaseSession, launch: Launch, supervised: Callable[[float], bool]) -> None:
        super().__init__(session)
        self.session, self.launch, self.supervised = session, launch, supervised

    def successor(self, order: Order, lost: Sequence[int]) -> Order:
        """Return the generation after `order` in which the lost nodes are on spares."""
        return moved_to(order, dict(zip(lost, self.ready_spares(order))), self.session.headway)

    def ready_spares(self, order: Order) -> List[HotSpare]:
        """Return the spares of the order whose idle launchers have a lease."""
        spares = order.autonomy.spares if order.autonomy is not None else ()
        return [spare for spare in spares if spare.host in self.session.spares]

    def lost(self, order: Order, done: Set[int], now: float) -> List[int]:
        """Return the nodes that run nowhere; none unless this launcher has a lease, and may decide."""
        session, terms = self.session, order.autonomy
        if terms is None or not terms.spares or order.command != "run" or session.agreed != order.id:
            return []
        if session.ended == order.id:
            return []
        if now - self.began < order.lease_limit + MARGIN:
            return []
        gone = session.gone
        idle = self.launch.node == NOBODY
        here = self.launch.host in session.spares if idle else session.has_lease(now)
        if not here or self.supervised(now) or (idle and len(gone) < len(order.nodes)):
            return []
        return sorted(gone) if all(seconds >= NO_LEASE_SECONDS for seconds in gone.values()) else []

    def prevented(self, order: Order, lost: Sequence[int], done: Set[int]) -> Optional[str]:
        """Return why no spare can take the lost nodes now, None if spares can."""
        who = "node %s has no lease" % ", ".join(map(str, lost))
        if done or any(member.ports for member in order.members):
            return "%s; waits for its host, or for a supervisor" % who
        if len(self.ready_spares(order)) < len(lost):
            return "%s, and there is no idle spare for it; waits for its host, or for a supervisor" % who
        return None

    def turn(self, order: Order) -> float:
        """Return how many seconds this launcher leaves to others: as a rule one begins, and not all at once."""
        if self.launch.node == NOBODY:
            return NOBODY_LEFT + TURN * sorted(self.session.spares).index(self.launch.host)
        return TURN * sorted(node for node in order.nodes if node not in self.session.gone).index(self.launch.node)
