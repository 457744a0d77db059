"""Where data comes from: a folder of this machine, or of a host, from which it streams through this machine to others."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from hashlib import sha256
from pathlib import Path
from threading import Lock, RLock
from typing import Protocol

from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.host.tar import Tar, changed, known_of, pieces_of
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.store.code import File, kind_of
from jobctl.jobspec.deploy.store.data import DataFile, described, files_to_send, version_from
from jobctl.jobspec.deploy.transport.answers import readable_answer
from jobctl.jobspec.deploy.transport.base import TIMEOUT, Result, Transport
from jobctl.jobspec.deploy.transport.streaming import streamed
from jobctl.jobspec.plan.sent import Dataset
from jobctl.jobspec.records import dataclass

READ = 100_000_000  # bytes of which the slowest host computes digests in a second
STALL = 120.0  # seconds without a byte after which a transfer is given up
_LISTING = 600.0  # seconds in which a host lists millions of files


@dataclass(frozen=True, slots=True)
class Rest:
    """What is missing of a file whose first `start` bytes have arrived: `size` bytes. Kind and time are those of the file."""

    name: bytes
    start: int
    size: int
    kind: int
    time_ns: int


class DataSource(Protocol):
    """A folder of data that is read; `host` is where it is, None for this machine. For several threads."""

    host: str | None

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All files and links. Raises DeployError."""

    @property
    def known(self) -> dict[bytes, tuple[int, str]]:
        """Kind and SHA-256 of each plain file, by its name; all of them are read for it, once. Raises DeployError."""

    def digest_of_first(self, name: bytes, size: int) -> str:
        """Return the SHA-256 of the first bytes of a file. Raises DeployError."""

    def archive(self, names: Collection[bytes], rest: Rest | None) -> Iterator[bytes]:
        """Yield the rest of a file, if any, and then a tar file with some of the files. Raises DeployError."""


class FolderHere:
    """A folder of this machine."""

    host: str | None = None

    def __init__(self, data: Dataset) -> None:
        self._folder, self._files = data.source, files_to_send(data)
        self.files = described(self._files)
        self._known: dict[bytes, tuple[int, str]] | None = None
        self._lock = Lock()

    @property
    def known(self) -> dict[bytes, tuple[int, str]]:
        """Kind and SHA-256 of each plain file, by its name. Raises DeployError if one was changed since it was listed."""
        with self._lock:
            if self._known is None:
                known = known_of(self._files)
                # Only now: what was read before is that of the version, and what is read later is compared with it.
                for file in self._files:
                    _refuse_changed(file)
                self._known = known
            return self._known

    def digest_of_first(self, name: bytes, size: int) -> str:
        """Return the SHA-256 of the first bytes of a file."""
        digest = sha256()
        for piece in pieces_of(self._path(name), 0, size):
            digest.update(piece)
        return digest.hexdigest()

    def archive(self, names: Collection[bytes], rest: Rest | None) -> Iterator[bytes]:
        """Yield the rest of a file, if any, and then a tar file with some of the files."""
        if rest is not None:
            yield from pieces_of(self._path(rest.name), rest.start, rest.size)
        yield from Tar([file for file in self._files if os.fsencode(file.name) in names])

    def _path(self, name: bytes) -> Path:
        return Path(self._folder, os.fsdecode(name))


def _refuse_changed(file: File) -> None:
    """Raise DeployError if a file is another than when it was listed: its size and time are what named the version."""
    if file.is_link:
        return
    listed = file.info
    try:
        now = os.lstat(file.path)
    except OSError as error:
        raise changed(file) from error
    if (now.st_size, now.st_mtime_ns) != (listed.st_size, listed.st_mtime_ns):
        raise changed(file)


class FolderOnHost:
    """A folder of a host. Nothing is changed there. Raises HostError of that host."""

    def __init__(self, transport: Transport, folder: str) -> None:
        self.transport, self.folder = transport, folder
        self.host: str | None = transport.host
        self._lock = RLock()
        self._files: tuple[DataFile, ...] | None = None
        self._version: str | None = None
        self._known: dict[bytes, tuple[int, str]] | None = None
        self._changed: HostError | None = None

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All files and links."""
        found = self.look()
        if found is None:
            message = f"there is no directory {self.folder}"
            raise HostError(str(self.host), "data-missing", message, "see `data` in the spec")
        return found

    def look(self) -> tuple[DataFile, ...] | None:
        """Return all files and links, None if there is no such folder. It is looked at once."""
        with self._lock:
            if self._files is None:
                self._files = self._listed()
            return self._files

    @property
    def version(self) -> str | None:
        """What identifies all files and links, None if there is no such folder."""
        with self._lock:
            files = self.look()
            if self._version is None and files is not None:
                self._version = version_from(files)
            return self._version

    def _listed(self) -> tuple[DataFile, ...] | None:
        told = self._told(self.transport.run(SCRIPTS.argv("list_files", self.folder), timeout=_LISTING))
        with readable_answer(str(self.host), f"list {self.folder}"):
            return None if told == b"none" else tuple(_file(line) for line in told.split(b"\0") if line)

    @property
    def known(self) -> dict[bytes, tuple[int, str]]:
        """Kind and SHA-256 of each plain file, by its name. Raises HostError if one was changed since it was listed."""
        with self._lock:
            if self._changed is not None:
                raise self._changed  # all of it would be read for each host that it is meant for
            if self._known is None:
                known = self.sums()
                self._changed = self._change()  # only now, as in a folder of this machine
                if self._changed is not None:
                    raise self._changed
                self._known = known
            return self._known

    def sums(self) -> dict[bytes, tuple[int, str]]:
        """Return kind and SHA-256 of each plain file, by its name; some may have changed since they were listed."""
        files = self.files
        timeout = TIMEOUT + sum(file.size for file in files) / READ
        told = self._told(self.transport.run(SCRIPTS.argv("file_sums", self.folder), timeout=timeout))
        digests = dict(named_digest(line) for line in told.split(b"\n") if line)
        return {file.name: (file.kind, digests.get(file.name, "")) for file in files if not file.is_link}

    def _change(self) -> HostError | None:
        """Return the error of a file that is another than when it was listed, None if all are as they were."""
        now = {file.name: file for file in self._listed() or ()}
        for file in self.files:
            if not file.is_link and now.get(file.name) != file:
                message = f"{self.folder}/{os.fsdecode(file.name)} was changed before all of it was sent"
                return HostError(str(self.host), "data-differs", message, "`jobctl up` again sends it")
        return None

    def digest_of_first(self, name: bytes, size: int) -> str:
        """Return the SHA-256 of the first bytes of a file."""
        argv = SCRIPTS.argv("head_sum", self.folder, os.fsdecode(name), str(size))
        return self._told(self.transport.run(argv, timeout=TIMEOUT + size / READ))[:64].decode("ascii", "replace")

    def archive(self, names: Collection[bytes], rest: Rest | None) -> Iterator[bytes]:
        """Yield the rest of a file, if any, and then a tar file with some of the files, as the host makes it."""
        argv, wanted = self.command(names, rest)
        command = self.transport.start(argv)
        try:
            yield from streamed(command, wanted, STALL)
            errors = command.errors()
            self._told(Result(command.wait(), b"", errors))
        except TimeoutError as error:
            message = f"no byte of {self.folder} has come for {STALL:g} s"
            raise HostError(str(self.host), "silent", message, "look whether its disk or the network hangs") from error
        except (OSError, EOFError) as error:
            raise HostError(str(self.host), "lost", f"the connection was lost: {error}") from error
        finally:
            command.close()

    def command(self, names: Collection[bytes], rest: Rest | None) -> tuple[list[str], bytes]:
        """Return the command that prints on the host what `archive` yields, and its input."""
        first = [os.fsdecode(rest.name), str(rest.start + 1), str(rest.size)] if rest else ["", "0", "0"]
        wanted = b"".join(b"./" + name + b"\0" for name in sorted(names))
        return SCRIPTS.argv("read_files", self.folder, *first), wanted

    def _told(self, result: Result) -> bytes:
        """Return what a command printed that had to succeed. Raises HostError."""
        if result.code == 0:
            return result.out
        message = f"cannot read {self.folder}: {result.words}"
        raise HostError(str(self.host), "data-not-read", message, "the user that logs in there has to read all of it")


def _file(line: bytes) -> DataFile:
    """Return a file from what list_files.sh prints: kind, mode, size, seconds and name."""
    letter, mode, size, seconds, name = line.split(b" ", 4)
    is_link = letter == b"l"
    whole, _, fraction = seconds.partition(b".")
    time_ns = int(whole) * 1_000_000_000 + int(fraction[:9].ljust(9, b"0"))
    return DataFile(name, 0 if is_link else int(size), 0o777 if is_link else kind_of(int(mode, 8)), time_ns, is_link)


def named_digest(line: bytes) -> tuple[bytes, str]:
    """Return name and digest from a line of sha256sum, which escapes names with a backslash or a line break."""
    if not line.startswith(b"\\"):
        return line[68:], line[:64].decode("ascii", "replace")
    parts = [part.replace(b"\\n", b"\n").replace(b"\\r", b"\r") for part in line[69:].split(b"\\\\")]
    return b"\\".join(parts), line[1:65].decode("ascii", "replace")
