"""Running commands and putting files on one host, whatever lies between: SSH, or nothing for `localhost`.

Commands are argv lists; they become text for a remote shell here and nowhere else.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.transport.scripts import Scripts
from jobctl.jobspec.records import dataclass

TIMEOUT = 60.0  # seconds of silence after which a command is given up
FIRST_ANSWER = 15.0  # seconds in which a host that let us in does the simplest thing, or hangs
CHUNK = 32768  # bytes that are read or sent at once

Stdin: TypeAlias = bytes | Iterable[bytes]  # of a command: all at once, or pieces that are made as they are sent


class Input:
    """The rest of a command's input; false when nothing is left."""

    def __init__(self, content: Stdin) -> None:
        self._pieces = iter((content,) if isinstance(content, bytes) else content)
        self._piece = memoryview(b"")
        self.skip(0)

    def __bool__(self) -> bool:
        return len(self._piece) > 0

    def next(self, most: int) -> bytes:
        """Return what comes next, at most so many bytes; it stays the next until it is skipped."""
        return bytes(self._piece[:most])

    def skip(self, count: int) -> None:
        """Go on behind `count` bytes of what came last."""
        self._piece = self._piece[count:]
        while not self._piece:
            piece = next(self._pieces, None)
            if piece is None:
                return
            self._piece = memoryview(piece)

    def drop(self) -> None:
        """Have nothing left: nobody reads it."""
        self._pieces, self._piece = iter(()), memoryview(b"")


@dataclass(frozen=True, slots=True)
class Result:
    """What a command did: its exit code (128 + n for signal n, as shells say) and what it printed."""

    code: int
    out: bytes
    err: bytes

    @property
    def words(self) -> str:
        """What it said went wrong: its last line on stderr, otherwise on stdout."""
        lines = (self.err.strip() or self.out.strip()).decode("utf-8", "replace").splitlines()
        said = [line.strip() for line in lines if line.strip() and not line.startswith("See '")]  # docker's last word
        return said[-1] if said else f"exit code {self.code}"


@dataclass(frozen=True, slots=True)
class TerminalSize:
    """The terminal that a command gets: its kind (TERM) and size."""

    kind: str
    columns: int
    lines: int


class RunningCommand(Protocol):
    """A command that runs, with a terminal of its own or with pipes. Several threads may read and write at the same time."""

    def send(self, data: bytes) -> None:
        """Write to its input. Raises OSError once it has ended."""

    def end_input(self) -> None:
        """End its input, if that is a pipe."""

    def output(self) -> bytes:
        """Return the next of what it prints on stdout, nothing at the end."""

    def errors(self) -> bytes:
        """Return the next of what it prints on stderr, nothing at the end; with a terminal there is nothing."""

    def resize(self, columns: int, lines: int) -> None:
        """Give its terminal another size."""

    def wait(self) -> int:
        """Return its exit code when it has ended; 255 if the connection to it was lost."""

    def close(self) -> None:
        """Let go of it, whether it has ended or not, as a terminal that is closed does."""


class Transport(Protocol):
    """A connection to one host. All methods raise HostError, and may be called from several threads."""

    @property
    def host(self) -> str:
        """The host's name in the hosts file."""

    def preconnect(self) -> None:
        """Connect in the background; what comes of it shows at the first use."""

    def run(self, argv: Sequence[str], stdin: Stdin = b"", *, timeout: float = TIMEOUT) -> Result:
        """Run a command with `stdin` as its input; given up after `timeout` seconds of silence."""

    def dial(self, argv: Sequence[str]) -> Any:
        """Start a command and return something like a socket that is connected to its stdin and stdout."""

    def open_socket(self, path: str) -> Any:
        """Return something like a socket that is connected to a Unix socket there, None if it cannot be reached that way."""

    def open_port(self, address: str, port: int) -> Any:
        """Return something like a socket that is connected to a TCP port as the host reaches it. Raises PortClosed."""

    def interact(self, argv: Sequence[str]) -> int:
        """Run a command that has this process's terminal (or pipes) until it ends; return its exit code."""

    def start(self, argv: Sequence[str], terminal: TerminalSize | None = None) -> RunningCommand:
        """Start a command, with a terminal or with pipes, and return it."""

    def close(self) -> None:
        """Let go of the connection; a later call opens it again."""


def quote(argv: Sequence[str]) -> str:
    """Return the text that a POSIX shell reads as `argv`. `exec`: the shell need not wait for it."""
    return "exec " + shlex.join(argv)


_ODD = re.compile(r"[\\'!\n]")
_ODD_FOR_LOGINS = re.compile(r"[\\!\n]")


def quote_for_login(argv: Sequence[str]) -> str:
    """Return the text that the shell of a login reads as `argv`, also if it is csh, tcsh or fish.

    No quotes of csh hold a line break or a `!`, and those of fish have escapes. Where there is any of these, an `sh` makes
    the text from octal digits.
    """
    text = quote(argv)
    if not _ODD_FOR_LOGINS.search(text):
        return text
    octal = _ODD.sub(lambda odd: f"\\0{ord(odd[0]):03o}", text)
    return f"""exec sh -c 'eval "$(printf %b "$1")"' sh '{octal}'"""


def checked(
    transport: Transport, argv: Sequence[str], what: str, stdin: Stdin = b"", *, timeout: float = TIMEOUT
) -> bytes:
    """Run a command that has to succeed and return what it printed; `what` completes "cannot …" in the error."""
    result = transport.run(argv, stdin, timeout=timeout)
    if result.code != 0:
        raise problem(transport.host, what, result)
    return result.out


def problem(host: str, what: str, result: Result) -> HostError:
    """Return the error for a command that failed, with the remedy where the cause is a common one."""
    words = result.words
    for sign, (code, hint) in _CAUSES.items():
        if sign.lower() in words.lower():  # Go writes them small
            return HostError(host, code, f"cannot {what}: {words}", hint)
    return HostError(host, "command-failed", f"cannot {what}: {words}")


_CAUSES: Mapping[str, tuple[str, str]] = {
    "No space left on device": (
        "disk-full",
        "make room there, or choose another directory with `dir=` in the hosts file",
    ),
    "Disk quota exceeded": ("disk-full", "make room there, or choose another directory with `dir=` in the hosts file"),
    "Read-only file system": (
        "read-only",
        "make the file system writable again, or choose another directory with `dir=` in the hosts file",
    ),
    "Permission denied": ("no-permission", "choose a directory of your own with `dir=` in the hosts file"),
}

# LC_ALL would override LC_MESSAGES. Its value moves to LANG, which counts for each category without one of these.
_BEFORE_LANG = (
    *("LC_ALL", "LC_CTYPE", "LC_NUMERIC", "LC_TIME", "LC_COLLATE", "LC_MONETARY", "LC_PAPER", "LC_NAME"),
    *("LC_ADDRESS", "LC_TELEPHONE", "LC_MEASUREMENT", "LC_IDENTIFICATION"),
)


def in_english(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which commands say in English what goes wrong: codes and remedies are found by their words.

    All else of the locale stays, as the encoding: sbatch hands the environment to the job. Nobody reads LANGUAGE then.
    """
    left = dict(environ)
    if everything := left.get("LC_ALL"):
        left = {name: value for name, value in left.items() if name not in _BEFORE_LANG}
        left["LANG"] = everything
    return {**left, "LC_MESSAGES": "C"}


# `in_english` as a shell command.
IN_ENGLISH = f'[ -z "$LC_ALL" ] || {{ export LANG="$LC_ALL"; unset {" ".join(_BEFORE_LANG)}; }}; export LC_MESSAGES=C'

SCRIPTS = Scripts("jobctl.jobspec.deploy.transport")


def put(transport: Transport, path: str, content: bytes, mode: int = 0o600, made_in: str = "") -> None:
    """Replace the file `path` whole, over stdin; it is never readable by others before it has its mode.

    `made_in`: the folder that it is made in, where others can write beside `path`.
    """
    argv = SCRIPTS.argv("put", path, f"{mode:o}", str(len(content)), made_in)
    checked(transport, argv, f"write {path}", content)
