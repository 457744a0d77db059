"""How a job's hosts are reached: kept with the job, so that later commands need only its name."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jobctl.jobspec.spec.hosts import Host


@dataclass(frozen=True, slots=True)
class SshOptions:
    """The file to read instead of the user's SSH configuration, and whether unknown host keys are accepted."""

    config: Path | None = None
    accept_new: bool = False


@dataclass(frozen=True, slots=True)
class Reach:
    """All hosts of a job's hosts file (spares too), and SSH's options."""

    hosts: tuple[Host, ...]
    ssh: SshOptions = SshOptions()

    def with_hosts(self, others: tuple[Host, ...]) -> Reach:
        """Return this with those of `others` that it does not know: a job may still run on them."""
        known = {host.name for host in self.hosts}
        return Reach((*self.hosts, *(host for host in others if host.name not in known)), self.ssh)


def dump_reach(reach: Reach) -> dict[str, Any]:
    """Return `reach` as plain data."""
    config = reach.ssh.config
    return {
        "hosts": [asdict(host) for host in reach.hosts],
        "ssh_config": str(config.absolute()) if config else None,
        "accept_new": reach.ssh.accept_new,
    }


def load_reach(data: dict[str, Any]) -> Reach:
    """Return what `dump_reach` wrote."""
    config = data["ssh_config"]
    return Reach(
        tuple(_host(host) for host in data["hosts"]), SshOptions(Path(config) if config else None, data["accept_new"])
    )


def _host(data: dict[str, Any]) -> Host:
    devices = data["devices"]
    return Host(**{**data, "devices": None if devices is None else tuple(devices), "roles": tuple(data["roles"])})
