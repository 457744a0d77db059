"""Sending data to hosts, which keep it between jobs.

A version of data is a folder of its own on a host, beside the work directories of jobs. Only files that its newest other
version does not have are sent, and compared with their digests there; the others get a second name. Nothing is ever
changed, so a job that runs reads what it was started with. The host where the folder is gets such a version too: what
somebody changes in the folder changes no job.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.host.data_source import READ, DataSource, FolderHere, FolderOnHost
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.host.tar import SLOW, parse_listing
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.store.data import DataFile
from jobctl.jobspec.deploy.transport.base import TIMEOUT, checked
from jobctl.jobspec.plan.sent import Dataset
from jobctl.jobspec.render.container import DATA

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.host.host_job import HostJob

_BLOCK = 512  # bytes to which a tar file pads what is in it


@dataclass(frozen=True)
class DataPackage:
    """One version of data, ready to be sent to any number of hosts."""

    data: Dataset
    source: DataSource

    def send(self, host_job: HostJob) -> None:
        """Put this version beside those that the host has. Raises HostError, also if there is no room for it."""
        top, version = str(host_job.work.parent / DATA / self.data.name), self.data.version or "data"
        if checked(host_job.transport, SCRIPTS.argv("has_data", top, version), f"look for data in {top}"):
            return
        size = sum(file.size for file in self.source.files)
        argv = SCRIPTS.argv("list_data", top)
        answer = checked(host_job.transport, argv, f"look for data in {top}", timeout=TIMEOUT + size / READ)
        free, _, answer = answer.partition(b"\n")
        base, _, listing = answer.partition(b"\n")
        there = parse_listing(listing) if base else {}
        known = self._known()
        same = {name for name, about in known.items() if there.get(name) == about}
        missing = {file.name: file for file in self.source.files if file.name not in same}
        size_missing = _archived(missing.values())
        _see_room(host_job, top, size_missing, free)
        names = _lines(same)
        sums = b"".join(_sum(name, known[name][1]) for name in sorted(missing) if name in known)
        folder = self._folder_on(host_job)
        argv = SCRIPTS.argv("send_data", top, version, os.fsdecode(base), str(len(names)), str(len(sums)), folder)
        if size_missing >= 1_000_000:
            host_job.tell(f"{host_job.host.name}: sending {size_missing / 1e6:.0f} MB of data ({self.data.name})")
        content = [_lines(missing)] if folder else self.source.archive(missing)
        stdin, timeout = chain([names, sums], content), TIMEOUT + size / SLOW
        checked(host_job.transport, argv, f"write data into {top}", stdin, timeout=timeout)

    def _folder_on(self, host_job: HostJob) -> str:
        """Return the folder itself if it is on the host that is to get it, nothing otherwise."""
        source = self.source
        return source.folder if isinstance(source, FolderOnHost) and source.transport is host_job.transport else ""

    def _known(self) -> dict[bytes, tuple[int, str]]:
        """Return kind and digest of each file that is no link. Raises DeployError if one cannot be read."""
        known = self.source.known
        for file in self.source.files:
            if not file.is_link and not known.get(file.name, (0, ""))[1]:
                hint = "make it readable, or move it away; `jobctl up` again sends it"
                raise DeployError(f"cannot read {self.data.place}/{os.fsdecode(file.name)}", hint)
        return known


def pack_data(data: Iterable[Dataset], on_host: Callable[[Dataset], FolderOnHost]) -> tuple[DataPackage, ...]:
    """Return data as packages; `on_host` returns the folder of data that is on a host.

    Raises DeployError for a folder that should be on this machine, and is not.
    """
    return tuple(DataPackage(one, FolderHere(one) if one.host is None else on_host(one)) for one in data)


def _lines(names: Collection[bytes]) -> bytes:
    return b"".join(name + b"\0" for name in sorted(names))


def _archived(files: Iterable[DataFile]) -> int:
    """Return how many bytes files need in a tar file, and about as many on a disk."""
    return sum(_BLOCK + -(-file.size // _BLOCK) * _BLOCK for file in files)


def _see_room(host_job: HostJob, top: str, size: int, free: bytes) -> None:
    """Raise HostError if so many bytes are more than the host has left."""
    if free.strip().isdigit() and size > int(free) * 1024:
        message = f"there is no room for {size / 1e6:.0f} MB of data in {top}: {int(free) / 1e3:.0f} MB are free"
        raise HostError(host_job.host.name, "disk-full", message, "make room there; `jobctl data` lists what is kept")


def _sum(name: bytes, digest: str) -> bytes:
    """Return a line for `sha256sum -c`, which escapes names with a backslash or a line break."""
    escaped = name.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
    return (b"\\" if escaped != name else b"") + digest.encode() + b"  ./" + escaped + b"\n"
