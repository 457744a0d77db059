"""The order that a launcher follows: the newer of the control file and what other launchers have begun."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.order.control import control_problem
from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.system.files import note, read_json

if TYPE_CHECKING:
    from typing import Callable, Optional, Tuple

    from jobctl.jobspec.launcher.etcd.session_lease import LeaseSession
    from jobctl.jobspec.launcher.order.launch import Launch
    from jobctl.jobspec.launcher.order.order import Member
    from jobctl.jobspec.launcher.peers.orders import PeerOrders


class ControlFile:
    """Follows the control file, and what launchers agree on among themselves (`session`, or `peers` on hosts).

    `complain` is called with the reason why a control file cannot be followed.
    """

    def __init__(
        self,
        path: str,
        launch: Launch,
        session: Optional[LeaseSession],
        peers: Optional[PeerOrders],
        complain: Callable[[str], None],
    ) -> None:
        self.path, self.launch, self.session, self.peers, self.complain = path, launch, session, peers, complain
        self.seen: Optional[Tuple[int, int, int]] = None  # which file was read last, …
        self.refused: Optional[Tuple[int, int, int]] = None  # … and which could not be read
        self.file: Optional[Order] = None  # as last read
        self.order: Optional[Order] = None  # the newest of all

    @property
    def agreed(self) -> Optional[Order]:
        """The newest order if it is not that of the control file: the supervisor does not know of it."""
        return None if self.order is self.file else self.order

    def read(self) -> bool:
        """Read the newest order; return whether there is a new one."""
        replaced = self.read_file()
        if self.session is None:
            before = self.order
            self.order = self.file if self.peers is None else self.peers.follow(self.file)
            return replaced or self.order is not before
        known = [order for order in (self.file, self.session.order) if order is not None]
        orders = [order for order in known if self.session.counts(order)]
        newest = max(orders, key=lambda order: order.age, default=None)
        if newest is None or newest == self.order:
            return False
        self.order = newest
        if newest is self.file and not self.session.has_lost(newest):
            self.session.propose(newest)
        return True

    def tells_to_end(self) -> bool:
        """Say whether a newer order ends processes, which `read` has not returned yet: of the control file, or of launchers."""
        agreed = (
            self.session.order if self.session is not None else self.peers.order if self.peers is not None else None
        )
        orders = [order for order in (agreed, self.unread()) if order is not None]
        return any(self.order is None or order.age > self.order.age for order in orders if order.command != "run")

    def unread(self) -> Optional[Order]:
        """Return what the control file has, if it was replaced since `read` has read it."""
        try:
            stat = os.stat(self.path)
        except OSError:
            return None
        return None if (stat.st_mtime_ns, stat.st_ino, stat.st_size) == self.seen else read_order(self.path)[0]

    def read_file(self) -> bool:
        """Read the control file if it was replaced; say whether there is something new in it."""
        try:
            stat = os.stat(self.path)
        except OSError:
            return False
        seen = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
        if seen == self.seen:
            return False
        order, problem = read_order(self.path)
        if problem or order is None:
            if seen != self.refused:  # said once; but read again, since it may be the disk that refuses it just now
                self.refused = seen
                note("%s: %s" % (self.path, problem))
                self.complain("the control file is unreadable: %s" % problem)
            return False
        first, self.seen = self.seen is None and self.refused in (None, seen), seen
        if first and order.command == "finish":
            # That ended the launcher before this one, whose own order is yet to come. Has etcd heard of it?
            if self.session is not None and self.launch.etcd is not None:
                self.session.hear_end(order)
            return False
        self.file = order if self.launch.peer_port is None else order.as_base()
        return True

    def member(self) -> Optional[Member]:
        """Return this node's entry in the newest order, None if it has none, or runs on another host now."""
        mine = self.order.member(self.launch.node) if self.order is not None else None
        return mine if mine is not None and mine.host == self.launch.host else None


def read_order(path: str) -> Tuple[Optional[Order], Optional[str]]:
    """Return the order that a control file has, or what is wrong with it."""
    data = read_json(path)
    problem = control_problem(data)
    if problem or data is None:
        return None, problem
    try:
        return Order.from_json(data), None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return None, "it has no proper %s" % error if isinstance(error, KeyError) else str(error)
