"""A simulated world: hosts, links, launchers, clocks and supervisors, on the real leases, `FailureDetector` and `decide`.

Time goes in steps of DT. What a supervisor and a host say to each other is queued while the link between them is cut, as
TCP does, and lost when that lasts; what launchers say to each other is lost at once. A paused machine does nothing, and its clock
goes on. Whoever trains what, and where, is written down by nobody but the world, which watches that no node trains twice.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jobctl.jobspec.deploy.model.control import Control, Ledger, age, newest
from jobctl.jobspec.deploy.model.liveness import EXPIRY, FailureDetector
from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.peers.lease import FIRST_TICKS, TICK, MajorityLease
from jobctl.jobspec.launcher.peers.old_places import OldPlaces
from jobctl.jobspec.plan.generation import Generation, Member, RendezvousPoint
from jobctl.jobspec.plan.recovery import Recovery
from jobctl.jobspec.render.payload import control_json

from .supervisors import NOT_COUNTED, Supervisor

DT = 0.25
LATEST = 10.0  # seconds that something is on its way at most, but to and from hosts that are slow
STEPS_ASIDE = 60.0  # seconds for which the supervisor of a machine that has changed the job waits for its turn
POLICY = Recovery(1000, None, "replace", 6.0, None, None, ())


class Twice(AssertionError):
    """A node trains on two hosts."""


@dataclass
class Bugs:
    """What is broken on purpose, so that it can be seen that it would be found."""

    lease: type[MajorityLease] = MajorityLease
    detector: type[FailureDetector] = FailureDetector
    forgets: bool = False  # failures are not handed on with the generation that begins because of them
    once: bool = False  # a generation that did not reach a host is not handed to it again
    places: type[OldPlaces] = OldPlaces
    forgets_leases: bool = False  # generations do not say how long leases of earlier ones were
    at_once: bool = False  # generations do not say which nodes have moved


class Launcher:
    """One node's launcher on one host, as launcher.py does it."""

    def __init__(self, sim: Sim, host: Host, node: int) -> None:
        self.sim, self.host, self.node = sim, host, node
        self.lease = sim.bugs.lease()
        self.places = sim.bugs.places(sim.now)
        self.trains = self.pending = self.fenced = self.failed = self.stopped = False
        self.order: Generation | None = None  # the newest that it knows
        self.number = 0  # of the generation that it began last
        self.made, self.begun = sim.now, False  # whether it has had a part in the job
        self.at = 0.0  # when it was fenced, or failed
        self.step: int | None = None
        self.next = 0.0
        self.echo: str | None = None

    @property
    def reported(self) -> Generation | None:
        """The order that it follows, as its report has it: a control file that came later may be older."""
        return self.order

    def turn(self) -> None:
        now = self.sim.now
        if self.trains and not self.lease.held(now):
            self.trains, self.fenced, self.at = False, True, now
        self.read_control()
        if now >= self.next:
            self.next = now + (FIRST_TICKS if self.pending else TICK)
            self.tick()
        if self.pending and self.lease.held(now):
            self.pending, self.trains = False, True
        if self.trains:
            self.step = int(now)

    def read_control(self) -> None:
        order = self.host.control
        if order is self.order:
            return
        if order is not None and order.command == "finish":
            self.host.launchers = [other for other in self.host.launchers if other is not self]
            self.trains = self.pending = False
            return
        if order is None or (self.order is not None and age(order) <= age(self.order)):
            return
        self.order, self.number = order, order.number
        nodes = [member.node for member in order.members]
        self.trains = self.pending = self.fenced = self.failed = False
        self.stopped = order.command == "stop"
        if self.stopped:
            return
        mine = next((m for m in order.members if m.node == self.node and m.host == self.host.name), None)
        if self.host.begun == order.rendezvous.id:
            self.failed = True  # its predecessor ran this one
        elif mine is not None:
            self.host.begun = order.rendezvous.id
            self.pending = self.begun = True
            self.lease.begin(order.rendezvous.id, nodes, self.node, order.host_timeout, self.sim.now)
            self.enter(order)

    def enter(self, generation: Generation) -> None:
        """Begin an order with a lease of its own, as PeerOrders does."""
        order = Order.from_json(json.loads(control_json(generation)))
        self.places.enter(order)
        if generation.moves is not None and self.node in generation.moved:
            clear = [node for node in order.nodes if node not in generation.moved]
            self.lease.begin_elsewhere(clear, generation.moves.voters)

    def tick(self) -> None:
        now, name = self.sim.now, self.lease.tick(self.sim.now)
        for other in self.sim.hosts.values():
            self.sim.datagram(self.host, other, lambda launcher: launcher.asked(self, name))
        line = {
            "node": self.node,
            "tick": name,
            "generation": self.lease.generation,
            "progress": None,
            "echo": self.echo,
            "unheard": {str(n): a for n, a in self.lease.unheard(now).items()},
            "clear": self.places.clear_of(now),
        }
        self.host.send(line)

    def asked(self, by: Launcher, name: str) -> None:
        now, generation = self.sim.now, by.lease.generation
        if self is by or generation is None or generation != self.lease.generation:
            return
        if self.places.is_clear(by.node, now) and self.lease.asked(generation, by.node, now):
            self.places.note_answer(by.node, now)
            self.sim.datagram(self.host, by.host, lambda x: x.lease.answered(name, self.node) if x is by else None)


@dataclass
class Host:
    """A machine: its file system outlives it, its launchers do not."""

    sim: Sim
    name: str
    control: Generation | None = None
    ledger: Ledger = field(default_factory=lambda: Ledger(1.0))
    refuses: float = 0.0  # until when no container can be started there
    full: bool = False  # whether its disk has no room for what it is sent
    begun: str | None = None  # the generation that its launcher began last
    done: dict[int, int] = field(default_factory=dict)  # nodes that have ended well, and in which generation
    on: bool = True
    paused: bool = False
    launchers: list[Launcher] = field(default_factory=list)
    follower: Supervisor | None = None
    follower_heard: float = 0.0
    followed_by: str = ""
    next: float = 0.0

    @property
    def acts(self) -> bool:
        return self.on and not self.paused

    @property
    def receivers(self) -> list[Launcher]:
        """All that hears what launchers send there."""
        return self.launchers

    def generations(self) -> list[Generation]:
        """What can be read there: the control file, and what launchers report to follow, should that be another."""
        told = [self.control, *(launcher.reported for launcher in self.launchers)]
        return [generation for generation in told if generation is not None]

    def send(self, line: Any) -> None:
        if self.follower is not None:
            self.follower.links[self.name].up.append((self.sim.later(self.name), line))

    def turn(self) -> None:
        if not self.acts:
            return
        if self.follower is not None and self.sim.now - self.follower_heard > EXPIRY:
            self.follower = None
        if self.sim.now >= self.next:
            self.next = self.sim.now + 1.0
            self.send("t")
        for launcher in list(self.launchers):
            launcher.turn()

    def has(self, node: int) -> bool:
        """Say whether a container of a node is here."""
        return any(launcher.node == node for launcher in self.launchers)

    def remove(self, nodes: set[int]) -> None:
        """Remove the containers of nodes."""
        self.launchers = [launcher for launcher in self.launchers if launcher.node not in nodes]

    def power_off(self) -> None:
        self.on, self.paused, self.launchers, self.follower = False, False, [], None


class Sim:
    """The world."""

    def __init__(
        self, nodes: int, spares: int, seed: int, *, least: int | None = None, bugs: Bugs | None = None
    ) -> None:
        self.now, self.chance, self.bugs = 0.0, random.Random(seed), bugs or Bugs()
        self.step = DT
        self.timeout = self.chance.choice((6.0, 6.0, 20.0))  # less, and more, than a lock takes to expire
        self.least = nodes if least is None else least
        self.policy = POLICY
        # Where nodes are to be, as noted with the job in each state directory; the order that ran at the last `up` there.
        self.plans = {"s": {node: f"h{node}" for node in range(nodes)}}
        self.agreed: dict[str, str] = {}
        self.heirs: dict[str, float] = {}  # machines where somebody waits to supervise, and until when
        self.numbers = self.restarts = 0
        self.given_up: list[
            tuple[str, bool]
        ] = []  # why supervisors have ended the job, and whether all nodes trained then
        self.causes: dict[int, set[str]] = {}  # why generations began, by their numbers
        self.cuts: set[frozenset[str]] = set()
        self.late = 0.03  # how many of what is sent comes late
        self.loss = 0.0  # how many generations that are handed to a host do not arrive
        self.orders: list[tuple[float, Host, Control]] = []  # those that are under way
        self.slow: dict[str, tuple[float, float]] = {}  # hosts from and to which everything takes so long
        self.datagrams: list[tuple[float, Host, Host, Callable[[Launcher], None]]] = []
        self.hosts: dict[str, Host] = {}
        for index in range(nodes + spares):
            self.hosts[f"h{index}"] = self.host(f"h{index}")
        first = self.generation({node: f"h{node}" for node in range(nodes)}, 1)
        self.supervisors: list[Supervisor] = []
        for node in range(nodes):
            host = self.hosts[f"h{node}"]
            host.launchers.append(self.launcher(host, node))
            host.control = first
        self.supervise("s0")

    def host(self, name: str) -> Host:
        return Host(self, name)

    def launcher(self, host: Host, node: int) -> Launcher:
        return Launcher(self, host, node)

    def count(self) -> int:
        self.numbers += 1
        return self.numbers

    def later(self, host: str = "", way: int = 0) -> float:
        """When something that is sent now arrives, as a rule soon; `way`: 0 from the host, 1 to it."""
        if host in self.slow:
            return self.now + self.slow[host][way]
        return self.now + (self.chance.uniform(0.0, LATEST) if self.chance.random() < self.late else 0.0)

    def generation(self, homes: dict[int, str], number: int) -> Generation:
        members = tuple(Member(n, r, ("trainer",), h, h, 1) for r, (n, h) in enumerate(sorted(homes.items())))
        meeting = RendezvousPoint("h0", 1, f"g{number}-{self.count()}")
        return Generation("sim", "sim", number, "run", 0.0, members, meeting, None, self.timeout)

    def datagram(self, sender: Host, to: Host, deliver: Callable[[Launcher], None]) -> None:
        if self.is_whole(sender.name, to.name):
            at = max(self.later(sender.name), self.later(to.name, 1))
            self.datagrams.append((at, sender, to, deliver))

    def is_whole(self, one: str, other: str) -> bool:
        return one == other or frozenset((one, other)) not in self.cuts

    # What happens.

    def supervise(self, machine: str) -> None:
        """Start a supervisor on a machine, unless it runs one, or some host tells of another."""
        if any(s.alive and s.machine == machine for s in self.supervisors):
            return
        reached = [host for name, host in self.hosts.items() if host.acts and self.is_whole(machine, name)]
        if any(host.follower is not None for host in reached):
            return
        self.supervisors.append(Supervisor(self, machine))

    def kill_supervisor(self) -> None:
        for one in list(self.supervisors):
            self.end(one)

    def end(self, one: Supervisor) -> None:
        """End a supervisor; hosts that its machine can reach see its connections closed."""
        one.alive = False
        for name, host in self.hosts.items():
            if host.follower is one and one.links[name].whole:
                host.follower = None
        self.supervisors = [other for other in self.supervisors if other is not one]

    def fail(self, host: Host) -> None:
        """End the processes of a host's launchers, as a crash of the program does."""
        for launcher in host.launchers:
            if launcher.trains:
                launcher.trains, launcher.failed, launcher.at = False, True, self.now

    def finish(self, host: Host) -> None:
        """Have the processes of a host's launchers end with 0, whereupon the launchers end."""
        for launcher in host.launchers:
            if launcher.trains and host.control is not None:
                host.done[launcher.node] = host.control.number
        host.launchers = [launcher for launcher in host.launchers if not launcher.trains]

    def kill(self, host: Host) -> None:
        """Kill a host's containers."""
        host.launchers = []

    def partition(self, sides: dict[str, bool]) -> None:
        """Cut everything between two sides, supervisors' machines among them."""
        self.cuts = {frozenset((a, b)) for a in sides for b in sides if sides[a] != sides[b]}

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / self.step)):
            self.now += self.step
            due = [d for d in self.datagrams if d[0] <= self.now and d[2].acts]
            self.datagrams = [d for d in self.datagrams if d[0] > self.now]
            self.deliver()
            for host in self.hosts.values():
                host.turn()
            for _, sender, to, deliver in due:
                if self.is_whole(sender.name, to.name):
                    for launcher in to.receivers:
                        deliver(launcher)
            for machine in [machine for machine, until in self.heirs.items() if until >= self.now]:
                self.supervise(machine)
            for supervisor in list(self.supervisors):
                supervisor.turn()
            self.check()

    def deliver(self) -> None:
        """Put down what has reached hosts: the files are replaced, whatever they said, as on real ones."""
        due = [order for order in self.orders if order[0] <= self.now]
        self.orders = [order for order in self.orders if order[0] > self.now]
        for _, host, control in due:
            if host.acts and not host.full:
                host.ledger = newest([Control(None, host.ledger), Control(None, control.ledger)]).ledger
                host.control = control.generation

    def training(self) -> set[int]:
        """The nodes that train."""
        return {x.node for host in self.hosts.values() if host.acts for x in host.launchers if x.trains}

    def check(self) -> None:
        training = [(x.node, h.name) for h in self.hosts.values() if h.acts for x in h.launchers if x.trains]
        nodes = [node for node, _ in training]
        if len(nodes) != len(set(nodes)):
            raise Twice(f"at {self.now}: {sorted(training)}")

    def heal(self, seconds: float) -> None:
        """Mend everything, and let somebody start a supervisor where there is none."""
        self.cuts, self.late, self.loss = set(), 0.0, 0.0
        for host in self.hosts.values():
            host.on, host.paused, host.refuses, host.full = True, False, 0.0, False
        for supervisor in self.supervisors:
            supervisor.paused = False
        for _ in range(round(seconds)):
            if not self.supervisors:
                self.supervise(f"{self.owner()}0")
            self.run(1.0)

    def newest(self) -> Control:
        """What is the newest on all hosts."""
        return newest(Control(host.control, host.ledger) for host in self.hosts.values())

    def counted(self) -> int:
        """How many restarts led to the newest generation; two that were cut off from each other may both have begun one of a number."""
        generation = self.newest().generation
        last = generation.number if generation else 0
        return sum(NOT_COUNTED not in causes for number, causes in self.causes.items() if number <= last)

    def all_train(self) -> bool:
        """Whether every node trains, or has ended well, in the newest generation."""
        generation = self.newest().generation
        if generation is None:
            return False
        hosts = self.hosts.values()
        now = {
            x.node
            for host in hosts
            for x in host.launchers
            if x.trains and x.lease.generation == generation.rendezvous.id
        }
        now |= {node for host in hosts for node, number in host.done.items() if number == generation.number}
        return now >= self.wanted()

    def wanted(self) -> set[int]:
        """The nodes of the job, as it was changed last."""
        return {*self.plans[self.owner()]}

    def owner(self) -> str:
        """In whose state directory the job is what it was changed to last."""
        generation = self.newest().generation
        return generation.origin.id if generation is not None and generation.origin is not None else "s"

    def any_trains(self) -> bool:
        """Whether any node does."""
        return any(x.trains for host in self.hosts.values() for x in host.launchers)
