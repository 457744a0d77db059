"""Bringing much data to many hosts at once: it leaves the one that has it once, and hosts hand it on (handing_on.py).

Only files that these hosts lack travel. A host puts them where a transfer to it alone would, so each of the two ways goes on
where the other one has ended. Little data is sent to each host by itself, which is quicker, and so is what does not get there
this way: where there is no Python on a host, or no way between hosts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from jobctl.jobspec.deploy.host.handing_on import ArchiveSource, HandingOn
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.tar import SLOW, Tar
from jobctl.jobspec.deploy.images.copy import HERE
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.sending.code_spread import MUCH
from jobctl.jobspec.deploy.sending.data_folder import DataFolder, DataThere, Shipment
from jobctl.jobspec.deploy.sending.data_source import STALL, FolderOnHost, Rest
from jobctl.jobspec.deploy.sending.send_data import Coverage, DataPackage, archived
from jobctl.jobspec.deploy.store.data import DataFile
from jobctl.jobspec.deploy.transport.fanout import fan_out
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.records import dataclass

ROUNDS = 4  # transfers, each of what several hosts lack by then


@dataclass(frozen=True, slots=True, eq=False)
class Taker:
    """A host that is to get files from others: what is there, and what that means for a version."""

    job: HostJob
    there: DataThere
    coverage: Coverage

    @property
    def missing(self) -> Mapping[bytes, DataFile]:
        """The files that it lacks, by their names."""
        return self.coverage.missing


@dataclass(frozen=True, slots=True)
class Lot:
    """Files that travel together; of one of them only the `rest`, if any."""

    files: Mapping[bytes, DataFile]
    rest: Rest | None

    @property
    def names(self) -> set[bytes]:
        """Those that travel whole."""
        return set(self.files) - ({self.rest.name} if self.rest is not None else set())

    @property
    def size(self) -> int:
        """How many bytes travel."""
        return archived(self.files[name] for name in self.names) + (self.rest.size if self.rest is not None else 0)


class DataSpread:
    """Brings a version of data to hosts: `spread` as far as they can hand it on, `send` what is left to one of them."""

    def __init__(self, package: DataPackage, host_jobs: Mapping[str, HostJob]) -> None:
        self.package = package
        self.gone: dict[str, HostError] = {}  # hosts that have stopped to answer meanwhile
        self._jobs = {name: job for name, job in host_jobs.items() if not isinstance(job.transport, LocalTransport)}
        self._there: dict[str, DataThere | None] = {}  # what was seen on hosts; None: the version
        self._tried: set[str] = set()  # sources from which something has not arrived
        self._alone: set[str] = set()  # hosts that can take nothing from others
        self._others: list[str] | None = None  # hosts that need none and have it; None: not asked yet

    def send(self, host_job: HostJob) -> None:
        """Bring a host what it lacks. Raises HostError."""
        name = host_job.host.name
        if name not in self._there:
            self.package.send(host_job)
        elif (there := self._there.pop(name)) is not None:
            self.package.send(host_job, there)

    def spread(self, hosts: Iterable[str]) -> None:
        """Let hosts hand on what several of them lack. What goes wrong shows where each gets it by itself."""
        able = [name for name in hosts if name in self._jobs]
        with suppress(DeployError):
            if able and self.package.size >= MUCH:
                for _ in range(ROUNDS):
                    if not self._round(able):
                        return

    def _round(self, able: Sequence[str]) -> bool:
        """Make a transfer; say whether there was one to make."""
        unseen = [name for name in able if name not in {*self._there, *self._alone, *self.gone}]
        self._there |= fan_out(unseen, lambda name: self.package.look(self._jobs[name])).done
        lacking = {name: seen for name, seen in self._there.items() if seen is not None and name not in self._alone}
        takers = [Taker(self._jobs[name], seen, self.package.coverage(seen)) for name, seen in lacking.items()]
        takers = [one for one in takers if self._can_take(one)]
        source = self._next_source(able) if lacked_by_all(takers, 1)[0] else None
        fewest = 2 if source == HERE else 1
        takers, files = lacked_by_all(takers, fewest)
        if source is None or not files:
            return False
        lot = Lot(files, self.package.rest([one.there for one in takers], files))
        for one in takers:  # what is there changes now
            del self._there[one.job.host.name]
        ready = fan_out(takers, lambda one: self._begin(one, lot.rest)).done.values()
        takers = [one for one in ready if one is not None]
        if len(takers) >= fewest:
            self._hand_on(self._archive(source, lot), takers, lot)
        return True

    def _can_take(self, one: Taker) -> bool:
        """Say whether a host has room for what it lacks; the one that has the folder copies it."""
        room = one.there.room_without(one.coverage.stale_parts(one.there, None))
        return (room is None or archived(one.missing.values()) <= room) and not self.package.folder_on(one.job)

    def _begin(self, one: Taker, rest: Rest | None) -> Taker | None:
        """Have a host put together what is there; return what is there then, None if another command was quicker."""
        stale, linked = one.coverage.stale_parts(one.there, rest), one.coverage.linked
        if not stale and not linked:
            return one
        shipment = Shipment(linked, stale, None, "", Tar([]), 0)
        patience = STALL + sum(file.size for file in one.there.kept.values()) / SLOW
        stamp = self._folder(one.job).receive(self.package.version, one.there, shipment, patience)
        return None if stamp is None else replace(one, there=replace(one.there, stamp=stamp))

    def _hand_on(self, source: ArchiveSource, takers: Sequence[Taker], lot: Lot) -> None:
        """Let hosts hand files on, and note which have the version then; others are looked at again."""
        name = self.package.data.name
        jobs, theirs = {one.job.host.name: one.job for one in takers}, {one.job.host.name: one for one in takers}

        def load(job: HostJob) -> tuple[list[str], bytes]:
            shipment = Shipment((), (), lot.rest, "", (), 0)
            return self._folder(job).command(self.package.version, theirs[job.host.name].there, shipment)

        transfer = HandingOn(name, replace(source, load=load), jobs)
        lost = transfer.run()
        self.gone |= transfer.tell_lost()
        self._alone |= transfer.unable
        whole = [one for one in takers if one.job.host.name not in lost and one.missing.keys() == lot.files.keys()]
        kept = fan_out(whole, lambda one: self.package.keep(one.job, one.coverage.linked))
        self._there |= {one.job.host.name: None for one, has_it in kept.done.items() if has_it}
        if lost or kept.failed:
            self._tried.add(source.name)

    # Where it comes from.

    def _next_source(self, able: Sequence[str]) -> str | None:
        """Return who has the files, a host rather than this machine; None if all have been tried."""
        having = [name for name, seen in self._there.items() if seen is None]
        having += [name for name, job in self._jobs.items() if self.package.folder_on(job)]
        if not set(having) - self._tried:
            having += self._having_beside(able)
        return next((name for name in (*having, HERE) if name not in self._tried), None)

    def _having_beside(self, able: Sequence[str]) -> list[str]:
        """Return the other hosts of the job that have the version."""
        if self._others is None:
            version = self.package.version
            others = [name for name in self._jobs if name not in able]
            asked = fan_out(others, lambda name: self._folder(self._jobs[name]).has(version)).done
            self._others = [name for name, has_it in asked.items() if has_it]
        return self._others

    def _archive(self, name: str, lot: Lot) -> ArchiveSource:
        """Return files as they come from a host or this machine."""
        names, rest, size = lot.names, lot.rest, lot.size
        job = self._jobs.get(name)
        if job is None:
            pieces = lambda: self.package.source.archive(names, rest)  # noqa: E731
            return ArchiveSource(HERE, None, [], None, pieces, "", size)
        place = self.package.folder_on(job) or f"{self._folder(job).top}/{self.package.version}"
        save, given = FolderOnHost(job.transport, place).command(names, rest)
        return ArchiveSource(name, job, save, None, lambda: iter(()), "", size, given=given)

    def _folder(self, job: HostJob) -> DataFolder:
        return DataFolder(job, self.package.data.name)


def lacked_by_all(takers: Iterable[Taker], fewest: int) -> tuple[list[Taker], Mapping[bytes, DataFile]]:
    """Return hosts that lack much, as many as possible, and the files that all of these lack; nothing for too few hosts."""
    sized = sorted(((archived(one.missing.values()), one) for one in takers), key=lambda pair: pair[0])
    left = [one for size, one in sized if size >= MUCH]
    while len(left) >= fewest:
        names = set.intersection(*(set(one.missing) for one in left))
        files = {name: left[0].missing[name] for name in names}
        if archived(files.values()) >= MUCH:
            return left, files
        del left[0]
    return [], {}
