"""`--set KEY=VALUE`: a value put into the tree as if it had been written in the file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from jobctl.jobspec.spec import canonical as short
from jobctl.jobspec.spec.diagnostics import Diagnostic, Span
from jobctl.jobspec.spec.reading.source import BadSource, YamlNode
from jobctl.jobspec.spec.reading.yaml_reader import parse
from jobctl.jobspec.spec.scalars import is_text

FILE = "--set"  # in place of a file: line n is the n-th override

# Keys that are mappings in their long form, so that `--set checkpoint.keep=3` means something beside `checkpoint: /path`.
_SHORT: Mapping[str, Callable[[Any], Any]] = {
    "checkpoint": short.checkpoint,
    "code": short.code,
    "devices": short.devices,
    "nodes": short.nodes,
}


def apply_override(root: YamlNode, override: str, number: int) -> None:
    """Put `KEY=VALUE`, the `number`-th override, into the tree; KEY is dotted, VALUE is YAML. Raises BadSource.

    What it replaces must not be shared with an anchor elsewhere, so mappings on the way are copied.
    """
    key, equals, text = override.partition("=")
    parts = key.split(".")
    span = Span(FILE, number, 1, number, len(key) + 1)
    if not equals or not all(parts):
        hint = "write KEY=VALUE, e.g. `--set nodes=2`"
        raise BadSource(Diagnostic("error", "bad-override", f"`{override}` is not a valid override", span, hint))
    if not is_text(text):
        raise BadSource(Diagnostic("error", "not-text", f"the value of `{key}` is not UTF-8 text", span))
    # Its places are counted in `KEY=VALUE`, so that a caret stands under the value.
    start = len(key) + 1
    try:
        value, found = parse(text, FILE)
    except BadSource as bad:
        found = list(bad.diagnostics)
    if found:
        raise BadSource(*(_moved(diagnostic, number, start) for diagnostic in found))
    end = Span(FILE, number, start + 1, number, start + len(text) + 1)
    _place(root, parts, _at(value, number, start) if value else YamlNode("scalar", end, "", True), span)


def _moved(diagnostic: Diagnostic, number: int, start: int) -> Diagnostic:
    from dataclasses import replace

    return replace(diagnostic, span=_shift(diagnostic.span, number, start))


def _shift(span: Span, number: int, start: int) -> Span:
    return Span(FILE, number, span.column + start, number, span.end_column + start)


def _at(node: YamlNode, number: int, start: int) -> YamlNode:
    """Return a copy of a tree with its places where they are in the override."""
    return YamlNode(
        node.kind,
        _shift(node.span, number, start),
        node.text,
        node.plain,
        [_at(item, number, start) for item in node.items],
        [(_at(key, number, start), _at(value, number, start)) for key, value in node.entries],
        node.size,
    )


def _place(root: YamlNode, parts: list[str], value: YamlNode, span: Span) -> None:
    node = root
    for part in parts[:-1]:
        entry = node.get(part)
        found = _long(part, entry[1]) if entry and node is root else entry[1] if entry else None
        below = found if found is not None and found.kind == "mapping" else YamlNode("mapping", span)
        below = YamlNode("mapping", below.span, entries=list(below.entries), size=below.size)
        _set(node, part, below, span)
        node = below
    _set(node, parts[-1], value, span)


def _long(key: str, value: YamlNode) -> YamlNode:
    """Return the long form of a value of the spec that is written in its short form, any other as it is.

    What a variable stands for is not known yet: where that could be more than one value, it stays as it is.
    """
    if value.kind != "scalar" or not value.text or key not in _SHORT or (key == "devices" and "$" in value.text):
        return value
    with contextlib.suppress(ValueError):  # neither form: told as ever
        long = _SHORT[key](value.text)
        entries = [(YamlNode("scalar", value.span, name, True), _part(value, str(text))) for name, text in long.items()]
        return YamlNode("mapping", value.span, entries=entries, size=value.size)
    return value


def _part(value: YamlNode, text: str) -> YamlNode:
    return YamlNode("scalar", value.span, text, value.plain)


def _set(node: YamlNode, key: str, value: YamlNode, span: Span) -> None:
    node.index = None
    new = (YamlNode("scalar", span, key, True), value)
    for number, (known, _) in enumerate(node.entries):
        if known.text == key:
            node.entries[number] = (known, value) if value.span.file != FILE else new
            return
    node.entries.append(new)
