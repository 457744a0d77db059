"""`--set KEY=VALUE`: a value put into the tree as if it had been written in the file."""

from __future__ import annotations

from jobctl.jobspec.spec.diagnostics import Diagnostic, Span
from jobctl.jobspec.spec.source import BadSource, Node, parse

FILE = "--set"  # in place of a file: line n is the n-th override


def apply_override(root: Node, override: str, number: int) -> None:
    """Put `KEY=VALUE`, the `number`-th override, into the tree; KEY is dotted, VALUE is YAML. Raises BadSource.

    What it replaces must not be shared with an anchor elsewhere, so mappings on the way are copied.
    """
    key, equals, text = override.partition("=")
    parts = key.split(".")
    span = Span(FILE, number, 1, number, len(key) + 1)
    if not equals or not all(parts):
        hint = "write KEY=VALUE, e.g. `--set nodes=2`"
        raise BadSource(Diagnostic("error", "bad-override", f"`{override}` is no override", span, hint))
    # Its places are counted in `KEY=VALUE`, so that a caret stands under the value.
    start = len(key) + 1
    try:
        value, found = parse(text, FILE)
    except BadSource as bad:
        found = list(bad.diagnostics)
    if found:
        raise BadSource(*(_moved(diagnostic, number, start) for diagnostic in found))
    end = Span(FILE, number, start + 1, number, start + len(text) + 1)
    _place(root, parts, _at(value, number, start) if value else Node("scalar", end, "", True), span)


def _moved(diagnostic: Diagnostic, number: int, start: int) -> Diagnostic:
    from dataclasses import replace

    return replace(diagnostic, span=_shift(diagnostic.span, number, start))


def _shift(span: Span, number: int, start: int) -> Span:
    return Span(FILE, number, span.column + start, number, span.end_column + start)


def _at(node: Node, number: int, start: int) -> Node:
    """Return a copy of a tree with its places where they are in the override."""
    return Node(
        node.kind,
        _shift(node.span, number, start),
        node.text,
        node.plain,
        [_at(item, number, start) for item in node.items],
        [(_at(key, number, start), _at(value, number, start)) for key, value in node.entries],
        node.size,
    )


def _place(root: Node, parts: list[str], value: Node, span: Span) -> None:
    node = root
    for part in parts[:-1]:
        entry = node.get(part)
        below = entry[1] if entry and entry[1].kind == "mapping" else Node("mapping", span)
        below = Node("mapping", below.span, entries=list(below.entries), size=below.size)
        _set(node, part, below, span)
        node = below
    _set(node, parts[-1], value, span)


def _set(node: Node, key: str, value: Node, span: Span) -> None:
    node.index = None
    new = (Node("scalar", span, key, True), value)
    for number, (known, _) in enumerate(node.entries):
        if known.text == key:
            node.entries[number] = (known, value) if value.span.file != FILE else new
            return
    node.entries.append(new)
