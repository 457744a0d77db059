"""The versions of one folder of data on a host, and what a transfer has left there that did not end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from itertools import chain
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.untrusted import number_in
from jobctl.jobspec.deploy.sending.data_source import Rest, named_digest
from jobctl.jobspec.deploy.store.code import kind_of
from jobctl.jobspec.deploy.transport.answers import readable_answer
from jobctl.jobspec.deploy.transport.base import Stdin, checked, problem
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.render.container import DATA

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.host.host_job import HostJob

INCOMPLETE = "incomplete"  # where the files of a version are until all of them are there
_WAITING = 300.0  # seconds, more than a command waits for another one that comes no further
_QUICKER = os.EX_TEMPFAIL  # 75, exit code: another command has sent something meanwhile


@dataclass(frozen=True, slots=True)
class DataFileThere:
    """A file on a host: what of its mode counts, SHA-256 (None: not looked at, it is a second name of another), bytes."""

    kind: int
    digest: str | None
    size: int


@dataclass(frozen=True, slots=True)
class DataThere:
    """What a host has: files of the newest version `base`, and files of a transfer that did not end, in a state `stamp`.

    `free` is how many bytes it has left, None if it does not say.
    """

    free: int | None
    stamp: str
    base: str
    kept: Mapping[bytes, DataFileThere] = field(default_factory=dict)
    incomplete: Mapping[bytes, DataFileThere] = field(default_factory=dict)

    def room_without(self, stale: Iterable[bytes]) -> int | None:
        """Return how many bytes are free once `stale` files of that transfer are removed, None if the host does not say."""
        going = (self.incomplete[name] for name in stale)
        freed = sum(file.size for file in going if file.digest is not None)  # the others are second names
        return None if self.free is None else self.free + freed


@dataclass(frozen=True, slots=True)
class Shipment:
    """What makes a version of files on a host: those `linked` from its base, the `rest` of a half one, and `content`.

    `stale` files of an earlier transfer are not part of it. `content` is a tar file, or with `folder`, a folder of the host
    itself, the names of files in it. `size` is how many bytes of files that is.
    """

    linked: Iterable[bytes]
    stale: Iterable[bytes]
    rest: Rest | None
    folder: str
    content: Iterable[bytes]
    size: int


class DataFolder:
    """The versions of one folder of data on a host. Raises HostError."""

    def __init__(self, host_job: HostJob, name: str) -> None:
        self.transport = host_job.transport
        self.top = str(host_job.work.parent / DATA / name)

    def has(self, version: str) -> bool:
        """Say whether the host has a version, which counts as a use of it."""
        return bool(
            checked(self.transport, SCRIPTS.argv("has_data", self.top, version), f"look for data in {self.top}")
        )

    def look(self, timeout: float, *, again: bool = False) -> DataThere:
        """Read all files there; `again`: only what has arrived."""
        argv = SCRIPTS.argv("list_data", self.top, "again" if again else "")
        told = checked(self.transport, argv, f"look for data in {self.top}", timeout=timeout)
        with readable_answer(self.transport.host, f"look for data in {self.top}"):
            return parse_there(told)

    def shares_blocks_with(self, path: str) -> bool:
        """Say whether a copy of a file of the host takes no room there."""
        argv = SCRIPTS.argv("shares_blocks", path, self.top)
        return bool(checked(self.transport, argv, f"copy {path} into {self.top}"))

    def receive(self, version: str, there: DataThere, shipment: Shipment, timeout: float) -> str | None:
        """Send files; return the stamp of what is there then. None, and nothing is sent, if another command was quicker."""
        argv, first = self.command(version, there, shipment)
        what = f"write data into {self.top}"
        return self._quick(argv, what, chain([first], shipment.content), timeout)

    def command(self, version: str, there: DataThere, shipment: Shipment) -> tuple[list[str], bytes]:
        """Return the command that receives files, and what comes before their content in its input."""
        linked, stale, rest = lines(shipment.linked), lines(shipment.stale), shipment.rest
        not_linked = lines(there.kept.keys() - set(shipment.linked))
        others = "others" if len(not_linked) < len(linked) and not there.incomplete else ""
        named = not_linked if others else linked
        last = ["", "0", "0", "0", "0"]
        if rest is not None:
            seconds = str(rest.time_ns // 1_000_000_000)
            last = [os.fsdecode(rest.name), f"{rest.kind:o}", str(rest.size), seconds, str(rest.start)]
        argv = SCRIPTS.argv(
            *("receive_data", self.top, version, there.stamp, there.base, str(len(named)), str(len(stale))),
            *(shipment.folder, *last, others),
        )
        return argv, stale + named

    def keep(self, version: str, stamp: str) -> bool:
        """Give what has arrived the name of a version; say whether it could: not if another command has changed it."""
        argv = SCRIPTS.argv("keep_data", self.top, version, stamp)
        return self._quick(argv, f"keep data in {self.top}", b"", _WAITING) is not None

    def _quick(self, argv: list[str], what: str, stdin: Stdin, timeout: float) -> str | None:
        result = self.transport.run(argv, stdin, timeout=timeout)
        if result.code == _QUICKER:
            return None
        if result.code != 0:
            raise problem(self.transport.host, what, result)
        return result.out.decode("ascii", "replace").strip()


def lines(names: Iterable[bytes]) -> bytes:
    """Return names as scripts read them."""
    return b"".join(name + b"\0" for name in sorted(names))


def parse_there(told: bytes) -> DataThere:
    """Return what list_data.sh has printed."""
    free, _, told = told.partition(b"\n")
    stamp, _, told = told.partition(b"\n")
    base, _, told = told.partition(b"\n")
    sums, _, rows = told.partition(b"\0")
    digests = dict(named_digest(line) for line in sums.split(b"\n") if line)
    found: dict[bytes, dict[bytes, DataFileThere]] = {base: {}, INCOMPLETE.encode(): {}}
    for path, file in _files(rows, digests):
        folder, _, name = path.partition(b"/")
        found.setdefault(folder, {})[name] = file
    blocks = number_in(free.decode("ascii", "replace").strip())
    room = None if blocks is None else blocks * 1024
    text = stamp.decode("ascii", "replace"), os.fsdecode(base)
    return DataThere(room, *text, kept=found[base] if base else {}, incomplete=found[INCOMPLETE.encode()])


def _files(rows: bytes, digests: Mapping[bytes, str]) -> Iterator[tuple[bytes, DataFileThere]]:
    """Yield path and file from lines of mode, size, number of names and path."""
    for row in rows.split(b"\0"):
        if row:
            mode, size, _, path = row.split(b" ", 3)
            path = path.removeprefix(b"./")
            yield path, DataFileThere(kind_of(int(mode, 8)), digests.get(path), int(size))
