"""JSON files that are written whole, and what a launcher says on its own output."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Tuple

    Json = Dict[str, Any]
TAIL_LINES, TAIL_BYTES = 20, 64 * 1024
LONGEST_TAIL = 4096  # characters of one of these lines, its last ones
TAIL_ALONE, TAIL_CHARACTERS = 5, 300  # what of that goes into etcd, whose requests may not be large, or on a full disk


UNWRITTEN: Dict[str, Optional[int]] = {}  # by path: why it could not be written, which was said


def write_json(path: str, value: Json) -> bool:
    """Replace `path` whole; say whether that went. A full disk must not end a training run, so failures are only noted."""
    folder = os.path.dirname(path)
    name, text = None, json.dumps(value).encode()
    try:
        os.makedirs(folder, exist_ok=True)
        new = os.path.join(folder, ".%s.%s" % (os.path.basename(path), os.urandom(6).hex()))
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        name = new
        with os.fdopen(handle, "wb") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
        UNWRITTEN.pop(path, None)
        return True
    except OSError as error:
        if name:
            with contextlib.suppress(OSError):
                os.unlink(name)
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and overwrite(path, text):
            return True
        if UNWRITTEN.get(path, 0) != error.errno:  # a report is written several times a second
            UNWRITTEN[path] = error.errno
            note("cannot write %s: %s" % (path, error))
        return False


def overwrite(path: str, text: bytes) -> bool:
    """Write JSON over what a file holds, if it has the room; say whether that went.

    Not at once, as a reader may see: only for a full disk, where what the file said before would be said for ever.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        size = os.fstat(handle).st_size
        if len(text) > size:
            os.posix_fallocate(handle, size, len(text) - size)
        os.write(handle, text.ljust(size))
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Have an error that names no file name `path`: a full disk is noticed by `write`, which knows none."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), path) from error
        raise


def parse_json(text: str) -> Any:
    """Return the value in a text of JSON. Raises ValueError for what is not JSON, or is nested too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None


def read_json(path: str) -> Optional[Json]:
    """Return the JSON object in `path`, None if there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            value = parse_json(file.read())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def note(message: str) -> None:
    """Tell a person who reads the launcher's own log."""
    with contextlib.suppress(OSError):
        sys.stderr.write("%s launcher: %s\n" % (time.strftime("%Y-%m-%d %H:%M:%S"), message))
        sys.stderr.flush()


def last_lines(path: str, start: int = 0) -> List[str]:
    """Return the last lines of a log, as text whatever its bytes are, from byte `start` on; of a progress bar its last state.

    If it is shorter than that by now, somebody has emptied it: then from its beginning.
    """
    try:
        with open(path, "rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(start if start <= end else 0, end - TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    states = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    lines = "\n".join(states).splitlines()
    return [line[-LONGEST_TAIL:] for line in lines if line.strip()][-TAIL_LINES:]


def read_secrets(path: Optional[str]) -> Json:
    """Return the values of secrets by name: of a JSON file, or of a folder with a file for each."""
    if not path or not os.path.isdir(path):
        return read_json(path or "") or {}
    values = {}
    for file in files_in(path):
        if os.path.isfile(file):  # not what Kubernetes keeps versions in
            with contextlib.suppress(OSError), open(file, "rb") as opened:
                # Not as text, of which lines would end in another way.
                values[os.path.basename(file)] = opened.read().decode("utf-8", "surrogateescape")
    return values


def files_in(folder: str) -> Iterator[str]:
    """Yield the paths of the files in a folder."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        yield os.path.join(folder, name)


def read_progress(path: str) -> Optional[Tuple[int, Optional[float]]]:
    """Return the step number in a progress file, and the seconds behind it, None for those if there are none.

    None for anything else: a script may be writing it just now.
    """
    try:
        with open(path, "rb") as file:
            words = file.read(64).split()
        step = int(words[0])
    except (OSError, ValueError, IndexError):
        return None
    try:
        seconds = float(words[1])
    except (ValueError, IndexError):
        return step, None
    return step, seconds if 0 < seconds < float("inf") else None


def size_of(path: str) -> int:
    """Return the size of a file, 0 if there is none."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def is_removed(folder: str) -> bool:
    """Return whether a folder, which is mounted here, was removed where it lies: nobody can write into it ever again."""
    try:
        return os.stat(folder).st_nlink == 0
    except FileNotFoundError:
        above = os.path.dirname(folder)
        return above != folder and is_removed(above)
    except OSError:
        return False


def read_from(path: str, start: int) -> str:
    """Return what was written into a file from byte `start` on."""
    try:
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(1 << 20).decode("utf-8", "replace")
    except OSError:
        return ""
