"""The socket of a launcher, and where those of the others are."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.peers.lease import TICK
from jobctl.jobspec.launcher.system.files import note, read_json
from jobctl.jobspec.launcher.system.network import (
    AT_FIRST,
    address_for,
    ask_aside,
    number_for,
    open_socket,
    open_socket_at,
)

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

    from jobctl.jobspec.launcher.order.order import Member, Order
    from jobctl.jobspec.launcher.peers.orders import PeerOrders
    from jobctl.jobspec.launcher.system.files import Json
ASKED_AGAIN = 5.0  # seconds between two times that names are asked for which nobody could resolve


class NameResolver:
    """Resolves the names of nodes in a thread: a name server that does not answer must not keep a launcher from its ticks.

    All launchers hear others at the same `port`. `path` is a JSON file of addresses and ports by name; the program that
    starts the launchers keeps it up to date. It comes first.
    """

    def __init__(self, family: int, port: int, path: Optional[str] = None) -> None:
        self.family, self.port, self.path = family, port, path
        self.wanted: Dict[str, Any] = {}
        self.written = self.read()

    def read(self) -> Json:
        """Return the addresses of the file."""
        return read_json(self.path) or {} if self.path else {}

    def find(self, name: str) -> Any:
        """Return the last address that is known of a name, None if there is none yet; the thread goes on to ask for it."""
        if name in self.written:
            address, port = self.written[name]
            return (address, port) if address else None
        return self.wanted.setdefault(name, None)

    def start(self) -> None:
        """Start the thread."""
        import threading

        threading.Thread(target=self.ask, daemon=True).start()

    def ask(self) -> None:
        """Ask for all names that `find` was asked for, once a second: pods that start again have new addresses."""
        while True:
            self.written = self.read() or self.written
            for name in list(self.wanted):
                with contextlib.suppress(OSError):
                    found = socket.getaddrinfo(name, self.port, self.family, socket.SOCK_DGRAM)
                    self.wanted[name] = found[0][4]
            time.sleep(TICK)


def place_of(member: Member) -> Tuple[str, int]:
    """Return the name and port of a member's launcher."""
    return member.address, member.port or 0


class PeerAddresses:
    """The socket of the launcher of node `me`, and the addresses of those of other nodes: `known`, by node."""

    def __init__(self, me: int, made: Optional[socket.socket], names: Optional[NameResolver] = None) -> None:
        self.me, self.socket, self.names = me, made, names
        self.port: Optional[int] = made.getsockname()[1] if made is not None else None
        self.known: Dict[int, Any] = {}
        self.others: List[Member] = []  # of the order, those that have a port
        self.found: Dict[Tuple[str, int], Any] = {}  # the last address of each name and port
        self.failed: Set[Tuple[str, int]] = set()  # what nobody could resolve when it was asked for last
        self.taken: Dict[int, Any] = {}  # by node, the address of its name that was taken last
        self.asking: Any = None  # the thread that asks for them, …
        self.asked = 0.0  # … and when it began
        self.deaf = False  # whether the others can never hear this launcher, as they know one port only

    @classmethod
    def at_all_addresses(cls, me: int, last: Any) -> PeerAddresses:
        """Listen at all addresses, and at the port `last` if that is free: orders say where launchers are."""
        return cls(me, open_socket(last))

    @classmethod
    def by_names(cls, me: int, address: str, port: int, path: Optional[str]) -> PeerAddresses:
        """Listen at this address and port alone: orders have names, see NameResolver."""
        made = open_socket_at(address, port)
        names = NameResolver(made.family, port, path) if made is not None else None
        if names is not None:
            names.start()
        found = cls(me, made, names)
        found.deaf = made is None
        return found

    def meet(self, order: Order) -> None:
        """Look up the launchers of an order, and no others. One whose name is not resolved soon is known later, by `look`."""
        self.known, self.others, self.taken = {}, [], {}
        if self.socket is None:
            return
        others = [member for member in order.members if member.node != self.me]
        if self.names is not None:
            for member in others:
                self.take(member.node, self.names.find(member.address))
            return
        self.others = [member for member in others if member.port]
        numbers = {m.node: number_for(self.socket, m.address, m.port or 0) for m in self.others}
        names = [member for member in self.others if numbers[member.node] is None]
        if names:
            self.begin(self.socket, names, AT_FIRST)
        for node, number in numbers.items():
            self.take(node, number)
        self.take_names()

    def take_names(self) -> None:
        """Take the addresses of names that are new. A launcher that was heard at another one since is there."""
        for member in self.others:
            found = self.found.get(place_of(member))
            if found != self.taken.get(member.node):
                self.taken[member.node] = found
                self.take(member.node, found)

    def take(self, node: int, address: Any) -> None:
        """Take note of where a launcher is."""
        if address is not None:
            self.known[node] = address

    def look(self, orders: Optional[PeerOrders]) -> None:
        """Look up launchers again that are silent, where a name may lead elsewhere by now, and those that were not found."""
        if self.socket is None:
            return
        if self.names is None:
            self.take_names()
            unknown = [m for m in self.others if m.node not in self.known or place_of(m) in self.failed]
            if unknown and (self.asking is None or not self.asking.is_alive()) and self.rested():
                self.begin(self.socket, unknown, 0.0)
            return
        order = orders.order if orders is not None else None
        for member in order.members if order is not None else ():
            if orders is not None and member.node != self.me and orders.is_silent(member.node):
                self.take(member.node, self.names.find(member.address))

    def rested(self) -> bool:
        """Return whether names were not asked for just now."""
        return time.monotonic() - self.asked >= ASKED_AGAIN

    def begin(self, made: socket.socket, members: Sequence[Member], seconds: float) -> None:
        """Begin to look up members, and wait so long."""
        self.asked = time.monotonic()
        self.asking = ask_aside(seconds, self.ask, made, members)

    def ask(self, made: socket.socket, members: Sequence[Member]) -> None:
        """Look up members. Where nobody can resolve a name now, the last address of it counts."""
        for place in map(place_of, members):
            try:
                self.found[place] = address_for(made, *place)
            except (OSError, UnicodeError) as error:
                if place not in self.failed:
                    note("cannot resolve %s: %s" % (place[0], error))
                self.failed.add(place)
            else:
                self.failed.discard(place)

    def close(self) -> None:
        """Leave the port to another launcher."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None
