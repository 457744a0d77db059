"""The logs of a job on its hosts, read over the connections that are open anyway.

By hand, as rsync or a log shipper would have to be installed on each host, and read whole files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.logs.files import LogKey, Size, Want, is_of_node
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.model.untrusted import number_in
from jobctl.jobspec.deploy.transport.base import checked
from jobctl.jobspec.deploy.transport.fanout import failures_of, fan_out
from jobctl.jobspec.deploy.transport.live_fanout import LiveFanOut

RETRY_AFTER = 5.0  # seconds after which a host that fell silent is asked again


class HostLogs:
    """Where the logs of a job on hosts are read. `problems` says why the last read of a host failed.

    `homes` returns the hosts that have nodes, as last seen: while logs are followed, nodes move, and come. One that had some
    is read on.
    """

    interval = 0.3

    def __init__(self, homes: Callable[[], Iterable[HostJob]]) -> None:
        self._homes = homes
        self.host_jobs: dict[str, HostJob] = {}
        self.problems: dict[str, DeployError] = {}
        self._live = LiveFanOut(lambda host_job: str(host_job.host.name))
        self._again: dict[str, float] = {}
        self._files: dict[str, dict[LogKey, Size]] = {}

    @property
    def listed(self) -> Collection[str]:
        """The hosts whose files `files` has returned the last time."""
        return self._files.keys() - self.problems.keys()

    def files(self, *, live: bool = False) -> Mapping[LogKey, Size]:
        """Return all files below the nodes' `logs` and `processes` on all hosts that answer; `live`: soon."""
        self.host_jobs |= {host_job.host.name: host_job for host_job in self._homes()}
        now = time.monotonic()
        asked = [host_job for host, host_job in self.host_jobs.items() if self._again.get(host, 0.0) <= now]
        outcome = (self._live.on_each if live else fan_out)(asked, self._list)
        for host_job, found in outcome.done.items():
            self._files[host_job.host.name] = found
            self.problems.pop(host_job.host.name, None)
        self.problems |= failures_of(outcome)
        return {
            key: size for host, found in self._files.items() if host not in self.problems for key, size in found.items()
        }

    def read(self, wants: Sequence[Want]) -> Mapping[Want, bytes]:
        """Return what was wanted of the hosts that answer."""
        hosts = {want.key.host for want in wants}
        parts = {host: [want for want in wants if want.key.host == host and want.count > 0] for host in hosts}
        outcome = fan_out(
            [self.host_jobs[host] for host in sorted(hosts) if parts[host]],
            lambda host_job: _read(host_job, parts[host_job.host.name]),
        )
        for host, error in failures_of(outcome).items():
            self.problems[host] = error
            self._again[host] = time.monotonic() + RETRY_AFTER
        return {want: data for found in outcome.done.values() for want, data in found.items()}

    def _list(self, host_job: HostJob) -> dict[LogKey, Size]:
        try:
            return _list(host_job)
        except DeployError:  # at least it was tried: one that is only slow is still being asked
            self._again[host_job.host.name] = time.monotonic() + RETRY_AFTER
            raise


def _list(host_job: HostJob) -> dict[LogKey, Size]:
    text = checked(host_job.transport, SCRIPTS.argv("list_logs", str(host_job.work)), "list its logs")
    found = {}
    for line in text.decode(errors="surrogateescape").split("\n"):
        size, _, rest = line.partition(" ")
        written, _, name = rest.partition(" ")
        count, seconds, path = number_in(size), number_in(written), PurePosixPath(name)
        # A file whose name has several lines is none that a launcher has made; nor is one beside the nodes' folders.
        if count is not None and seconds is not None and is_of_node(path):
            found[LogKey(host_job.host.name, path)] = Size(count, float(seconds))
    return found


def _read(host_job: HostJob, wants: Sequence[Want]) -> dict[Want, bytes]:
    words = [word for want in wants for word in (str(want.key.path), str(want.offset), str(want.count))]
    data = checked(host_job.transport, SCRIPTS.argv("read_logs", str(host_job.work), *words), "read its logs")
    found, at = {}, 0
    for want in wants:
        part = data[at : at + want.count]
        at += want.count
        if len(part) == want.count:
            found[want] = part
    return found
