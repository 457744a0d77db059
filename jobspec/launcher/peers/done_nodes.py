"""Which nodes are done with the generation, and which have heard that this one is."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.peers.lease import FIRST_TICKS, TICK
from jobctl.jobspec.launcher.system.processes import boot_time

if TYPE_CHECKING:
    from typing import Any, Optional, Set

    from jobctl.jobspec.launcher.order.order import Order
    from jobctl.jobspec.launcher.peers.messages import PeerMessage
    from jobctl.jobspec.launcher.peers.peers import PeerLinks
DONE_TIMEOUT = 10.0  # seconds in which launchers of servers are told that a trainer is done
LINGER = 1.5  # seconds for which a launcher that leaves goes on to say how its job has ended, where nobody else does


class DoneNodes:
    """What launchers tell each other about the good end of their nodes."""

    def __init__(self, links: PeerLinks) -> None:
        self.links = links
        self.nodes: Set[int] = set()  # nodes that have said so
        self.told: Set[int] = set()  # nodes that have heard that this one is
        self.next = 0.0  # when it says so next
        self.ended = False  # whether this one is, and its launcher stays
        self.complete: Optional[str] = None  # the newest order all of whose trainers are known to be done; its id

    def begin_generation(self) -> None:
        """Forget what launchers have said in the last generation. They may be the same ones."""
        self.nodes, self.told, self.ended = set(), set(), False

    def hear(self, message: PeerMessage, sender: Any) -> None:
        """Note that another node is done, or that its launcher has heard that this one is."""
        links = self.links
        unsaid = message.age is None and links.incarnations is None  # as by a launcher of an earlier version on a host
        if message.age != links.message().age and not unsaid:
            return  # it may begin again, in an order with the same lease
        new = message.done and message.node not in self.nodes
        if message.done:
            self.nodes.add(message.node)
        if message.heard:
            self.told.add(message.node)
        # It may have been started again, and not know any more that this one is done. And who says with an answer that it
        # is done has to hear that this was heard: this launcher may leave now.
        if new or not message.heard:
            links.send(links.message(heard=True, done=self.ended), sender)

    def say(self, nodes: Set[int]) -> None:
        """Tell the launchers of `nodes` that this one is done."""
        for node in nodes & set(self.links.peers):
            self.links.send(self.links.message(done=True), self.links.peers[node])

    def tell(self, servers: Set[int]) -> None:
        """Tell the launchers of `servers` that this node is done, until they have heard it: this one does not stay.

        The supervisor ends those that do not answer.
        """
        links, until = self.links, time.monotonic() + DONE_TIMEOUT
        while (left := servers - self.told) and time.monotonic() < until:
            self.say(left)
            if links.launcher.signal is not None or not links.launcher.pause(FIRST_TICKS):
                return

    def are_all(self, order: Order) -> bool:
        """Return whether all trainers of an order are done, and all others know that this one is; tell them so.

        One that is silent may be cut off, and would wait for ever then: it counts for as long as a lease lasts. One that
        is not done itself is told again and again: it may be started again, and knows nothing then.
        """
        me, now, orders = self.links.launcher.launch.node, boot_time(), self.links.orders
        heard = orders.lease.heard if orders is not None else {}
        there = {n for n, at in heard.items() if now - at <= order.lease_limit}
        untold = there - self.told
        self.ended = True
        if now >= self.next:
            self.next = now + (FIRST_TICKS if untold else TICK)
            self.say(untold | (there - self.nodes))
        if {m.node for m in order.of_role("trainer")} <= self.nodes | {me}:
            self.complete = order.id  # also where it asks for another lease later, and nobody is left to say so again
        return not untold and self.complete == order.id

    def linger(self) -> None:
        """Go on to say how the job has ended, where no supervisor does: others may not have heard it."""
        links, until = self.links, time.monotonic() + LINGER
        if os.getppid() != links.launcher.guard or links.incarnations is None:
            return
        while links.peers and time.monotonic() < until:
            links.attend()
            links.wait(FIRST_TICKS)
