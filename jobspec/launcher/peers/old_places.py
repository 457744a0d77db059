"""Where nodes may still run by an older order, and whether this launcher keeps any of them alive there."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Set, Tuple

    from jobctl.jobspec.launcher.order.order import Order
MARGIN = 2.0  # seconds between the end of a lease and the start of its node elsewhere: processes are to be killed, clocks drift
CONFIRMED = 3.0  # seconds for which a supervisor counts on a launcher that has confirmed one of its answers


class OldPlaces:
    """Whom this launcher has answered where, and which supervisors have answered it, in all orders since it began.

    It is *clear* of a node that has moved once it has not answered it at another place, nor been answered by a
    supervisor that may not know of the move, for the timeout of the lease and MARGIN. Such a supervisor may give leases
    for another CONFIRMED seconds without being heard here. What the launcher before it has done it does not know, so it
    takes it that this one has answered everybody, and a supervisor has answered it, until the end.

    A supervisor may begin an order without knowing where launchers have moved nodes, and so says nothing of these
    places. Such nodes are `left`: the launcher is not clear of them either as long as it may have answered them there.
    """

    def __init__(self, now: float) -> None:
        self.began = now
        self.left: Set[int] = set()
        self.order: Optional[Order] = None
        self.answered: Dict[Tuple[int, str], float] = {}
        self.supervisors: Dict[str, float] = {}  # by token
        self.knowing: Set[str] = set()  # supervisors that have answered in this order
        self.found: Set[int] = set()  # moved nodes of which it is clear: it answers no older order, so it stays so

    def enter(self, order: Order) -> None:
        """Take over a new order."""
        if self.order is not None and self.order.id != order.id:
            self.left -= self.found
            if self.order.has_moved:
                homes = {member.node: member.host for member in self.order.members}
                self.left |= {m.node for m in order.members if homes.get(m.node, m.host) != m.host}
        self.order, self.knowing, self.found = order, set(), set()

    def note_answer(self, node: int, now: float) -> None:
        """Note that a tick of a node is answered."""
        member = self.order.member(node) if self.order is not None else None
        if member is not None:
            self.answered[node, member.host] = now

    def note_supervisor(self, token: str, now: float) -> None:
        """Note that a supervisor has answered a tick of this launcher: it knows the order, and answers no older one."""
        self.supervisors[token] = now
        self.knowing.add(token)

    def is_clear(self, node: int, now: float) -> bool:
        """Return whether this launcher keeps a node alive nowhere but at its place in the order."""
        order = self.order
        if order is None or node in self.found:
            return True
        moved = node in order.moved
        if not moved and node not in self.left:
            return True
        home = order.member(node)
        times = [at for (other, host), at in self.answered.items() if other == node and home and host != home.host]
        times += [at + CONFIRMED for token, at in self.supervisors.items() if moved and token not in self.knowing]
        if now - max([self.began + (CONFIRMED if moved else 0.0), *times]) < order.lease_limit + MARGIN:
            return False
        self.found.add(node)
        return True

    def kept(self, now: float) -> List[int]:
        """Return the nodes that this launcher may keep alive elsewhere, although the order does not say that they moved."""
        moved = self.order.moved if self.order is not None else []
        return sorted(node for node in self.left if node not in moved and not self.is_clear(node, now))

    def is_quiet(self, node: int, now: float) -> bool:
        """Return whether this launcher has answered a node nowhere, and no supervisor it, for as long as a lease lasts.

        Then it may say that the node is lost (docs/protocol.md, rule 8).
        """
        times = [at for (other, _), at in self.answered.items() if other == node]
        last = max([self.began, *times, *(at + CONFIRMED for at in self.supervisors.values())])
        return self.order is not None and now - last >= self.order.lease_limit + MARGIN

    def clear_of(self, now: float) -> Optional[List[int]]:
        """Return the moved nodes of which this launcher is clear; None where none has moved."""
        moved = self.order.moved if self.order is not None else []
        return [node for node in moved if self.is_clear(node, now)] if moved else None
