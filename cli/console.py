"""The only place that prints: data to stdout, words for people to stderr, colour on terminals only."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeAlias, TypeVar

import typer

from jobctl.jobspec.deploy.errors import DeployError

P = ParamSpec("P")
R = TypeVar("R")
Commands: TypeAlias = dict[str, Callable[..., None]]


class Failed(Exception):
    """A command that ends with `code`: the message says place and cause, `hint` the remedy."""

    def __init__(self, message: str, code: int = 2, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.code, self.hint = message, code, hint


def command(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a command so that its failures are printed in one form and end with the contract's exit codes."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except Failed as failed:
            _end(failed.message, failed.hint, failed.code)
        except DeployError as problem:
            for one in getattr(problem, "failures", {}).values():
                error(one.message, one.hint)
            _end(problem.message, problem.hint, 3)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except BrokenPipeError:
            # The reader (head, less) has gone; Python would complain once more while it shuts down.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(141) from None
        except OSError as problem:
            where = f"{problem.filename}: " if problem.filename else ""
            state = os.environ.get("JOBCTL_STATE_DIR")
            ours = state is not None and str(problem.filename or "").startswith(state)
            hint = "JOBCTL_STATE_DIR says that jobctl keeps its history there" if ours else None
            _end(f"{where}{problem.strerror or problem}", hint, 2)
        except (typer.Exit, typer.Abort):
            raise
        except Exception as bug:
            if os.environ.get("JOBCTL_DEBUG"):
                raise
            message = f"jobctl has a bug: {type(bug).__name__}: {bug}"
            _end(message, "JOBCTL_DEBUG=1 shows where; please report it", 70)

    return guarded


def _end(message: str, hint: str | None, code: int) -> NoReturn:
    if message:
        error(message, hint)
    raise typer.Exit(code)


def out(text: str = "") -> None:
    """Print what was asked for."""
    sys.stdout.write(printable(text, sys.stdout) + "\n")


def out_bytes(data: bytes) -> None:
    """Print bytes as they are: what a training process printed need not be text."""
    sys.stdout.buffer.write(data)


def out_json(value: object) -> None:
    """Print one JSON document."""
    out(json.dumps(value, indent=2, ensure_ascii=not _is_utf_8(sys.stdout)))


def out_json_line(value: object) -> None:
    """Print one line of JSON Lines, and see to it that a reader gets it now."""
    out(json.dumps(value, ensure_ascii=not _is_utf_8(sys.stdout)))
    sys.stdout.flush()


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
    say(f"{style('error', 'red')}: {message}")
    if hint:
        say(f"{style('hint', 'cyan')}: {hint}")


def warning(message: str) -> None:
    """Tell about something that may surprise later."""
    say(f"{style('warning', 'yellow')}: {message}")


def printable(text: str, stream: Any) -> str:
    """Return `text` as `stream` can show it, whatever its encoding."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


_COLOURS = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}


def style(text: str, colour: str, stream: Any = None) -> str:
    """Return `text` coloured if `stream` (default stderr) is a terminal and NO_COLOR is not set."""
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if colourful(stream or sys.stderr) else text


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
