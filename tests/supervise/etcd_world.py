"""The simulated world with an etcd in it: the real EtcdSession, EtcdLease, Quorum and FailedNode, on a store whose members fail.

etcd is taken for what it promises, and no more: what has a quorum is linearizable; a lease ends only where there is a
leader, and a newly elected one gives every lease its whole time once more (lessor.Promote).
"""

from __future__ import annotations

import argparse
import base64
import json
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from jobctl.jobspec.deploy.model.control import parse_control
from jobctl.jobspec.launcher.autonomy import FailedNode
from jobctl.jobspec.launcher.etcd import Etcd, EtcdError, Quorum
from jobctl.jobspec.launcher.etcd_session import EtcdSession
from jobctl.jobspec.launcher.failure import Failure
from jobctl.jobspec.launcher.launch import EtcdSettings
from jobctl.jobspec.launcher.order import Order
from jobctl.jobspec.launcher.session_lease import EtcdLease, LeaseSession
from jobctl.jobspec.launcher.session_messages import SessionReport, SessionRequest
from jobctl.jobspec.plan.generation import AutonomyTerms, Generation
from jobctl.jobspec.render.payload import control_json
from tests.tools.launches import launch_of, report_of

from .world import DT, Bugs, Host, Launcher, Sim

ELECTION = 1.0  # seconds without a quorum after which a leader is none any more


@dataclass
class EtcdBugs(Bugs):
    """What is broken on purpose."""

    session: type[EtcdSession] = EtcdSession
    etcd_lease: type[EtcdLease] = EtcdLease
    quorum: type[Quorum] = Quorum


@dataclass
class Item:
    """A key's value."""

    value: str
    created: int
    changed: int
    lease: str


@dataclass
class Store:
    """An etcd of three members, each on a machine of its own."""

    sim: Sim
    names: tuple[str, ...] = ("e0", "e1", "e2")
    dead: set[str] = field(default_factory=set)  # members whose process does not run
    dark: set[str] = field(default_factory=set)  # members whose machine is off
    leader: str | None = "e0"
    without: float = 0.0  # for how long there was no quorum
    items: dict[str, Item] = field(default_factory=dict)
    leases: dict[str, list[float]] = field(default_factory=dict)  # seconds granted, and when it is over
    revision: int = 0

    def runs(self, name: str) -> bool:
        return name not in self.dead and name not in self.dark

    def followers(self, name: str) -> list[str]:
        """Which members a leader on `name` would have."""
        return [one for one in self.names if self.runs(one) and self.sim.is_whole(one, name)] if self.runs(name) else []

    def has_quorum(self, name: str | None) -> bool:
        return name is not None and 2 * len(self.followers(name)) > len(self.names)

    def turn(self) -> None:
        if self.has_quorum(self.leader):
            self.without = 0.0
            for lease in [name for name, (_, end) in self.leases.items() if end <= self.sim.now]:
                self.end(lease)
            return
        self.without += DT
        if self.without < ELECTION and self.leader is not None and self.runs(self.leader):
            return
        self.leader = None
        chosen = next((name for name in self.names if self.has_quorum(name)), None)
        if chosen is not None and self.without >= ELECTION:
            self.leader, self.without = chosen, 0.0
            for lease in self.leases.values():
                lease[1] = self.sim.now + lease[0]

    def end(self, lease: str) -> None:
        self.leases.pop(lease, None)
        self.items = {key: item for key, item in self.items.items() if item.lease != lease}

    def ask(self, host: str, member: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """What a member answers to a host. Raises EtcdError."""
        if member in self.dark or not self.sim.is_whole(host, member):
            raise EtcdError("timed out")
        if member in self.dead:
            raise EtcdError("refused") from ConnectionRefusedError()
        follows = self.leader is not None and (member == self.leader or self.sim.is_whole(member, self.leader))
        if path == "/v3/maintenance/status":
            return {"leader": "1"} if follows else {}
        if not follows or not self.has_quorum(self.leader):
            raise EtcdError("timed out")
        return dict(getattr(self, path.rpartition("/")[2])(body))

    # What there is to be asked for, after the last slash of its path.

    def list(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"members": [{"clientURLs": [f"http://{name}"]} for name in self.names]}

    def grant(self, body: dict[str, Any]) -> dict[str, Any]:
        name = str(self.sim.count())
        self.leases[name] = [float(body["TTL"]), self.sim.now + float(body["TTL"])]
        return {"ID": name}

    def keepalive(self, body: dict[str, Any]) -> dict[str, Any]:
        lease = self.leases.get(body["ID"])
        if lease is None:
            return {}
        lease[1] = self.sim.now + lease[0]
        return {"TTL": str(int(lease[0]))}

    def revoke(self, body: dict[str, Any]) -> dict[str, Any]:
        if body["ID"] not in self.leases:
            raise EtcdError("requested lease not found", 404)
        self.end(body["ID"])
        return {}

    def range(self, body: dict[str, Any]) -> dict[str, Any]:
        first, last = (base64.b64decode(body[key]).decode() for key in ("key", "range_end"))
        found = [(key, item) for key, item in sorted(self.items.items()) if first <= key < last]
        return {"kvs": [_shown(key, item) for key, item in found]}

    def deleterange(self, body: dict[str, Any]) -> dict[str, Any]:
        for item in self.range(body)["kvs"]:
            del self.items[base64.b64decode(item["key"]).decode()]
        return {}

    def txn(self, body: dict[str, Any]) -> dict[str, Any]:
        if not all(self.holds(one) for one in body["compare"]):
            return {}
        for one in body["success"]:
            put = one["request_put"]
            lease = put.get("lease", "0")
            if lease != "0" and lease not in self.leases:
                raise EtcdError("requested lease not found", 404)
            key = base64.b64decode(put["key"]).decode()
            self.revision += 1
            old = self.items.get(key)
            self.items[key] = Item(put["value"], old.created if old else self.revision, self.revision, lease)
        return {"succeeded": True}

    def holds(self, one: dict[str, Any]) -> bool:
        item = self.items.get(base64.b64decode(one["key"]).decode())
        match one["target"]:
            case "CREATE":
                return str(item.created if item else 0) == one["create_revision"]
            case "MOD":
                return str(item.changed if item else 0) == one["mod_revision"]
            case _:
                return item is not None and item.lease == one["lease"]


def _shown(key: str, item: Item) -> dict[str, Any]:
    shown = {"key": base64.b64encode(key.encode()).decode(), "value": item.value, "mod_revision": str(item.changed)}
    return shown | ({"lease": item.lease} if item.lease != "0" else {})


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


class EtcdHost(Host):
    """What launchers have begun by themselves can be read there, too."""

    lease: dict[str, str] | None = None  # the file that the next launcher there reads

    def generations(self) -> list[Generation]:
        told = [x.order for x in self.launchers if isinstance(x, EtcdLauncher) and x.order]
        parsed = [parse_control(order.to_json(), None).generation for order in told]
        return super().generations() + [generation for generation in parsed if generation]


class EtcdLauncher(Launcher):
    """One node's launcher, and its session in etcd."""

    def __init__(self, sim: EtcdSim, host: EtcdHost, node: int) -> None:
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
        self.round_at = 0.0
        self.order: Order | None = None
        self.number = 0
        self.seen: str | None = None  # the generation that it began last
        self.since: FailedNode | None = None

    def remember(self, lease: str) -> None:
        self.place.lease = {"lease": lease}

    def turn(self) -> None:
        self.lease.held(self.sim.now)
        if self.sim.now >= self.round_at or self.wishes.out:
            self.keep()
        for message in self.told.take():
            self.reports.hear(SessionReport.from_json(message))
        super().turn()
        self.go_on()

    def keep(self) -> None:
        for message in self.wishes.take():
            request = SessionRequest.from_json(message)
            assert request.proposal is not None
            self.session.proposal, self.session.after = request.proposal, request.after
            self.session.take_length(request.proposal)
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
        newest = max(
            [*files, *([self.reports.order] if self.reports.order else [])], key=lambda order: order.age, default=None
        )
        if newest is None or newest == self.order:
            return
        self.order = newest
        if newest in files:
            self.reports.propose(newest)
        if newest.id == self.seen:
            return
        self.seen, self.number = newest.id, newest.number
        self.trains = self.pending = self.fenced = self.failed = False
        mine = next((m for m in newest.members if (m.node, m.host) == (self.node, self.host.name)), None)
        if self.host.begun == self.seen:
            self.failed, self.at = True, self.sim.now
        elif mine is not None:
            self.host.begun = self.seen
            self.pending = True
            self.lease.begin(self.seen, newest.nodes, self.node, newest.host_timeout, self.sim.now)

    def go_on(self) -> None:
        """As Launcher.go_on does it."""
        if self.order is None or not (self.failed or self.fenced):
            self.since = None
            return
        now = self.sim.now
        if self.since is None:
            failure = Failure("launcher", None, None, None, None, now)
            report = report_of(generation=self.number, started_at=0.0, reason="", failure=failure)
            self.since = FailedNode(report, self.launch, now)
        if (
            self.since.waits(self.order, self.reports, self.etcd_lease.supervised(now), now)
            or self.since.final(self.order)
        ) is None and not self.since.waits_for_etcd(now):
            self.since.proposed = now
            assert self.order.autonomy is not None
            self.reports.propose(self.since.successor(self.order, self.order.autonomy), self.order.id)
            self.world.alone += 1


class EtcdSim(Sim):
    """The world, with an etcd."""

    bugs: EtcdBugs

    def __init__(
        self, nodes: int, spares: int, seed: int, *, least: int | None = None, bugs: EtcdBugs | None = None
    ) -> None:
        self.store, self.alone = Store(self), 0
        super().__init__(nodes, spares, seed, least=least, bugs=bugs or EtcdBugs())

    def host(self, name: str) -> Host:
        return EtcdHost(self, name)

    def launcher(self, host: Host, node: int) -> Launcher:
        assert isinstance(host, EtcdHost)
        return EtcdLauncher(self, host, node)

    def generation(self, homes: dict[int, str], number: int) -> Generation:
        return replace(super().generation(homes, number), autonomy=AutonomyTerms(1000, (), (1, 9)), began=1.0)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / DT)):
            self.store.turn()
            super().run(DT)

    def heal(self, seconds: float) -> None:
        self.store.dead, self.store.dark = set(), set()
        super().heal(seconds)
