"""The parser: YAML text to a tree of nodes that know their places.

Repeated keys are errors; anchors, aliases and `<<` work; alias bombs and deep nesting are refused before they cost
anything. PyYAML parses; the rest is by hand, as ruamel.yaml too decides what a scalar is before the key is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from jobctl.jobspec.spec.diagnostics import Diagnostic, Span
from jobctl.jobspec.spec.reading.source import BadSource, YamlNode, split_lines

MAX_DEPTH = 64
MAX_NODES = 20_000  # after aliases are expanded

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# All but `c-printable` of YAML 1.2.
_FORBIDDEN = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "seq", "map")}


def parse(text: str, file: str) -> tuple[YamlNode | None, list[Diagnostic]]:
    """Return the tree of the YAML in `text` (None if it is empty) and what is wrong with its keys.

    Raises BadSource for what is no YAML, or more than anybody means to write.
    """
    builder = _Builder(file, text)
    try:
        for event in yaml.parse(text, Loader=Loader):
            builder.take(event)
    except yaml.YAMLError as error:
        raise BadSource(_syntax_error(error, file, text)) from None
    return builder.root, builder.diagnostics


class _Builder:
    """Builds the tree from parser events, without recursion."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text = file, text
        self.lines: list[str] | None = None
        self.root: YamlNode | None = None
        self.documents = 0
        self.open: list[tuple[YamlNode, YamlNode | None]] = []  # containers, and the key that waits for its value
        self.anchors: dict[str, YamlNode] = {}
        self.unfinished: set[int] = set()
        self.nodes = 0
        self.diagnostics: list[Diagnostic] = []

    def take(self, event: Any) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._check_tag(event)
            explicit = event.tag is not None and event.tag != "!"
            plain = not event.style and not explicit  # '' from libyaml, None from PyYAML's own parser
            self._add(YamlNode("scalar", self._span(event), event.value, plain, last=_last(event)), event)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
            self._check_tag(event)
            kind: Any = "sequence" if isinstance(event, yaml.SequenceStartEvent) else "mapping"
            node = YamlNode(kind, self._span(event))
            self.unfinished.add(id(node))
            self._anchor(node, event)
            self.open.append((node, None))
            if len(self.open) > MAX_DEPTH:
                self._refuse("too-deep", f"nested more than {MAX_DEPTH} levels deep", event)
        elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
            node = self.open.pop()[0]
            self._close(node, event)
            self._put(node, event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                self._refuse("several-documents", "a second YAML document begins here", event, "one spec, one file")

    def _add(self, node: YamlNode, event: Any) -> None:
        self._anchor(node, event)
        self._put(node, event)

    def _anchor(self, node: YamlNode, event: Any) -> None:
        if event.anchor:
            self.anchors[event.anchor] = node

    def _alias(self, event: Any) -> None:
        node = self.anchors.get(event.anchor)
        if node is None:
            self._refuse("unknown-anchor", f"there is no anchor `&{event.anchor}` before this", event)
        if id(node) in self.unfinished:
            self._refuse("recursive-alias", f"`*{event.anchor}` contains itself", event)
        self._put(node, event)

    def _put(self, node: YamlNode | None, event: Any) -> None:
        assert node is not None
        if not self.open:
            self.root = node
            return
        parent, key = self.open[-1]
        parent.size += node.size
        parent.depth = max(parent.depth, node.depth + 1)
        if parent.depth > MAX_DEPTH:
            self._refuse("too-deep", f"nested more than {MAX_DEPTH} levels deep, aliases expanded", event)
        if parent.size > MAX_NODES:
            self._refuse("too-many-nodes", f"more than {MAX_NODES} values, aliases expanded", event)
        if parent.kind == "sequence":
            parent.items.append(node)
        elif key is None:
            self.open[-1] = (parent, self._key(node))
        else:
            parent.entries.append((key, node))
            self.open[-1] = (parent, None)

    def _key(self, node: YamlNode) -> YamlNode:
        if node.kind != "scalar":
            raise BadSource(Diagnostic("error", "complex-key", "a key must be a plain word", node.span))
        return node

    def _close(self, node: YamlNode, event: Any) -> None:
        self.unfinished.discard(id(node))
        if node.span.end_line == node.span.line and event.start_mark.line == node.span.line - 1:
            # A flow collection on one line is marked to its end, anything longer to the end of its first line.
            end = event.end_mark.column + 1
            node.span = Span(self.file, node.span.line, node.span.column, node.span.line, end)
        if node.kind == "mapping":
            self._check_keys(node)
            self._merge(node)

    def _check_keys(self, node: YamlNode) -> None:
        first: dict[str, YamlNode] = {}
        kept = []
        for key, value in node.entries:
            if key.text in first:
                message = f"the key `{key.text}` appears twice"
                hint = f"the first one is in line {first[key.text].span.line}"
                hint += "; `<<: [*a, *b]` merges several mappings" if _is_merge(key) else ""
                self.diagnostics.append(Diagnostic("error", "repeated-key", message, key.span, hint))
            else:
                first[key.text] = key
                kept.append((key, value))
        node.entries = kept

    def _merge(self, node: YamlNode) -> None:
        if not any(_is_merge(key) for key, _ in node.entries):
            return
        own = [(key, value) for key, value in node.entries if not _is_merge(key)]
        known = {key.text for key, _ in own}
        for key, value in node.entries:
            for source in _merged(value) if _is_merge(key) else ():
                if source.kind != "mapping":
                    message = "`<<` takes a mapping, or a list of mappings"
                    self.diagnostics.append(Diagnostic("error", "bad-merge", message, key.span))
                    continue
                new = [entry for entry in source.entries if entry[0].text not in known]
                known.update(entry[0].text for entry in new)
                own += new
        node.entries = own

    def _check_tag(self, event: Any) -> None:
        if event.tag and event.tag != "!" and event.tag not in _TAGS:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._refuse("unknown-tag", f"the tag `{tag}` is not supported", event, "leave it out")

    def _span(self, event: Any) -> Span:
        start, end = event.start_mark, event.end_mark
        if end.line == start.line:
            return Span(self.file, start.line + 1, start.column + 1, start.line + 1, max(end.column, start.column) + 1)
        if self.lines is None:
            self.lines = split_lines(self.text)
        line = self.lines[start.line] if start.line < len(self.lines) else ""
        column = max(len(line.rstrip()), start.column + 1)
        return Span(self.file, start.line + 1, start.column + 1, start.line + 1, column + 1)

    def _refuse(self, code: str, message: str, event: Any, hint: str | None = None) -> None:
        raise BadSource(Diagnostic("error", code, message, self._span(event), hint))


def _last(event: Any) -> int:
    """Return the last line of an event; block scalars end where the next thing begins."""
    return int(event.end_mark.line) + 1


def _is_merge(key: YamlNode) -> bool:
    return key.text == "<<" and key.plain


def _merged(value: YamlNode) -> Iterator[YamlNode]:
    if value.kind == "sequence":
        yield from value.items
    else:
        yield value


_CLOSED = {"quoted scalar": "quoted text", "flow sequence": "list", "flow mapping": "mapping"}


def _syntax_error(error: yaml.YAMLError, file: str, text: str) -> Diagnostic:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        # The error has a position, too: counted in bytes by libyaml, in characters by PyYAML.
        found = _FORBIDDEN.search(text)
        lines = split_lines(text[: found.start()] if found else "")
        span = Span(file, len(lines), len(lines[-1]) + 1, len(lines), len(lines[-1]) + 2)
        return Diagnostic("error", "yaml-syntax", "a control character, which YAML forbids", span, "delete it")
    problem = str(getattr(error, "problem", "") or "not YAML")
    if "nesting depth" in problem:  # PyYAML 6.0.4 gives up at a thousand levels, before it tells of the first
        return Diagnostic("error", "too-deep", f"nested more than {MAX_DEPTH} levels deep", _point(file, mark, text))
    context = getattr(error, "context", None)
    begin = getattr(error, "context_mark", None)
    what = next((name for word, name in _CLOSED.items() if context and word in context), None)
    if what is not None and begin is not None and begin.line != mark.line:
        # What is not closed is noticed lines later; the place to change is where it begins.
        span = Span(file, begin.line + 1, begin.column + 1, begin.line + 1, begin.column + 2)
        return Diagnostic("error", "yaml-syntax", f"the {what} that begins here is not closed", span)
    if begin is not None and context and "simple key" in context:
        word = split_lines(text)[begin.line][begin.column :].rstrip()
        span = Span(file, begin.line + 1, begin.column + 1, begin.line + 1, begin.column + 1 + max(len(word), 1))
        hint = "a key is followed by `: ` and a value; text of several lines needs quotes or `|`"
        return Diagnostic("error", "yaml-syntax", "this is no `key: value`", span, hint)
    span = _point(file, mark, text)
    if "nesting depth" in problem:  # libyaml has a limit too since 0.2.6, and reads ahead
        return Diagnostic("error", "too-deep", f"nested more than {MAX_DEPTH} levels deep", span)
    message = f"{problem} ({context})" if context else problem
    return Diagnostic("error", "yaml-syntax", message, span, _syntax_hint(problem, mark, text))


def _point(file: str, mark: Any, text: str) -> Span:
    """Return the place of a mark; the end of the last line for one behind the end of the file."""
    lines = split_lines(text)
    line, column = mark.line, mark.column
    if line >= len(lines) or (line == len(lines) - 1 and column > len(lines[line])):
        line, column = len(lines) - 1, len(lines[-1])
    return Span(file, line + 1, column + 1, line + 1, column + 2)


def _syntax_hint(problem: str, mark: Any, text: str) -> str | None:
    lines = split_lines(text)
    line = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())] or line[mark.column : mark.column + 1] == "\t":
        return "YAML indents with spaces, not tabs"
    if "mapping values are not allowed" in problem:
        return "a value with `: ` in it needs quotes; keys of one mapping need the same indentation"
    if line[mark.column : mark.column + 1] in tuple("@`%"):
        return f"a value that begins with `{line[mark.column]}` needs quotes"
    if "did not find expected" in problem:
        return "check the indentation, and that brackets and quotes are closed"
    return None
