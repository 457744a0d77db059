"""Files as an archive for a host, and what a host has of them already."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.store.code import File, digest_of, kind_of

_CHUNK = 1 << 18  # bytes of a file that are in memory at a time, for each host
SLOW = 10_000_000  # bytes that the slowest disk writes in a second


def known_of(files: Iterable[File]) -> dict[bytes, tuple[int, str]]:
    """Return kind and SHA-256 of each plain file, by its name; without those that nobody may read."""
    plain = ((file, digest_of(file)) for file in files if not file.is_link)
    return {os.fsencode(file.name): (file.kind, digest) for file, digest in plain if digest is not None}


class Tar:
    """Files as a tar file, made while it is read; `size` is how long it is going to be.

    `plain`: modes are those that make a version of the code. `timeless`: so are times.
    """

    def __init__(self, files: Sequence[File], *, timeless: bool = False, plain: bool = False) -> None:
        made = ((file, _header(file, timeless, plain or timeless)) for file in files)
        self._members = [(file, header) for file, header in made if header is not None]
        self.size = sum(len(header) + _padded(file.size) for file, header in self._members) + len(_END)

    def __iter__(self) -> Iterator[bytes]:
        for file, header in self._members:
            yield header
            if file.size:
                yield from _as_listed(file)
                yield bytes(_padded(file.size) - file.size)
        yield _END


_END = bytes(2 * tarfile.BLOCKSIZE)


def _padded(size: int) -> int:
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _header(file: File, timeless: bool, plain: bool) -> bytes | None:
    """Return what stands before a file in an archive, None if it cannot be read."""
    member = tarfile.TarInfo(file.name)
    member.mtime = 0 if timeless else int(file.info.st_mtime)
    member.mode, member.size = file.kind if plain else file.mode, file.size
    try:
        if file.is_link:
            member.type, member.linkname, member.mode = tarfile.SYMTYPE, os.readlink(file.path), 0o777
        elif digest_of(file) is None:
            return None
    except OSError:
        return None
    return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _as_listed(file: File) -> Iterator[bytes]:
    """Yield the content of a file. Raises DeployError if it is not what was listed, which makes the version.

    It is raised before the last piece: an archive that ends behind a whole file is a whole one to those who read it.
    """
    digest, last = sha256(), b""
    for piece in pieces_of(file.path, 0, file.size):
        digest.update(piece)
        if last:
            yield last
        last = piece
    if digest.hexdigest() != digest_of(file):
        raise changed(file)
    yield last


def changed(file: File) -> DeployError:
    """Return the error of a file that is no longer what was listed."""
    return DeployError(f"{file.path} was changed before all of it was sent", "`jobctl up` again sends it")


def pieces_of(path: Path, start: int, size: int) -> Iterator[bytes]:
    """Yield `size` bytes of a file from `start` on. Raises DeployError if it has fewer by now."""
    left = size
    try:
        with open(path, "rb", buffering=0) as opened:
            opened.seek(start)
            while left and (chunk := opened.read(min(left, _CHUNK))):
                left -= len(chunk)
                yield chunk
    except OSError as error:
        raise DeployError(f"cannot read {path}: {error.strerror}", "`jobctl up` again sends it") from error
    if left:
        raise DeployError(f"{path} became shorter while it was sent", "`jobctl up` again sends it")


def parse_listing(text: bytes) -> dict[bytes, tuple[int, str]]:
    """Return path to kind and digest from what sha256sum (or openssl) and find printed; names that they escape are left out."""
    digests: dict[bytes, str] = {}
    kinds: dict[bytes, int] = {}
    for line in text.splitlines():
        if len(line) > 68 and line[64:68] in (b"  ./", b" *./"):
            digests[line[68:]] = line[:64].decode("ascii", "replace")
        mode, space, name = line.partition(b" ./")
        if space and len(mode) <= 4 and mode.isdigit():
            kinds[name] = kind_of(int(mode, 8))
    return {name: (kinds[name], digest) for name, digest in digests.items() if name in kinds}
