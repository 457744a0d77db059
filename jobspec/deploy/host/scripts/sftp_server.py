"""An SFTP server on standard input and output, for images that have none: version 3, as OpenSSH's clients speak it.

It prints nothing but that. Python 3.8 and its standard library are enough.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import sys
import time
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Answer = tuple[int, bytes]  # its kind, and what follows the request's number
    Wanted = tuple[Any, Any, Any, Any]  # size, owner, mode, times


(OK, EOF, NO_SUCH_FILE, DENIED, FAILURE, BAD_MESSAGE, UNSUPPORTED) = (0, 1, 2, 3, 4, 5, 8)
(INIT, VERSION, STATUS, HANDLE, DATA, NAME, ATTRS) = (1, 2, 101, 102, 103, 104, 105)
(SIZE, OWNER, MODE, TIMES) = (1, 2, 4, 8)  # which attributes follow
(READ, WRITE, APPEND, CREATE, TRUNCATE, EXCLUSIVE) = (1, 2, 4, 8, 16, 32)  # how a file is opened
OPENINGS = ((APPEND, os.O_APPEND), (CREATE, os.O_CREAT), (TRUNCATE, os.O_TRUNC), (EXCLUSIVE, os.O_EXCL))
EXTENSIONS = (
    (b"posix-rename@openssh.com", b"1"),
    (b"hardlink@openssh.com", b"1"),
    (b"fsync@openssh.com", b"1"),
    (b"expand-path@openssh.com", b"1"),
)
MAX_MESSAGE_BYTES = 1 << 18  # bytes of a message; clients send 32 KiB at once
HALF_A_YEAR = 15552000  # seconds
NAMES = 100  # entries of a folder in one answer


class Broken(Exception):
    """A message is shorter than what it must contain, or longer than any may be."""


class Message:
    """A message that was received, read from its beginning."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise Broken
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def long(self) -> int:
        return int.from_bytes(self.take(8), "big")

    def text(self) -> bytes:
        return self.take(self.number())

    def path(self) -> bytes:
        return self.text() or b"."

    def attributes(self) -> Wanted:
        """Return what is to be set: size, owner, mode, times, each None if it is not."""
        flags = self.number()
        size = self.long() if flags & SIZE else None
        owner = (self.number(), self.number()) if flags & OWNER else None
        mode = stat.S_IMODE(self.number()) if flags & MODE else None
        times = (self.number(), self.number()) if flags & TIMES else None
        return size, owner, mode, times


def number(value: int) -> bytes:
    return struct.pack(">I", value & 0xFFFFFFFF)


def text(value: bytes) -> bytes:
    return number(len(value)) + value


def attributes(seen: os.stat_result) -> bytes:
    """Return the attributes of what os.stat has told."""
    flags = number(SIZE | OWNER | MODE | TIMES)
    times = number(int(seen.st_atime)) + number(int(seen.st_mtime))
    owner = number(seen.st_uid) + number(seen.st_gid)
    return flags + struct.pack(">Q", seen.st_size) + owner + number(seen.st_mode) + times


def long_name(name: bytes, seen: os.stat_result) -> bytes:
    """Return a line as `ls -l` has it."""
    new = abs(time.time() - seen.st_mtime) < HALF_A_YEAR
    day = time.strftime("%b %d %H:%M" if new else "%b %d  %Y", time.localtime(seen.st_mtime))
    mode, links = stat.filemode(seen.st_mode), seen.st_nlink
    return f"{mode} {links:4} {seen.st_uid:<8} {seen.st_gid:<8} {seen.st_size:8} {day} ".encode() + name


def change(where: int | bytes, wanted: Wanted) -> None:
    """Set attributes of a path or an open file."""
    size, owner, mode, times = wanted
    if size is not None:
        os.truncate(where, size)
    if mode is not None:
        os.chmod(where, mode)
    if times is not None:
        os.utime(where, times)
    if owner is not None:
        os.chown(where, *owner)


class Server:
    """What is open, and what answers each kind of request."""

    def __init__(self, reads: IO[bytes], writes: IO[bytes]) -> None:
        self.reads, self.writes = reads, writes
        self.open: dict[bytes, Any] = {}  # files by their descriptors, folders as what of them is left to tell
        self.last = 0
        self.kinds: dict[int, Callable[[Message], Answer | None]] = {
            3: self.open_file, 4: self.close, 5: self.read, 6: self.write, 7: self.lstat, 8: self.fstat, 9: self.setstat,
            10: self.fsetstat, 11: self.open_folder, 12: self.read_folder, 13: self.remove, 14: self.mkdir, 15: self.rmdir,
            16: self.realpath, 17: self.stat, 18: self.rename, 19: self.readlink, 20: self.symlink, 200: self.extended,
        }  # fmt: skip

    def serve(self) -> None:
        """Answer until the client has gone."""
        while True:
            head = self.reads.read(4)
            if len(head) < 4:
                return
            size = int.from_bytes(head, "big")
            if not 0 < size <= MAX_MESSAGE_BYTES:
                raise Broken
            data = self.reads.read(size)
            if len(data) < size:
                return
            kind, message = data[0], Message(data[1:])
            if kind == INIT:
                self.send(VERSION, number(3) + b"".join(text(name) + text(value) for name, value in EXTENSIONS))
            else:
                request = message.take(4)
                answer, body = self.answer(kind, message)
                self.send(answer, request + body)

    def send(self, kind: int, body: bytes) -> None:
        self.writes.write(number(len(body) + 1) + bytes([kind]) + body)
        self.writes.flush()

    def answer(self, kind: int, message: Message) -> Answer:
        try:
            done = self.kinds[kind](message)
        except KeyError:
            return status(UNSUPPORTED, "this server does not know that")
        except Broken:
            return status(BAD_MESSAGE, "the message is too short")
        except OSError as error:
            codes: dict[int | None, int] = {errno.ENOENT: NO_SUCH_FILE, errno.EACCES: DENIED, errno.EPERM: DENIED}
            return status(codes.get(error.errno, FAILURE), error.strerror or "failed")
        except (ValueError, OverflowError) as error:
            return status(FAILURE, str(error))
        return done or status(OK, "")

    # Files.

    def keep(self, what: Any) -> Answer:
        self.last += 1
        name = b"%d" % self.last
        self.open[name] = what
        return HANDLE, text(name)

    def handle(self, message: Message) -> Any:
        name = message.text()
        if name not in self.open:
            raise OSError(errno.EBADF, "it is not open")
        return self.open[name]

    def open_file(self, message: Message) -> Answer:
        path, how, wanted = message.path(), message.number(), message.attributes()
        flags = os.O_RDWR if how & READ and how & WRITE else os.O_WRONLY if how & WRITE else os.O_RDONLY
        for asked, flag in OPENINGS:
            flags |= flag if how & asked else 0
        return self.keep(os.open(path, flags, 0o666 if wanted[2] is None else wanted[2]))

    def close(self, message: Message) -> None:
        name = message.text()
        what = self.open.pop(name, None)
        if isinstance(what, int):
            os.close(what)

    def read(self, message: Message) -> Answer:
        file, place, size = self.handle(message), message.long(), message.number()
        data = os.pread(file, min(size, MAX_MESSAGE_BYTES - 1024), place)
        return (DATA, text(data)) if data else status(EOF, "")

    def write(self, message: Message) -> None:
        file, place, data = self.handle(message), message.long(), message.text()
        while data:
            done = os.pwrite(file, data, place)
            data, place = data[done:], place + done

    def fstat(self, message: Message) -> Answer:
        return ATTRS, attributes(os.fstat(self.handle(message)))

    def fsetstat(self, message: Message) -> None:
        change(self.handle(message), message.attributes())

    # Paths.

    def lstat(self, message: Message) -> Answer:
        return ATTRS, attributes(os.lstat(message.path()))

    def stat(self, message: Message) -> Answer:
        return ATTRS, attributes(os.stat(message.path()))

    def setstat(self, message: Message) -> None:
        change(message.path(), message.attributes())

    def open_folder(self, message: Message) -> Answer:
        path = message.path()
        return self.keep([(name, os.path.join(path, name)) for name in (b".", b"..", *os.listdir(path))])

    def read_folder(self, message: Message) -> Answer:
        left = self.handle(message)
        if isinstance(left, int):
            raise OSError(errno.ENOTDIR, "it is not a folder")
        told: list[bytes] = []
        while left and len(told) < NAMES:
            name, path = left.pop(0)
            try:
                seen = os.lstat(path)
            except OSError:  # it was removed since
                continue
            told.append(text(name) + text(long_name(name, seen)) + attributes(seen))
        return (NAME, number(len(told)) + b"".join(told)) if told else status(EOF, "")

    def remove(self, message: Message) -> None:
        os.unlink(message.path())

    def mkdir(self, message: Message) -> None:
        path, wanted = message.path(), message.attributes()
        os.mkdir(path, 0o777 if wanted[2] is None else wanted[2])

    def rmdir(self, message: Message) -> None:
        os.rmdir(message.path())

    def realpath(self, message: Message) -> Answer:
        return named(os.path.realpath(message.path()))

    def rename(self, message: Message) -> None:
        """Rename, but replace nothing, as the protocol has it."""
        old, new = message.path(), message.path()
        if os.path.lexists(new):
            raise OSError(errno.EEXIST, "that exists already")
        os.rename(old, new)

    def readlink(self, message: Message) -> Answer:
        return named(os.readlink(message.path()))

    def symlink(self, message: Message) -> None:
        target, path = message.path(), message.path()  # OpenSSH has them in this order, and so everybody
        os.symlink(target, path)

    def extended(self, message: Message) -> Answer | None:
        kind = message.text()
        if kind == b"posix-rename@openssh.com":
            os.replace(message.path(), message.path())
        elif kind == b"hardlink@openssh.com":
            os.link(message.path(), message.path())
        elif kind == b"fsync@openssh.com":
            os.fsync(self.handle(message))
        elif kind == b"expand-path@openssh.com":
            return named(os.path.realpath(os.path.expanduser(message.path())))
        else:
            return status(UNSUPPORTED, "this server does not know that")
        return None


def status(code: int, why: str) -> Answer:
    return STATUS, number(code) + text(why.encode("utf-8", "replace")) + text(b"")


def named(path: bytes) -> Answer:
    return NAME, number(1) + text(path) + text(path) + number(0)


def main() -> None:
    try:
        Server(sys.stdin.buffer, sys.stdout.buffer).serve()
    except Broken:
        sys.exit("jobctl: this is not SFTP")
    except BrokenPipeError:
        os._exit(0)  # the client has gone


if __name__ == "__main__":
    main()
