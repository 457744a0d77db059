"""Files that are replaced whole, so that a reader never sees half of one, and files that grow line by line."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobctl.jobspec.deploy.model.untrusted import parse_object


def write_atomic(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write `content` to `path` through a temporary file beside it; the file never has wider rights than `mode`."""
    with told_of(path):
        _write(path, content, mode)


@contextlib.contextmanager
def told_of(path: Path) -> Iterator[None]:
    """Have an error that names no file name `path`: a full disk is noticed by `write`, which knows none."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def _write(path: Path, content: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def write_json(path: Path, value: object, mode: int = 0o644) -> None:
    """Write `value` as JSON, keys sorted, atomically."""
    write_atomic(path, (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode(), mode)


def is_full(path: Path) -> bool:
    """Say whether the disk of `path` has no room left for us: no free block, or no free inode where they are counted."""
    try:
        found = os.statvfs(path)
    except OSError:
        return False
    free = found.f_bfree if os.geteuid() == 0 else found.f_bavail
    return free == 0 or (found.f_files > 0 and found.f_ffree == 0)


def append_line(path: Path, line: str) -> None:
    """Append a line, in one write, so that lines of two writers never mix; the file is readable by its owner only.

    It begins a new line after one that broke off on a full disk. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(handle).st_size
        whole = size == 0 or os.pread(handle, 1, size - 1) == b"\n"
        data = f"{'' if whole else chr(10)}{line}\n".encode()
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
