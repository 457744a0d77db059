"""Whether a launcher has begun on a machine, and what the program said that could not start it."""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Optional, Tuple

LAST_WORDS_BYTES = 4096  # bytes of its last words
PIPE_BYTES = 4096  # PIPE_BUF of Linux: so much goes into a pipe that is ready for more, without waiting
LONGEST_REASON = 300  # characters of a reason
_ADVICE = re.compile(r"(See|Run) '.* --help'")
_ERROR = re.compile("error|fatal", re.IGNORECASE)


class Launching:
    """One start of a launcher: its report is written as soon as it begins. What it says goes on to this process's stderr.

    The launcher's own words are few: those of its processes come in another way.
    """

    def __init__(self, report: str) -> None:
        self.report, self.before = report, _identity(report)
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        self.kept = b""

    def started(self) -> None:
        """Let go of the end that the launcher has."""
        os.close(self.writing)

    def has_begun(self) -> bool:
        """Say whether a launcher has written its report since."""
        return _identity(self.report) != self.before

    def pass_on(self) -> None:
        """Pass on what there is, as far as that does not hold this process up: it keeps the node's lease."""
        err = sys.stderr.fileno()
        while select.select([self.reading], [err], [], 0)[:2] == ([self.reading], [err]):
            try:
                data = os.read(self.reading, PIPE_BYTES)
                self.kept = (self.kept + data)[-LAST_WORDS_BYTES:]
                os.write(err, data)
            except OSError:
                return
            if not data:
                return

    def close(self) -> None:
        """Read the rest, and say no more."""
        self.pass_on()
        with contextlib.suppress(OSError):
            self.kept = (self.kept + os.read(self.reading, LAST_WORDS_BYTES))[-LAST_WORDS_BYTES:]
        os.close(self.reading)

    def words(self, code: int) -> str:
        """Return why it did not begin: the last error in its words; without one the last line, or its exit code."""
        return reason_in(self.kept.decode("utf-8", "replace")) or "exit code %d" % code


def reason_in(text: str) -> str:
    """Return the last error in what a program has said, or the last line; of a long one its beginning and its end."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not _ADVICE.match(line)]
    # `podman load` names the error of each format that a file might have; that of the one that it has, says why.
    ours = [line.partition(": ")[2] for line in lines if line.startswith("* docker-archive: ")]
    errors = ours or [line for line in lines if _ERROR.search(line)] or lines
    found = errors[-1] if errors else ""
    return found if len(found) <= LONGEST_REASON else "%s … %s" % (found[:80], found[-LONGEST_REASON + 80 :])


def _identity(path: str) -> Optional[Tuple[Any, ...]]:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
