"""Bringing much code to hosts that lack it: from hosts that have it, or once from this machine, and hosts hand it on (handing_on.py).

Only files that some of these hosts lack travel. Little code is sent to each host by itself, which is quicker, and so is what
does not get there this way: where there is no Python on a host, or no way between hosts. Containers may write where the code
is. So a host gives only files that are still as they were sent, and those that take them compare their digests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from jobctl.jobspec.deploy.host.handing_on import ArchiveSource, HandingOn
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.images.copy import HERE
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.sending.data_source import FolderOnHost
from jobctl.jobspec.deploy.sending.send_code import CodeThere, Package, Parcel
from jobctl.jobspec.deploy.transport.fanout import fan_out
from jobctl.jobspec.deploy.transport.local import LocalTransport

MUCH = 32_000_000  # bytes from which on hosts hand code on
MAX_DIRECT_BYTES = 1_000_000  # bytes that come from this machine beside what a host gives


def spread_code(
    package: Package, host_jobs: Iterable[HostJob], others: Iterable[HostJob] = ()
) -> Mapping[str, CodeThere]:
    """Bring a version of the code to hosts, as far as they can hand it on; `others` need none, and may have it.

    Return what hosts have of it, by their names, where that was looked at and nothing was sent.
    """
    jobs = _remote(host_jobs)
    every = {**_remote(others), **jobs}
    if sum(file.size for file in package.files) < MUCH or len(every) < 2:
        return {}
    seen = fan_out(jobs, lambda name: package.look(jobs[name])).done
    there = {name: found for name, found in seen.items() if found is not None}
    if not there or package.parcel(_shared(there)).tar.size < MUCH:
        return there
    asked = fan_out([name for name in every if name not in there], lambda name: package.is_on(every[name])).done
    return _Spread(package, every).bring(there, [name for name, has_it in asked.items() if has_it])


class _Spread:
    """Brings one version of the code to some of the hosts."""

    def __init__(self, package: Package, jobs: Mapping[str, HostJob]) -> None:
        self._package, self._jobs = package, jobs

    def bring(self, there: Mapping[str, CodeThere], having: Iterable[str]) -> Mapping[str, CodeThere]:
        """Bring it to those hosts that lack some of it; return what they have where nothing was sent."""
        lacking = dict(there)
        for name in (*having, HERE):
            if len(lacking) < (2 if name == HERE else 1):
                break
            with suppress(DeployError):  # what is wrong shows where hosts get the code by themselves
                lacking = self._round(name, lacking)
        return lacking if len(lacking) == len(there) else {}

    def _round(self, source: str, lacking: Mapping[str, CodeThere]) -> dict[str, CodeThere]:
        """Let hosts take it from a source; return those that may take it from another one."""
        same = _shared(lacking)
        given = frozenset[bytes]() if source == HERE else self._given(source, same)
        parcel = self._package.parcel(same, given)
        if source != HERE and parcel.tar.size > MAX_DIRECT_BYTES:
            return dict(lacking)
        transfer = HandingOn(
            "the code", self._source(source, parcel, lacking), {name: self._jobs[name] for name in lacking}
        )
        lost = transfer.run()
        for name, why in lost.items():
            self._jobs[name].tell(f"{name} cannot take the code from other hosts: {why}")
        return {name: lacking[name] for name in lost if name not in transfer.unable | transfer.silent}

    def _source(self, name: str, parcel: Parcel, lacking: Mapping[str, CodeThere]) -> ArchiveSource:
        """Return the code as it comes from this machine, or from a host: then the host's files come last."""
        ours = b"" if name == HERE else b"".join(parcel.tar)

        def load(job: HostJob) -> tuple[list[str], bytes]:
            argv = self._package.argv(job, lacking[job.host.name].base, parcel)
            return argv, parcel.names + parcel.sums + ours

        if name == HERE:
            size = parcel.tar.size
            return ArchiveSource(HERE, None, [], None, lambda: iter(parcel.tar), "", size, "code", load)
        save, given = self._folder(name).command(parcel.given, None)
        size = sum(file.size for file in self._package.files)
        job = self._jobs[name]
        return ArchiveSource(name, job, save, None, lambda: iter(()), "", size, "code", load, given)

    def _given(self, name: str, same: frozenset[bytes]) -> frozenset[bytes]:
        """Return the files beside the `same` that a host has as they were sent."""
        there = self._folder(name).sums()  # what runs there may change other files meanwhile
        known = self._package.known.items()
        return frozenset(one for one, about in known if one not in same and there.get(one) == about)

    def _folder(self, name: str) -> FolderOnHost:
        return FolderOnHost(self._jobs[name].transport, self._package.folder(self._jobs[name]))


def _remote(host_jobs: Iterable[HostJob]) -> dict[str, HostJob]:
    return {job.host.name: job for job in host_jobs if not isinstance(job.transport, LocalTransport)}


def _shared(there: Mapping[str, CodeThere]) -> frozenset[bytes]:
    """Return the files that all of these hosts have."""
    return frozenset.intersection(*(seen.same for seen in there.values()))
