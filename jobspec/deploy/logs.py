"""Reading the logs of a work directory: lines of all processes, in the order of the times they were written.

Beside each log lies an index (`.idx`, written by the launcher): from which byte on was written when. The logs
themselves hold nothing but what the processes printed.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jobctl.jobspec.deploy.files import read_json

_RECORD = struct.Struct("<Qd")


@dataclass(frozen=True, slots=True)
class Line:
    """One line, without its newline. `time` is seconds since the epoch, `rank` None for setup and launcher logs."""

    time: float
    node: int
    rank: int | None
    generation: int
    log: str
    text: bytes


@dataclass(frozen=True, slots=True)
class Selection:
    """Which lines: None means all. `launcher` includes what the framework's launcher printed."""

    node: int | None = None
    rank: int | None = None
    generation: int | None = None
    since: float | None = None
    launcher: bool = False


@dataclass(slots=True)
class Tail:
    """One log file that is read as it grows."""

    path: Path
    node: int
    rank: int | None
    generation: int
    offset: int = 0
    index_offset: int = 0
    index: list[tuple[int, float]] = field(default_factory=list)
    rest: bytes = b""

    def read(self, *, final: bool = False) -> Iterator[Line]:
        """Yield the whole lines that came since the last call; with `final` also one without a newline."""
        self._read_index()
        start = self.offset - len(self.rest)
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                new = file.read()
        except FileNotFoundError:
            return
        self.offset += len(new)
        *lines, self.rest = (self.rest + new).split(b"\n")
        if final and self.rest:
            lines.append(self.rest)
            self.rest = b""
        for text in lines:
            yield Line(self._time(start), self.node, self.rank, self.generation, self.path.name, text)
            start += len(text) + 1

    def _read_index(self) -> None:
        try:
            with self.path.with_name(self.path.name + ".idx").open("rb") as file:
                file.seek(self.index_offset)
                raw = file.read()
        except FileNotFoundError:
            return
        whole = len(raw) - len(raw) % _RECORD.size
        self.index_offset += whole
        self.index.extend(_RECORD.iter_unpack(raw[:whole]))

    def _time(self, offset: int) -> float:
        while len(self.index) > 1 and self.index[1][0] <= offset:
            del self.index[0]
        if self.index:
            return self.index[0][1]
        return self.path.stat().st_mtime


class Logs:
    """The logs below one work directory (or below what `down` collected of it)."""

    def __init__(self, root: Path, selection: Selection) -> None:
        self.root, self.selection = root, selection
        self.tails: dict[Path, Tail] = {}

    def lines(self, *, final: bool = False) -> Iterator[Line]:
        """Yield the lines that came since the last call, merged by time."""
        self._discover()
        merged = heapq.merge(*(tail.read(final=final) for tail in self.tails.values()), key=lambda line: line.time)
        since = self.selection.since
        yield from merged if since is None else (line for line in merged if line.time >= since)

    def _discover(self) -> None:
        for path in sorted(self.root.glob("node-*/logs/**/*")):
            if path not in self.tails and path.suffix != ".idx" and path.is_file():
                tail = _tail(path)
                if tail is not None and self._selected(tail):
                    self.tails[path] = tail

    def _selected(self, tail: Tail) -> bool:
        want = self.selection
        if tail.rank is None and (want.rank is not None or (_is_launcher(tail.path) and not want.launcher)):
            return False
        pairs = ((want.node, tail.node), (want.rank, tail.rank), (want.generation, tail.generation))
        return all(wanted is None or wanted == has for wanted, has in pairs)


def _is_launcher(path: Path) -> bool:
    return path.name == "launch.log"


def _tail(path: Path) -> Tail | None:
    """Return the log at `path`, None while its rank is not known yet."""
    folder = path.parent
    node_dir = next(parent for parent in path.parents if parent.name.startswith("node-"))
    node = int(node_dir.name[5:])
    generation = int(folder.name) if folder.name.isdigit() else 0
    local_rank = path.suffix[1:]
    if not local_rank.isdigit():
        return Tail(path, node, None, generation)
    record = read_json(node_dir / "processes" / str(generation) / f"{local_rank}.json")
    return None if record is None else Tail(path, node, record["rank"], generation)
