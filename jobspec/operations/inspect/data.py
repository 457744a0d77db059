"""The data that hosts keep between jobs: which there is, and removing it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Failures
    from jobctl.jobspec.deploy.host.host_job import HostJob
    from jobctl.jobspec.deploy.sending.kept_data import KeptData
    from jobctl.jobspec.operations.resolve.job import Reached


@dataclass(frozen=True, slots=True)
class DataOnHosts:
    """The data of each host that answered, and the hosts that did not."""

    hosts: Mapping[str, Sequence[KeptData]]
    failed: Failures


class DataHosts:
    """The hosts of a hosts file, whose data is listed and removed."""

    def __init__(self, hosts: Path, reached: Reached) -> None:
        from jobctl.jobspec.operations.inspect.listing import hosts_of_file

        self.host_jobs = hosts_of_file(hosts, reached)

    def list(self) -> DataOnHosts:
        """Return the data on all hosts."""
        from jobctl.jobspec.deploy.sending.kept_data import kept_data

        return self._on_all(kept_data, self.host_jobs)

    def remove(self, chosen: Mapping[str, Sequence[KeptData]]) -> DataOnHosts:
        """Remove the chosen data of hosts; return what is gone. Data that a job has got since is kept."""
        from jobctl.jobspec.deploy.sending.kept_data import kept_data, remove_data

        def remove(host_job: HostJob) -> Sequence[KeptData]:
            wanted = {one.path for one in chosen[host_job.host.name]}
            going = [one for one in kept_data(host_job) if one.path in wanted and not one.jobs]
            if going:
                remove_data(host_job, going)
            return going

        return self._on_all(remove, [host for host, data in chosen.items() if data])

    def _on_all(
        self, ask: Callable[[HostJob], Sequence[KeptData]], hosts: Sequence[str] | Mapping[str, HostJob]
    ) -> DataOnHosts:
        from jobctl.jobspec.deploy.transport.fanout import failures_of, fan_out

        outcome = fan_out([self.host_jobs[host] for host in hosts], ask)
        done = {host_job.host.name: data for host_job, data in outcome.done.items()}
        return DataOnHosts({host: done[host] for host in self.host_jobs if host in done}, failures_of(outcome))


def choose(found: DataOnHosts, names: Sequence[str]) -> dict[str, list[KeptData]]:
    """Return the data that names mean, by host: NAME, or NAME/VERSION; without names all data that no job has.

    Raises Refused for a name that no host has, and for data that a job has.
    """
    every = [one for data in found.hosts.values() for one in data]
    for name in names:
        meant = [one for one in every if name in (one.name, one.path)]
        if not meant:
            where = "the hosts that answer" if found.failed else "these hosts"
            hint = "`jobctl data` without names shows what there is"
            raise Refused(f"no data `{name}` is on {where}", hint, failures=found.failed)
        if jobs := sorted({job for one in meant for job in one.jobs}):
            raise Refused(
                f"job `{jobs[0]}` has data `{name}`", f"`jobctl down {jobs[0]}` first, where that was brought up"
            )
    return {
        host: [one for one in data if not one.jobs and (not names or one.name in names or one.path in names)]
        for host, data in found.hosts.items()
    }
