"""How a job's hosts are reached: kept with the job, so that later commands need only its name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from jobctl.jobspec.plan.serial import load
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.hosts import Host


@dataclass(frozen=True, slots=True)
class SshOptions:
    """The file to read instead of the user's SSH configuration, and whether unknown host keys are accepted."""

    config: Path | None = None
    accept_new: bool = False


@dataclass(frozen=True, slots=True)
class Inventory:
    """All hosts of a job's hosts file (spares too), and SSH's options.

    `left` names hosts that are in the file no more. The job may still run on them, but no node is to move there. `others`
    take no part in the job; data may come from them. They are not kept.
    """

    hosts: tuple[Host, ...]
    ssh: SshOptions = SshOptions()
    left: tuple[str, ...] = ()
    others: tuple[Host, ...] = ()

    def with_hosts(self, others: tuple[Host, ...]) -> Inventory:
        """Return this with those of `others` that it does not know: a job may still run on them."""
        known = {host.name for host in self.hosts}
        more = tuple(host for host in others if host.name not in known)
        return Inventory((*self.hosts, *more), self.ssh, (*self.left, *(host.name for host in more)), self.others)

    def where_job_is(self, known: Iterable[Host]) -> Inventory:
        """Return this with the places of hosts on which the job is known to be: what a hosts file says now moves no files."""
        before = {host.name: host for host in known}
        return replace(self, hosts=tuple(_in_place_of(before.get(host.name), host) for host in self.hosts))


def _in_place_of(before: Host | None, host: Host) -> Host:
    if before is None or before.place == host.place:
        return host
    return replace(host, dir=before.dir, docker=before.docker, user=before.user if before.at_home else host.user)


def dump_inventory(inventory: Inventory) -> dict[str, Any]:
    """Return `inventory` as plain data."""
    config = inventory.ssh.config
    return {
        "hosts": [asdict(host) for host in inventory.hosts],
        "ssh_config": str(config.absolute()) if config else None,
        "accept_new": inventory.ssh.accept_new,
        "left": list(inventory.left),
    }


def load_inventory(data: object) -> Inventory:
    """Return what `dump_inventory` wrote. Raises ValueError for what it has not."""
    kept = load(_Kept, data)
    return Inventory(
        kept.hosts, SshOptions(Path(kept.ssh_config) if kept.ssh_config else None, kept.accept_new), kept.left
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    """An Inventory as `dump_inventory` writes it."""

    hosts: tuple[Host, ...]
    ssh_config: str | None
    accept_new: bool
    left: tuple[str, ...] = ()
