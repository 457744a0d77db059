"""Fetching what a job leaves behind on a host: logs, which rank wrote which, and outputs, as one archive.

`down` removes all that afterwards, so only a whole archive counts: a connection that is lost ends it without an error.
What a host sends is not trusted: nothing is written outside of the folder that it is for, nor through a link.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import tarfile
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.deploy.host.container_starter import STARTING
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.container import Interpreter, SeenContainer
from jobctl.jobspec.deploy.model.errors import HostError, NotCollected
from jobctl.jobspec.deploy.model.untrusted import number_in
from jobctl.jobspec.deploy.store.files import told_of
from jobctl.jobspec.deploy.transport.answers import MAX_LINE_BYTES, NO_ARCHIVE
from jobctl.jobspec.deploy.transport.base import FIRST_ANSWER
from jobctl.jobspec.render.artefact import folder

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.host.host_job import HostJob

_CHUNK = 1 << 18  # bytes that are read at a time
SILENCE_TIMEOUT = 15.0  # seconds without anything, after which it is asked whether the host is there at all
_TAIL = 1 << 17  # bytes, more than what comes behind an archive
LINKS = 1_000_000  # that are kept until all files are written


def collect(
    host_job: HostJob, into: Path, ended: Sequence[SeenContainer] = (), moved: Collection[int] = frozenset()
) -> int:
    """Copy all that the job leaves behind below `into`; return how many files that were.

    `ended`: the job's containers, if all have ended. One of their images makes readable what only containers can.
    `moved`: the nodes whose home is another host, which may have logs of the same names.
    Raises HostError unless everything has arrived whole, and is written here.
    """
    if ended:
        _make_readable(host_job, [container.interpreter for container in ended])
    reader = _Reader(host_job)
    try:
        count = _unpack(reader, folder(host_job.host.name), into, moved)
        while reader.read(_CHUNK):
            pass
    except (*NO_ARCHIVE, OSError) as error:
        if isinstance(error, tarfile.TarError) and reader.ended:
            reader.check()
        raise _not_written(host_job.host.name, error) from error
    finally:
        reader.close()
    reader.check()
    return count


def _make_readable(host_job: HostJob, interpreters: Iterable[Interpreter]) -> None:
    """Let the user read what containers have written for themselves alone, if there is any such thing.

    Raises HostError if none can do that: what will not be whole need not be fetched, by each `down` once more.
    """
    if _unreadable(host_job):
        host_job.make_readable(interpreters)
        if found := _unreadable(host_job):
            raise _unread(host_job, [f"{found}: Permission denied"])


def _unreadable(host_job: HostJob) -> str:
    """Return the first file or folder that the user cannot read, nothing if there is none."""
    look = SCRIPTS.argv("unreadable", str(host_job.work))
    return host_job.transport.run(look, timeout=STARTING).out.decode("utf-8", "replace").strip()


def _unread(host_job: HostJob, words: Sequence[str]) -> HostError:
    """Return the error of a host that cannot read all that it has; `words` say what."""
    more, work, hint = " (and others)" if len(words) > 1 else "", host_job.work, None
    if any("Permission denied" in line for line in words):
        hint = f"`sudo chmod -R a+rX {work}` there makes them readable; `container.user: self` avoids that"
    cause = f"cannot read all logs and outputs in {work}: {words[0]}{more}"
    return NotCollected(host_job.host.name, cause, hint)


def _not_written(host: str, error: Exception) -> HostError:
    """Return the error of a host whose files cannot be written here: it sends what is no archive, or the disk is full."""
    if not isinstance(error, OSError):
        return NotCollected(host, f"what it sent as logs and outputs cannot be unpacked: {error}")
    hint = _HINTS.get(error.errno or 0)
    cause = f"its logs and outputs cannot be written here: {error.filename}: {error.strerror}"
    return NotCollected(host, cause, hint)


_HINTS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room on this machine"),
    # What was a folder on the host when it was fetched before is none now, or the other way round.
    **dict.fromkeys((errno.EISDIR, errno.ENOTDIR, errno.EEXIST), "remove it, or fetch into another folder"),
}


class _Reader:
    """What a host sends, as a file that can be read: an archive, and behind it what became of it."""

    def __init__(self, host_job: HostJob) -> None:
        self._host_job, self._mark = host_job, secrets.token_hex(16)
        self._channel = host_job.transport.dial(SCRIPTS.argv("collect", str(host_job.work), self._mark))
        self._channel.settimeout(SILENCE_TIMEOUT)
        self._tail = b""  # the last of what came
        self.left: int | None = MAX_LINE_BYTES  # bytes that may come before the next file, None while one comes
        self.ended = False

    def read(self, size: int) -> bytes:
        """Return so many bytes, fewer only at the end. Raises HostError if the connection is lost and that shows."""
        parts = []
        while size > 0 and not self.ended:
            data = self._receive(min(size, 65536))
            self.ended = not data
            if self.left is not None:
                self.left -= len(data)
                if self.left < 0:
                    raise ValueError("what it says of one file has no end")
            parts.append(data)
            size -= len(data)
        read = b"".join(parts)
        self._tail = (self._tail + read)[-_TAIL:]
        return read

    def _receive(self, size: int) -> bytes:
        began = time.monotonic()
        while True:
            try:
                return bytes(self._channel.recv(size))
            except TimeoutError as error:
                if time.monotonic() - began > STARTING:
                    raise self._lost(f": nothing has come for {STARTING:g} s") from error
                self._host_job.transport.run(["true"], timeout=FIRST_ANSWER)  # a disk may be slow; a link may be dead
            except (OSError, EOFError) as error:
                raise self._lost(f": {error}") from error

    def check(self) -> None:
        """Raise HostError unless the end has come, and says that the host could read everything."""
        said = self._tail.split(f"{self._mark}\n".encode())
        if len(said) != 3:
            raise self._lost()
        *lines, code = said[1].decode("utf-8", "replace").splitlines() or [""]
        if code in ("exit 0", "exit 1"):  # 1: files changed meanwhile
            return
        words = [line.removeprefix("tar: ") for line in lines if "Exiting with failure status" not in line] or [code]
        raise _unread(self._host_job, words)

    def close(self) -> None:
        """Hang up."""
        self._channel.close()

    def _lost(self, why: str = "") -> HostError:
        cause = f"the connection was lost while its logs and outputs were read{why}"
        return HostError(self._host_job.host.name, "lost", cause, "run the same command again")


def _unpack(reader: Any, host: str, into: Path, moved: Collection[int]) -> int:
    """Write the files of an archive, and its links last: no file is written through one.

    By hand: the filters of `tarfile` that could do it are not in the Python of Debian 12.
    """
    count, links = 0, list[tuple[str, str]]()
    with tarfile.open(fileobj=reader, mode="r|", bufsize=_CHUNK) as archive:
        for member in _members(archive, reader):
            if member.issym():
                links.append((member.name, member.linkname))
                if len(links) > LINKS:
                    raise ValueError(f"there are more than {LINKS} links")
            elif member.isfile():
                _write(archive, member, into, into / _place(member.name, host, moved))
                count += 1
    return count + sum(_link(*link, host, into, moved) for link in links)


def _members(archive: tarfile.TarFile, reader: Any) -> Iterator[tarfile.TarInfo]:
    """Yield what is in an archive, which keeps none of it. Raises ValueError where what comes before a file has no end."""
    while (member := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined]  # not in the stubs
        reader.left = None
        yield member
        reader.left = MAX_LINE_BYTES


def _place(name: str, host: str, moved: Collection[int]) -> PurePosixPath:
    """Return where a file goes. Each host's outputs are in a folder of their own, below its host's name; a node's logs are its own.

    Each generation of a node was on one host. But all hosts that it has had may have a log of no generation, such as `setup.log`.
    Raises TarError for a name that leads out of the folder.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if not parts or ".." in parts:
        raise tarfile.TarError(f"the file `{name}` is not in the folder of its job")
    top, *rest = parts
    if top not in ("outputs", "code"):
        of_generation = number_in("".join(rest[1:2])) is not None
        if rest[:1] == ["logs"] and not of_generation and number_in(top.removeprefix("node-")) in moved:
            rest.insert(1, f"from-{host}")  # the name of a host may be a number, as that of a generation is
        return PurePosixPath(top, *rest)
    below = rest if top == "outputs" else rest[1:]  # which version of the code it was is of no interest
    return PurePosixPath("outputs", host, *below)


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, into: Path, path: Path) -> None:
    """Write a file, never through a link or into another name of what was fetched before; half of it does not stay."""
    with told_of(path):
        if not _real(path.parent).is_relative_to(_real(into)):
            raise tarfile.TarError(f"a link leads from {path.parent} out of {into}")
        for parent in [into / one for one in reversed(path.relative_to(into).parents[:-1])]:
            if parent.is_symlink():  # fetched before it was a folder on the host
                parent.unlink()
        path.parent.mkdir(parents=True, exist_ok=True)  # for another host at the same time, perhaps
        path.unlink(missing_ok=True)
        try:
            _extract(archive, member, path)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _real(path: Path) -> Path:
    """Return a path without links; `Path.resolve` fails for a link that leads to itself."""
    return Path(os.path.realpath(path))


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    """Write a new file with its time, and what of its mode harms nobody here."""
    content = archive.extractfile(member)
    assert content is not None
    with content, path.open("xb") as file:
        shutil.copyfileobj(content, file, _CHUNK)
    mode = member.mode & (0o755 if member.mode & 0o100 else 0o644) | 0o600
    with contextlib.suppress(OSError, OverflowError):  # some file systems keep neither
        path.chmod(mode)
        os.utime(path, (member.mtime, member.mtime))


def _link(name: str, linkname: str, host: str, into: Path, moved: Collection[int]) -> bool:
    """Make a symbolic link, unless it leads out of the outputs of its host, or out of its node; say whether it was made.

    Its target goes up first, from a real folder, and down from there: so it leads nowhere else by way of other links either.
    """
    if linkname.startswith("/"):
        return False
    path = into / _place(name, host, moved)
    steps = [step for step in linkname.split("/") if step not in ("", ".")]
    up = len(list(takewhile(lambda step: step == "..", steps)))
    parts = path.relative_to(into).parts
    top = into.joinpath(*parts[: 2 if parts[:1] == ("outputs",) else 1])
    top, parent = _real(top), _real(path.parent)
    if ".." in steps[up:] or not parent.is_relative_to(top) or up > len(parent.relative_to(top).parts):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(linkname)
    return True
