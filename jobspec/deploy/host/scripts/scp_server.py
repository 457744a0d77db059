"""The other end of `scp`, for images that have none: what clients before OpenSSH 9.0 start, and later ones with `-O`.

Options: -t PATH takes files, -f PATH… gives them; -r folders too, -p modes and times as well. Python 3.8 is enough.
"""

from __future__ import annotations

import contextlib
import getopt
import os
import stat
import sys
from typing import IO

CHUNK = 1 << 16
MAX_LINE_BYTES = 1 << 16  # bytes of a line


class Over(Exception):
    """The client has ended it, or speaks something else."""


class NotCopied(Exception):
    """One file cannot be copied. The others are."""


class Wire:
    """The client. Each side answers each message of the other."""

    def __init__(self, reads: IO[bytes], writes: IO[bytes]) -> None:
        self.reads, self.writes = reads, writes
        self.failed = False

    def send(self, data: bytes) -> None:
        self.writes.write(data)
        self.writes.flush()

    def confirm(self) -> None:
        """Say that all is well."""
        self.send(b"\0")

    def tell(self, problem: str) -> None:
        self.failed = True
        self.send(b"\1scp: " + os.fsencode(problem.replace("\n", " ")) + b"\n")

    def line(self) -> bytes:
        """Return the next message, nothing at the end."""
        line = self.reads.readline(MAX_LINE_BYTES)
        if line and not line.endswith(b"\n"):
            raise Over
        return line[:-1]

    def is_well(self) -> bool:
        """Wait for an answer; say whether the client goes on with this file."""
        answer = self.reads.read(1)
        if answer == b"\0":
            return True
        if answer == b"\1":
            self.failed = True
            self.line()
            return False
        raise Over


def words(error: OSError, path: str) -> str:
    return f"{path}: {error.strerror or error}"


# Giving.


class GivenFiles:
    """Gives files."""

    def __init__(self, wire: Wire, deep: bool, whole: bool) -> None:
        self.wire, self.deep, self.whole = wire, deep, whole

    def give(self, path: str) -> None:
        """Give a file or a folder, or tell the client why not."""
        try:
            seen = os.stat(path)
            if stat.S_ISDIR(seen.st_mode) and self.deep:
                self.folder(path, seen)
            elif stat.S_ISREG(seen.st_mode):
                with open(path, "rb") as file:
                    self.file(path, file)
            else:
                self.wire.tell(f"{path}: not a regular file")
        except OSError as error:
            self.wire.tell(words(error, path))

    def begin(self, kind: str, path: str, seen: os.stat_result, size: int) -> bool:
        """Announce a file or a folder; say whether the client takes it."""
        if self.whole:
            self.wire.send(b"T%d 0 %d 0\n" % (seen.st_mtime, seen.st_atime))
            if not self.wire.is_well():
                return False
        name = os.path.basename(path.rstrip("/")).replace("\n", "?") or "/"
        head = f"{kind}{stat.S_IMODE(seen.st_mode):04o} {size} {name}\n"
        self.wire.send(os.fsencode(head))
        return self.wire.is_well()

    def file(self, path: str, file: IO[bytes]) -> None:
        seen = os.fstat(file.fileno())
        if not self.begin("C", path, seen, seen.st_size):
            return
        left, problem = seen.st_size, ""
        while left:
            try:
                data = file.read(min(left, CHUNK))
                problem = problem if data else f"{path}: it became shorter meanwhile"
            except OSError as error:
                data, problem = b"", words(error, path)
            data = data or b"\0" * min(left, CHUNK)  # the client waits for as many bytes as were announced
            self.wire.writes.write(data)
            left -= len(data)
        if problem:
            self.wire.tell(problem)
        else:
            self.wire.confirm()
        self.wire.is_well()

    def folder(self, path: str, seen: os.stat_result) -> None:
        names = sorted(os.listdir(path))
        if not self.begin("D", path, seen, 0):
            return
        for name in names:
            self.give(os.path.join(path, name))
        self.wire.send(b"E\n")
        self.wire.is_well()


# Taking.


class TakenFiles:
    """Takes files."""

    def __init__(self, wire: Wire, deep: bool, whole: bool) -> None:
        self.wire, self.deep, self.whole = wire, deep, whole
        self.times: tuple[int, int] | None = None  # of what comes next
        self.mask = os.umask(0)
        os.umask(self.mask)

    def take(self, target: str, inside: bool) -> None:
        """Take what comes into a folder or as a file, up to the end of an announced folder if it is `inside` of one."""
        self.wire.confirm()
        while True:
            line = self.wire.line()
            kind = line[:1]
            if kind == b"E" and inside:
                self.wire.confirm()
                return
            if not line:
                return
            try:
                if kind == b"T":
                    modified, _, accessed, _ = map(int, line[1:].split())
                    self.times = accessed, modified
                    self.wire.confirm()
                elif kind in (b"C", b"D"):
                    self.announced(line, target)
                elif kind == b"\1":
                    self.wire.failed = True
                else:
                    raise Over
            except NotCopied as problem:
                self.wire.tell(str(problem))

    def announced(self, line: bytes, target: str) -> None:
        """Take the file or the folder that a line announces."""
        mode, size, name = line[1:].split(b" ", 2)
        times, self.times = self.times, None
        plain = os.fsdecode(name)
        if "/" in plain or plain in ("", ".", ".."):
            raise NotCopied(f"{plain}: unexpected name")
        path = os.path.join(target, plain) if os.path.isdir(target) else target
        bits = stat.S_IMODE(int(mode, 8))
        try:
            if line[:1] == b"D":
                self.folder(path, bits, times)
            else:
                self.file(path, bits, times, int(size))
        except OSError as error:
            raise NotCopied(words(error, path)) from error

    def finish(self, path: str, bits: int, times: tuple[int, int] | None, *, new: bool) -> None:
        """Give a file or a folder that has come its mode and times."""
        if self.whole or new:
            os.chmod(path, bits if self.whole else bits & ~self.mask)
        if times is not None:
            os.utime(path, times)

    def folder(self, path: str, bits: int, times: tuple[int, int] | None) -> None:
        if not self.deep:
            raise NotCopied(f"{path}: a folder, without -r")
        new = not os.path.isdir(path)
        if new:
            os.mkdir(path, bits | stat.S_IRWXU)
        self.take(path, inside=True)
        with contextlib.suppress(OSError):  # its end was answered
            self.finish(path, bits, times, new=new)

    def file(self, path: str, bits: int, times: tuple[int, int] | None, size: int) -> None:
        new = not os.path.exists(path)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, bits | stat.S_IWUSR)
        trouble = None
        with open(handle, "wb", buffering=0) as file:
            self.wire.confirm()
            while size:
                data = self.wire.reads.read(min(size, CHUNK))
                if not data:
                    raise Over
                size -= len(data)
                try:
                    while data and trouble is None:
                        data = data[file.write(data) :]
                except OSError as error:  # the rest has to be read all the same
                    trouble = error
        if not self.wire.is_well():
            return
        if trouble is not None:
            raise trouble
        self.finish(path, bits, times, new=new)
        self.wire.confirm()


def main() -> int:
    options, paths = getopt.getopt(sys.argv[1:], "tfrpdvqCBl:")
    given = {name for name, _ in options}
    wire = Wire(sys.stdin.buffer, sys.stdout.buffer)
    how = wire, "-r" in given, "-p" in given
    try:
        if "-t" in given:
            if "-d" in given and not os.path.isdir(paths[0]):
                wire.tell(f"{paths[0]}: not a folder")
                return 1
            TakenFiles(*how).take(paths[0], inside=False)
        elif wire.is_well():
            for path in paths:
                GivenFiles(*how).give(path)
    except (Over, BrokenPipeError):
        return 1
    return 1 if wire.failed else 0


if __name__ == "__main__":
    os._exit(main())  # nothing is left to flush, and the client may have gone
