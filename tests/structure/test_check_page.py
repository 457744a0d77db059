"""Every way in which a host or an image can fail has a section in docs/check.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"[a-z]+(-[a-z]+)*")


def _codes() -> Iterator[str]:
    """Yield the codes of findings and of errors of hosts."""
    for path in (path for room in ("deploy", "frameworks") for path in sorted((ROOT / "jobspec" / room).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = node.func.id if isinstance(node.func, ast.Name) else ""
                if isinstance(node.func, ast.Attribute) and node.func.attr == "__init__":
                    name = "HostError"  # of one that has its code from its class
                at = {"HostError": 1, "Finding": 4, "Problem": 0, "Need": 0, "Metric": 4, "Lack": 0}.get(name)
                if at is not None and len(node.args) > at:
                    yield from _text(node.args[at])
            elif isinstance(node, ast.Assign | ast.AnnAssign) and "_CAUSES" in ast.unparse(node).split("=")[0]:
                for row in ast.walk(node):
                    if isinstance(row, ast.Tuple) and len(row.elts) in (3, 4):
                        yield from _text(row.elts[1])
                    elif isinstance(row, ast.Tuple) and len(row.elts) == 2 and isinstance(row.elts[0], ast.Constant):
                        yield from _text(row.elts[0])


def _text(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
        yield node.value


def test_every_code_has_a_section() -> None:
    sections = re.findall(r"^### `([a-z-]+)`", (ROOT / "docs" / "check.md").read_text(), re.M)
    assert sorted(set(_codes())) == sorted(sections)
    assert len(sections) == len(set(sections))
