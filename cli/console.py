"""The only place that prints: data to stdout, words for people to stderr, colour on terminals only."""

from __future__ import annotations

import errno
import json
import os
import re
import select
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Any

from jobctl.jobspec.records import dataclass

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@dataclass
class _Said:
    """What the command has said so far: whether anything on stdout, and the first error."""

    out: bool = False  # but for lines of a stream, after which an error is one line more
    error: tuple[str, str | None] | None = None


said = _Said()


class Colour(StrEnum):
    """When colours are used: on terminals, or in any case, or never."""

    auto = "auto"
    always = "always"
    never = "never"


_chosen = [Colour.auto]


def choose_colour(when: Colour) -> None:
    """Use colours from now on as `--color` says."""
    _chosen[:] = [when]


def begin() -> None:
    """Begin a command: it has printed nothing yet."""
    said.out, said.error = False, None


@contextmanager
def _named() -> Iterator[None]:
    """Name the place of an error in writing to stdout: its disk may be full."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as problem:
        give_up_output()
        raise OSError(problem.errno, problem.strerror, "standard output") from problem


def give_up_output() -> None:
    """Send nowhere what was printed and kept back: Python would try to write it once more as it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def deliver() -> None:
    """Write all that was printed and kept back. Raises OSError with the place in its `filename`."""
    with _named():
        sys.stdout.flush()


def out(text: str = "") -> None:
    """Print what was asked for."""
    said.out = True
    with _named():
        sys.stdout.write(printable(text, sys.stdout) + "\n")


def out_bytes(data: bytes) -> None:
    """Print bytes as they are."""
    with _named():
        sys.stdout.buffer.write(data)


def out_log(head: str, line: bytes) -> None:
    """Print a line that a training process has printed, which need not be text.

    Byte for byte, except control sequences: on a terminal only colours are left, and bytes that are no text are shown.
    """
    if sys.stdout.isatty():
        keep = _COLOUR if colourful(sys.stdout) else None
        shown = plain(line.decode("utf-8", "backslashreplace"), keep)
        line = (f"{shown}\x1b[0m" if "\x1b" in shown else shown).encode()
    with _named():
        sys.stdout.buffer.write(head.encode() + line + b"\n")


# What a terminal obeys: sequences that begin with ESC or its C1 forms, and control characters.
_CONTROL = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI
    "|(?:\x1b[P\\]X^_]|[\x90\x9d\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)?"  # OSC, DCS and the like
    "|\x1b[ -/]*[0-~]?"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
_COLOUR = re.compile("\x1b\\[[0-9;:]*m")


def plain(text: str, keep: re.Pattern[str] | None = None) -> str:
    """Return what others wrote without anything that a terminal obeys, except what matches `keep`."""
    return _CONTROL.sub(lambda found: found[0] if keep and keep.fullmatch(found[0]) else "", text)


def out_json(value: object, *, in_line: bool = False) -> None:
    """Print one JSON document, on one line where others go before it."""
    said.out = True
    _out_json(json.dumps(value, indent=None if in_line else 2, ensure_ascii=not _is_utf_8(sys.stdout)))


def out_json_line(value: object) -> None:
    """Print one line of JSON Lines, and make sure that a reader gets it now."""
    _out_json(json.dumps(value, ensure_ascii=not _is_utf_8(sys.stdout)))
    deliver()


def pass_on() -> None:
    """Pass on what a stream has printed. Raises BrokenPipeError if its reader has gone, even if nothing was printed."""
    deliver()
    try:
        number = sys.stdout.fileno()
    except OSError:  # of a test
        return
    watch = select.poll()
    watch.register(number, 0)
    if any(event & select.POLLERR for _, event in watch.poll(0)):
        raise BrokenPipeError


def _out_json(text: str) -> None:
    """Print JSON; of what a terminal obeys it leaves some characters as they are."""
    text = re.sub("[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", text)
    with _named():
        sys.stdout.write(_encodable(text, sys.stdout) + "\n")


def _is_utf_8(stream: Any) -> bool:
    return (getattr(stream, "encoding", None) or "").lower() in ("utf-8", "utf8")


def say(text: str) -> None:
    """Tell a person something."""
    write(text)


def write(text: str, stream: Any = None) -> None:
    """Print a line on `stream`, default stderr."""
    stream = stream or sys.stderr
    with _named() if stream is sys.stdout else nullcontext():
        stream.write(printable(text, stream) + "\n")
        stream.flush()


def error(message: str, hint: str | None = None) -> None:
    """Tell what went wrong and what to do about it."""
    said.error = said.error or (message, hint)
    say(f"{style('error', 'red')}: {message}")
    if hint:
        say(f"{style('hint', 'cyan')}: {hint}")


def file_error(problem: OSError) -> tuple[str, str | None]:
    """Return what went wrong with a file, with its place, and what to do about it."""
    place = str(problem.filename) if problem.filename else ""
    if problem.errno == errno.ENOENT and not place.startswith("/") and _is_homeless():
        return "the current folder no longer exists", "`cd` to one that does, and try again"
    hints = []
    if problem.errno in NO_ROOM:
        hints.append("make room there")
    elif problem.errno in (errno.EACCES, errno.EPERM) and place:
        hints.append(f"`ls -ld {shlex.quote(os.path.dirname(place) or '.')} {shlex.quote(place)}` shows who may")
    elif problem.errno == errno.EROFS:
        hints.append("nothing can be written on that file system: choose another place")
    elif problem.errno in NO_LOCKS and place:
        hints.append("that file system knows no locks (flock): name a folder on another one with JOBCTL_STATE_DIR")
    if kept := _kept_there(place):
        hints.append(kept)
    return f"{place}{': ' if place else ''}{problem.strerror or problem}", "; ".join(hints) or None


def _kept_there(place: str) -> str | None:
    """Say that jobctl keeps its history at a place, or below one that it could not make for that."""
    from jobctl.jobspec.deploy.store.jobdir import state_dir

    try:
        state = state_dir(os.environ)
    except FileNotFoundError:  # of a folder that was removed, and a state directory that is relative to it
        return None
    above = Path(place) in state.parents and not os.path.isdir(place)
    if not above and not Path(place).is_relative_to(state):
        return None
    if os.environ.get("JOBCTL_STATE_DIR"):
        return "JOBCTL_STATE_DIR says that jobctl keeps its history there"
    return f"jobctl keeps its history in {state}: JOBCTL_STATE_DIR names another folder for it"


def _is_homeless() -> bool:
    """Say whether the folder in which this process works has been removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def warning(message: str) -> None:
    """Tell about something that may surprise later."""
    say(f"{style('warning', 'yellow')}: {message}")


def printable(text: str, stream: Any) -> str:
    """Return `text` as `stream` can show it, whatever its encoding, and without what others have put in for a terminal to obey."""
    return _encodable(_STYLED.sub(_escape, plain(text)), stream)


def _encodable(text: str, stream: Any) -> str:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


_COLOURS = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}


def style(text: str, colour: str, stream: Any = None) -> str:
    """Return `text` marked for a colour if `stream` (default stderr) gets colours."""
    if not colourful(stream or sys.stderr):
        return text
    return f"\ufdd0{_MARK}{_COLOURS[colour]}\ufdd1{text}\ufdd0{_MARK}\ufdd1"


# How colours are marked until they are printed: nobody else knows the word, so that no text of others is taken for ours.
_MARK = os.urandom(8).hex() + ":"
_STYLED = re.compile(f"\ufdd0{_MARK}([0-9]*)\ufdd1")


def _escape(mark: re.Match[str]) -> str:
    return f"\x1b[{mark[1] or 0}m"


def colourful(stream: Any) -> bool:
    """Say whether colours may be sent to `stream`.

    `--color` decides; `auto` leaves it to NO_COLOR (https://no-color.org), then to FORCE_COLOR (https://force-color.org; 0 is
    not a colour), then to the stream: terminals that know colours get them.
    """
    when = _chosen[0]
    if when is not Colour.auto:
        return when is Colour.always
    if os.environ.get("NO_COLOR"):
        return False
    forced = os.environ.get("FORCE_COLOR", "") not in ("", "0")
    return forced or (bool(stream.isatty()) and os.environ.get("TERM") != "dumb")


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return rows as aligned columns under `header`, as docker and kubectl print them."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
