"""Each module of the tests is imported by one name: under two it is there twice, with two states.

A fixture of one copy then looks at what the other copy has made, and a check may see nothing for ever.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"


def package(path: Path) -> str:
    """Return the name of the package that a file is in, as pytest has it, for which `tests` itself is in sys.path."""
    base = TESTS if (path.parent / "__init__.py").exists() else ROOT
    return ".".join(path.parent.relative_to(base).parts)


def imported(path: Path, text: str) -> Iterator[str]:
    """Yield the names of what a file imports, whether they are modules or in modules."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package(path).split(".")[: 1 - node.level or None] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from (module, *(f"{module}.{alias.name}" for alias in node.names))


def module_of_tests(name: str) -> Path | None:
    """Return the file of a module, if it is one of the tests'."""
    places = [base.joinpath(*name.split(".")) for base in (ROOT, TESTS)]
    files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
    return next((file for file in files if file.is_file() and TESTS in file.parents), None)


def names(sources: dict[Path, str]) -> dict[Path, set[str]]:
    """Return by which names these files import modules of the tests, and pytest its own."""
    found: dict[Path, set[str]] = {}
    for path, text in sources.items():
        if path.stem == "conftest" or path.stem.startswith("test_"):
            found[path] = {f"{package(path)}.{path.stem}"}
        for name in imported(path, text):
            if (module := module_of_tests(name)) is not None:
                found.setdefault(module, set()).add(name)
    return found


def test_each_is_imported_by_one_name() -> None:
    files = [*TESTS.rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    sources = {file: file.read_text() for file in files if not {"samples", "cases"} & set(file.parts)}
    assert {module: found for module, found in names(sources).items() if len(found) > 1} == {}


def test_two_names_are_found() -> None:
    fleet = TESTS / "fleet"
    sources = {
        fleet / "conftest.py": "from .shared import hosts_of",
        TESTS / "conftest.py": "import tests.fleet.shared",
    }
    assert names(sources)[fleet / "shared.py"] == {"fleet.shared", "tests.fleet.shared"}
    sources = {fleet / "conftest.py": "", fleet / "test_fleet.py": "import tests.fleet.conftest"}
    assert names(sources)[fleet / "conftest.py"] == {"fleet.conftest", "tests.fleet.conftest"}
    sources = {TESTS / "notify" / "test_listening.py": "from . import test_news"}
    assert names(sources)[TESTS / "notify" / "test_news.py"] == {"tests.notify.test_news"}
