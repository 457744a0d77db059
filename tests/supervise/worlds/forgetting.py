"""The simulated world of clusters: launchers may be started again without what they kept, and there never is a supervisor.

It has the real Incarnations and DoneNodes, besides what alone.py has. Rule 13 of docs/protocol.md is about it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from jobctl.jobspec.launcher.failure import Failure
from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.peers.done_nodes import LINGER, DoneNodes
from jobctl.jobspec.launcher.peers.incarnations import Incarnation, Incarnations
from jobctl.jobspec.launcher.peers.lease import MajorityLease
from jobctl.jobspec.launcher.peers.messages import PeerMessage
from jobctl.jobspec.launcher.peers.orders import PeerOrders
from jobctl.jobspec.launcher.peers.peers import age_of_entered
from jobctl.jobspec.launcher.recovery.self_recovery import SelfRecovery

from .alone import AloneBugs, AloneHost, AloneLauncher, AloneSim
from .world import Host, Twice


class BegunTwice(Twice):
    """A node begins in an order in which it has begun before, as a launcher that is still there knows."""


class Apart(Twice):
    """Nodes run at one time in different orders."""


class Unmet(Twice):
    """A node runs with one whose launcher it has not met."""


class TooSoon(Twice):
    """A node begins before a launcher that it has met has met its own."""


class Misled(Twice):
    """A node looks for another one where an earlier launcher of that was."""


class EndsAlone(Twice):
    """A launcher leaves before all nodes have ended well, or a node begins after that."""


class Unwatched(MajorityLease):
    """The lease where there never is a supervisor."""

    def __init__(self) -> None:
        super().__init__(watched=False)


@dataclass
class ForgettingBugs(AloneBugs):
    """What is broken on purpose in what launchers know of each other."""

    lease: type[MajorityLease] = Unwatched
    known: type[Incarnations] = Incarnations
    orders: type[PeerOrders] = PeerOrders
    done: type[DoneNodes] = DoneNodes
    says_early: bool = False  # a launcher says that it is in the next order while what ran in the last one still ends
    too_soon: bool = False  # nothing: the world only waits for what comes of nodes that begin too soon

    @property
    def name(self) -> str:
        own = (self.known, Incarnations), (self.orders, PeerOrders), (self.done, DoneNodes)
        return next((kind.__name__ for kind, right in own if kind is not right), "SaysEarly")


@dataclass
class ForgettingHost(AloneHost):
    """The place of one node: its disk may be lost with its launcher. Then the next one has the base order, and no more."""

    succeeded: dict[int, str] = field(default_factory=dict)  # the order in which each node has ended well

    def forget(self) -> None:
        """End the launchers, and lose the disk."""
        self.launchers, self.entered, self.left, self.ran, self.succeeded = [], {}, {}, {}, {}


class Links:
    """What DoneNodes and SelfRecovery ask of PeerLinks."""

    done: DoneNodes

    def __init__(self, launcher: ForgettingLauncher) -> None:
        self.own, self.orders, self.incarnations = launcher, launcher.orders, launcher.known
        self.launcher = SimpleNamespace(launch=SimpleNamespace(node=launcher.node))

    @property
    def peers(self) -> dict[int, Host]:
        """The hosts of the other nodes."""
        return {node: host for node, host in self.own.sim.places.items() if host is not self.own.host}

    def message(self, **fields: Any) -> PeerMessage:
        return PeerMessage(self.own.lease.generation, self.own.node, age=self.own.age, **fields)

    def send(self, message: PeerMessage, to: Host) -> None:
        own = self.own
        own.sim.datagram(own.host, to, lambda x: cast(ForgettingLauncher, x).hears_done(message, own.host))


class ForgettingLauncher(AloneLauncher):
    """One node's launcher, as agent.py and self_recovery.py have it in clusters."""

    host: ForgettingHost
    sim: ForgettingSim

    def __init__(self, sim: ForgettingSim, host: ForgettingHost, node: int) -> None:
        super().__init__(sim, host, node)
        self.orders.failed = lambda: (self.kind, self.at) if self.failed or self.fenced else None
        self.kind = "exit"  # how its node has failed, if it has
        self.succeeded = False
        self.ends: float | None = None  # when what ran in the last order has ended, while it ends
        self.leaves: float | None = None  # when the launcher ends, as all nodes have ended well
        self.links = Links(self)
        self.links.done = self.well = sim.bugs.done(cast(Any, self.links))

    def keeper(self) -> PeerOrders:
        self.known = self.sim.bugs.known(f"{self.host.name}.{self.sim.count()}")
        return self.sim.bugs.orders(self.lease, lambda text: None, self.known)

    # What age_of_entered asks of agent.Launcher.

    @property
    def peer_orders(self) -> PeerOrders:
        return self.orders

    @property
    def entered(self) -> Order | None:
        return self.now

    @property
    def busy(self) -> bool:
        return self.trains and not self.sim.bugs.says_early

    @property
    def age(self) -> list[Any] | None:
        return age_of_entered(cast(Any, self))

    def turn(self) -> None:
        now = self.sim.now
        if self.leaves is not None:
            if now >= self.next:
                self.next = now + 1.0
                self.tick()
            if now >= self.leaves:
                self.host.launchers.remove(self)
                self.host.containers.discard(self.node)
            return
        super().turn()
        self.remember()
        if self.succeeded and self.now is not None and self.well.are_all(self.now):
            self.sim.leaves(self)
            self.leaves = now + LINGER

    def begin(self) -> None:
        waited = self.pending
        super().begin()
        if waited and self.trains:
            self.sim.begins_node(self)

    def enter_order(self, order: Order) -> None:
        """Enter an order once what ran has ended, which takes a while."""
        now = self.sim.now
        if self.trains:
            self.ends = now + self.sim.chance.choice((0.0, 0.0, 1.0, 3.0)) if self.ends is None else self.ends
            if now < self.ends:
                return
        ended_well = self.host.succeeded.get(self.node) == order.id
        self.ends, self.succeeded = None, False
        self.well.begin_generation()
        super().enter_order(order)
        self.kind = "launcher" if self.failed else "exit"
        if self.failed and ended_well:
            self.failed, self.succeeded = False, True

    def ask(self, order: Order) -> None:
        super().ask(order)
        self.well.begin_generation()

    def how(self, to: Host) -> tuple[Any, Any, Incarnation]:
        failed, headway, _ = super().how(to)
        return failed, headway, self.known.introduce(self.sim.node_at(to))

    def hears(self, by: AloneLauncher, name: str, generation: str, age: Any, how: Any = (None, None, None)) -> None:
        before = self.known.met
        super().hears(by, name, generation, age, how)
        if self.known.met != before:
            self.next = 0.0

    def hears_done(self, message: PeerMessage, sender: Host) -> None:
        """Another launcher says that its node has ended well, or that it has heard that this one has."""
        if message.generation == self.lease.generation:
            self.well.hear(message, sender)

    def remember(self) -> None:
        """Count as failed where others have met another launcher of this node."""
        if self.now is None:
            return
        agent = SimpleNamespace(
            links=self.links, peer_orders=self.orders, launch=SimpleNamespace(regroups=False), say=lambda **fields: None
        )
        agent.pending, agent.fail = self.pending or None, self.fails
        SelfRecovery.remember(cast(Any, SimpleNamespace(launcher=agent)), self.now, self.now.member(self.node))

    def fails(self, failure: Failure, why: str) -> None:
        self.pending, self.failed, self.kind, self.at = False, True, failure.kind, self.sim.now


class ForgettingSim(AloneSim):
    """The world of a cluster: each node has one place, and one launcher at a time."""

    bugs: ForgettingBugs
    begins = 0.0

    def __init__(self, nodes: int, spares: int, seed: int, *, bugs: ForgettingBugs | None = None) -> None:
        self.begun: dict[tuple[str, int], list[tuple[str, list[ForgettingLauncher]]]] = {}
        self.succeeded: dict[str, set[int]] = {}  # which nodes have ended well, by order
        self.ended = False  # whether a launcher leaves, or has left, since all nodes have ended well
        self.lost = self.doubled = 0.0  # how many datagrams are lost, or come twice
        super().__init__(nodes, spares, seed, watched=False, bugs=bugs or ForgettingBugs())

    def host(self, name: str) -> ForgettingHost:
        return ForgettingHost(self, name)

    def launcher(self, host: Host, node: int) -> ForgettingLauncher:
        assert isinstance(host, ForgettingHost)
        return ForgettingLauncher(self, host, node)

    def node_at(self, host: Host) -> int:
        return int(host.name[1:])

    @property
    def places(self) -> dict[int, Host]:
        """The host of each node."""
        return {self.node_at(host): host for host in self.hosts.values()}

    @property
    def launchers(self) -> list[ForgettingLauncher]:
        """All that are there, also where a host is paused."""
        return [x for host in self.hosts.values() for x in host.launchers if isinstance(x, ForgettingLauncher)]

    def supervise(self, machine: str) -> None:
        """Nobody does."""

    def owner(self) -> str:
        return "s"

    def datagram(self, sender: Host, to: Host, deliver: Any) -> None:
        if self.chance.random() < self.lost:
            return
        for _ in range(2 if self.chance.random() < self.doubled else 1):
            super().datagram(sender, to, deliver)

    def heal(self, seconds: float) -> None:
        self.lost, self.doubled, self.slow = 0.0, 0.0, {}
        super().heal(seconds)

    def fail(self, host: Host) -> None:
        super().fail(host)
        for launcher in host.launchers:
            assert isinstance(launcher, ForgettingLauncher)
            launcher.kind = "exit"

    def finish(self, host: Host) -> None:
        """Have the processes on a host end with 0. The launcher stays.

        Not while the launcher of another node is lost, with its disk, that had ended well: all have to begin again. Nor
        while one of these may be cut off for longer than its lease lasts.
        """
        assert isinstance(host, ForgettingHost)
        still = {x.node for x in self.launchers if x.succeeded and x.host.acts and not self.is_cut_off(x.host)}
        if any(self.succeeded.get(x.now.id, set()) - still for x in self.launchers if x.trains and x.now is not None):
            return
        for x in host.launchers:
            if isinstance(x, ForgettingLauncher) and x.trains and x.now is not None:
                x.trains, x.succeeded, host.succeeded[x.node] = False, True, x.now.id
                self.succeeded.setdefault(x.now.id, set()).add(x.node)

    def is_cut_off(self, host: Host) -> bool:
        return any(host.name in cut for cut in self.cuts)

    # What has to hold.

    def begins_node(self, x: ForgettingLauncher) -> None:
        """A node begins: not for the second time, not after the end, and with the launchers that it has met."""
        order = x.now
        assert order is not None
        others = [y for y in self.launchers if y is not x]
        before = self.begun.setdefault((order.id, x.node), [])
        for name, knowing in before:
            if name == x.known.name or any(y in knowing for y in others):
                raise BegunTwice(f"at {self.now}: node {x.node} in {order.id}")
        self.succeeded.get(order.id, set()).discard(x.node)  # where no launcher is left that knew of it
        before.append((x.known.name, [y for y in others if self.has_met(x, y)]))
        if self.ended:
            raise EndsAlone(f"at {self.now}: node {x.node} begins after all have ended well")
        found = {m.node: m.address for m in x.orders.located(order).members}
        for y in (y for y in others if self.has_met(x, y)):
            if y.known.age == list(order.age) and not self.has_met(y, x) and not self.bugs.too_soon:
                raise TooSoon(f"at {self.now}: node {x.node} begins before node {y.node} has met it")
            if found[y.node] != y.known.address:
                raise Misled(f"at {self.now}: node {x.node} looks for node {y.node} at {found[y.node]}")

    def has_met(self, x: ForgettingLauncher, y: ForgettingLauncher) -> bool:
        """Say whether a launcher has met another one in the order that it is in."""
        met = x.known.met.get(y.node)
        return met is not None and met.name == y.known.name

    def leaves(self, x: ForgettingLauncher) -> None:
        """A launcher leaves, as it takes it that all nodes have ended well."""
        if x.now is None or self.succeeded.get(x.now.id, set()) != self.wanted():
            raise EndsAlone(f"at {self.now}: the launcher of node {x.node} leaves")
        self.ended = True

    def check(self) -> None:
        super().check()
        running = [x for x in self.launchers if x.trains and x.host.acts]
        if len({x.now.id for x in running if x.now is not None}) > 1:
            raise Apart(f"at {self.now}: {[(x.node, x.now and x.now.id) for x in running]}")
        for x in running:
            for y in running:
                if x is not y and not self.has_met(x, y):
                    raise Unmet(f"at {self.now}: node {x.node} runs with node {y.node}")

    def all_train(self) -> bool:
        """Whether all nodes train, or have ended well, in one order."""
        there = {x.node: x.now.id for x in self.launchers if (x.trains or x.succeeded) and x.now is not None}
        return there.keys() == self.wanted() and len(set(there.values())) == 1

    def all_done(self) -> bool:
        """Whether all nodes have ended well."""
        return self.wanted() in self.succeeded.values()

    def all_left(self) -> bool:
        """Whether all launchers have left, as all nodes have ended well."""
        return self.ended and not any(host.containers for host in self.hosts.values() if isinstance(host, AloneHost))
