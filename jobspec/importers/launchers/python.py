"""`python …`: which script, module or piece of code an interpreter is told to run."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from jobctl.jobspec.records import dataclass

_PYTHON = re.compile(r"python(\d+(\.\d+)*)?|pypy3?")


@dataclass(frozen=True, slots=True)
class Python:
    """What an interpreter is told to run: a `script`, a `module` or a piece of `code`."""

    kind: str
    what: str
    args: tuple[str, ...]


def python(argv: Sequence[str]) -> Python | None:
    """Return what `python …` runs, None if it is no such command, or an interactive one."""
    if not argv or not _PYTHON.fullmatch(posixpath.basename(argv[0])):
        return None
    words = list(argv[1:])
    while words and words[0].startswith("-") and len(words[0]) > 1:
        word = words.pop(0)
        if word in ("-m", "-c") and words:
            kind = {"-m": "module", "-c": "code"}[word]
            return Python(kind, words[0], tuple(words[1:]))
        if word in ("-W", "-X", "--check-hash-based-pycs") and words:
            words.pop(0)
    return Python("script", words[0], tuple(words[1:])) if words else None


def interpreter(argv: Sequence[str]) -> str | None:
    """Return the interpreter of a command if it is another than the plain one."""
    if not argv or not _PYTHON.fullmatch(posixpath.basename(argv[0])) or argv[0] in ("python", "python3"):
        return None
    return argv[0]
