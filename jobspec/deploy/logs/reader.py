"""Reading the logs of a job: lines of all processes, in the order of the times they were written.

Beside each log lies an index (`.idx`, written by the launcher): from which byte on was written when. The logs
themselves hold nothing but what the processes printed, and grow: who reads on from where he was, after whatever broke
off, loses nothing and repeats nothing. If a log becomes shorter, somebody has emptied it: then it is read from its
start, and the launcher begins its index again.
"""

from __future__ import annotations

import heapq
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import PurePosixPath

from jobctl.jobspec.deploy.logs.files import LogKey, LogSource, Size, Want
from jobctl.jobspec.deploy.logs.seeking import RECORD, begin_at, index_at, start_of_last
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.model.log_lines import Line, LineSelection
from jobctl.jobspec.deploy.model.untrusted import as_number, number_in, parse_object
from jobctl.jobspec.records import dataclass

MAX_READ_BYTES = 4 << 20  # bytes of one file that are read at once
TOGETHER = 128 << 20  # the same of all files of a job, unless that is less than a line for each
MAX_INDEX_READ_BYTES = 4096 * RECORD.size  # the same of an index
MAX_LINE_BYTES = 256 << 10  # bytes of a line; what is longer comes in parts
PACE = 0.5  # seconds between two states of a line that is written over and over, as progress bars are

# What is a log among the files beside it: other than what debuggers and frameworks leave there.
_LOG = re.compile(r"(?!endpoints\.)[a-z]+\.log|[a-z]+log\.\d+|stack\.\d+")
_PY_SPY = b"Process "  # how its dumps begin; what a process has printed of its stack itself is in its log already


def last_state(line: bytes) -> bytes:
    """Return what a terminal shows of a line that was written over and over, as by a progress bar."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


@dataclass(slots=True)
class Tail:
    """One log that is read as it grows. `torn`: reading began in the midst of a line, the rest of which is left out."""

    key: LogKey
    node: int
    rank: int | None
    generation: int
    offset: int = 0
    index_offset: int = 0
    torn: bool = False
    index: deque[tuple[int, float]] = field(default_factory=deque)
    rest: bytes = b""
    lines: list[tuple[float, Line]] = field(default_factory=list)  # each with `latest` as it was then
    more: bool = False  # whether the file is known to hold more than was read
    time: float = 0.0  # of its last line
    latest: float = 0.0  # of all its lines: a clock that is set back changes the order of no log
    bar: bool = False  # whether the line in `rest` is written over and over
    shown: bytes = b""  # the last state of the line in `rest` that was shown
    shown_at: float = 0.0  # when, by a clock that nobody sets

    @property
    def timed(self) -> int:
        """Up to which byte it is known when it was written."""
        return self.index[-1][0] if self.index else 0

    @property
    def index_key(self) -> LogKey:
        """Its index."""
        return LogKey(self.key.host, self.key.path.with_name(self.key.path.name + ".idx"))

    def feed(self, data: bytes, written: float) -> None:
        """Take what was read; `written` is when, if there is no index."""
        start = self.offset - len(self.rest)
        self.offset += len(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        for text in lines:
            self._add(text, start, written)
            start += len(text) + 1
        whole = len(self.rest)
        self.rest = self.rest[self.rest.rstrip(b"\r").rfind(b"\r") + 1 :]
        self.bar = self.bar or len(self.rest) < whole or self.rest.endswith(b"\r")
        while len(self.rest) > MAX_LINE_BYTES:
            self._add(self.rest[:MAX_LINE_BYTES], self.offset - len(self.rest), written)
            self.rest = self.rest[MAX_LINE_BYTES:]

    def resize(self, size: int, index_size: int) -> None:
        """Begin again with a file that is shorter than what was read of it: somebody has emptied it."""
        if size < self.offset:
            self.offset, self.rest, self.shown = 0, b"", b""
            self.torn = self.bar = False
            self.index.clear()
        if index_size < self.index_offset:
            self.index_offset = 0
            self.index.clear()

    def show(self, now: float) -> None:
        """Show the state of a line that is written over and over, now and then."""
        state = last_state(self.rest)
        if state and state != self.shown and self.bar and now - self.shown_at >= PACE:
            self._append(state, self.offset - len(self.rest), self.time)
            self.shown, self.shown_at = state, now

    def finish(self, written: float) -> None:
        """Take the last line, which has no newline."""
        if self.rest:
            self._add(self.rest, self.offset - len(self.rest), written)
            self.rest = b""

    def _add(self, text: bytes, start: int, written: float) -> None:
        state = last_state(text)
        told = self.torn or (bool(self.shown) and state == self.shown)
        self.torn, self.bar, self.shown = False, False, b""
        if not told:
            self._append(state, start + text.rindex(state), written)

    def _append(self, text: bytes, start: int, written: float) -> None:
        self.time = self._time(start, written)
        self.latest = max(self.latest, self.time)
        line = Line(self.time, self.node, self.rank, self.generation, self.key.path.name, text)
        self.lines.append((self.latest, line))

    def feed_index(self, data: bytes) -> None:
        """Take what was read of its index."""
        whole = len(data) - len(data) % RECORD.size
        self.index_offset += whole
        self.index.extend(RECORD.iter_unpack(data[:whole]))

    def _time(self, offset: int, written: float) -> float:
        while len(self.index) > 1 and self.index[1][0] <= offset:
            self.index.popleft()
        return self.index[0][1] if self.index and self.index[0][0] <= offset else written


class Logs:
    """The chosen logs of a job. With `last`, only so many lines of each log that is there at the beginning.

    That is so on a host that answers later, too.
    """

    def __init__(self, source: LogSource, selection: LineSelection, last: int | None = None) -> None:
        self.source, self.selection, self.last = source, selection, last
        self.tails: dict[LogKey, Tail] = {}
        self.known: Mapping[LogKey, Size] = {}
        self._begun = False
        self._listed: set[str] = set()  # hosts whose files are known
        self._old: set[LogKey] = set()  # logs of which only the last lines are wanted
        self._left: dict[
            tuple[int, str], int
        ] = {}  # how many of them, of logs of one name, earlier generations may have

    @property
    def interval(self) -> float:
        """Seconds between two looks at logs that grow."""
        return self.source.interval

    @property
    def problems(self) -> Mapping[str, DeployError]:
        """Why the last read of a host failed."""
        return self.source.problems

    def lines(self, *, final: bool = False) -> Iterator[Line]:
        """Yield the lines that came since the last call, merged by time; with `final` also those without a newline.

        It waits for slow hosts at first, when it has to know what there is, and at last.
        """
        self.known = self.source.files(live=self._begun and not final)
        self._begun = True
        come = set(self.source.listed) - self._listed
        self._listed |= come
        new = self._discover()
        if self.last is not None:
            self._note_old(come)
            old = [tail for tail in new if tail.key in self._old]
            self._skip(old, self.last)
            for tail in old:
                if tail.key.host in self.problems:  # its last lines are looked for once its host answers
                    del self.tails[tail.key]
        while True:
            self._fill()
            over = not any(tail.more for tail in self.tails.values())
            for tail in self.tails.values():
                if over and final:
                    tail.finish(self._written(tail))
                elif over:
                    tail.show(time.monotonic())
            yield from self._ready()
            if over:
                return

    # Which files there are.

    def nodes(self) -> set[int]:
        """Return the nodes that have logs."""
        return {_node(key.path) for key in self.source.files()}

    def generations(self) -> set[int]:
        """Return the generations that have logs."""
        return {_generation(key.path) for key in self.source.files() if _in_generation(key.path)}

    def _discover(self) -> list[Tail]:
        """Begin to read logs that were not there before; return them."""
        new = [key for key in self.known if _is_log(key.path) and key not in self.tails]
        ranks = self._ranks(new)
        for key in new:
            path = key.path
            # The rank of a process that has only just begun is not known yet; it will be at the next look.
            if number_in(path.suffix[1:]) is None or key in ranks:
                tail = Tail(key, _node(path), ranks.get(key), _generation(path))
                if self._selected(tail):
                    self.tails[key] = tail
        tails = [self.tails[key] for key in new if key in self.tails]
        if self.selection.since is not None:
            fresh = {tail.key: tail.index_key for tail in tails if not self._is_current(tail.generation)}
            for key, place in begin_at(self.source, self.known, fresh, self.selection.since).items():
                tail = self.tails[key]
                tail.offset, tail.index_offset, tail.torn = place.offset, place.index_offset, place.torn
        return tails

    def _ranks(self, keys: Sequence[LogKey]) -> dict[LogKey, int]:
        """Return the global ranks of the processes that write these logs; of stacks only where py-spy has told them."""
        wants, starts = {}, {}
        for key in keys:
            node, _, *rest = key.path.parts
            local = key.path.suffix[1:]
            if len(rest) == 2 and number_in(local) is not None:
                record = LogKey(key.host, PurePosixPath(node, "processes", rest[0], f"{local}.json"))
                if record in self.known:
                    wants[key] = Want(record, 0, self.known[record].bytes)
                    if key.path.name.startswith("stack."):
                        starts[key] = Want(key, 0, min(len(_PY_SPY), self.known[key].bytes))
        found = self.source.read([*wants.values(), *starts.values()]) if wants else {}
        for key, want in starts.items():
            if found.get(want) != _PY_SPY:
                del wants[key]
        ranks = {key: _rank(found.get(want, b"")) for key, want in wants.items()}
        return {key: rank for key, rank in ranks.items() if rank is not None}

    def _selected(self, tail: Tail) -> bool:
        want = self.selection
        if tail.rank is None and (want.rank is not None or (_is_launcher(tail.key.path) and not want.launcher)):
            return False
        if want.rank is not None and not tail.key.path.name.startswith(("workerlog.", "stack.")):
            return False  # servers have ranks of their own
        pairs = ((want.node, tail.node), (want.rank, tail.rank), (want.generation, tail.generation))
        return all(wanted is None or wanted == has for wanted, has in pairs)

    def _is_current(self, generation: int) -> bool:
        return self.selection.current is not None and generation >= self.selection.current

    # Reading.

    def _fill(self) -> None:
        """Read the next part of every log."""
        logs, indices = {}, {}
        most = max(MAX_LINE_BYTES, min(MAX_READ_BYTES, TOGETHER // max(1, len(self.tails))))
        for tail in self.tails.values():
            if tail.more and tail.lines:
                continue  # it is ahead of others: its lines have to wait for theirs, and would fill the memory
            size, index = self.known.get(tail.key), self.known.get(tail.index_key)
            if size is not None:
                tail.resize(size.bytes, index.bytes if index else tail.index_offset)
            count = min(size.bytes - tail.offset, most) if size else 0
            if size is None or not count:
                tail.more = False
                continue
            left = index.bytes - tail.index_offset if index else 0
            if left > MAX_INDEX_READ_BYTES and tail.timed <= tail.offset:
                count = 0  # when that was written is to be known first
            elif left > MAX_INDEX_READ_BYTES:
                count = min(count, tail.timed - tail.offset)
            if left > 0 and (left <= MAX_INDEX_READ_BYTES or not count):
                indices[tail.key] = Want(tail.index_key, tail.index_offset, min(left, MAX_INDEX_READ_BYTES))
            if count:
                logs[tail.key] = Want(tail.key, tail.offset, count)
            tail.more = tail.offset + count < size.bytes
        if not logs and not indices:
            return
        found = self.source.read([*indices.values(), *logs.values()])
        for key in {**indices, **logs}:
            tail = self.tails[key]
            if key in indices:
                tail.feed_index(found.get(indices[key], b""))
            data = found.get(logs[key], b"") if key in logs else b""
            # A host that fell silent is not waited for.
            tail.more = tail.more and bool(data if key in logs else found.get(indices[key]))
            tail.feed(data, self._written(tail))

    def _written(self, tail: Tail) -> float:
        size = self.known.get(tail.key)
        return size.time if size else tail.time

    def _ready(self) -> Iterator[Line]:
        """Yield the lines that nothing can come before any more."""
        until = min((tail.latest for tail in self.tails.values() if tail.more), default=float("inf"))
        parts = []
        for tail in self.tails.values():
            ready = [timed for timed in tail.lines if timed[0] <= until]
            tail.lines = tail.lines[len(ready) :]
            parts.append(ready)
        since = self.selection.since
        for _, line in heapq.merge(*parts, key=lambda timed: timed[0]):
            if since is None or line.time >= since or self._is_current(line.generation):
                yield line

    # The last lines.

    def _note_old(self, hosts: set[str]) -> None:
        """Take note of logs on hosts that are listed for the first time: they are as old as those that were found first.

        New are logs of later generations, and all on a host that has no others: it got its first node since then.
        """
        logs = {key: _generation(key.path) for key in self.known if key.host in hosts and _is_log(key.path)}
        newest = max(map(_generation, (key.path for key in self._old or logs)), default=0)
        begun = {key.host for key, generation in logs.items() if not self._old or 0 < generation <= newest}
        self._old |= {key for key, generation in logs.items() if key.host in begun and generation <= newest}

    def _skip(self, tails: Sequence[Tail], last: int) -> None:
        """Let each log begin with its last lines; one that a later generation does not write any more has none."""
        latest = max((tail.generation for key, tail in self.tails.items() if key in self._old), default=0)
        for tail in sorted(tails, key=lambda tail: -tail.generation):
            name = tail.node, tail.key.path.name
            count = last if tail.generation == latest else self._left.get(name, 0)
            tail.offset, found = start_of_last(self.source, tail.key, self.known[tail.key].bytes, count)
            self._left[name] = count - found
            tail.torn = False  # unlike where `since` begins, these are whole lines
        begun = {tail.key: tail.offset for tail in tails}
        indices = {tail.key: tail.index_key for tail in tails}
        for key, offset in index_at(self.source, self.known, indices, begun).items():
            self.tails[key].index_offset = offset


def _node(path: PurePosixPath) -> int:
    return int(path.parts[0][5:])


def _is_log(path: PurePosixPath) -> bool:
    return path.parts[1] == "logs" and _LOG.fullmatch(path.name) is not None


def _in_generation(path: PurePosixPath) -> bool:
    return _is_log(path) and len(path.parts) > 3 and number_in(path.parts[2]) is not None


def _generation(path: PurePosixPath) -> int:
    """Return the generation that wrote a log, 0 for one of the node's."""
    return int(path.parts[2]) if _in_generation(path) else 0


def _is_launcher(path: PurePosixPath) -> bool:
    return path.name == "launch.log"


def _rank(record: bytes) -> int | None:
    return as_number((parse_object(record) or {}).get("rank"))
