"""The socket of a launcher, and where those of the others are."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.files import read_json
from jobctl.jobspec.launcher.lease import TICK
from jobctl.jobspec.launcher.network import address_for, open_socket, open_socket_at, resolve

if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Sequence, Tuple

    from jobctl.jobspec.launcher.files import Json
    from jobctl.jobspec.launcher.order import Member, Order
    from jobctl.jobspec.launcher.peer_orders import PeerOrders
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


class PeerAddresses:
    """The socket of the launcher of node `me`, and the addresses of those of other nodes: `known`, by node."""

    def __init__(self, me: int, made: Optional[socket.socket], names: Optional[NameResolver] = None) -> None:
        self.me, self.socket, self.names = me, made, names
        self.port: Optional[int] = made.getsockname()[1] if made is not None else None
        self.known: Dict[int, Any] = {}
        self.late: Dict[Tuple[str, int], Any] = {}  # addresses by name and port that were not known at first, …
        self.asking: Any = None  # … and what asks for them
        self.deaf = False  # whether the others can never hear this launcher, as they know one port only

    @classmethod
    def anywhere(cls, me: int, last: Any) -> PeerAddresses:
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
        """Look up the launchers of an order, and no others."""
        self.known = {}
        for member in order.members:
            if self.socket is not None and member.node != self.me:
                self.take(member.node, self.find(self.socket, member))

    def find(self, made: socket.socket, member: Member) -> Any:
        """Return the address of a member's launcher, None if that is not known."""
        if self.names is not None:
            return self.names.find(member.address)
        return resolve(made, member.address, member.port) if member.port else None

    def take(self, node: int, address: Any) -> None:
        """Take note of where a launcher is."""
        if address is not None:
            self.known[node] = address

    def look(self, orders: Optional[PeerOrders]) -> None:
        """Look up launchers again that are silent, where a name may lead elsewhere by now, and those that were not found."""
        order = orders.order if orders is not None else None
        if orders is None or order is None or self.socket is None:
            return
        if self.names is None:
            unknown = [m for m in order.members if m.port and m.node != self.me and m.node not in self.known]
            self.ask_again(self.socket, unknown)
            return
        for member in order.members:
            if member.node != self.me and orders.is_silent(member.node):
                self.take(member.node, self.find(self.socket, member))

    def ask_again(self, made: socket.socket, unknown: Sequence[Member]) -> None:
        """Look up members whose names nobody could resolve, in a thread: a name server may begin later than this host."""
        for member in unknown:
            self.take(member.node, self.late.get((member.address, member.port or 0)))
        left = [member for member in unknown if member.node not in self.known]
        if not left or (self.asking is not None and self.asking.is_alive()):
            return
        import threading

        self.asking = threading.Thread(target=self.ask, args=(made, left), daemon=True)
        with contextlib.suppress(RuntimeError):  # no more threads in this container, for now
            self.asking.start()

    def ask(self, made: socket.socket, unknown: Sequence[Member]) -> None:
        """Look up members, and rest."""
        for member in unknown:
            with contextlib.suppress(OSError, UnicodeError):
                self.late[member.address, member.port or 0] = address_for(made, member.address, member.port or 0)
        time.sleep(ASKED_AGAIN)

    def close(self) -> None:
        """Leave the port to another launcher."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None
