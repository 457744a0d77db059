"""Artefacts to a directory, for `jobctl render --out`.

The directory afterwards holds this render and nothing of an earlier one. What jobctl wrote there is listed, with
hashes, in a file beside it (`sha256sum --check .jobctl-render` reads it), so that any other file there is
known to be the user's: it is neither overwritten nor deleted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from jobctl.jobspec.records import dataclass
from jobctl.jobspec.render.errors import RenderError

if TYPE_CHECKING:
    from jobctl.jobspec.render.artefact import Artefact

LIST = ".jobctl-render"
HELD = 16 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Written:
    """What `write` did: how many files it wrote, and which files of an earlier render it kept: those edited since."""

    files: int
    kept: tuple[str, ...] = ()


def write(artefacts: Iterable[Artefact], out: Path) -> Written:
    """Write `artefacts` below `out` and remove what an earlier render left there.

    Raises RenderError if `out` holds something that is not of a render, or cannot be written. Where an artefact cannot be
    made, nothing is written, unless all until then are larger than memory should hold.
    """
    try:
        return _write(artefacts, out)
    except OSError as error:
        raise RenderError("cannot-write", f"cannot write to {error.filename or out}: {error.strerror}") from error


def _write(artefacts: Iterable[Artefact], out: Path) -> Written:
    earlier = _listed(out)
    target = _Target(out, earlier)
    rest = iter(artefacts)
    held = list(_beginning(rest))
    out.mkdir(parents=True, exist_ok=True)
    # Listed before it is written, so that a render that was killed can be repeated.
    with (out / LIST).open("ab", buffering=0) as growing:
        for artefact in chain(held, rest):
            target.check(artefact.path)
            growing.write(target.listed(artefact))
            target.put(artefact)
    kept = _remove_stale(out, {path: hashes for path, hashes in earlier.items() if path not in target.lines})
    _replace_list(out, b"".join(target.lines.values()))
    return Written(len(target.lines), kept)


def _beginning(artefacts: Iterator[Artefact]) -> Iterator[Artefact]:
    """Yield as many artefacts as are held before the first of them is written: all, except those of thousands of hosts."""
    size = 0
    for artefact in artefacts:
        yield artefact
        size += len(artefact.content)
        if size > HELD:
            return


class _Target:
    """The directory while it is written."""

    def __init__(self, out: Path, earlier: dict[str, set[str]]) -> None:
        self.out, self.earlier = str(out), earlier
        self.lines: dict[str, bytes] = {}
        self.made: set[str] = set()

    def check(self, path: str) -> None:
        """Refuse to overwrite what no render wrote."""
        full = f"{self.out}/{path}"
        if path not in self.earlier and path not in self.lines and self.earlier and os.path.lexists(full):
            raise RenderError(
                "file-in-the-way",
                f"{full} exists, and `jobctl render` did not write it",
                "move it away, or render into another directory",
            )

    def listed(self, artefact: Artefact) -> bytes:
        line = f"{sha256(artefact.content).hexdigest()}  {artefact.path}\n".encode()
        self.lines[artefact.path] = line
        return line

    def put(self, artefact: Artefact) -> None:
        full = f"{self.out}/{artefact.path}"
        parent = os.path.dirname(full)
        if parent not in self.made:
            os.makedirs(parent, exist_ok=True)
            self.made.add(parent)
        file = os.open(full, _OPEN, artefact.mode)
        try:
            if artefact.path in self.earlier:
                os.fchmod(file, artefact.mode)
            rest = memoryview(artefact.content)
            while rest:
                rest = rest[os.write(file, rest) :]
        finally:
            os.close(file)


# pathlib and buffered files cost more than the writing itself. A link where a file of ours was is the user's.
_OPEN = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


def _listed(out: Path) -> dict[str, set[str]]:
    """Return the files of earlier renders below `out` with their hashes. Raises RenderError for another's directory."""
    try:
        text = (out / LIST).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        if out.exists() and any(out.iterdir()):
            raise RenderError(
                "out-not-empty",
                f"{out} holds files that `jobctl render` did not write",
                "render into a new or empty directory",
            ) from None
        return {}
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        digest, _, path = line.partition("  ")
        if _is_below(path):
            found.setdefault(path, set()).add(digest)
    return found


def _is_below(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and parts[0] != "/" and ".." not in parts


def _remove_stale(out: Path, stale: dict[str, set[str]]) -> tuple[str, ...]:
    """Remove the files of an earlier render, and folders that are empty then; return what stayed."""
    kept = []
    for path, hashes in stale.items():
        full = out / path
        if not full.is_file():
            continue
        if full.is_symlink() or sha256(full.read_bytes()).hexdigest() not in hashes:
            kept.append(path)
            continue
        full.unlink()
        with suppress(OSError):  # not empty: it holds files of the user's
            full.parent.rmdir()
    return tuple(kept)


def _replace_list(out: Path, content: bytes) -> None:
    new = out / f"{LIST}.new"
    new.write_bytes(content)
    new.replace(out / LIST)
