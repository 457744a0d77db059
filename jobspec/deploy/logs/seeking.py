"""Where to begin to read a log of any size: at its last lines, or at a moment. Neither reads all of it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from jobctl.jobspec.deploy.logs.files import LogKey, LogSource, Size, Want
from jobctl.jobspec.records import dataclass

# A record of the index that the launcher writes beside each log (log_files.py): a byte of the log, and when it came.
RECORD = struct.Struct("<Qd")
# Bytes that are read at once on the way back from a log's end, at first and at most
BLOCK, MAX_BLOCK_BYTES = 16 << 10, 4 << 20
# Bytes from its end at which a log is read at the earliest for its last lines: some have no line ends.
FARTHEST = 64 << 20
PAGE = 4096  # records of an index among which the rest is looked for at once


def start_of_last(source: LogSource, key: LogKey, size: int, count: int) -> tuple[int, int]:
    """Return where the last `count` lines of a file begin, and how many there are."""
    end, block, found = size, BLOCK, 0
    while count and end > max(0, size - FARTHEST):
        offset = max(0, end - block)
        want = Want(key, offset, end - offset)
        data = source.read([want]).get(want, b"")
        if not data:
            return end, found
        at = len(data) - (end == size)  # the newline of the last line ends it, and begins none
        while (at := data.rfind(b"\n", 0, at)) >= 0:
            found += 1
            if found == count:
                return offset + at + 1, count
        end, block = offset, min(MAX_BLOCK_BYTES, 4 * block)
    return end, min(count, found + (end < size))


@dataclass(slots=True)
class _Search:
    """Which records of an index may be the last that is before what is looked for: from `low` to `high`, which is not."""

    log: LogKey
    index: LogKey
    low: int
    high: int
    is_before: Callable[[int, float], bool]

    def want(self) -> Want:
        """Return what has to be read next: the record in the middle, or all that are left."""
        if self.high - self.low <= PAGE:
            return Want(self.index, self.low * RECORD.size, (self.high - self.low) * RECORD.size)
        return Want(self.index, (self.low + self.high) // 2 * RECORD.size, RECORD.size)


@dataclass(frozen=True, slots=True)
class LogOffset:
    """Where to begin in a log and in its index; `torn`: perhaps in the midst of a line."""

    offset: int
    index_offset: int
    torn: bool


def begin_at(
    source: LogSource, known: Mapping[LogKey, Size], logs: Mapping[LogKey, LogKey], moment: float
) -> Mapping[LogKey, LogOffset]:
    """Return where to begin to read each log (by key, with the key of its index), for what was written since `moment`.

    One without an index begins at its start, unless nothing was written since.
    """
    places: dict[LogKey, LogOffset] = {}
    searches: list[_Search] = []
    for log, index in logs.items():
        records = known[index].bytes // RECORD.size if index in known else 0
        if known[log].time < moment - 1.0:  # of some file systems the times are whole seconds
            end = max(0, known[log].bytes - 1)  # its last byte says whether what comes is a line of its own
            places[log] = LogOffset(end, max(0, records - 1) * RECORD.size, torn=known[log].bytes > 0)
        elif records:
            searches.append(_Search(log, index, 0, records, lambda offset, time: time < moment))
    return {**places, **_found(source, searches)}


def index_at(
    source: LogSource, known: Mapping[LogKey, Size], logs: Mapping[LogKey, LogKey], offsets: Mapping[LogKey, int]
) -> Mapping[LogKey, int]:
    """Return where to begin to read the index of each log that is read from an offset on."""
    searches = [
        _Search(log, index, 0, known[index].bytes // RECORD.size, _up_to(offsets[log]))
        for log, index in logs.items()
        if index in known and known[index].bytes >= RECORD.size
    ]
    return {log: place.index_offset for log, place in _found(source, searches).items()}


def _up_to(limit: int) -> Callable[[int, float], bool]:
    return lambda offset, time: offset <= limit


def _found(source: LogSource, searches: list[_Search]) -> dict[LogKey, LogOffset]:
    """Return what the searches find, in as many reads as the longest takes."""
    places: dict[LogKey, LogOffset] = {}
    while searches:
        wants = [search.want() for search in searches]
        found = source.read([want for want in wants if want.count])
        left = []
        for search, want in zip(searches, wants, strict=True):
            data = found.get(want, b"")
            if len(data) < RECORD.size or search.high - search.low <= PAGE:
                places[search.log] = _place(search, data)
                continue
            middle = want.offset // RECORD.size
            if search.is_before(*RECORD.unpack(data)):
                search.low = middle
            else:
                search.high = middle + 1
            left.append(search)
        searches = left
    return places


def _place(search: _Search, data: bytes) -> LogOffset:
    """Return where to begin, from the records that were left: at the last one that is before what is looked for."""
    records = list(RECORD.iter_unpack(data[: len(data) - len(data) % RECORD.size]))
    before = sum(1 for record in records if search.is_before(*record))
    if not before:  # all of it, or its clock was set back
        return LogOffset(0, 0, torn=False)
    offset = records[before - 1][0]
    return LogOffset(offset, (search.low + before - 1) * RECORD.size, torn=offset > 0)
