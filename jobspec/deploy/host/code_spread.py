"""Bringing much code to many hosts at once: it leaves this machine once, and hosts hand it on (handing_on.py).

Only files that some of these hosts lack travel. Little code is sent to each host by itself, which is quicker, and so is what
does not get there this way: where there is no Python on a host, or no way between hosts.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from jobctl.jobspec.deploy.host.handing_on import ArchiveSource, HandingOn
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.image_copy import HERE
from jobctl.jobspec.deploy.host.send_code import CodeThere, Package
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.transport.fanout import fan_out
from jobctl.jobspec.deploy.transport.local import LocalTransport

MUCH = 32_000_000  # bytes from which on hosts hand code on


def spread_code(package: Package, host_jobs: Iterable[HostJob]) -> dict[str, CodeThere]:
    """Bring a version of the code to hosts, as far as they can hand it on.

    Return what hosts have of it, by their names, where that was looked at and nothing was sent.
    """
    jobs = {job.host.name: job for job in host_jobs if not isinstance(job.transport, LocalTransport)}
    if sum(file.size for file in package.files) < MUCH or len(jobs) < 2:
        return {}
    there = {name: seen for name, seen in fan_out(jobs, lambda name: package.look(jobs[name])).done.items() if seen}
    if len(there) < 2:
        return there
    parcel = package.parcel(frozenset.intersection(*(seen.same for seen in there.values())))
    if parcel.tar.size < MUCH:
        return there

    def load(job: HostJob) -> tuple[list[str], bytes]:
        return package.argv(job, there[job.host.name].base, parcel), parcel.names

    source = ArchiveSource(
        HERE, None, [], frozenset(), lambda: iter(parcel.tar), size=parcel.tar.size, keep="code", load=load
    )
    with suppress(DeployError):  # what is wrong shows where hosts get the code by themselves
        lost = HandingOn("the code", source, {name: jobs[name] for name in there}).run()
        for name, why in lost.items():
            jobs[name].tell(f"{name} cannot take the code from other hosts: {why}")
    return {}
