"""What a host has got of an archive, in a file: a transfer that was interrupted goes on from there, and others are given it.

A piece counts only where its SHA-256 is that of the piece that the source has: what is in the file is not trusted. Nobody but
the user who logs in may read it. It is removed once the host's engine has all.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator

SPARE = 1 << 30  # bytes that stay free beside the archive, and what the engine makes of it


class KeptArchive:
    """The file of one archive, `name` in `folder`. Raises OSError where it cannot be used, or another program does."""

    def __init__(self, folder: str, name: str) -> None:
        os.makedirs(folder, 0o700, exist_ok=True)
        self._folder, self._path = folder, os.path.join(folder, name)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise
        self.size = os.fstat(self._file).st_size

    def has_room(self, size: int) -> bool:
        """Say whether the disk holds an archive of so many bytes, and the same again for an engine beside it."""
        disk = os.fstatvfs(self._file)
        return disk.f_bavail * disk.f_frsize + self.size > 2 * size + SPARE

    def digests(self, piece: int) -> Iterator[bytes]:
        """Yield the SHA-256 of each piece that is there."""
        for at in range(0, self.size, piece):
            yield hashlib.sha256(self.read(at, piece)).digest()

    def read(self, at: int, size: int) -> bytes:
        """Return at most so many bytes."""
        parts = []
        while size > 0 and (part := os.pread(self._file, size, at)):
            parts.append(part)
            at, size = at + len(part), size - len(part)
        return b"".join(parts)

    def write(self, at: int, body: bytes) -> None:
        """Write a piece to its place."""
        left = memoryview(body)
        while left:
            count = os.pwrite(self._file, left, at)
            at, left = at + count, left[count:]

    def remove(self) -> None:
        """Remove the file. What is in it can still be read here."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)
            os.rmdir(self._folder)

    def empty(self) -> None:
        """Remove the file with what is in it: the disk has the room again."""
        self.remove()
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)
