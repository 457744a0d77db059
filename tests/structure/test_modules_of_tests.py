"""Each module of the tests is imported by one name: under two it is there twice, with two states.

A fixture of one copy then looks at what the other copy has made, and a check may see nothing for ever.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
OTHERS = {"cases", "samples", "standins"}  # folders with what is no module of the tests


def files() -> Iterator[Path]:
    """Yield the modules of the tests."""
    for path in TESTS.rglob("*.py"):
        if not OTHERS & set(path.relative_to(TESTS).parts[:-1]):
            yield path


def test_a_folder_has_no_name_of_its_own() -> None:
    """Pytest calls a module `fleet.conftest` where its folder has an `__init__.py`; others import `tests.fleet.conftest`."""
    assert [path for path in files() if path.name == "__init__.py"] == []


def test_modules_are_found_from_the_root_alone() -> None:
    """From any other folder they would have shorter names, too."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert told["tool"]["pytest"]["ini_options"]["pythonpath"] == ["."]
    assert [path for path in files() if _changes_path(path)] == []


def _changes_path(path: Path) -> bool:
    """Say whether a module speaks of `sys.path` as it is imported; programs in its texts may."""
    text = path.read_text()
    if "sys.path" not in text:
        return False
    tree = ast.parse(text)
    lines = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef)]
    inner = [node for line in lines for node in ast.walk(line) if isinstance(node, ast.Attribute)]
    return any(ast.unparse(node) == "sys.path" for node in inner)
