"""The simulated world with launchers that recover by themselves, on the real PeerOrders and FailedNode.

Engines start again what ran on a host, as it comes back or as it was killed. There may be supervisors or none.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from jobctl.jobspec.deploy.model.control import Control, newest, parse_control
from jobctl.jobspec.launcher.failure import Failure
from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.order.whole_order import packed, unpacked
from jobctl.jobspec.launcher.peers.lease import FIRST_TICKS, TICK
from jobctl.jobspec.launcher.peers.messages import PeerMessage
from jobctl.jobspec.launcher.peers.orders import PeerOrders
from jobctl.jobspec.launcher.recovery.autonomy import SETTLE, SETTLE_BEFORE_END, FailedNode
from jobctl.jobspec.launcher.recovery.going_back import GoingBack
from jobctl.jobspec.launcher.recovery.replacement import Replacement
from jobctl.jobspec.launcher.report.progress import Headway
from jobctl.jobspec.plan.generation import AutonomyTerms, Base, Generation, HotSpare
from tests.tools.launches import launch_of, report_of

from .etcd import order_of
from .world import Bugs, Host, Launcher, Sim


@dataclass
class AloneBugs(Bugs):
    """What is broken on purpose in how launchers recover."""

    stays_dead: bool = False  # a launcher that was started again asks for no lease
    keeps_orders: bool = False  # launchers hand no orders of commands on
    waits_for_ever: bool = False  # launchers wait for the command that has stopped the job for a change
    keeps_steps: bool = False  # launchers do not say how far the order has come


@dataclass
class AloneHost(Host):
    """A machine whose engine starts containers again. What launchers there have entered is on its disk."""

    containers: set[int] = field(default_factory=set)
    entered: dict[int, Order] = field(default_factory=dict)  # the newest order of each node
    left: dict[int, set[int]] = field(default_factory=dict)  # OldPlaces.left of each node's launcher
    idle: IdleSpare | None = None  # a launcher that waits for a node
    ran: dict[int, str] = field(default_factory=dict)  # the order that each node began last

    def turn(self) -> None:
        here = {launcher.node for launcher in self.launchers}
        if self.acts:
            self.launchers += [self.sim.launcher(self, node) for node in sorted(self.containers - here)]
        if self.acts and self.idle is not None and not self.launchers:
            self.idle.turn()
        super().turn()

    def give(self, order: Order) -> bool:
        """Begin to be the launcher of the node that an order has on this host; say whether it has one."""
        given = next((member.node for member in order.members if member.host == self.name), None)
        if given is None or order.command != "run":
            return False
        self.entered[given] = order
        self.ran.pop(given, None)
        assert isinstance(self.sim, AloneSim)
        self.launchers.append(AloneLauncher(self.sim, self, given))
        self.sim.taken += order.has_moved
        return True

    @property
    def receivers(self) -> list[Launcher]:
        return [*self.launchers, *([self.idle] if self.idle is not None and not self.launchers else [])]

    def power_off(self) -> None:
        super().power_off()
        if self.idle is not None:
            assert isinstance(self.sim, AloneSim)
            self.idle = IdleSpare(self.sim, self)

    def generations(self) -> list[Generation]:
        return super().generations() + [self.parsed(order) for order in self.entered.values()]

    def parsed(self, order: Order) -> Generation:
        """Return an order as jobctl reads it, which takes a while."""
        assert isinstance(self.sim, AloneSim)
        known, key = self.sim.parsed, (order.id, order.command, order.pause)
        if key not in known:
            found = parse_control(order.to_json(), None).generation
            assert found is not None
            known[key] = found
        return known[key]

    def has(self, node: int) -> bool:
        return node in self.containers or super().has(node)

    def remove(self, nodes: set[int]) -> None:
        super().remove(nodes)
        self.containers -= nodes


class AloneLauncher(Launcher):
    """One node's launcher, as agent.py and self_recovery.py have it."""

    host: AloneHost
    sim: AloneSim

    def __init__(self, sim: AloneSim, host: AloneHost, node: int) -> None:
        super().__init__(sim, host, node)
        host.containers.add(node)
        self.orders = self.keeper()
        self.orders.places = self.places
        self.orders.on_adopted = self.pass_on
        self.orders.failed = lambda: ("launcher", self.at) if self.failed or self.fenced else None
        self.orders.own = lambda: Headway(self.step if self.trains or self.failed or self.fenced else None)
        self.orders.order = host.entered.get(node)
        self.places.left |= host.left.get(node, set())
        self.replacement = Replacement(self.orders)
        self.going_back = GoingBack(self.orders)
        self.now: Order | None = None
        self.since: FailedNode | None = None

    def keeper(self) -> PeerOrders:
        """Return what keeps the order."""
        return PeerOrders(self.lease, lambda text: None)

    @property
    def age(self) -> list[Any] | None:
        """How new the order is that its messages say it is in."""
        return self.orders.age

    @property
    def mine(self) -> bool:
        """Whether the node has its place here in the order."""
        member = self.now.member(self.node) if self.now is not None else None
        return member is not None and member.host == self.host.name

    def turn(self) -> None:
        now = self.sim.now
        if self.trains and not self.lease.held(now):
            self.trains, self.fenced, self.at = False, True, now
        self.lease.held(now)
        self.read_control()
        if self.lease.validity.over and not self.trains and self.mine and self.now is not None:
            self.ask(self.now)
        if now >= self.next:
            self.next = now + (FIRST_TICKS if self.pending else TICK)
            self.tick()
        self.begin()
        if self.mine:
            self.replacement.look(self.orders.order, self.done(), now)
            if not self.sim.bugs.waits_for_ever:
                self.going_back.look(now)
        self.recover()
        if self.trains and self.node == 0:
            self.step = int(now)

    def done(self) -> set[int]:
        """The nodes that have said that they ended well."""
        number = self.now.number if self.now is not None else 0
        return {node for host in self.sim.hosts.values() for node, at in host.done.items() if at == number}

    def begin(self) -> None:
        if not self.pending or self.now is None or not self.lease.held(self.sim.now):
            return
        if self.orders.awaited(self.now):
            return
        self.pending, self.trains = False, True
        self.host.ran[self.node] = self.now.id

    def read_control(self) -> None:
        file = order_of(self.host.control) if self.host.control is not None else None
        order = self.orders.follow(file)
        if order is None or order is self.now:
            return
        if order.command == "finish":
            self.host.launchers = [other for other in self.host.launchers if other is not self]
            self.host.containers.discard(self.node)
            self.trains = self.pending = False
            return
        if self.now is None or list(order.age) > list(self.now.age):
            self.enter_order(order)

    def enter_order(self, order: Order) -> None:
        before = self.host.entered.get(self.node)
        self.now, self.number = order, order.number
        self.trains = self.pending = self.fenced = self.failed = False
        self.step = None
        self.next = 0.0
        self.host.entered[self.node] = order
        self.stopped = order.command == "stop"
        if self.stopped:
            return
        if not self.mine:
            if self.host.idle is not None and self.host.give(order):  # it is the launcher of another node now
                self.host.launchers.remove(self)
                self.host.containers.discard(self.node)
            return
        known = self.lease.generation == order.lease
        if not known:
            self.ask(order)
        again = before is not None and before.lease == order.lease and self.host.ran.get(self.node) is not None
        if self.host.ran.get(self.node) == order.id or (not known and order.is_of_launchers and again):
            self.failed, self.at = True, self.sim.now
        else:
            self.pending = True

    def ask(self, order: Order) -> None:
        if self.sim.bugs.stays_dead and self.host.ran.get(self.node) == order.id:
            return
        self.lease.begin(order.lease, order.nodes, self.node, order.host_timeout, self.sim.now)
        self.orders.enter(order)
        self.host.left[self.node] = set(self.places.left)

    def tick(self) -> None:
        now, name = self.sim.now, self.lease.tick(self.sim.now)
        generation, age = self.lease.generation, self.age
        for other in self.sim.hosts.values():
            if other is not self.host and generation is not None:
                how = self.how(other)
                self.sim.datagram(self.host, other, lambda x, h=how: x.hears(self, name, generation, age, h))  # type: ignore[misc]
        line = {"node": self.node, "tick": name, "generation": generation, "progress": None, "echo": self.echo}
        unheard = {str(n): a for n, a in self.lease.unheard(now).items()}
        self.host.send({**line, "unheard": unheard, "clear": self.places.clear_of(now), "kept": self.places.kept(now)})

    def how(self, to: Host) -> tuple[Any, Any, Any]:
        """Return what a tick says beside its name and its order: how the node has failed, how far it is, and who this is."""
        return self.orders.failed(), None if self.sim.bugs.keeps_steps else self.orders.headway, None

    def hears(self, by: AloneLauncher, name: str, generation: str, age: Any, how: Any = (None, None, None)) -> None:
        now, (failed, headway, who) = self.sim.now, how
        if isinstance(by, IdleSpare) or generation != self.lease.generation:
            if isinstance(by, IdleSpare):
                message = PeerMessage(generation, by.node, tick=name, spare=by.host.name, age=age)
                self.orders.hear_spare(message, None)
            self.tell(by, name, age)
            if age is not None and self.orders.lacks(age) and self.orders.order is not None:
                mine, asks = list(self.orders.order.age), self.lease.tick(now)
                self.sim.datagram(self.host, by.host, lambda x: x.tell(self, asks, mine) if x is by else None)
            return
        if not self.places.is_clear(by.node, now):
            return
        if self.lease.asked(generation, by.node, now):
            self.places.note_answer(by.node, now)
            self.orders.hear(by.node, name, age, begun=by.lease.validity.had, failed=failed, incarnation=who)
            self.orders.hear_headway(age, headway)
            news = self.orders.news(age)
            mine = self.age
            self.sim.datagram(
                self.host, by.host, lambda x: x.answered(name, self.node, news, mine) if x is by else None
            )
            self.hand_on(by, name, age)

    def tell(self, to: AloneLauncher, name: str, age: Any) -> None:
        """Tell another launcher what is new, because of a tick of its own."""
        news = self.orders.news(age)
        if news is not None:
            self.sim.datagram(self.host, to.host, lambda x: x.told(name, news, age) if x is to else None)
        self.hand_on(to, name, age)

    def hand_on(self, to: AloneLauncher, name: str, age: Any) -> None:
        order = self.orders.whole(age)
        if order is not None and not self.sim.bugs.keeps_orders:
            text = packed(order)
            self.sim.datagram(self.host, to.host, lambda x: x.handed(name, text) if x is to else None)

    def handed(self, name: str, text: str) -> None:
        """A launcher hands on an order that a command has given to it alone."""
        if name in self.lease.ticks.sent:
            self.orders.take_whole(unpacked(text))

    def answered(self, name: str, by: int, news: Any, age: Any) -> None:
        if self.lease.answered(name, by) and news is not None:
            self.orders.take(news, age)

    def pass_on(self) -> None:
        """Tell launchers that were heard, and idle ones, what has just begun, because of their last ticks."""
        told = [(heard.tick, heard.age) for heard in self.orders.heard.values()]
        for name, age in told + [(spare.tick, spare.age) for spare in self.orders.spares.values()]:
            news = self.orders.news(age)
            if news is not None:
                for other in self.sim.hosts.values():
                    self.sim.datagram(self.host, other, lambda x, n=name, k=news, a=age: x.told(n, k, a))  # type: ignore[misc]

    def told(self, name: str, news: Any, age: Any) -> None:
        """A launcher of another lease says what this one does not know."""
        if name in self.lease.ticks.sent:
            self.orders.take(news, age)

    def recover(self) -> None:
        now, order = self.sim.now, self.now
        if order is None or not self.mine or not (self.failed or self.fenced):
            self.since = None
            return
        if self.since is None:
            failure = Failure("launcher", None, None, None, None, now)
            report = report_of(generation=self.number, started_at=0.0, reason="", failure=failure)
            self.since = FailedNode(report, launch_of(node=self.node, host=self.host.name), now)
        self.since.learn(self.orders.headway)
        if self.since.waits(order, self.orders, self.lease.supervised(now), now):
            return
        final = self.since.final(order)
        if final is not None:
            if now - self.since.since >= SETTLE_BEFORE_END:
                self.orders.propose(self.since.give_up(order, final), order.id)
            return
        if (
            now - self.since.since >= (self.since.delay(order) if self.sim.pauses else SETTLE)
            and order.autonomy is not None
        ):
            self.orders.propose(self.since.successor(order, order.autonomy), order.id)
            self.sim.alone += 1


class IdleSpare(AloneLauncher):
    """The launcher of a hot spare, as idle.py has it."""

    def __init__(self, sim: AloneSim, host: AloneHost) -> None:
        super().__init__(sim, host, -1)
        host.containers.discard(-1)

    def turn(self) -> None:
        now = self.sim.now
        order = self.orders.follow(order_of(self.host.control) if self.host.control is not None else None)
        if order is None:
            return
        if self.host.give(order):
            return
        if now >= self.next:
            self.next, name, age = now + TICK, self.lease.tick(now), list(order.age)
            for other in self.sim.hosts.values():
                if other is not self.host:
                    self.sim.datagram(self.host, other, lambda x: x.hears(self, name, order.lease, age))

    def hears(self, by: AloneLauncher, name: str, generation: str, age: Any, how: Any = (None, None, None)) -> None:
        """Answer nobody."""

    def answered(self, name: str, by: int, news: Any, age: Any) -> None:
        """Nobody answers it."""


class AloneSim(Sim):
    """The world, without a supervisor unless somebody starts one. `hot`: idle launchers wait on spares."""

    bugs: AloneBugs
    budget = 1000  # of restarts
    begins = 3.0  # seconds that `up` waits

    def __init__(
        self, nodes: int, spares: int, seed: int, *, watched: bool, hot: bool = False, bugs: AloneBugs | None = None
    ) -> None:
        self.alone, self.watched, self.hot, self.taken = 0, True, hot and nodes >= 3, 0
        self.pauses = False  # whether launchers wait for longer where a failure follows another one without progress
        self.parsed: dict[tuple[str, str, int | None], Generation] = {}
        super().__init__(nodes, spares, seed, bugs=bugs or AloneBugs())
        for host in list(self.hosts.values())[nodes:] if self.hot else ():
            assert isinstance(host, AloneHost)
            host.control, host.idle = self.hosts["h0"].control, IdleSpare(self, host)
        self.watched = watched
        self.run(self.begins)  # `up` has seen that all begin
        if not watched:
            self.kill_supervisor()

    def host(self, name: str) -> Host:
        return AloneHost(self, name)

    def launcher(self, host: Host, node: int) -> Launcher:
        assert isinstance(host, AloneHost)
        return AloneLauncher(self, host, node)

    def generation(self, homes: dict[int, str], number: int) -> Generation:
        made = super().generation(homes, number)
        base = Base(number, made.rendezvous.id)
        free = [host for name, host in self.hosts.items() if name not in homes.values() and not host.launchers]
        spares = tuple(HotSpare(host.name, host.name, 1) for host in free) if self.hot else ()
        return replace(made, autonomy=AutonomyTerms(self.budget, (), (1, 9), base=base, spares=spares), began=1.0)

    def finish(self, host: Host) -> None:
        super().finish(host)
        assert isinstance(host, AloneHost)
        host.containers = {launcher.node for launcher in host.launchers}

    def supervise(self, machine: str) -> None:
        if self.watched:
            super().supervise(machine)

    def newest(self) -> Control:
        hosts = self.hosts.values()
        return newest(Control(generation, host.ledger) for host in hosts for generation in host.generations())

    def all_train(self) -> bool:
        """Say whether all nodes train in the newest order that launchers know; a killed command may have told others alone."""
        hosts = [host for host in self.hosts.values() if host.receivers]
        generation = newest(Control(g, host.ledger) for host in hosts for g in host.generations()).generation
        if generation is None:
            return False
        here = [x for host in hosts for x in host.launchers if isinstance(x, AloneLauncher) and x.trains]
        now = {x.node for x in here if x.now is not None and x.now.id == generation.rendezvous.id}
        ended = (done for host in self.hosts.values() for done in host.done.items())
        return now | {node for node, number in ended if number == generation.number} >= self.wanted()
