"""The simulated world with an etcd in it: the real EtcdSession, EtcdLease, Quorum and Autonomy, on a store whose members fail.

etcd is taken for what it promises, and no more: what has a quorum is linearizable; a lease ends only where there is a
leader, and a newly elected one gives every lease its whole time once more (lessor.Promote).
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from jobctl.jobspec.deploy.model.control import Control, newest, parse_control
from jobctl.jobspec.launcher.etcd.client import Etcd, Quorum
from jobctl.jobspec.launcher.etcd.session import EtcdSession
from jobctl.jobspec.launcher.etcd.session_lease import EtcdLease, LeaseSession
from jobctl.jobspec.launcher.etcd.session_messages import NodeCourse, SessionReport, SessionRequest
from jobctl.jobspec.launcher.failure import Failure
from jobctl.jobspec.launcher.order.launch import EtcdSettings
from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.recovery.autonomy import Autonomy
from jobctl.jobspec.launcher.recovery.etcd_replacement import EtcdReplacement
from jobctl.jobspec.launcher.report.progress import Headway
from jobctl.jobspec.plan.generation import AutonomyTerms, Generation
from jobctl.jobspec.render.payload import control_json
from tests.tools.launches import launch_of, report_of

from .etcd_store import Store
from .world import DT, Bugs, Host, Launcher, Sim

LOADING = 3.0  # seconds that a node trains before its first step


@dataclass
class EtcdBugs(Bugs):
    """What is broken on purpose."""

    session: type[EtcdSession] = EtcdSession
    etcd_lease: type[EtcdLease] = EtcdLease
    quorum: type[Quorum] = Quorum


class SimEtcd(Etcd):
    """The client of one host."""

    def __init__(self, store: Store, host: str) -> None:
        super().__init__(EtcdSettings(list(store.names), "/jobctl/me/sim"), None)
        self.store, self.host = store, host

    def ask(self, endpoint: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self.store.ask(self.host, endpoint, path, json.loads(json.dumps(body)))


class Channel:
    """What one of the two, launcher and its session, tells the other."""

    def __init__(self) -> None:
        self.out: list[Any] = []

    def setblocking(self, flag: bool) -> None:
        pass

    def send(self, data: bytes) -> int:
        self.out += map(json.loads, data.decode().splitlines())
        return len(data)

    def take(self) -> list[Any]:
        taken, self.out = self.out, []
        return taken


@lru_cache(maxsize=8)
def order_of(generation: Generation) -> Order:
    """A control file as launchers read it."""
    return Order.from_json(json.loads(control_json(generation)))


@dataclass
class EtcdHost(Host):
    """A machine that keeps what launchers with a session in etcd write there."""

    lease: dict[str, str] | None = None  # the file that the next launcher there reads
    reached: tuple[float, int] = (0.0, 0)  # the last generation that a launcher there has begun
    # Nodes whose launchers stay as they have ended well, and in which generation.
    ended: dict[int, int] = field(default_factory=dict)


class EtcdLauncher(Launcher):
    """One node's launcher, and its session in etcd."""

    def __init__(self, sim: EtcdSim, host: EtcdHost, node: int, before: EtcdLauncher | None = None) -> None:
        super().__init__(sim, host, node)
        self.told, self.wishes, self.world, self.place = Channel(), Channel(), sim, host
        etcd = {"endpoints": [], "prefix": "/jobctl/me/sim"}
        self.launch = launch_of(node=node, host=host.name, etcd=etcd)
        self.reports = LeaseSession(self.wishes)  # type: ignore[arg-type]
        self.lease = self.etcd_lease = sim.bugs.etcd_lease(self.reports)  # type: ignore[assignment]
        options = argparse.Namespace(control="/nowhere/run/control.json", dir="/nowhere/node", secrets=None)
        made = type("SimSession", (sim.bugs.session,), {"lease_of_before": lambda _: None, "remember": self.remember})
        self.session: EtcdSession = made(self.launch, options, self.told)
        self.session.etcd = SimEtcd(sim.store, host.name)
        self.session.quorum = sim.bugs.quorum(self.session.etcd)
        self.session.before = host.lease["lease"] if host.lease else None
        if before is not None:  # the idle one, whose session it goes on with
            self.told, self.wishes = before.told, before.wishes
            self.session, self.reports = before.session, before.reports
            self.lease = self.etcd_lease = sim.bugs.etcd_lease(self.reports)  # type: ignore[assignment]
            self.reports.be(node)
        self.reports.own, self.reports.failed = lambda: Headway(self.step), lambda: self.how
        self.reports.reached = host.reached
        self.done = self.has_begun = False  # whether it has ended well; whether this launcher has begun anything
        self.round_at = 0.0
        self.order: Order | None = None
        self.number = 0
        self.seen: str | None = None  # the generation that it began last
        self.began: float | None = None  # when it began to train in that
        self.kind, self.code = "launcher", 0  # how its processes have failed, if they have
        self.report: Any = SimpleNamespace(state="waiting", fields=None)
        self.autonomy = Autonomy(self.launch, self.report, self.reports, self.etcd_lease.supervised)
        self.replacement = EtcdReplacement(self.reports, self.launch, self.etcd_lease.supervised)

    @property
    def reported(self) -> Generation | None:
        return parse_control(self.order.to_json(), None).generation if self.order is not None else None

    @property
    def how(self) -> tuple[str, float] | None:
        """How its node has failed, and when."""
        if not self.failed and not self.fenced:
            return None
        return "fenced" if self.fenced else self.kind, self.at

    def end(self, kind: str, code: int) -> None:
        """End its processes."""
        self.trains, self.failed, self.at = False, True, self.sim.now
        self.kind, self.code = kind, code

    def end_well(self) -> None:
        """Have its processes end with 0; it stays until all have."""
        self.trains, self.done = False, True
        self.place.ended[self.node] = self.number

    def remember(self, lease: str) -> None:
        self.place.lease = {"lease": lease}

    def turn(self) -> None:
        self.lease.held(self.sim.now)
        if self.sim.now >= self.round_at or self.wishes.out:
            self.keep()
        for message in self.told.take():
            self.reports.hear(SessionReport.from_json(message))
        super().turn()
        if self.trains:
            self.began = self.sim.now if self.began is None else self.began
        if self.began is None or self.sim.now - self.began < LOADING:
            self.step = None
        self.go_on()

    def keep(self) -> None:
        for message in self.wishes.take():
            request = SessionRequest.from_json(message)
            self.world.alone += request.after is not None
            self.session.hear(request)
        for _ in range(5):
            pause = self.session.turn(self.sim.now)
            if pause:
                break
        self.round_at = self.sim.now + pause

    def asked(self, by: Launcher, name: str) -> None:
        """Launchers with etcd count no answers of others; the datagram takes its turn in the schedule, as in other worlds."""
        if self is not by and self.lease.generation and by.lease.generation == self.lease.generation:
            self.sim.datagram(self.host, by.host, lambda x: None)

    def read_control(self) -> None:
        files = [order_of(self.host.control)] if self.host.control else []
        known = [*files, *([self.reports.order] if self.reports.order else [])]
        counts = [order for order in known if self.reports.counts(order)]
        newest = max(counts, key=lambda order: order.age, default=None)
        if newest is None or newest == self.order:
            return
        self.order = newest
        if newest in files and not self.reports.has_lost(newest):
            self.reports.propose(newest)
        if newest.id == self.seen:
            return
        self.seen, self.number = newest.id, newest.number
        self.trains = self.pending = self.fenced = self.failed = self.done = False
        self.began, self.kind, self.code = None, "launcher", 0
        mine = next((m for m in newest.members if (m.node, m.host) == (self.node, self.host.name)), None)
        if self.host.begun == self.seen and self.place.ended.get(self.node) == self.number:
            self.done = True
        elif self.host.begun == self.seen:
            self.failed, self.at = True, self.sim.now
        elif mine is not None:
            self.host.begun, self.place.reached = self.seen, (newest.began, newest.number)
            self.pending = self.has_begun = True
            self.lease.begin(self.seen, newest.nodes, self.node, newest.host_timeout, self.sim.now)
        else:
            self.reports.release()

    def go_on(self) -> None:
        """As SelfRecovery does it."""
        if self.order is None:
            return
        how = self.how
        if how is None:
            self.report.state = "succeeded" if self.done else "running"
        elif self.report.state != "failed":
            failure = Failure(how[0], self.node, 0, self.code, None, how[1])
            known = {"generation": self.number, "started_at": self.began, "progress": self.step}
            self.report.state, self.report.fields = "failed", report_of(reason="", failure=failure, **known)
        if how is not None or self.done or self.reports.courses:
            self.reports.tell_end(NodeCourse(self.order.id, how, Headway(self.step), self.done))
        self.autonomy.go_on(self.order)
        if self.done and self.reports.all_done(self.sim.now):
            self.leave()
        member = self.order.member(self.node)
        if member is not None and member.host == self.host.name:
            self.replacement.look(self.order, self.world.done(self.order.number), self.sim.now)

    def leave(self) -> None:
        """As SelfRecovery does it: its engine starts it again, and that one stays."""
        if self.has_begun:
            self.session.leave()
            self.place.launchers.remove(self)
        elif self.reports.at is not None:
            self.reports.release()


class EtcdSim(Sim):
    """The world, with an etcd."""

    bugs: EtcdBugs
    budget = 1000  # of restarts

    def __init__(
        self, nodes: int, spares: int, seed: int, *, least: int | None = None, bugs: EtcdBugs | None = None
    ) -> None:
        self.store, self.alone = Store(self), 0
        self.trained = set[tuple[str | None, int, str]]()  # who has begun to train: the generation, the node, and where
        super().__init__(nodes, spares, seed, least=least, bugs=bugs or EtcdBugs())

    def host(self, name: str) -> Host:
        return EtcdHost(self, name)

    def launcher(self, host: Host, node: int) -> Launcher:
        assert isinstance(host, EtcdHost)
        return EtcdLauncher(self, host, node)

    def generation(self, homes: dict[int, str], number: int) -> Generation:
        return replace(super().generation(homes, number), autonomy=AutonomyTerms(self.budget, (), (1, 9)), began=1.0)

    def done(self, number: int) -> set[int]:
        """The nodes that have ended well in a generation."""
        return {node for host in self.hosts.values() for node, at in host.done.items() if at == number}

    def newest(self) -> Control:
        hosts = self.hosts.values()
        return newest(Control(generation, host.ledger) for host in hosts for generation in host.generations())

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / DT)):
            self.store.turn()
            super().run(DT)
            self.spread()

    def fail(self, host: Host) -> None:
        """Kill the processes there."""
        for one in host.launchers:
            if one.trains and isinstance(one, EtcdLauncher):
                one.end("signal", 137)

    def spread(self) -> None:
        """Have the processes of a generation fail that have lost a peer: its host has closed the connection."""
        here = [(host, one) for host in self.hosts.values() for one in host.launchers if isinstance(one, EtcdLauncher)]
        for host, one in here:
            self.trained |= {(one.seen, one.node, host.name)} if one.trains else set()
        now = {(one.seen, one.node, host.name) for host, one in here if one.trains}
        over = [(name, host.done | host.ended) for name, host in self.hosts.items() if isinstance(host, EtcdHost)]
        ended = {(node, name) for name, nodes in over for node in nodes}
        lost = {
            (seen, name)
            for seen, node, name in self.trained - now
            if self.hosts[name].acts and (node, name) not in ended
        }
        for host, one in here:
            if one.trains and any(seen == one.seen and self.is_whole(host.name, name) for seen, name in lost):
                one.end("exit", 1)

    def heal(self, seconds: float) -> None:
        self.store.dead, self.store.dark = set(), set()
        super().heal(seconds)
