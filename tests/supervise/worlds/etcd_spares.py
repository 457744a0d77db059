"""The simulated world with an etcd and hot spares, on the real EtcdReplacement: mostly nobody watches.

Engines start again what ran on a host, as it comes back or as it was killed.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field, replace

from jobctl.jobspec.launcher.etcd.session_messages import SessionReport
from jobctl.jobspec.launcher.peers.lease import NOBODY
from jobctl.jobspec.launcher.recovery.etcd_replacement import EtcdReplacement
from jobctl.jobspec.plan.generation import Generation, HotSpare

from .etcd import EtcdBugs, EtcdHost, EtcdLauncher, EtcdSim, order_of
from .world import Host, Launcher


@dataclass
class HotEtcdBugs(EtcdBugs):
    """What is broken on purpose."""

    replacement: type[EtcdReplacement] = EtcdReplacement
    keeps_keys: bool = False  # a launcher whose node is elsewhere keeps its lease


@dataclass
class HotEtcdHost(EtcdHost):
    """A machine whose engine starts containers again."""

    containers: set[int] = field(default_factory=set)
    spare: bool = False  # whether it has an idle launcher: until a node has been there
    idle: IdleEtcdLauncher | None = None

    def turn(self) -> None:
        assert isinstance(self.sim, HotEtcdSim)
        here = {launcher.node for launcher in self.launchers}
        if self.acts:
            self.launchers += [self.sim.launcher(self, node) for node in sorted(self.containers - here)]
            if self.spare and not self.containers and self.idle is None:
                self.idle = IdleEtcdLauncher(self.sim, self)
            if self.idle is not None:
                self.idle.turn()
        super().turn()

    def power_off(self) -> None:
        super().power_off()
        self.idle = None

    def remove(self, nodes: set[int]) -> None:
        super().remove(nodes)
        self.containers -= nodes


class IdleEtcdLauncher(EtcdLauncher):
    """The launcher of a hot spare, as idle.py has it."""

    place: HotEtcdHost

    def __init__(self, sim: HotEtcdSim, host: HotEtcdHost) -> None:
        super().__init__(sim, host, NOBODY)
        self.reports.be(NOBODY)
        self.replacement = sim.bugs.replacement(self.reports, self.launch, lambda now: False)

    def turn(self) -> None:
        if self.sim.now >= self.round_at or self.wishes.out:
            self.keep()
        for message in self.told.take():
            self.reports.hear(SessionReport.from_json(message))
        files = [order_of(self.host.control)] if self.host.control else []
        known = [*files, *([self.reports.order] if self.reports.order else [])]
        newest = max(known, key=lambda order: order.age, default=None)
        if newest is None:
            return
        if newest != self.order and newest in files:
            self.reports.propose(newest)
        self.order = newest
        given = next((member.node for member in newest.members if member.host == self.host.name), None)
        if given is None:
            self.replacement.look(newest, self.world.done(newest.number), self.sim.now)
            return
        self.place.idle = None
        if all(launcher.node != given for launcher in self.place.launchers):
            assert isinstance(self.world, HotEtcdSim)
            self.place.launchers.append(self.world.launcher(self.place, given, self))


class HotEtcdSim(EtcdSim):
    """The world, without a supervisor unless it is `watched`."""

    bugs: HotEtcdBugs

    def __init__(self, nodes: int, spares: int, seed: int, *, watched: bool, bugs: HotEtcdBugs | None = None) -> None:
        self.watched = True
        super().__init__(nodes, spares, seed, bugs=bugs or HotEtcdBugs())
        for host in list(self.hosts.values())[nodes:]:
            assert isinstance(host, HotEtcdHost)
            host.control, host.spare = self.hosts["h0"].control, True
        self.watched = watched
        self.run(5.0)
        if not watched:
            self.kill_supervisor()

    def host(self, name: str) -> Host:
        return HotEtcdHost(self, name)

    def launcher(self, host: Host, node: int, before: EtcdLauncher | None = None) -> Launcher:
        assert isinstance(host, HotEtcdHost)
        host.containers.add(node)
        host.spare = False  # the container is that node's; a supervisor starts another one, or `up`
        made = EtcdLauncher(self, host, node, before)
        made.replacement = self.bugs.replacement(made.reports, made.launch, made.etcd_lease.supervised)
        if self.bugs.keeps_keys:
            made.reports.release = lambda: None  # type: ignore[method-assign]
        return made

    def generation(self, homes: dict[int, str], number: int) -> Generation:
        made = super().generation(homes, number)
        assert made.autonomy is not None
        free = [name for name, host in self.hosts.items() if name not in homes.values() and not host.launchers]
        spares = tuple(HotSpare(name, name, 1) for name in free)
        return replace(made, autonomy=replace(made.autonomy, spares=spares))

    def finish(self, host: Host) -> None:
        super().finish(host)
        assert isinstance(host, HotEtcdHost)
        ended = host.containers - {launcher.node for launcher in host.launchers}
        host.containers -= ended
        if ended and host.lease is not None:
            self.store.end(host.lease["lease"])  # as a launcher does that leaves

    def end_well(self, host: Host) -> None:
        """Have the processes of a host's launchers end with 0; the launchers stay until all nodes have ended so."""
        for launcher in host.launchers:
            if launcher.trains and isinstance(launcher, EtcdLauncher):
                launcher.end_well()

    def is_over(self) -> bool:
        """Say whether etcd knows that all nodes have ended well in its generation."""
        kept = [self.store.items.get(f"/jobctl/me/sim/{name}") for name in ("generation", "over")]
        found = [json.loads(base64.b64decode(item.value)) for item in kept if item is not None]
        return len(found) == 2 and bool(found[0]["rendezvous"]["id"] == found[1]["generation"])

    def leases(self) -> list[str]:
        """The keys of nodes in etcd."""
        return [key for key in self.store.items if "/nodes/" in key]

    def supervise(self, machine: str) -> None:
        if self.watched:
            super().supervise(machine)
