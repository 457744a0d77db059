"""A spec's file as a tree of nodes that know their places, and from there to plain data.

Every scalar stays text, as the user wrote it: `0755`, `1.10`, `no` and `22:22` mean whatever their key says, and only
the models know the keys. `yaml_reader` makes the tree.
"""

from __future__ import annotations

import errno
import os
import re
import select
import shlex
import stat
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.diagnostics import Diagnostic, Span

MAX_BYTES = 1 << 20
PIPE_WAIT = 5.0  # seconds
_LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")  # as YAML 1.1 parsers (libyaml) count lines
KeyPath = tuple[str | int, ...]  # of a value in the spec
_NULL = ("", "~", "null", "Null", "NULL")


@dataclass(slots=True)
class YamlNode:
    """A scalar, sequence or mapping, and where it stands.

    `text` is a scalar's value and `plain` whether it was written without quotes; `size` counts the nodes below and
    `depth` the levels, aliases expanded. `last` is the last line of a scalar of several lines.
    """

    kind: Literal["scalar", "sequence", "mapping"]
    span: Span
    text: str = ""
    plain: bool = False
    items: list[YamlNode] = field(default_factory=list)
    entries: list[tuple[YamlNode, YamlNode]] = field(default_factory=list)
    size: int = 1
    depth: int = 1
    last: int = 0
    index: dict[str, tuple[YamlNode, YamlNode]] | None = None

    def data(self) -> Any:
        """Return plain data: text, None, lists and dicts."""
        if self.kind == "scalar":
            return None if self.plain and self.text in _NULL else self.text
        if self.kind == "sequence":
            return [item.data() for item in self.items]
        return {key.text: value.data() for key, value in self.entries}

    def get(self, key: str) -> tuple[YamlNode, YamlNode] | None:
        """Return key and value of an entry of a mapping."""
        if self.index is None or len(self.index) != len(self.entries):
            self.index = {entry[0].text: entry for entry in self.entries}
        return self.index.get(key)


@dataclass(slots=True)
class Source:
    """A file's tree, to find places in; `root` is None where there is no tree."""

    file: str
    text: str
    root: YamlNode | None
    overrides: tuple[str, ...] = ()
    split: list[str] | None = field(default=None, init=False, repr=False, compare=False)  # the lines, once asked for

    def lines(self, file: str) -> list[str] | None:
        """Return the lines of what spans call `file`: the spec, or what was given with `--set`."""
        if file == self.file:
            if self.split is None:
                self.split = split_lines(self.text) if self.text else []
            return self.split
        return list(self.overrides) if file == "--set" else None

    def keys(self, path: Sequence[str | int]) -> list[str]:
        """Return the keys of the mapping at `path`; none if it is something else."""
        node = self.root
        for part in path:
            entry = _child(node, part) if node else None
            node = entry[1] if entry else None
        return [key.text for key, _ in node.entries] if node else []

    def part_span(self, node: YamlNode, part: str, at: int) -> Span:
        """Return the place of `part`, found at `at` in the text of a scalar; the scalar's own if it cannot be told."""
        whole = node.span
        lines = self.lines(whole.file) or []
        earlier = node.text[:at].count(part)
        for number in range(whole.line, max(node.last, whole.line) + 1):
            line = lines[number - 1] if number <= len(lines) else ""
            column = (whole.column - 1 if number == whole.line else 0) - 1
            while (column := line.find(part, column + 1)) >= 0:
                if not earlier:
                    return Span(whole.file, number, column + 1, number, column + 1 + len(part))
                earlier -= 1
        return whole

    def key_span(self, path: Sequence[str | int]) -> Span:
        """Return the place of the key at `path`, or the nearest one above it."""
        return self._find(path)[0]

    def value_span(self, path: Sequence[str | int]) -> Span:
        """Return the place of the value at `path`, or the nearest one above it.

        Of a block, or of no value at all, that of its key: nobody looks for a mistake in the block's first line.
        """
        return self._find(path)[1]

    def has(self, path: Sequence[str | int]) -> bool:
        """Say whether something is written at `path`."""
        return self._walk(path)[2] == len(path)

    def _find(self, path: Sequence[str | int]) -> tuple[Span, Span]:
        key, value, _ = self._walk(path)
        return key, value

    def _walk(self, path: Sequence[str | int]) -> tuple[Span, Span, int]:
        node = self.root
        if node is None:
            start = Span(self.file, 1, 1, 1, 2)
            return start, start, 0
        first = node.entries[0][0].span if node.entries else node.span
        key, value, depth = first, first, 0
        for part in path:
            entry = _child(node, part)
            if entry is None:
                break
            key, node = entry
            value, depth = node.span, depth + 1
            if _is_empty(key) and node.entries:  # an item of a list that is a block has no key of its own
                key = node.entries[0][0].span
        return key, key if _is_empty(value) else value, depth


def _is_empty(span: Span) -> bool:
    return (span.line, span.column) == (span.end_line, span.end_column)


def _child(node: YamlNode, part: str | int) -> tuple[Span, YamlNode] | None:
    if isinstance(part, int) and node.kind == "sequence":
        return (node.items[part].span, node.items[part]) if part < len(node.items) else None
    entry = node.get(str(part)) if node.kind == "mapping" else None
    return None if entry is None else (entry[0].span, entry[1])


def split_lines(text: str) -> list[str]:
    """Return the lines of `text`, as spans count them."""
    return _LINE_BREAK.split(text)


class BadSource(Exception):
    """A file that is no tree; carries the diagnostics that say why."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__(*(diagnostic.message for diagnostic in diagnostics))
        self.diagnostics = diagnostics


class SilentPipe(Exception):
    """A named pipe into which nobody writes."""


# What pipes have given, by their places: each gives it once, and a command reads a spec more than once.
_GIVEN: dict[tuple[str, int, int], bytes] = {}
_DESCRIPTOR = re.compile(r"/dev/(stdin|fd/\d+)|/proc/(self|\d+)/fd/\d+")


def is_descriptor(path: Path) -> bool:
    """Say whether a path names an open file of this process, as `/dev/stdin` does, and what a shell puts for `<(command)`."""
    return _DESCRIPTOR.fullmatch(os.path.abspath(path)) is not None


def folder_of(path: Path) -> Path:
    """Return the folder that relative paths in a file refer to; of an open file of this process, the current one."""
    return Path() if is_descriptor(path) else path.parent


def read_once(path: Path) -> bytes:
    """Return the beginning of a file, up to one byte more than MAX_BYTES. Raises SilentPipe, and OSError."""
    about = os.stat(path)
    if stat.S_ISREG(about.st_mode):
        return _content(path)
    place = (os.path.abspath(path), about.st_dev, about.st_ino)
    if place not in _GIVEN:
        _GIVEN[place] = _content(path)
    return _GIVEN[place]


def _content(path: Path) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a named pipe would wait for its writer, without a word
    with os.fdopen(handle, "rb") as file:
        begin = _first_byte(handle) if stat.S_ISFIFO(os.fstat(handle).st_mode) else b""
        os.set_blocking(handle, True)
        return begin + file.read(MAX_BYTES + 1)


def _first_byte(pipe: int) -> bytes:
    """Wait until somebody writes into a pipe, and return a byte if it was read meanwhile. Raises SilentPipe if nobody does."""
    written = select.poll()
    written.register(pipe, select.POLLIN)
    if written.poll(1000 * PIPE_WAIT):
        return b""
    try:
        begin = os.read(pipe, 1)
    except BlockingIOError:  # somebody has it open, and is slow
        return b""
    if not begin:
        raise SilentPipe
    return begin


def read_text(path: Path, name: str, missing: str = "`jobctl init` writes one to start from") -> str:
    """Return the text of the file `path`, called `name` in messages; `missing` says what helps if there is none.

    Raises BadSource.
    """

    def bad(code: str, message: str, hint: str | None = None) -> BadSource:
        return BadSource(Diagnostic("error", code, message, Span(name, 1, 1, 1, 1), hint))

    try:
        if path.is_dir():
            raise bad("not-a-file", f"`{name}` is a directory", "name the file in it")
        content = read_once(path)
    except SilentPipe:
        message = f"cannot read `{name}`: it is a pipe, and nobody has written into it within {PIPE_WAIT:g} s"
        raise bad("unreadable", message, "name a file, or start what writes first") from None
    except FileNotFoundError:
        raise bad("no-such-file", f"there is no file `{name}`", missing) from None
    except OSError as error:
        hint = f"`ls -l {shlex.quote(name)}` shows who may" if error.errno == errno.EACCES else None
        raise bad("unreadable", f"cannot read `{name}`: {error.strerror}", hint) from None
    if len(content) > MAX_BYTES:
        raise bad("too-large", f"`{name}` is larger than {MAX_BYTES >> 20} MiB", "is it the right file?")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"`{name}` is not UTF-8 text (byte {error.start})"
        raise bad("not-text", message, "save it as UTF-8, or name the right file") from None
    if "\0" in text:
        raise bad("not-text", f"`{name}` holds a NUL byte: it is a binary file", "name the right file")
    return text
