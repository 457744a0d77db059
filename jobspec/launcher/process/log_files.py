"""The logs of processes: written, indexed, and repeated on the launcher's own output."""

from __future__ import annotations

import contextlib
import os
import re
import struct
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.system.files import note, size_of

if TYPE_CHECKING:
    from typing import List, Optional, Tuple

    from jobctl.jobspec.launcher.order.launch import Launch
    from jobctl.jobspec.launcher.process.task import ProcessTask
WATCHED_BYTES = 65536  # that LogWatcher reads at a time
FULLEST = 1 << 20  # bytes that a pipe may hold


class LogWatcher:
    """Watches the log of a framework's launcher for lines that say that it cannot go on; `why` is the reason then."""

    def __init__(self, path: str, start: int, launch: Launch) -> None:
        self.path, self.read = path, start
        self.lost, self.stall = launch.lost, launch.stall
        self.waits: Optional[Tuple[str, float]] = None  # the line that says that it waits, and since when
        self.why = ""

    def look(self, now: float) -> Optional[str]:
        """Return the line that says that it cannot go on, None while there is none."""
        for line in self.lines():
            if self.lost and re.search(self.lost, line):
                self.why = "has lost the others for good"
                return line
            if self.stall is not None and re.search(self.stall.begin, line):
                self.waits = line, now
            elif self.stall is not None and re.search(self.stall.end, line):
                self.waits = None
        if self.stall is None or self.waits is None or now - self.waits[1] <= self.stall.seconds:
            return None
        self.why = "has waited for the others for %g s" % self.stall.seconds
        return self.waits[0]

    def lines(self) -> List[str]:
        """Return the whole lines that were written since the last look."""
        size = size_of(self.path) if self.lost or self.stall else self.read
        if size < self.read:  # somebody has emptied it
            self.read = 0
        if size == self.read:
            return []
        with open(self.path, "rb") as file:
            file.seek(self.read)
            text = file.read(WATCHED_BYTES)
        whole = text[: text.rfind(b"\n") + 1] or (text if len(text) == WATCHED_BYTES else b"")
        self.read += len(whole)
        return [line.strip() for line in whole.decode("utf-8", "replace").splitlines()]


def drain(reading: int, log: "Optional[LogFile]") -> None:
    """Copy what is in the pipe now, or forget it; not all that others go on to write into it."""
    left = FULLEST
    with contextlib.suppress(OSError):
        while left > 0:
            data = os.read(reading, 65536)
            if not data:
                return
            left -= len(data)
            if log is not None:
                log.write(data)


class LogFile:
    """A process's log, and beside it the index that says from which byte on was written when."""

    RESOLUTION = 0.01  # seconds between two records of the index
    RECORD = struct.Struct("<Qd")  # a byte of the log, and when it was written

    def __init__(self, path: str, forwarder: "Optional[LogForwarder]" = None) -> None:
        self.forwarder = forwarder
        self.log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.index = os.open(path + ".idx", os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.indexed = self.last_indexed()
        self.last = 0.0

    def write(self, data: bytes) -> None:
        """Append output. A full disk loses output, it does not end the process that printed it."""
        now = time.time()
        if self.forwarder is not None:
            self.forwarder.write(data)
        try:
            if data and now - self.last >= self.RESOLUTION:
                self.note_time(now)
            while data:
                data = data[os.write(self.log, data) :]
        except OSError as error:
            note("output lost: %s" % error)

    def note_time(self, now: float) -> None:
        """Note when the next byte was written.

        If somebody has emptied the log, the index begins again, too: its records tell of bytes that are gone.
        """
        end = os.fstat(self.log).st_size
        if end < self.indexed:
            os.ftruncate(self.index, 0)
        os.write(self.index, self.RECORD.pack(end, now))
        self.indexed, self.last = end, now

    def last_indexed(self) -> int:
        """Return the last byte of which the index says when it was written, 0 if it says nothing."""
        count = os.fstat(self.index).st_size // self.RECORD.size
        last = os.pread(self.index, self.RECORD.size, max(0, count - 1) * self.RECORD.size)
        return int(self.RECORD.unpack(last)[0]) if len(last) == self.RECORD.size else 0


class LogForwarder:
    """Copies what a process prints to the launcher's own output, with the rank before each line.

    Lines of several processes stay whole: a pipe takes up to PIPE_BUF bytes at once.
    """

    AT_ONCE = 4096  # PIPE_BUF of Linux
    PACE = 0.5  # seconds between two states of a line that is written over and over

    def __init__(self, file: int, who: str) -> None:
        self.file, self.who, self.rest = file, os.fsencode(who + " | "), b""
        self.room = self.AT_ONCE - len(self.who) - 1
        self.shown, self.shown_at = b"", 0.0  # the last such state, and when it was written

    @classmethod
    def of(cls, task: ProcessTask, rank: str) -> "Optional[LogForwarder]":
        """Return the forwarder that a task asks for, None if it asks for none or the output is closed."""
        if not task.forward_to:
            return None
        try:
            file = os.open(task.forward_to, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError:
            return None
        name = task.name.split(".")[0]
        role = "rank" if name == "workerlog" else name[:-3] if name.endswith("log") else name
        return cls(file, role + rank)

    def write(self, data: bytes) -> None:
        """Write the lines that are whole by now, the full parts of one that grows, and now and then a state of a progress bar."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self.write_last(line)
        before = len(self.rest)
        self.rest = self.rest[self.rest.rstrip(b"\r").rfind(b"\r") + 1 :]
        if (len(self.rest) < before or self.rest.endswith(b"\r")) and time.monotonic() - self.shown_at >= self.PACE:
            self.write_last(self.rest)
            self.shown, self.shown_at = self.rest.rstrip(b"\r"), time.monotonic()
        full = max(0, len(self.rest) - 1) // self.room * self.room
        if full:
            self.write_line(self.rest[:full])
            self.rest = self.rest[full:]

    def write_last(self, line: bytes) -> None:
        """Write what a terminal shows in the end of a line that was overwritten, unless that was written already."""
        state = line.rstrip(b"\r").rpartition(b"\r")[2]
        if not state or state != self.shown:
            self.write_line(state)
        self.shown = b""

    def write_line(self, line: bytes) -> None:
        """Write one line, in parts if it is long."""
        for at in range(0, max(len(line), 1), self.room):
            with contextlib.suppress(OSError):
                os.write(self.file, self.who + line[at : at + self.room] + b"\n")

    def finish(self) -> None:
        """Write the last line, which has no line feed."""
        if self.rest:
            self.write_last(self.rest)
            self.rest = b""
