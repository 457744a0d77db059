"""Statements of Python files, without a look at expressions: those are nine tenths of what `ast.walk` passes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_LISTS = ("body", "orelse", "finalbody", "handlers", "cases")  # of statements, or of what has such lists itself


def statements(*trees: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements in these trees, and those within them."""
    left = [*trees]
    while left:
        node = left.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in _LISTS:
            left += getattr(node, name, ())
