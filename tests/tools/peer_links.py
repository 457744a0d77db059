"""Launchers that speak to each other by real sockets, without any process."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.peers.incarnations import Incarnations
from jobctl.jobspec.launcher.peers.lease import MajorityLease
from jobctl.jobspec.launcher.peers.orders import PeerOrders
from jobctl.jobspec.launcher.peers.peers import PeerLinks
from jobctl.jobspec.launcher.system.processes import boot_time
from tests.tools.ports import free_ports


class FakeRecovery:
    """What PeerLinks asks of a launcher's SelfRecovery. A test sets `failed`."""

    def __init__(self) -> None:
        self.failed: tuple[str, float] | None = None
        self.teller: Any = SimpleNamespace(hear=lambda message: None, mention=lambda: None)

    def settles(self, now: float) -> bool:
        return False


def links_of(folder: Path, node: int, order: Order, port: int | None = None, names: Path | None = None) -> PeerLinks:
    """Return the links of a launcher that is in an order and has asked for its lease.

    With a `port` it may have forgotten what it was in: it listens there, at 127.0.0.NODE + 2, and finds the others by `names`.
    """
    lease = MajorityLease(watched=port is None)
    lease.begin(order.lease, order.nodes, node, 30.0, boot_time())
    known = None if port is None else Incarnations(f"127.0.0.{node + 2}")
    orders = PeerOrders(lease, lambda text: None, known)
    orders.follow(order)
    orders.places.enter(order)
    folder.mkdir(exist_ok=True)
    recovery = FakeRecovery()
    orders.failed = lambda: recovery.failed
    launcher: Any = SimpleNamespace(
        lease=lease,
        peer_orders=orders,
        dir=str(folder),
        session=None,
        launch=SimpleNamespace(node=node, peer_port=port),
        pending=None,
        entered=None,
        busy=False,
        current_run=None,
        guard=0,
        report=SimpleNamespace(fields=SimpleNamespace(progress=None)),
        recovery=recovery,
    )
    return PeerLinks(launcher, str(folder / "feeds"), str(names) if names else None)


KILLED: dict[str, Any] = {
    "generation": 1,
    "at": 5.0,
    "node": 1,
    "rank": 1,
    "exit_code": 137,
    "kind": "signal",
    "progress": None,
}
KILLED |= {"host": "b", "ran": 2.0, "log": None, "tail": [], "reason": "why", "alike": []}


def order(number: int = 2, failure: dict[str, Any] | None = None, nodes: int = 2) -> Order:
    """A generation of launchers, the first one after a rank was killed before it had counted a step."""
    members = [
        {"node": node, "rank": node, "roles": ["trainer"], "host": "a", "address": f"node-{node}", "nproc": 1}
        for node in range(nodes)
    ]
    data = {"job": "job", "run_id": "job-1", "number": number, "command": "run", "grace": 5.0, "members": members}
    data["rendezvous"] = {"address": "node-0", "port": 1, "id": f"job-{number}"}
    terms = {"restarts": 9, "rules": [], "ports": [20000, 29999], "failures": [failure or KILLED]}
    terms["base"] = {"number": 1, "id": "job-1"}
    return Order.from_json({**data, "began": 1.0, "autonomy": terms})


BASE = Order.from_json(
    {**order().to_json(), "number": 1, "rendezvous": {"address": "node-0", "port": 1, "id": "job-1"}}
)


class Clock:
    """The clock of all launchers, which only the test moves."""

    def __init__(self) -> None:
        self.at = boot_time()

    def now(self) -> float:
        return self.at


class Launchers:
    """The launchers of a job, all in the same order."""

    def __init__(self, folder: Path, clock: Clock, nodes: int = 2) -> None:
        self.folder, self.clock = folder, clock
        (self.port,) = free_ports(1)
        self.names = folder / "names.json"
        self.names.write_text(json.dumps({f"node-{node}": [f"127.0.0.{node + 2}", self.port] for node in range(nodes)}))
        self.all = [self.made(node, order(nodes=nodes)) for node in range(nodes)]

    def made(self, node: int, given: Order) -> PeerLinks:
        links = links_of(self.folder / str(node), node, given, self.port, self.names)
        links.addresses.meet(given)
        return links

    def say(self, *nodes: int) -> None:
        """Have these launchers send a tick, and hear what came before."""
        for node in nodes:
            self.all[node].next = 0.0
            self.all[node].attend()

    def talk(self) -> None:
        """Let all of them hear each other, and each other's answers."""
        for _ in range(3):
            self.say(*range(len(self.all)))

    def begin(self) -> None:
        """Let all nodes begin the order."""
        self.talk()
        for links in self.all:
            assert self.awaited(links.lease.me) is None

    def start_again(self, node: int, given: Order = BASE) -> None:
        """Put another launcher in the place of one. It knows the first order, as all have it in a file."""
        self.all[node].addresses.close()
        self.all[node] = self.made(node, given)

    def orders(self, node: int) -> PeerOrders:
        found = self.all[node].orders
        assert found is not None
        return found

    def newest(self, node: int) -> Order:
        found = self.orders(node).order
        assert found is not None
        return found

    def known(self, node: int) -> Incarnations:
        found = self.all[node].incarnations
        assert found is not None
        return found

    def awaited(self, node: int) -> str | None:
        return self.orders(node).awaited(self.newest(node))

    def close(self) -> None:
        for links in self.all:
            links.addresses.close()
