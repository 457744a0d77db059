"""The only place that prints: data to stdout, words for people to stderr, colour on terminals only."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import typer

from jobctl.jobspec.deploy.model.errors import DeployError

P = ParamSpec("P")
R = TypeVar("R")


class Failed(Exception):
    """A command that ends with `code`: the message says place and cause, `hint` the remedy.

    Where JSON was asked for, `details` are told beside the error, and `kind` is its code.
    """

    def __init__(
        self,
        message: str,
        code: int = 2,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
        kind: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.code, self.hint, self.details, self.kind = message, code, hint, details or {}, kind


@dataclass
class _Said:
    """What the command has said so far: whether anything on stdout, and the first error."""

    out: bool = False  # but for lines of a stream, after which an error is one line more
    error: tuple[str, str | None] | None = None


_said = _Said()


def begin() -> None:
    """Begin a command: nothing was said by it yet."""
    _said.out, _said.error = False, None


def command(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a command so that its failures are printed in one form and end with the contract's exit codes."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        begin()
        try:
            return function(*args, **kwargs)
        except (typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except BrokenPipeError:
            # The reader (head, less) has gone; Python would complain once more while it shuts down.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(141) from None
        except Exception as problem:
            failed = _as_failed(problem)
            if failed is None:
                raise
        if failed.message:
            error(failed.message, failed.hint)
        if getattr(kwargs.get("output"), "value", None) == "json":
            out_error(failed)
        raise typer.Exit(failed.code)

    return guarded


def _as_failed(problem: Exception) -> Failed | None:
    """Return how a command ends that `problem` has ended, None for a bug that is to be seen."""
    if isinstance(problem, MemoryError):
        hint = "`ulimit -v` says how much this shell gives to a command"
        return Failed("there is not enough memory for this command", 2, hint, kind="memory")
    if isinstance(problem, Failed):
        return problem
    if isinstance(problem, DeployError):
        failures: Mapping[str, DeployError] = getattr(problem, "failures", {})
        for one in failures.values():
            error(one.message, one.hint)
        hosts = [failure_json(host, one) for host, one in failures.items()]
        return Failed(problem.message, 3, problem.hint, {"failed_hosts": hosts} if hosts else {}, code_of(problem))
    if isinstance(problem, OSError):
        where = f"{problem.filename}: " if problem.filename else ""
        state = os.environ.get("JOBCTL_STATE_DIR")
        ours = state is not None and str(problem.filename or "").startswith(state)
        full = problem.errno in (errno.ENOSPC, errno.EDQUOT)
        hints = ["make room there"] if full else []
        hints += ["JOBCTL_STATE_DIR says that jobctl keeps its history there"] if ours else []
        message = f"{where}{problem.strerror or problem}"
        return Failed(message, 2, "; ".join(hints) or None, kind="disk-full" if full else "file")
    if os.environ.get("JOBCTL_DEBUG"):
        return None
    message = f"jobctl has a bug: {type(problem).__name__}: {problem}"
    return Failed(message, 70, "JOBCTL_DEBUG=1 shows where; please report it", kind="bug")


# The kinds of errors without a code of their own, by the exit code, and their words where nothing was said.
_KINDS = {
    1: ("job-failed", "the job failed"),
    2: ("usage", "it cannot be done like that"),
    3: ("hosts-failed", "hosts are not fit, or cannot be reached"),
    4: ("partly-done", "some hosts did their part, others not"),
    5: ("not-yours", "the job is locked, or belongs to someone else"),
    124: ("timeout", "the time is over"),
}


_WORDS = {
    "invalid-spec": "the spec is not valid: `diagnostics` says why",
    "invalid-hosts": "the hosts file is not valid: `diagnostics` says why",
}


def code_of(problem: BaseException | None) -> str | None:
    """Return the code that tells a host's error from others, None where it has none."""
    code = getattr(problem, "code", None)
    return code if isinstance(code, str) else None


def failure_json(host: str, error: DeployError) -> dict[str, Any]:
    """Return why a host did not do its part."""
    return {"host": host, "code": code_of(error) or "failed", "message": error.message, "hint": error.hint}


def out_error(failed: Failed) -> None:
    """Print how the command failed as a line of JSON, unless what it has printed says so already."""
    if _said.out:
        return
    kind, words = _KINDS.get(failed.code, ("failed", "it failed"))
    words = _WORDS.get(failed.kind or kind, words)
    first = (failed.message, failed.hint) if failed.message else _said.error or (words, None)
    code = failed.kind or code_of(failed.__cause__) or kind
    told = {"code": code, "message": first[0], "hint": first[1], "exit_code": failed.code}
    out_json_line({"error": told, **failed.details})


def out(text: str = "") -> None:
    """Print what was asked for."""
    _said.out = True
    sys.stdout.write(printable(text, sys.stdout) + "\n")


def out_bytes(data: bytes) -> None:
    """Print bytes as they are."""
    sys.stdout.buffer.write(data)


def out_log(head: str, line: bytes) -> None:
    """Print a line that a training process has printed, which need not be text.

    Byte for byte, but for what a terminal would obey: there colours alone are left, and bytes that are no text are shown.
    """
    if sys.stdout.isatty():
        keep = _COLOUR if colourful(sys.stdout) else None
        shown = plain(line.decode("utf-8", "backslashreplace"), keep)
        line = (f"{shown}\x1b[0m" if "\x1b" in shown else shown).encode()
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
    """Return what others wrote without anything that a terminal obeys, but for what matches `keep`."""
    return _CONTROL.sub(lambda found: found[0] if keep and keep.fullmatch(found[0]) else "", text)


def out_json(value: object) -> None:
    """Print one JSON document."""
    _said.out = True
    _out_json(json.dumps(value, indent=2, ensure_ascii=not _is_utf_8(sys.stdout)))


def out_json_line(value: object) -> None:
    """Print one line of JSON Lines, and see to it that a reader gets it now."""
    _out_json(json.dumps(value, ensure_ascii=not _is_utf_8(sys.stdout)))
    sys.stdout.flush()


def _out_json(text: str) -> None:
    """Print JSON; of what a terminal obeys it leaves some characters as they are."""
    text = re.sub("[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", text)
    sys.stdout.write(_encodable(text, sys.stdout) + "\n")


def _is_utf_8(stream: Any) -> bool:
    return (getattr(stream, "encoding", None) or "").lower() in ("utf-8", "utf8")


def say(text: str) -> None:
    """Tell a person something."""
    write(text)


def write(text: str, stream: Any = None) -> None:
    """Print a line on `stream`, default stderr."""
    stream = stream or sys.stderr
    stream.write(printable(text, stream) + "\n")
    stream.flush()


def error(message: str, hint: str | None = None) -> None:
    """Tell what went wrong and what to do about it."""
    _said.error = _said.error or (message, hint)
    say(f"{style('error', 'red')}: {message}")
    if hint:
        say(f"{style('hint', 'cyan')}: {hint}")


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
    """Return `text` marked for a colour if `stream` (default stderr) is a terminal and NO_COLOR is not set."""
    return f"\ufdd0{_COLOURS[colour]}\ufdd1{text}\ufdd2" if colourful(stream or sys.stderr) else text


# How colours are marked until they are printed: no text has these, so that no text that others wrote is taken for ours.
_STYLED = re.compile("\ufdd0([0-9]+)\ufdd1|\ufdd2")


def _escape(mark: re.Match[str]) -> str:
    return f"\x1b[{mark[1] or 0}m"


def colourful(stream: Any) -> bool:
    """Say whether colours may be sent to `stream` (https://no-color.org)."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return rows as aligned columns under `header`, as docker and kubectl print them."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def environ() -> Mapping[str, str]:
    """Return the environment that commands run with."""
    return os.environ
