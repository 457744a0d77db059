"""Sending data to hosts, which keep it between jobs.

A version of data is a folder of its own on a host, beside the work directories of jobs. Only files that its newest other
version does not have are sent; the others get a second name. All files are compared with their digests before they are a
version. A transfer that did not end leaves its files: the next one sends the rest. Nothing is ever changed, so a job that
runs reads what it was started with. The host where the folder is gets such a version too: what somebody changes in the
folder changes no job.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.host.tar import SLOW
from jobctl.jobspec.deploy.host.transfer_progress import TransferProgress
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.sending.data_folder import DataFileThere, DataFolder, DataThere, Shipment, lines
from jobctl.jobspec.deploy.sending.data_source import READ, STALL, DataSource, FolderHere, FolderOnHost, Rest
from jobctl.jobspec.deploy.store.data import DataFile
from jobctl.jobspec.deploy.transport.base import TIMEOUT
from jobctl.jobspec.launcher.telling.words import megabytes
from jobctl.jobspec.plan.sent import Dataset
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.host.host_job import HostJob

_BLOCK = 512  # bytes to which a tar file pads what is in it
_BATCH = 1_000_000_000  # bytes that a host copies before it is told of how far it is
_TRIES = 5  # times that another command may be quicker
_WORTH_TELLING = 1_000_000  # bytes of a transfer of which people want to know how far it is

Known = Mapping[bytes, tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Files of a version that have arrived on a host, those that it has in its newest other version, and those that it lacks."""

    arrived: frozenset[bytes]
    linked: frozenset[bytes]
    missing: Mapping[bytes, DataFile]

    def stale_parts(self, there: DataThere, rest: Rest | None) -> list[bytes]:
        """Return what an earlier transfer has left that is of no use."""
        used = self.arrived | ({rest.name} if rest is not None else set())
        return [name for name in there.incomplete if name not in used]


@dataclass(frozen=True)
class DataPackage:
    """One version of data, ready to be sent to any number of hosts."""

    data: Dataset
    source: DataSource

    @property
    def version(self) -> str:
        """What the version is called on hosts."""
        return self.data.version or "data"

    def send(self, host_job: HostJob, there: DataThere | None = None) -> None:
        """Put this version beside those that the host has. Raises HostError, also if there is no room for it.

        `there` is what it has, if that was looked at.
        """
        folder = DataFolder(host_job, self.data.name)
        for _ in range(_TRIES):
            if there is None and (there := self.look(host_job)) is None:
                return
            shipments = self._shipments(host_job, folder, there)
            stamp = self._deliver(host_job, folder, there, shipments)
            if stamp is not None and self.keep(host_job, frozenset(shipments[0].linked)):
                return
            there = None
        message = f"other commands send {self.data.place} at the same time"
        raise HostError(host_job.host.name, "data-busy", message, "`jobctl up` again when they have ended")

    def look(self, host_job: HostJob) -> DataThere | None:
        """Return what a host has of this version, None if it has all of it. Raises HostError."""
        folder = DataFolder(host_job, self.data.name)
        return None if folder.has(self.version) else folder.look(self._reading)

    def keep(self, host_job: HostJob, linked: frozenset[bytes]) -> bool:
        """Compare what has arrived, without what is `linked` from another version, and give it the version's name.

        Say whether that was done: not if another command has changed something meanwhile. Raises HostError if it differs.
        """
        folder = DataFolder(host_job, self.data.name)
        host_job.tell(f"{host_job.host.name} compares {self.data.name}")
        there = folder.look(self._reading, again=True)
        self._compare(host_job, there, linked)
        return folder.keep(self.version, there.stamp)

    def coverage(self, there: DataThere) -> Coverage:
        """Return what of this version a host has. Raises DeployError."""
        known = self.known
        arrived = frozenset(name for name, about in known.items() if _is(about, name, there.incomplete))
        linked = frozenset(name for name, about in known.items() if _is(about, name, there.kept)) - arrived
        return Coverage(
            arrived, linked, {one.name: one for one in self.source.files if one.name not in arrived | linked}
        )

    def _deliver(
        self, host_job: HostJob, folder: DataFolder, there: DataThere, shipments: Sequence[Shipment]
    ) -> str | None:
        """Send shipments; return the stamp of what is there then, None if another command was quicker."""
        size = sum(shipment.size for shipment in shipments)
        tell = host_job.tell if size >= _WORTH_TELLING else lambda text: None
        progress = TransferProgress(tell, f"{host_job.host.name} gets {self.data.name}", size)
        stamp: str | None = there.stamp
        for shipment in shipments:
            now = replace(there, stamp=stamp or "")
            if shipment.folder:  # the host copies by itself, and tells nothing meanwhile
                stamp = folder.receive(self.version, now, shipment, STALL + shipment.size / SLOW)
                progress.add(shipment.size)
            else:
                watched = replace(shipment, content=progress.watch(shipment.content))
                stamp = folder.receive(self.version, now, watched, STALL)
            if stamp is None:
                return None
        return stamp

    def _shipments(self, host_job: HostJob, folder: DataFolder, there: DataThere) -> list[Shipment]:
        """Return what of this version a host lacks, in one or more parts. Raises HostError if there is no room for it."""
        coverage = self.coverage(there)
        linked, missing = coverage.linked, dict(coverage.missing)
        own = self.folder_on(host_job)
        rest = None if own else self.rest([there], missing)
        if rest is not None:
            del missing[rest.name]
        size = archived(missing.values()) + (rest.size if rest else 0)
        stale = coverage.stale_parts(there, rest)
        room = there.room_without(stale)
        if room is not None and size > room and not (own and self._shares_blocks(folder, own, missing)):
            message = f"there is no room for {megabytes(size)} of data in {folder.top}: {megabytes(room)} are free"
            hint = "make room there; `jobctl data --hosts …` lists what is kept"
            raise HostError(host_job.host.name, "disk-full", message, hint)
        if not own:
            return [Shipment(linked, stale, rest, "", self.source.archive(missing, rest), size)]
        # All links in one part: what is added to begins without links.
        first, *others = _batches(sorted(missing.values(), key=lambda file: file.is_link))
        return [
            Shipment(linked, stale, None, own, [lines(first)], sum(first.values())),
            *(Shipment((), (), None, own, [lines(batch)], sum(batch.values())) for batch in others),
        ]

    def _shares_blocks(self, folder: DataFolder, own: str, missing: Mapping[bytes, DataFile]) -> bool:
        """Say whether copies of a host's own files take no room, as far as the largest one tells."""
        largest = max((file for file in missing.values() if not file.is_link), key=lambda file: file.size, default=None)
        return largest is not None and folder.shares_blocks_with(f"{own}/{os.fsdecode(largest.name)}")

    def rest(self, there: Sequence[DataThere], missing: Mapping[bytes, DataFile]) -> Rest | None:
        """Return what is missing of the largest file that has begun to arrive on all of these, if that is how the file begins."""
        begun = {name: [seen.incomplete.get(name) for seen in there] for name in there[0].incomplete if name in missing}
        sizes = {
            name: min(one.size if one and one.digest and one.size < missing[name].size else 0 for one in found)
            for name, found in begun.items()
        }
        size, name = max(((size, name) for name, size in sizes.items()), default=(0, b""))
        told = {(one.size, one.digest) for one in begun.get(name, ()) if one is not None}
        if size and all(self.source.digest_of_first(name, many) == digest for many, digest in told):
            file = missing[name]
            return Rest(name, size, file.size - size, file.kind, file.time_ns)
        return None

    def _compare(self, host_job: HostJob, there: DataThere, linked: frozenset[bytes]) -> None:
        """Raise HostError if something has not arrived as it was sent."""
        for name, about in self.known.items():
            if not _is(about, name, there.incomplete, linked=name in linked):
                message = f"what has arrived of {self.data.place} differs from what was sent: {os.fsdecode(name)}"
                hint = "was it changed meanwhile? `jobctl up` again sends it"
                raise HostError(host_job.host.name, "data-differs", message, hint)

    def folder_on(self, host_job: HostJob) -> str:
        """Return the folder itself if it is on the host that is to get it, nothing otherwise."""
        source = self.source
        return source.folder if isinstance(source, FolderOnHost) and source.transport is host_job.transport else ""

    @property
    def size(self) -> int:
        """How many bytes all files have. Raises DeployError."""
        return sum(file.size for file in self.source.files)

    @property
    def _reading(self) -> float:
        """The seconds in which a host reads all of them."""
        return TIMEOUT + self.size / READ

    @property
    def known(self) -> Known:
        """Return kind and digest of each file that is no link. Raises DeployError if one cannot be read, or is another."""
        source = self.source
        if isinstance(source, FolderOnHost) and source.version != self.version:
            # It did not answer when the version was asked for, so that of the running job counts.
            message = f"{source.folder} has changed since the job was started with it"
            raise HostError(str(source.host), "data-differs", message, "`jobctl up` again sends what is there now")
        known = source.known
        for file in source.files:
            if not file.is_link and not known.get(file.name, (0, ""))[1]:
                hint = "make it readable, or move it away; `jobctl up` again sends it"
                raise DeployError(f"cannot read {self.data.place}/{os.fsdecode(file.name)}", hint)
        return known


def pack_data(data: Iterable[Dataset], on_host: Callable[[Dataset], FolderOnHost]) -> tuple[DataPackage, ...]:
    """Return data as packages; `on_host` returns the folder of data that is on a host.

    Raises DeployError for a folder that should be on this machine, and is not.
    """
    return tuple(DataPackage(one, FolderHere(one) if one.host is None else on_host(one)) for one in data)


def _batches(files: Iterable[DataFile]) -> list[dict[bytes, int]]:
    """Return files, each with its size, in parts that a host copies in seconds or minutes; at least one part."""
    found: list[dict[bytes, int]] = [{}]
    left = _BATCH
    for file in files:
        if file.size > left and found[-1]:
            found.append({})
            left = _BATCH
        found[-1][file.name] = file.size
        left -= file.size
    return found


def _is(about: tuple[int, str], name: bytes, files: Mapping[bytes, DataFileThere], *, linked: bool = False) -> bool:
    """Say whether a host has a file as it is in the folder; the content of one that is `linked` was looked at before."""
    found = files.get(name)
    return found is not None and found.kind == about[0] and (linked or found.digest == about[1])


def archived(files: Iterable[DataFile]) -> int:
    """Return how many bytes files need in a tar file, and about as many on a disk."""
    return sum(_BLOCK + -(-file.size // _BLOCK) * _BLOCK for file in files)
