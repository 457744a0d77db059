"""Sending the user's code to hosts, and packing it for manifests.

A version of the code is a folder of its own on a host, named by its hash, so what runs never sees half a copy, nor
another version than it was started with. Only files that a host does not have yet are sent; none is ever held in
memory whole.
"""

from __future__ import annotations

import base64
import os
import zlib
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.host.tar import SLOW, Tar, known_of, parse_listing
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.store.code import File, files_to_send
from jobctl.jobspec.deploy.transport.base import TIMEOUT, checked, problem
from jobctl.jobspec.plan.sent import Code
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.host.host_job import HostJob


@dataclass(frozen=True, slots=True)
class CodeThere:
    """What a host has of a version of the code: its newest other version, and which files are the same in that one."""

    base: str
    same: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class Parcel:
    """What is sent of a version of the code: the names of files that hosts have, each with a zero byte, and the others.

    Another host gives those that are named in `given`; `sums` are their digests, as sha256sum prints them.
    """

    names: bytes
    tar: Tar
    given: frozenset[bytes]
    sums: bytes


@dataclass(frozen=True)
class Package:
    """One version of the code, ready to be sent to any number of hosts.

    `beside` is where a host without any version may have some for another purpose: a folder, relative to that of versions.
    """

    code: Code
    files: tuple[File, ...]
    beside: str = ""

    @cached_property
    def known(self) -> dict[bytes, tuple[int, str]]:
        """Kind and SHA-256 of each plain file, by its name."""
        return known_of(self.files)

    @property
    def _patience(self) -> float:
        """For how many seconds a host may say nothing that reads or writes all of it."""
        return TIMEOUT + sum(file.size for file in self.files) / SLOW

    def send(self, host_job: HostJob, there: CodeThere | None = None) -> None:
        """Put this version beside those that the host has; what it has of them already is copied there, not sent.

        `there` is what it has, if that was looked at. Raises HostError.
        """
        there = there or self.look(host_job)
        if there is None:
            return
        parcel = self.parcel(there.same)
        argv = self.argv(host_job, there.base, parcel)
        what = f"write code into {_top(host_job)}"
        result = host_job.transport.run(argv, chain([parcel.names], parcel.tar), timeout=self._patience)
        if result.code == os.EX_NOPERM:
            message = f"cannot {what}: a container has written an output file that you cannot read"
            raise HostError(host_job.host.name, "results-not-read", message, result.words)
        if result.code != 0:
            raise problem(host_job.transport.host, what, result)

    def look(self, host_job: HostJob) -> CodeThere | None:
        """Return what a host has of this version, None if it has all of it. Raises HostError.

        To read one file of many GB takes the host minutes, in which it says nothing.
        """
        top, largest = _top(host_job), max((file.size for file in self.files), default=0)
        argv = SCRIPTS.argv("list_code", top, self.code.version or "", self.beside, str(largest))
        answer = checked(host_job.transport, argv, f"look for code in {top}", timeout=self._patience)
        if answer.startswith(b"here"):
            return None
        base, _, listing = answer.partition(b"\n")
        there = parse_listing(listing) if base else {}
        same = frozenset(name for name, known in self.known.items() if there.get(name) == known)
        return CodeThere(os.fsdecode(base), same)

    def folder(self, host_job: HostJob) -> str:
        """Return where this version is on a host."""
        return f"{_top(host_job)}/{self.code.version or ''}"

    def is_on(self, host_job: HostJob) -> bool:
        """Say whether a host has this version. Raises HostError."""
        return host_job.transport.run(["test", "-d", self.folder(host_job)]).code == 0

    def parcel(self, same: frozenset[bytes], given: frozenset[bytes] = frozenset()) -> Parcel:
        """Return what is sent to hosts that have some of the files, and get those that are `given` from another host."""
        names = b"".join(name + b"\0" for name in sorted(same))
        sent = [file for file in self.files if os.fsencode(file.name) not in same | given]
        sums = b"".join(_sum(name, self.known[name][1]) for name in sorted(given))
        return Parcel(names, Tar(sent), given, sums)

    def argv(self, host_job: HostJob, base: str, parcel: Parcel) -> list[str]:
        """Return the command that makes this version on a host, from version `base` and what it is sent."""
        folders = [f"./{path}" for path in self.code.outputs]
        sizes = [str(len(parcel.names)), str(parcel.tar.size), str(len(parcel.sums)), str(len(folders))]
        results = [f"./{path}" for path in self.code.results]
        return SCRIPTS.argv("send_code", _top(host_job), self.code.version or "", base, *sizes, *folders, *results)

    def compressed(self) -> bytes:
        """Return all of it as a compressed tar file: the same bytes for the same names, kinds and contents.

        What is larger than manifests may carry breaks off there.
        """
        from jobctl.jobspec.render.kubernetes import MAX_CONFIG_MAP_BYTES

        packer = zlib.compressobj(level=9, wbits=31)
        packed = bytearray()
        for chunk in Tar(self.files, timeless=True):
            packed += packer.compress(chunk)
            if len(packed) > MAX_CONFIG_MAP_BYTES:
                return bytes(packed)
        return bytes(packed + packer.flush())


def _top(host_job: HostJob) -> str:
    return str(host_job.work / "code")


def _sum(name: bytes, digest: str) -> bytes:
    """Return a line of a file for `sha256sum -c`."""
    path, mark = b"./" + name, b""
    if b"\\" in name or b"\n" in name:
        path, mark = path.replace(b"\\", b"\\\\").replace(b"\n", b"\\n"), b"\\"
    return mark + digest.encode() + b"  " + path + b"\n"


def pack_code(plan: Plan) -> Package | None:
    """Return the code that `plan` sends, None if it sends none."""
    return None if plan.code is None else Package(plan.code, files_to_send(plan, plan.code))


def archive_of(plan: Plan) -> str | None:
    """Return the code that `plan` sends as manifests carry it, in base64; None if it sends none."""
    package = pack_code(plan)
    return None if package is None else base64.b64encode(package.compressed()).decode()
