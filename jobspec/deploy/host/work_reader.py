"""Reading the files below a job's work directory that say how it does: once, or again and again as somebody looks on."""

from __future__ import annotations

import base64
import io
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import PurePosixPath

from jobctl.jobspec.deploy.host.asker import END, Asker
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.untrusted import Json, parse_object
from jobctl.jobspec.deploy.transport.answers import MAX_ANSWER_BYTES, NO_ARCHIVE
from jobctl.jobspec.deploy.transport.base import FIRST_ANSWER, Result, Transport

SUPERVISED = 76  # what observe.sh ends with where a supervisor holds its lock


class WorkReader:
    """Has observe.sh run on a host: a command each time, or, once somebody looks on, by a script that stays there."""

    def __init__(self) -> None:
        self._looks_on = False
        self._asker: Asker | None = None

    @property
    def looks_on(self) -> bool:
        """Whether somebody looks on, and the host has what that needs."""
        return self._looks_on

    def look_on(self) -> None:
        """From now on, leave a script there: the same is asked again and again."""
        self._looks_on = True

    def read(self, transport: Transport, work: str, own: str) -> Result:
        """Return what observe.sh prints, given the directories of the job. Raises HostError."""
        found = self._answer(transport, work, own) if self._looks_on else None
        return found or transport.run(SCRIPTS.argv("observe", work, own), timeout=FIRST_ANSWER)

    def _answer(self, transport: Transport, work: str, own: str) -> Result | None:
        """Return what the script that stays there answers; None if sshd gives it no session, or it cannot pack answers."""
        if self._asker is None:
            argv = SCRIPTS.argv("look_on", work, own)
            self._asker = Asker(transport, argv, "read the work directory", FIRST_ANSWER)
        said = self._asker.ask()
        found = None if said is None else unpacked(said)
        self._looks_on = found is not None
        if found is None:
            self._asker.close()
        return found


def unpacked(said: bytes) -> Result | None:
    """Return what observe.sh printed, given an answer of look_on.sh; None where it lacks the tools to pack it."""
    with suppress(ValueError, OSError, EOFError, zlib.error):
        text = _inflated(base64.b64decode(said.removesuffix(END)))
        end = text.rfind(b"\0") + 1  # of the archive: what follows is text
        rest, _, code = text[end:].rpartition(b"\ncode ")
        return Result(int(code), text[:end], rest)
    return None


def _inflated(packed: bytes) -> bytes:
    """Return what gzip has packed. Raises ValueError if that is more than an answer may have, zlib.error if it is cut off."""
    stream = zlib.decompressobj(wbits=31)  # gzip's
    text = stream.decompress(packed, MAX_ANSWER_BYTES)
    if not stream.eof:
        raise ValueError("cut off, or too long")
    return text


def files_in(archive: bytes) -> dict[PurePosixPath, Json | None]:
    """Return the files that observe.sh has put into an archive, and None for each directory.

    A file that is being replaced just now is left out, as are all if there are none.
    """
    found: dict[PurePosixPath, Json | None] = {}
    for name, content in _members(archive):
        data = None if content is None else _parsed_once(content) if name.startswith("run/") else parse_object(content)
        if data is not None or content is None:
            found[PurePosixPath(name)] = data
    return found


@lru_cache(maxsize=64)
def _parsed_once(content: bytes) -> Json | None:
    """Parse what is the same on all hosts of a job, and at the next look. Nobody changes what it returns."""
    return parse_object(content)


Member = tuple[str, bytes | None]


def _members(archive: bytes) -> list[Member]:
    """Return name and content of each file in an archive, and None of each directory, up to where it was cut off."""
    with suppress(ValueError):
        return list(_plain(archive))
    return list(_any(archive))


def _plain(archive: bytes) -> Iterator[Member]:
    """Read an archive of files and directories with short names, eight times as fast as tarfile. Raises ValueError for others."""
    at = 0
    while archive[at : at + 1] not in (b"", b"\0"):
        head = archive[at : at + tarfile.BLOCKSIZE]
        kind, size, begin = head[156:157], int(head[124:135], 8), at + tarfile.BLOCKSIZE
        if kind not in (tarfile.REGTYPE, tarfile.DIRTYPE) or any(head[345:]) or not 0 <= size <= len(archive) - begin:
            raise ValueError
        name = head[: head.index(b"\0")].decode()
        yield name, None if kind == tarfile.DIRTYPE else archive[begin : begin + size]
        at = begin + -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _any(archive: bytes) -> Iterator[Member]:
    with suppress(*NO_ARCHIVE), tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as found:
        for member in found:
            file = found.extractfile(member) if member.isfile() else None
            if file is not None or member.isdir():
                yield member.name, file.read() if file else None
