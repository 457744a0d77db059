"""Sending the user's code to hosts, and packing it for manifests.

A version of the code is a folder of its own on a host, named by its hash, so what runs never sees half a copy, nor
another version than it was started with. Only files that a host does not have yet are sent; none is ever held in
memory whole.
"""

from __future__ import annotations

import base64
import os
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.store.code import File, code_of, digest_of, kind_of
from jobctl.jobspec.deploy.transport.base import TIMEOUT, checked
from jobctl.jobspec.plan.types import Code, Plan

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.host.host_job import HostJob

_CHUNK = 1 << 18  # bytes of a file that are in memory at a time, for each host
_SLOW = 10_000_000  # bytes that the slowest disk writes in a second


@dataclass(frozen=True)
class Package:
    """One version of the code, ready to be sent to any number of hosts."""

    code: Code
    files: tuple[File, ...]

    @cached_property
    def known(self) -> dict[bytes, tuple[int, str]]:
        """Kind and SHA-256 of each plain file, by its name."""
        plain = ((file, digest_of(file)) for file in self.files if not file.is_link)
        return {os.fsencode(file.name): (file.kind, digest) for file, digest in plain if digest is not None}

    def send(self, host_job: HostJob) -> None:
        """Put this version beside those that the host has; what it has of them already is copied there, not sent."""
        top = str(host_job.work / "code")
        version = self.code.version or ""
        argv = SCRIPTS.argv("list_code", top, version)
        answer = checked(host_job.transport, argv, f"look for code in {top}")
        if answer.startswith(b"here"):
            return
        base, _, listing = answer.partition(b"\n")
        there = _listing(listing) if base else {}
        same = sorted(name for name, known in self.known.items() if there.get(name) == known)
        tar = _Tar([file for file in self.files if os.fsencode(file.name) not in set(same)])
        kept = b"".join(name + b"\0" for name in same)
        folders = [f"./{path}" for path in self.code.outputs]
        sizes = [str(len(kept)), str(tar.size), str(len(folders))]
        results = [f"./{path}" for path in self.code.results]
        argv = SCRIPTS.argv("send_code", top, version, os.fsdecode(base), *sizes, *folders, *results)
        timeout = TIMEOUT + sum(file.size for file in self.files) / _SLOW
        checked(host_job.transport, argv, f"write code into {top}", chain([kept], tar), timeout=timeout)

    def compressed(self) -> bytes:
        """Return all of it as a compressed tar file: the same bytes for the same names, kinds and contents.

        What is larger than manifests may carry breaks off there.
        """
        from jobctl.jobspec.render.kubernetes import LARGEST

        packer = zlib.compressobj(level=9, wbits=31)
        packed = bytearray()
        for chunk in _Tar(self.files, timeless=True):
            packed += packer.compress(chunk)
            if len(packed) > LARGEST:
                return bytes(packed)
        return bytes(packed + packer.flush())


class _Tar:
    """Files as a tar file, made while it is read; `size` is how long it is going to be."""

    def __init__(self, files: Sequence[File], *, timeless: bool = False) -> None:
        made = ((file, _header(file, timeless)) for file in files)
        self._members = [(file, header) for file, header in made if header is not None]
        self.size = sum(len(header) + _padded(file.size) for file, header in self._members) + len(_END)

    def __iter__(self) -> Iterator[bytes]:
        for file, header in self._members:
            yield header
            yield from _content(file)
        yield _END


_END = bytes(2 * tarfile.BLOCKSIZE)


def _padded(size: int) -> int:
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _header(file: File, timeless: bool) -> bytes | None:
    """Return what stands before a file in an archive, None if it cannot be read."""
    member = tarfile.TarInfo(file.name)
    member.mtime = 0 if timeless else int(file.info.st_mtime)
    member.mode, member.size = file.kind if timeless else file.mode, file.size
    try:
        if file.is_link:
            member.type, member.linkname, member.mode = tarfile.SYMTYPE, os.readlink(file.path), 0o777
        elif digest_of(file) is None:
            return None
    except OSError:
        return None
    return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _content(file: File) -> Iterator[bytes]:
    """Yield as many bytes of a file as it had when it was looked at, padded. Raises DeployError if it has fewer now."""
    left = file.size
    if not left:
        return
    try:
        with open(file.path, "rb", buffering=0) as opened:
            while left and (chunk := opened.read(min(left, _CHUNK))):
                left -= len(chunk)
                yield chunk
    except OSError as error:
        raise DeployError(f"cannot read {file.path}: {error.strerror}", "`jobctl up` again sends it") from error
    if left:
        raise DeployError(f"{file.path} became shorter while it was sent", "`jobctl up` again sends it")
    yield bytes(_padded(file.size) - file.size)


def pack_code(plan: Plan) -> Package | None:
    """Return the code that `plan` sends, None if it sends none."""
    return None if plan.code is None else Package(plan.code, code_of(plan, plan.code).files)


def archive_of(plan: Plan) -> str | None:
    """Return the code that `plan` sends as manifests carry it, in base64; None if it sends none."""
    package = pack_code(plan)
    return None if package is None else base64.b64encode(package.compressed()).decode()


def _listing(text: bytes) -> dict[bytes, tuple[int, str]]:
    """Return path to kind and digest from what sha256sum and stat printed; names that they escape are left out."""
    digests: dict[bytes, str] = {}
    kinds: dict[bytes, int] = {}
    for line in text.splitlines():
        if len(line) > 68 and line[64:68] == b"  ./":
            digests[line[68:]] = line[:64].decode("ascii", "replace")
        mode, space, name = line.partition(b" ./")
        if space and len(mode) <= 4 and mode.isdigit():
            kinds[name] = kind_of(int(mode, 8))
    return {name: (kinds[name], digest) for name, digest in digests.items() if name in kinds}
