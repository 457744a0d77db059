"""Commands for a login's shell on a host: one command after another, each told from what surrounds it.

Each new session of SSH begins with the login's shell, and its `.bashrc` can cost more than the command; the supervisor looks
every second. So a shell is held, and given one command after another. A `.bashrc` or a forced command can also print, before
the command and after it. So marks that nobody can guess are on both streams where a session begins and where a command
ends: what lies between them is the command's.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from jobctl.jobspec.deploy.transport.base import IN_ENGLISH, Result, quote

LINE = 64  # bytes, more than the line with a mark has


class Login:
    """The beginning of a session: what the login prints before it runs the command that was asked for."""

    def __init__(self) -> None:
        self._mark = secrets.token_hex(16)

    def argv(self, argv: Sequence[str]) -> list[str]:
        """Return the command that puts the mark on both streams and becomes `argv`."""
        said = 'printf %s "$0" && printf %s "$0" >&2'
        return ["sh", "-c", f'{IN_ENGLISH}; {said} && exec "$@"', self._mark, *argv]

    def missing(self, said: bytes | bytearray) -> int:
        """Return how many bytes can follow on a stream before the command's own begin; 0 after the mark."""
        mark = self._mark.encode()
        if not said or said.endswith(mark):  # what it is nearly always
            return 0 if said else len(mark)
        return next(len(mark) - there for there in range(len(mark), -1, -1) if said.endswith(mark[:there]))


class HeldCommand:
    """One command: `text` is what a shell reads; fed with what it prints, it knows its `result`.

    A command with input (`reads`) has a session of its own: what is put into a file, secrets too, is not for a held shell.
    """

    def __init__(self, argv: Sequence[str], *, reads: bool = False) -> None:
        self.name = argv[0]
        self._ends = _End(), _End()
        marks = [end.mark.decode() for end in self._ends]
        ending = f"code=$?; printf '\\n{marks[0]} %d\\n' \"$code\"; printf '\\n{marks[1]} %d\\n' \"$code\" >&2"
        self.text = f"( {quote(argv)} ){'' if reads else ' </dev/null'}\n{ending}\n"

    def result(self, out: bytearray, err: bytearray) -> Result | None:
        """Return what the command did, None while it goes on."""
        ends = [end.find(said) for end, said in zip(self._ends, (out, err), strict=True)]
        if ends[0] is None or ends[1] is None:
            return None
        return Result(ends[0][1], bytes(out[: ends[0][0]]), bytes(err[: ends[1][0]]))


class _End:
    """The mark at the end of one stream."""

    def __init__(self) -> None:
        self.mark = secrets.token_hex(16).encode()
        self._head = b"\n%s " % self.mark  # no pattern: to compile one for each command costs more than the command
        self._from = 0  # it is not before that

    def find(self, said: bytearray) -> tuple[int, int] | None:
        """Return where the output ends, and the exit code behind it; None before that."""
        start = said.find(self._head, self._from)
        if start >= 0:
            code, line_feed, _ = said[start + len(self._head) :].partition(b"\n")
            if line_feed and code.isdigit() and len(code) < 4:
                return start, int(code)
        self._from = max(0, len(said) - LINE)
        return None
