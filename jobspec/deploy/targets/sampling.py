"""Asking the hosts of a job how busy they and their devices are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.sample import HostSample, parse_sample
from jobctl.jobspec.deploy.targets.hosts import Hosts
from jobctl.jobspec.deploy.targets.local import Local
from jobctl.jobspec.deploy.transport.base import Transport, checked
from jobctl.jobspec.deploy.transport.fanout import fan_out
from jobctl.jobspec.deploy.transport.live_fanout import LiveFanOut
from jobctl.jobspec.deploy.transport.local import LocalTransport

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle


class MachineSample:
    """A sample of this machine, taken when it is first asked for: it serves all jobs that run here."""

    def __init__(self) -> None:
        self._taken: HostSample | None = None

    def get(self, host: str) -> HostSample:
        """Return it; `host` is what jobs call this machine. Raises HostError."""
        if self._taken is None:
            self._taken = _sample(LocalTransport(host))
        return self._taken


def sample_hosts(
    handle: Handle, hosts: Iterable[str], live: LiveFanOut | None = None, here: MachineSample | None = None
) -> Mapping[str, HostSample]:
    """Return a sample of each of the hosts that answers; of none where hosts are not jobctl's to ask, as in a cluster.

    With `live`, which is to be the same each time, a host that is silent delays no other. `here`: who looks at several jobs
    at once takes one sample of this machine for all of them.
    """
    if isinstance(handle, Local):
        return fan_out(handle.where(), (here or MachineSample()).get).done
    if isinstance(handle, Hosts):
        jobs = handle.host_jobs
        on = live.on if live else fan_out
        return on([host for host in hosts if host in jobs], lambda host: _sample(jobs[host].transport)).done
    return {}


def _sample(transport: Transport) -> HostSample:
    printed = checked(transport, SCRIPTS.argv("sample"), "read how busy it is")
    return parse_sample(printed.decode("utf-8", "replace"))
