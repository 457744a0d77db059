"""Connections to hosts of the fleet, with other settings on either side."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import SshOptions
from jobctl.jobspec.deploy.transport.ssh import Ssh
from jobctl.jobspec.spec.hosts import Host
from tests.fleet.fleet import Fleet
from tests.fleet.host import Host as FleetHost


def ssh(fleet: Fleet, name: str = "h1", **how: Any) -> Ssh:
    options = SshOptions(how.pop("config", fleet.ssh_config), how.pop("accept_new", False))
    return Ssh(Host(name, **how), options)


def config(fleet: Fleet, tmp_path: Path, **changes: str) -> Path:
    """Return an ssh configuration like the fleet's, with other values for some of its keys."""
    lines = []
    for line in fleet.ssh_config.read_text().splitlines():
        key = line.split()[0] if line.split() else ""
        lines.append(f"  {key} {changes[key]}" if key in changes else line)
    more = [f"  {key} {value}" for key, value in changes.items() if key not in fleet.ssh_config.read_text()]
    path = tmp_path / "ssh_config"
    path.write_text("\n".join(["Host *", *more, *lines]) + "\n")
    return path


def refused(transport: Ssh) -> tuple[str, str]:
    with pytest.raises(HostError) as caught:
        transport.run(["true"])
    assert caught.value.hint
    return caught.value.code, caught.value.message


@contextlib.contextmanager
def sshd(host: FleetHost, *options: str) -> Iterator[None]:
    """Have a host's sshd run with other options."""
    host.kill_sshd()
    host.sshd_options = options
    host.start_sshd()
    try:
        yield
    finally:
        host.kill_sshd()
        host.sshd_options = ()
        host.start_sshd()
