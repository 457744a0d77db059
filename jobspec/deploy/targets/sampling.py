"""Asking the hosts of a job how busy they and their devices are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.host.asker import Asker
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.sample import HostSample, parse_sample
from jobctl.jobspec.deploy.targets.hosts import Hosts
from jobctl.jobspec.deploy.targets.local.deployer import Local
from jobctl.jobspec.deploy.transport.base import TIMEOUT, Transport, checked
from jobctl.jobspec.deploy.transport.fanout import fan_out
from jobctl.jobspec.deploy.transport.live_fanout import LiveFanOut
from jobctl.jobspec.deploy.transport.local import LocalTransport

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle

_WHAT = "read how busy it is"


class MachineSample:
    """A sample of this machine, taken when it is first asked for: it serves all jobs that run here."""

    def __init__(self) -> None:
        self._taken: HostSample | None = None

    def get(self, host: str) -> HostSample:
        """Return it; `host` is what jobs call this machine. Raises HostError."""
        if self._taken is None:
            self._taken = _sample(LocalTransport(host))
        return self._taken


class HostSamplers:
    """Takes samples of the hosts of one job again and again.

    `live`: a host that is silent delays no other. Otherwise each look waits for all.
    """

    def __init__(self, *, live: bool) -> None:
        self._live = LiveFanOut(str, 0.0) if live else None
        self._askers: dict[str, Asker] = {}

    def take(self, transports: Mapping[str, Transport]) -> Mapping[str, HostSample]:
        """Return a sample of each of the hosts that answers."""
        for host, transport in transports.items():
            kept = self._askers.get(host)
            if kept is None or kept.transport is not transport:
                self._askers[host] = Asker(transport, SCRIPTS.argv("sample", "answer"), _WHAT, TIMEOUT)
                if kept is not None:
                    kept.close()
        on = self._live.on_each if self._live else fan_out
        return on(list(transports), lambda host: _asked(self._askers[host])).done

    def close(self) -> None:
        """Let go of the channels to hosts."""
        for asker in self._askers.values():
            asker.close()


def _asked(asker: Asker) -> HostSample:
    said = asker.ask()
    return _sample(asker.transport) if said is None else _parsed(said)


def _sample(transport: Transport) -> HostSample:
    return _parsed(checked(transport, SCRIPTS.argv("sample"), _WHAT))


def _parsed(said: bytes) -> HostSample:
    return parse_sample(said.decode("utf-8", "replace"))


def sample_hosts(
    handle: Handle, hosts: Iterable[str], samplers: HostSamplers, here: MachineSample | None = None
) -> Mapping[str, HostSample]:
    """Return a sample of each of the hosts that answers; of none where hosts are not jobctl's to ask, as in a cluster.

    `samplers` are to be the same each time. `here`: who looks at several jobs at once takes one sample of this machine for
    all of them.
    """
    if isinstance(handle, Local):
        return fan_out(handle.places(), (here or MachineSample()).get).done
    if isinstance(handle, Hosts):
        jobs = handle.host_jobs
        return samplers.take({host: jobs[host].transport for host in hosts if host in jobs})
    return {}
