"""What a script would do, as data: the commands that it would start, and what it would leave behind."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import field

from jobctl.jobspec.importers.notes import not_carried_over
from jobctl.jobspec.records import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """A command that a script would start, in words (escaping.py); `env` is what it is given, `maybe` on what it depends.

    `folder` is where it is started, relative to where the script is; `patterns` are the words of which its shell makes others.
    `text` is how it was written, without where its output goes; empty where it reads a file. `stdin` is what that holds,
    with a line break before the lines of `<<EOF`.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    line: int | None = None
    source: str = ""
    text: str = ""
    maybe: str = ""
    folder: str = "."
    logged: bool = False
    patterns: tuple[str, ...] = ()
    stdin: str | None = None


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a script writes, where, and by which command."""

    name: str
    line: int
    command: str


@dataclass(frozen=True, slots=True)
class Script:
    """What a script would do: its commands in order, notes on what was not understood, and what it leaves: variables, files.

    `files` are those whose text is known, `taken` those of them that it reads itself.
    """

    commands: tuple[Command, ...]
    notes: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    written: tuple[WrittenFile, ...] = ()
    taken: frozenset[str] = frozenset()

    def lost(self, taken: Set[str] = frozenset()) -> tuple[str, ...]:
        """Return notes on the files that it writes, except those whose text was `taken` over."""
        return tuple(
            not_carried_over(f"line {one.line}: `{one.command} > {one.name}`", "do it before `up`, or in `setup`")
            for one in self.written
            if one.name not in self.files or one.name not in self.taken | taken
        )
