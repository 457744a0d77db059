"""A lost node is given to a hot spare by the launchers themselves, where nobody watches. docs/protocol.md, rule 8, says when."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.failure import NodeFailure
from jobctl.jobspec.launcher.order.autonomy_terms import LastMove
from jobctl.jobspec.launcher.order.order import Moves, OldPlace
from jobctl.jobspec.launcher.peers.old_places import MARGIN
from jobctl.jobspec.launcher.records import changed
from jobctl.jobspec.launcher.recovery.autonomy import given_up, next_rendezvous

if TYPE_CHECKING:
    from typing import List, Mapping, Optional, Sequence, Set

    from jobctl.jobspec.launcher.order.autonomy_terms import HotSpare
    from jobctl.jobspec.launcher.order.order import Member, Order
    from jobctl.jobspec.launcher.peers.orders import PeerOrders
    from jobctl.jobspec.launcher.recovery.autonomy import OrderKeeper
    from jobctl.jobspec.launcher.report.progress import Headway
TURN = 2.0  # seconds that the launcher of the next node waits longer: as a rule one begins, and not all at once


class NodeReplacement:
    """Begins the generation in which lost nodes are on hot spares, once it is this launcher's turn.

    Which nodes are lost, and which launcher begins when, is known in different ways: by what launchers hear, and by etcd.
    """

    def __init__(self, keeper: OrderKeeper) -> None:
        self.keeper = keeper
        self.since: Optional[float] = None  # when it was first possible
        self.entered: Optional[str] = None  # the lease of the order that was looked at last, …
        self.began = 0.0  # … and since when: a node that is to begin there is yet to be heard, or to get its key

    def look(self, order: Optional[Order], done: Set[int], now: float) -> Optional[str]:
        """Do what is due now; return what a node that is lost waits for, None if none does.

        `done` are nodes whose processes have ended well.
        """
        if order is not None and order.lease != self.entered:
            self.entered, self.began = order.lease, now
        lost = self.lost(order, done, now) if order is not None else []
        why = self.prevented(order, lost, done) if order is not None and lost else None
        if order is None or not lost or why is not None:
            self.since = None
            return why
        self.since = now if self.since is None else self.since
        if now - self.since >= self.turn(order):
            self.since = None
            self.keeper.propose(self.next(order, lost), order.id)
        return None

    def next(self, order: Order, lost: Sequence[int]) -> Order:
        """Return what follows `order`: the generation with the lost nodes elsewhere, or the end of the job."""
        assert order.autonomy is not None
        if order.autonomy.restarts_left(time.time()) > 0:
            return self.successor(order, lost)
        return ended_by_loss(order, lost, self.keeper.headway)

    # What is known in different ways.

    def lost(self, order: Order, done: Set[int], now: float) -> List[int]:
        """Return the nodes that run nowhere as far as this launcher can tell; none unless it may decide."""
        raise NotImplementedError

    def prevented(self, order: Order, lost: Sequence[int], done: Set[int]) -> Optional[str]:
        """Return why no spare can take the lost nodes now, None if spares can."""
        raise NotImplementedError

    def turn(self, order: Order) -> float:
        """Return how many seconds this launcher leaves to others: as a rule one begins, and not all at once."""
        raise NotImplementedError

    def successor(self, order: Order, lost: Sequence[int]) -> Order:
        """Return the generation after `order` in which the lost nodes are on spares."""
        raise NotImplementedError


class Replacement(NodeReplacement):
    """Has launchers on hosts decide that, by what they hear of each other."""

    def __init__(self, orders: PeerOrders) -> None:
        super().__init__(orders)
        self.orders = orders

    def lost(self, order: Order, done: Set[int], now: float) -> List[int]:
        """Return the nodes that cannot run any more as far as this launcher can tell; none unless that holds for all it misses."""
        orders = self.orders
        terms = order.autonomy
        if terms is None or order.base is None or order.command != "run" or not terms.spares:
            return []
        if orders.lease.supervised(now) or not orders.has_lease(now) or order.member(orders.lease.me) is None:
            return []
        if now - self.began < order.lease_limit + MARGIN:
            return []
        gone = [node for node in orders.gone if node not in done]
        return sorted(gone) if all(orders.places.is_quiet(node, now) for node in gone) else []

    def present(self, order: Order) -> List[int]:
        """Return the nodes whose launchers are there, this one among them."""
        gone = self.orders.gone
        return [node for node in order.nodes if node not in gone]

    def prevented(self, order: Order, lost: Sequence[int], done: Set[int]) -> Optional[str]:
        """Return why no spare can take the lost nodes now, None if spares can."""
        terms, who = order.autonomy, "node %s is not heard" % ", ".join(map(str, lost))
        assert terms is not None
        moved = {place.node for place in self.places(order, lost)}
        voters = [member.node for member in order.of_role("trainer")]
        left = [node for node in voters if node not in moved and node in self.present(order)]
        if 2 * len(left) <= len(voters):
            return "%s; too few launchers are left to move it: waits for its host, or for a supervisor" % who
        if done or any(member.ports for member in order.members):
            return "%s; waits for its host, or for a supervisor" % who
        if len(self.orders.ready_spares) < len(lost):
            return "%s, and no idle spare either; waits for its host, or for a supervisor" % who
        return None

    def turn(self, order: Order) -> float:
        """Return how many seconds this launcher leaves to those of nodes with lower numbers."""
        return TURN * sorted(self.present(order)).index(self.orders.lease.me)

    def places(self, order: Order, lost: Sequence[int]) -> List[OldPlace]:
        """Return where nodes may still run by older orders, once these are moved.

        A place of which a supervisor has moved a node is over once the node has begun elsewhere. Those of launchers stay:
        whom they have moved has no vote until the next order of a supervisor.
        """
        heard, old = self.orders.heard, order.old_places
        if not order.has_moved:
            old = [place for place in old if not (place.node in heard and heard[place.node].begun)]
        return old + [OldPlace(m.node, m.host, {}) for m in order.members if m.node in lost]

    def successor(self, order: Order, lost: Sequence[int]) -> Order:
        """Return the generation after `order` in which the lost nodes are on spares."""
        homes = dict(zip(lost, self.orders.ready_spares))
        moves = Moves(self.places(order, lost), len(order.of_role("trainer")), {})
        return changed(moved_to(order, homes, self.orders.headway), moves=moves)


def moved_to(order: Order, homes: Mapping[int, HotSpare], headway: Headway) -> Order:
    """Return the generation after `order` in which these nodes are on spares, as their hosts are lost."""
    terms = order.autonomy
    assert terms is not None
    members = [_at(m, homes.get(m.node)) for m in order.members]
    first = min(members, key=lambda member: member.rank)
    number, at = order.number + 1, next_rendezvous(order, first.address)
    return changed(
        order,
        number=number,
        grace=0.0,
        members=members,
        rendezvous=at,
        autonomy=changed(
            terms.with_failure(failure(order, homes, headway)),
            spares=[spare for spare in terms.spares if spare not in homes.values()],
            moved=LastMove(number, at.id, 1 + (terms.moved.times if terms.moved is not None else 0), {}),
        ),
    )


def _at(member: Member, spare: Optional[HotSpare]) -> Member:
    return member if spare is None else member.at(spare.host, spare.address, spare.port)


def ended_by_loss(order: Order, lost: Sequence[int], headway: Headway) -> Order:
    """Return the end of the job: no restart is left for nodes whose hosts are lost."""
    because = failure(order, dict.fromkeys(lost), headway)
    why = "the restarts of `recovery.max_restarts` are used up"
    return given_up(order, because, "node %d: %s; %s" % (because.node, because.reason, why))


def failure(order: Order, homes: Mapping[int, Optional[HotSpare]], headway: Headway) -> NodeFailure:
    """Return why the generation `order` ends: hosts are lost. `homes`: where their nodes go, None for nowhere."""
    hosts = {m.node: m.host for m in order.members}
    node = min(homes)
    lost = "%s is lost" % ", ".join(sorted({hosts[one] for one in homes}))
    moves = [
        "node %d moves from %s to %s" % (one, hosts[one], home.host) for one, home in sorted(homes.items()) if home
    ]
    return NodeFailure(
        generation=order.number,
        at=time.time(),
        node=node,
        host=hosts[node],
        rank=None,
        exit_code=None,
        kind="host",
        progress=headway.step,
        ran=headway.ran,
        log=None,
        tail=[],
        reason="; ".join([lost, ", ".join(moves)] if moves else [lost]),
        alike=[],
        rest={},
    )
