"""Reading the logs of a job: lines of all processes, in the order of the times they were written.

Beside each log lies an index (`.idx`, written by the launcher): from which byte on was written when. The logs
themselves hold nothing but what the processes printed, and only ever grow: who reads on from where he was, after
whatever broke off, loses nothing and repeats nothing.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol

from jobctl.jobspec.deploy.errors import DeployError
from jobctl.jobspec.deploy.untrusted import as_number, number_in, parse_object

_RECORD = struct.Struct("<Qd")
AT_ONCE = 4 << 20  # bytes of one file that are read at once


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


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """A file below a job's work directory on one host."""

    host: str
    path: PurePosixPath


@dataclass(frozen=True, slots=True)
class Size:
    """How long a file is (bytes), and when it was last written (seconds since the epoch)."""

    bytes: int
    time: float


@dataclass(frozen=True, slots=True)
class Want:
    """`count` bytes of a file from `offset` on."""

    key: Key
    offset: int
    count: int


class Source(Protocol):
    """Where logs are read."""

    interval: float  # seconds between two looks at logs that grow
    problems: dict[str, DeployError]  # why the last read of a host failed

    def files(self) -> Mapping[Key, Size]:
        """Return all files below the nodes' `logs` and `processes`; those of a host that does not answer are missing."""

    def read(self, wants: Sequence[Want]) -> Mapping[Want, bytes]:
        """Return what was wanted, as far as it can be read."""


class Folder:
    """The logs in a work directory on this machine (or in what `down` collected of one)."""

    interval = 0.1

    def __init__(self, root: Path) -> None:
        self.root = root
        self.problems: dict[str, DeployError] = {}

    def files(self) -> Mapping[Key, Size]:
        """Return all files below the nodes' `logs` and `processes`."""
        found = {}
        for part in ("logs", "processes"):
            for path in sorted(self.root.glob(f"node-*/{part}/**/*")):
                inside = PurePosixPath(path.relative_to(self.root).as_posix())
                if is_of_node(inside) and path.is_file():
                    stat = path.stat()
                    key = Key("", inside)
                    found[key] = Size(stat.st_size, stat.st_mtime)
        return found

    def read(self, wants: Sequence[Want]) -> Mapping[Want, bytes]:
        """Return what was wanted."""
        found = {}
        for want in wants:
            try:
                with (self.root / want.key.path).open("rb") as file:
                    file.seek(want.offset)
                    found[want] = file.read(want.count)
            except FileNotFoundError:
                continue
        return found


class Reader(Protocol):
    """What reads the chosen logs of a job, merged by time, as they grow."""

    @property
    def interval(self) -> float:
        """Seconds between two looks at logs that grow."""

    @property
    def problems(self) -> Mapping[str, DeployError]:
        """Why the last read of a host (or pod) failed."""

    def nodes(self) -> set[int]:
        """Return the nodes that have logs, chosen or not."""

    def generations(self) -> set[int]:
        """Return the generations that have logs."""

    def lines(self, *, final: bool = False) -> Iterator[Line]:
        """Yield the lines that came since the last call; with `final` also those without a newline."""


@dataclass(slots=True)
class Tail:
    """One log that is read as it grows."""

    key: Key
    node: int
    rank: int | None
    generation: int
    offset: int = 0
    index_offset: int = 0
    index: list[tuple[int, float]] = field(default_factory=list)
    rest: bytes = b""
    lines: list[Line] = field(default_factory=list)
    more: bool = False  # whether the file is known to hold more than was read
    time: float = 0.0  # of its last line

    @property
    def index_key(self) -> Key:
        """Its index."""
        return Key(self.key.host, self.key.path.with_name(self.key.path.name + ".idx"))

    def feed(self, data: bytes, written: float) -> None:
        """Take what was read; `written` is when, if there is no index."""
        start = self.offset - len(self.rest)
        self.offset += len(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        for text in lines:
            self._add(text, start, written)
            start += len(text) + 1

    def finish(self, written: float) -> None:
        """Take the last line, which has no newline."""
        if self.rest:
            self._add(self.rest, self.offset - len(self.rest), written)
            self.rest = b""

    def _add(self, text: bytes, start: int, written: float) -> None:
        self.time = self._time(start, written)
        self.lines.append(Line(self.time, self.node, self.rank, self.generation, self.key.path.name, text))

    def feed_index(self, data: bytes) -> None:
        """Take what was read of its index."""
        whole = len(data) - len(data) % _RECORD.size
        self.index_offset += whole
        self.index.extend(_RECORD.iter_unpack(data[:whole]))

    def _time(self, offset: int, written: float) -> float:
        while len(self.index) > 1 and self.index[1][0] <= offset:
            del self.index[0]
        return self.index[0][1] if self.index else written


class Logs:
    """The chosen logs of a job. With `last`, only so many lines of each log that is there at the beginning."""

    def __init__(self, source: Source, selection: Selection, last: int | None = None) -> None:
        self.source, self.selection, self.last = source, selection, last
        self.tails: dict[Key, Tail] = {}
        self.known: Mapping[Key, Size] = {}

    @property
    def interval(self) -> float:
        """Seconds between two looks at logs that grow."""
        return self.source.interval

    @property
    def problems(self) -> Mapping[str, DeployError]:
        """Why the last read of a host failed."""
        return self.source.problems

    def lines(self, *, final: bool = False) -> Iterator[Line]:
        """Yield the lines that came since the last call, merged by time; with `final` also those without a newline."""
        last, self.last = self.last, None
        self.known = self.source.files()
        self._discover()
        if last is not None:
            self._skip(last)
        while True:
            self._fill()
            over = not any(tail.more for tail in self.tails.values())
            if over and final:
                for tail in self.tails.values():
                    tail.finish(self._written(tail))
            yield from self._ready()
            if over:
                return

    # Which files there are.

    def nodes(self) -> set[int]:
        """Return the nodes that have logs."""
        return {_node(key.path) for key in self.source.files()}

    def generations(self) -> set[int]:
        """Return the generations that have logs."""
        return {int(key.path.parts[2]) for key in self.source.files() if _in_generation(key.path)}

    def _discover(self) -> None:
        new = [key for key in self.known if _is_log(key.path) and key not in self.tails]
        ranks = self._ranks(new)
        for key in new:
            path = key.path
            generation = int(path.parts[2]) if _in_generation(path) else 0
            # The rank of a process that has only just begun is not known yet; it will be at the next look.
            if number_in(path.suffix[1:]) is None or key in ranks:
                tail = Tail(key, _node(path), ranks.get(key), generation)
                if self._selected(tail):
                    self.tails[key] = tail

    def _ranks(self, keys: Sequence[Key]) -> dict[Key, int]:
        """Return the global ranks of the processes that write these logs."""
        wants = {}
        for key in keys:
            node, _, *rest = key.path.parts
            local = key.path.suffix[1:]
            if len(rest) == 2 and number_in(local) is not None:
                record = Key(key.host, PurePosixPath(node, "processes", rest[0], f"{local}.json"))
                if record in self.known:
                    wants[key] = Want(record, 0, self.known[record].bytes)
        found = self.source.read(list(wants.values())) if wants else {}
        ranks = {key: _rank(found.get(want, b"")) for key, want in wants.items()}
        return {key: rank for key, rank in ranks.items() if rank is not None}

    def _selected(self, tail: Tail) -> bool:
        want = self.selection
        if tail.rank is None and (want.rank is not None or (_is_launcher(tail.key.path) and not want.launcher)):
            return False
        if want.rank is not None and not tail.key.path.name.startswith("workerlog."):
            return False  # servers have ranks of their own
        pairs = ((want.node, tail.node), (want.rank, tail.rank), (want.generation, tail.generation))
        return all(wanted is None or wanted == has for wanted, has in pairs)

    # Reading.

    def _fill(self) -> None:
        """Read the next part of every log."""
        logs, indices = {}, {}
        for tail in self.tails.values():
            size = self.known.get(tail.key)
            count = min(size.bytes - tail.offset, AT_ONCE) if size else 0
            tail.more = size is not None and tail.offset + count < size.bytes
            if count > 0:
                logs[tail.key] = Want(tail.key, tail.offset, count)
                index = self.known.get(tail.index_key)
                if index is not None and index.bytes > tail.index_offset:
                    indices[tail.key] = Want(tail.index_key, tail.index_offset, index.bytes - tail.index_offset)
        if not logs:
            return
        found = self.source.read([*indices.values(), *logs.values()])
        for key, want in logs.items():
            tail = self.tails[key]
            if key in indices:
                tail.feed_index(found.get(indices[key], b""))
            data = found.get(want, b"")
            tail.more = tail.more and bool(data)  # a host that fell silent is not waited for
            tail.feed(data, self._written(tail))

    def _written(self, tail: Tail) -> float:
        size = self.known.get(tail.key)
        return size.time if size else tail.time

    def _ready(self) -> Iterator[Line]:
        """Yield the lines that nothing can come before any more."""
        until = min((tail.time for tail in self.tails.values() if tail.more), default=float("inf"))
        parts = []
        for tail in self.tails.values():
            ready = [line for line in tail.lines if line.time <= until]
            tail.lines = tail.lines[len(ready) :]
            parts.append(ready)
        since = self.selection.since
        for line in heapq.merge(*parts, key=lambda line: line.time):
            if since is None or line.time >= since:
                yield line

    # The last lines.

    def _skip(self, last: int) -> None:
        """Let each log begin with its last lines; one that a later generation does not write any more has none."""
        latest = max((tail.generation for tail in self.tails.values()), default=0)
        left: dict[tuple[int, str], int] = {}
        for tail in sorted(self.tails.values(), key=lambda tail: -tail.generation):
            name = tail.node, tail.key.path.name
            count = left.setdefault(name, last if tail.generation == latest else 0)
            tail.offset, found = self._start_of_last(tail.key, self.known[tail.key].bytes, count)
            left[name] = count - found

    def _start_of_last(self, key: Key, size: int, count: int) -> tuple[int, int]:
        """Return where the last `count` lines of a file begin, and how many there are."""
        span = 4096 + 256 * count
        while count and size:
            offset = max(0, size - span)
            want = Want(key, offset, size - offset)
            data = self.source.read([want]).get(want, b"")
            ends = [at for at, byte in enumerate(data) if byte == 10 and at < len(data) - 1]
            if len(ends) >= count:
                return offset + ends[-count] + 1, count
            if offset == 0 or not data:
                return 0, len(ends) + bool(data)
            span *= 8
        return size, 0


def is_of_node(path: PurePosixPath) -> bool:
    """Say whether a file lies where a node has its logs, or what is known of its processes."""
    parts = path.parts
    return len(parts) > 2 and parts[0].startswith("node-") and number_in(parts[0][5:]) is not None


def _node(path: PurePosixPath) -> int:
    return int(path.parts[0][5:])


def _is_log(path: PurePosixPath) -> bool:
    return path.parts[1] == "logs" and path.suffix != ".idx"


def _in_generation(path: PurePosixPath) -> bool:
    return _is_log(path) and len(path.parts) > 3 and number_in(path.parts[2]) is not None


def _is_launcher(path: PurePosixPath) -> bool:
    return path.name == "launch.log"


def _rank(record: bytes) -> int | None:
    return as_number((parse_object(record) or {}).get("rank"))
