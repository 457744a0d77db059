"""`--set KEY=VALUE`: a value put into the tree as if it had been written in the file."""

from __future__ import annotations

from jobctl.jobspec.spec.diagnostics import Diagnostic, Span
from jobctl.jobspec.spec.source import BadSource, Node, parse

FILE = "--set"


def apply_override(root: Node, override: str) -> None:
    """Put `KEY=VALUE` into the tree; KEY is dotted, VALUE is YAML. Raises BadSource.

    What it replaces must not be shared with an anchor elsewhere, so mappings on the way are copied.
    """
    key, equals, text = override.partition("=")
    parts = key.split(".")
    span = Span(FILE, 1, 1, 1, len(override) + 1)
    if not equals or not all(parts):
        raise BadSource(
            Diagnostic(
                "error", "bad-override", f"`{override}` is no override", span, "write KEY=VALUE, e.g. `--set nodes=2`"
            )
        )
    value, found = parse(text, FILE)
    if found:
        raise BadSource(*found)
    new = value or Node("scalar", span, "", True)
    _place(root, parts, _at(new, span), span)


def _at(node: Node, span: Span) -> Node:
    """Return a copy of a tree that stands at `span`: parts of an override have no places of their own."""
    return Node(
        node.kind,
        span,
        node.text,
        node.plain,
        [_at(item, span) for item in node.items],
        [(_at(key, span), _at(value, span)) for key, value in node.entries],
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
    for number, (known, _) in enumerate(node.entries):
        if known.text == key:
            node.entries[number] = (known, value)
            return
    node.entries.append((Node("scalar", span, key, True), value))
