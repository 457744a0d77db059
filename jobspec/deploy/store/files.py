"""Files that are replaced whole, so that a reader never sees half of one, and files that grow line by line."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jobctl.jobspec.deploy.model.untrusted import parse_object


def write_atomic(path: Path, content: bytes, mode: int = 0o644, *, sync: bool = False) -> None:
    """Write `content` to `path` through a temporary file beside it; the file never has wider rights than `mode`.

    `sync`: return only when a power cut cannot undo it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _write(path, content, mode, sync)
    except OSError as error:  # which names no file, or the temporary one
        raise OSError(error.errno, error.strerror, str(path)) from error


def replace_named(path: Path, content: bytes) -> None:
    """Write a file that a user has named, whole or not at all; an earlier one keeps its rights, and a link stays one.

    A pipe or a device is written into, and so is a file in a folder that cannot be written.
    """
    target = Path(os.path.realpath(path))
    with told_of(path):
        if (path.exists() and not path.is_file()) or not os.access(target.parent, os.W_OK):
            path.write_bytes(content)
            return
    try:
        _write(target, content, _mode_of(path), sync=False)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _mode_of(path: Path) -> int:
    """Return the rights of a file, or those of a new one. Raises OSError where we may not write it."""
    try:
        with path.open("r+b") as file:
            return os.fstat(file.fileno()).st_mode & 0o777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


@contextlib.contextmanager
def told_of(path: Path) -> Iterator[None]:
    """Have an error that names no file name `path`: a full disk is noticed by `write`, which knows none."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def _write(path: Path, content: bytes, mode: int, sync: bool) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(name, path)
        if sync:
            _sync_folder(path.parent)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def remove_file(path: Path) -> None:
    """Remove a file, if it is there, and what `write_atomic` has left of it."""
    path.unlink(missing_ok=True)
    remove_parts(path)


def remove_parts(path: Path) -> None:
    """Remove what `write_atomic` has left beside a file where it was killed: that may hold secrets."""
    for part in path.parent.glob(f".{path.name}.{'?' * 8}"):  # as `mkstemp` names them
        part.unlink(missing_ok=True)


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: object, mode: int = 0o644, *, sync: bool = False) -> None:
    """Write `value` as JSON, keys sorted, atomically."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    try:
        data = text.encode()
    except UnicodeEncodeError:  # a variable or a path of other bytes than UTF-8: as escapes they can be read again
        data = (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()
    write_atomic(path, data, mode, sync=sync)


class Room(NamedTuple):
    """What a file system says that it has, in blocks and inodes; `inodes` is 0 where it does not count them."""

    blocks: int
    free: int
    free_for_others: int  # than root
    inodes: int
    free_inodes: int

    def is_used_up(self, *, by_root: bool) -> bool:
        """Say whether nothing more can be written. The last blocks that ext4 counts as free are its own: 2 %, at most 4096."""
        # A 40th: `blocks` lacks what the file system has used for itself.
        own = 0 if self.free_for_others else min(self.blocks // 40, 4096)
        no_block = self.free <= own if by_root else self.free_for_others == 0
        return no_block or (self.inodes > 0 and self.free_inodes == 0)


def is_full(path: Path) -> bool:
    """Say whether the disk of `path` has no room left for us."""
    try:
        found = os.statvfs(path)
    except OSError:
        return False
    room = Room(found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree)
    return room.is_used_up(by_root=os.geteuid() == 0)


def append_line(path: Path, line: str) -> None:
    """Append a line, in one write, so that lines of two writers never mix; the file is readable by its owner only.

    It begins a new line after one that broke off on a full disk. A file's name that is no UTF-8 becomes an escape of JSON.
    Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(handle).st_size
        whole = size == 0 or os.pread(handle, 1, size - 1) == b"\n"
        data = f"{'' if whole else chr(10)}{line}\n".encode(errors="backslashreplace")
        if os.write(handle, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(handle)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in `path`, or None if it is missing or no such thing (a launcher's disk may be full)."""
    try:
        return parse_object(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
