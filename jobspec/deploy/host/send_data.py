"""Sending data to hosts, which keep it between jobs.

A version of data is a folder of its own on a host, beside the work directories of jobs. Only files that its newest other
version does not have are sent, and compared with their digests there; the others get a second name. Nothing is ever
changed, so a job that runs reads what it was started with.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.host.tar import SLOW, Tar, known_of, parse_listing
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.store.code import File
from jobctl.jobspec.deploy.store.data import files_of
from jobctl.jobspec.deploy.transport.base import TIMEOUT, checked
from jobctl.jobspec.plan.sent import Dataset
from jobctl.jobspec.render.container import DATA

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.host.host_job import HostJob

_READ = 100_000_000  # bytes of which the slowest host computes digests in a second


@dataclass
class DataPackage:
    """One version of data, ready to be sent to any number of hosts."""

    data: Dataset
    files: tuple[File, ...]
    _known: dict[bytes, tuple[int, str]] | None = None
    _lock: Lock = field(default_factory=Lock)

    @property
    def known(self) -> dict[bytes, tuple[int, str]]:
        """Kind and SHA-256 of each plain file, by its name. All files are read for it, once, if a host lacks the version."""
        with self._lock:
            if self._known is None:
                self._known = known_of(self.files)
            return self._known

    def send(self, host_job: HostJob) -> None:
        """Put this version beside those that the host has. Raises HostError, also if there is no room for it."""
        top, version = str(host_job.work.parent / DATA / self.data.name), self.data.version or "data"
        size = sum(file.size for file in self.files)
        argv = SCRIPTS.argv("list_data", top, version)
        answer = checked(host_job.transport, argv, f"look for data in {top}", timeout=TIMEOUT + size / _READ)
        if answer.startswith(b"here"):
            return
        free, _, answer = answer.partition(b"\n")
        base, _, listing = answer.partition(b"\n")
        there = parse_listing(listing) if base else {}
        same = {name for name, known in self.known.items() if there.get(name) == known}
        tar = Tar([file for file in self.files if os.fsencode(file.name) not in same])
        _see_room(host_job, top, tar.size, free)
        names = b"".join(name + b"\0" for name in sorted(same))
        sums = b"".join(_sum(name, digest) for name, (_, digest) in sorted(self.known.items()) if name not in same)
        argv = SCRIPTS.argv("send_data", top, version, os.fsdecode(base), str(len(names)), str(len(sums)))
        if tar.size >= 1_000_000:
            host_job.tell(f"{host_job.host.name}: sending {tar.size / 1e6:.0f} MB of data ({self.data.name})")
        stdin, timeout = chain([names, sums], tar), TIMEOUT + size / SLOW
        checked(host_job.transport, argv, f"write data into {top}", stdin, timeout=timeout)


def pack_data(data: tuple[Dataset, ...]) -> tuple[DataPackage, ...]:
    """Return data as packages. Raises DeployError for a folder that is not on this machine."""
    return tuple(DataPackage(one, files_of(one)) for one in data)


def _see_room(host_job: HostJob, top: str, size: int, free: bytes) -> None:
    """Raise HostError if so many bytes are more than the host has left."""
    if free.strip().isdigit() and size > int(free) * 1024:
        message = f"there is no room for {size / 1e6:.0f} MB of data in {top}: {int(free) / 1e3:.0f} MB are free"
        raise HostError(host_job.host.name, "disk-full", message, "make room there; `jobctl data` lists what is kept")


def _sum(name: bytes, digest: str) -> bytes:
    """Return a line for `sha256sum -c`, which escapes names with a backslash or a line break."""
    escaped = name.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
    return (b"\\" if escaped != name else b"") + digest.encode() + b"  ./" + escaped + b"\n"
