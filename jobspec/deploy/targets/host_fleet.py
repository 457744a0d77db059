"""The hosts of a job whose nodes are containers: how they are reached, locked and followed, and whose data they have."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Literal

from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.lock import Held, hold_on
from jobctl.jobspec.deploy.model.control import kept_control, newest
from jobctl.jobspec.deploy.model.errors import may_be_gone
from jobctl.jobspec.deploy.model.host_state import control_of
from jobctl.jobspec.deploy.model.inventory import Inventory, SshOptions
from jobctl.jobspec.deploy.model.liveness import FailureDetector
from jobctl.jobspec.deploy.sending.data_source import FolderOnHost
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.targets.fleet import Fleet
from jobctl.jobspec.deploy.targets.job_on_host import Followed, Together
from jobctl.jobspec.deploy.transport.base import Transport
from jobctl.jobspec.deploy.transport.descriptors import make_room
from jobctl.jobspec.deploy.transport.fanout import H, Outcome, T, fan_out
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.deploy.transport.ssh import Ssh
from jobctl.jobspec.plan.homes import homes_of
from jobctl.jobspec.plan.sent import Dataset
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.spec.hosts import Host


def transport_to(host: Host, options: SshOptions, met: Callable[[], None] = lambda: None) -> Transport:
    """Return the connection to a host, not open yet. `met` is called each time that it is opened."""
    return LocalTransport(host.name) if host.local else Ssh(host, options, met)


class HostFleet(Fleet[HostJob]):
    """A fleet whose hosts are reached over connections, as are others that have data for the job."""

    def __init__(
        self,
        job: JobDir,
        inventory: Inventory,
        host_jobs: Iterable[HostJob],
        together: Together[HostJob],
        plan: Plan | None,
        met: Container[str],
    ) -> None:
        super().__init__(job, inventory, host_jobs, together, plan)
        self._met = met  # hosts that were reached
        self._others: dict[str, Transport] = {}  # hosts beside the job's that have data for it
        self._folders: dict[str, FolderOnHost] = {}  # data on hosts, which is looked at once

    def close(self) -> None:
        """Close all connections."""
        super().close()
        for transport in self._others.values():
            transport.close()

    def note_unmet(self) -> None:
        """Keep which hosts are new to the job, and have never been reached: nothing of it is there.

        If another state directory has brought the job up, anything may be there.
        """
        kept = self.job.inventory()
        if kept is None and any(one.there or one.containers for one in self.seen.values()):
            return
        known = {*control_of(self.seen, self.known).placement.values()}
        known |= {host.name for host in kept.hosts} if kept is not None else set()
        away = {host for host, error in self.down.items() if may_be_gone(error)}
        self.job.note_unmet(host for host in away if host not in known and host not in self._met)

    def moved_from(self, host: str) -> frozenset[int]:
        """Return the nodes whose home is another host than `host`.

        Their home is where the newest generation has them, also one that this machine alone knows of, or the plan. Where
        neither is known, it is the first host with a folder of it.
        """
        seen = [(name, self.seen[name]) for name in self.host_jobs if name in self.seen]
        homes = {node: name for name, one in reversed(seen) for node in one.directories}
        planned = homes_of(self.plan)
        control = newest([kept_control(*self.job.kept_run()[:2]), *([self.known] if self.known else [])])
        placed = {**planned, **control.placement}
        homes |= {node: name for node, name in placed.items() if name in self.host_jobs}
        return frozenset(node for node, name in homes.items() if name != host)

    def folder_of(self, data: Dataset) -> FolderOnHost:
        """Return the folder of data that is on a host."""
        assert data.host is not None
        return self._folders.setdefault(data.place, FolderOnHost(self._connection(data.host), data.source))

    def _connection(self, name: str) -> Transport:
        """Return the connection to a host that has data, NAME or USER@NAME: one of the job's, or as SSH's configuration says."""
        user, _, host = name.rpartition("@")
        known = self.host_jobs.get(host)
        if known is not None and user in ("", known.host.user):
            return known.transport
        if name not in self._others:
            listed = (one for one in self.inventory.others if one.name == host and user in ("", one.user))
            there = next(listed, Host(host.strip("[]"), user=user or None))
            self._others[name] = transport_to(there, self.inventory.ssh)
        return self._others[name]


class ManyHosts:
    """Hosts that fail one by one, and that others reach too."""

    keeps_run = True

    def on_each(self, hosts: Iterable[H], task: Callable[[H], T]) -> Outcome[H, T]:
        """Do `task` for all hosts side by side; every one is tried, whatever happens to the others."""
        return fan_out(hosts, task)

    def lock(
        self, host_jobs: Sequence[HostJob], command: str, *, break_it: bool, stay: bool
    ) -> AbstractContextManager[Held]:
        """Hold the job's lock on all hosts that can be reached."""
        return hold_on(host_jobs, "lock", command, break_it=break_it, stay=stay)

    def following(self, job: JobDir, host_jobs: Sequence[HostJob], detector: FailureDetector) -> Followed:
        """Return what follows hosts, in the name of this machine and its state directory."""
        from jobctl.jobspec.deploy.host.watch import Following

        return Following(host_jobs, detector, job.id)


def host_fleet(
    job: JobDir,
    target: Literal["compose", "ssh"],
    inventory: Inventory,
    plan: Plan | None,
    tell: Callable[[str], None],
) -> HostFleet:
    """Return the hosts of a job whose nodes are containers; `tell` gets a sentence about whatever takes long.

    Raises DeployError if there are more hosts than this process may be connected to.
    """
    make_room(sum(not host.local for host in inventory.hosts))
    met: set[str] = set()

    def meet(host: str) -> None:
        met.add(host)
        job.meet(host)

    ways = ((host, transport_to(host, inventory.ssh, partial(meet, host.name))) for host in inventory.hosts)
    made = (HostJob(host, way, job.name, target, tell) for host, way in ways)
    return HostFleet(job, inventory, made, ManyHosts(), plan, met)
