"""What is played before a release only: each such test names those that show the same in every run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants.patches import mutants

ROOT = Path(__file__).parents[2]
Place = tuple[str, str]  # a file, and the name of a test in it
MARK = "pytest.mark.release"


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the uses of `pytest.mark.release`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == MARK:
            yield node


class Found:
    """The tests that are marked as a whole, and what marks say."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.marked = set[Place]()
        self.said: list[tuple[str, str]] = []  # by file
        for path in sorted({*root.glob("tests/**/test_*.py")} - {Path(__file__)}):
            if MARK in (text := path.read_text()):
                self._read(path.relative_to(root).as_posix(), ast.parse(text))

    def _read(self, name: str, tree: ast.Module) -> None:
        for test in tree.body:
            if isinstance(test, ast.FunctionDef) and any(MARK in ast.unparse(one) for one in whole(test)):
                self.marked.add((name, test.name))
        for one in calls(tree):
            self.said += [(name, ast.literal_eval(shown)) for shown in one.args] or [(name, "")]
        self.said += [(name, "")] * (ast.unparse(tree).count(MARK) - len([*calls(tree)]))

    def is_in_every_run(self, test: str) -> bool:
        """Say whether there is such a test, and it is not left out."""
        path = self.root / place(test)[0]
        there = path.is_file() and f"\ndef {place(test)[1]}(" in "\n" + path.read_text()
        return there and place(test) not in self.marked

    def problems(self) -> list[str]:
        """Return the marks that name no test which is in every run."""
        return [f"{file}: `{test}`" for file, test in self.said if not self.is_in_every_run(test)]


def whole(test: ast.FunctionDef) -> list[ast.expr]:
    """Return the decorators of a test that mark all of it."""
    of_cases = ("pytest.mark.parametrize", "versions(")
    return [one for one in test.decorator_list if not ast.unparse(one).startswith(of_cases)]


def place(test: str) -> Place:
    """Return where a test is, by its id."""
    file, _, name = test.partition("::")
    return file, name.partition("[")[0]


@pytest.fixture(scope="module")
def found() -> Found:
    return Found(ROOT)


def test_what_is_played_before_a_release_is_shown_by_a_test_of_every_run(found: Found) -> None:
    assert found.said != []
    assert found.problems() == []


def test_no_planted_bug_is_caught_before_a_release_only(found: Found) -> None:
    assert found.marked != set()
    assert [mutant.name for mutant in mutants() if place(mutant.test) in found.marked] == []


@pytest.mark.parametrize(
    ("mark", "problem"),
    [
        ('("tests/test_one.py::test_always[1]")', []),
        ('("tests/test_one.py::test_seldom")', ["tests/test_one.py: `tests/test_one.py::test_seldom`"]),
        ('("tests/test_one.py::test_not_there")', ["tests/test_one.py: `tests/test_one.py::test_not_there`"]),
        ("()", ["tests/test_one.py: ``"]),
        ("", ["tests/test_one.py: ``"]),
    ],
)
def test_a_mark_that_names_no_test_of_every_run_is_told(tmp_path: Path, mark: str, problem: list[str]) -> None:
    (tmp_path / "tests").mkdir()
    text = f"def test_always(): ...\n@pytest.mark.release{mark}\ndef test_seldom(): ...\n"
    (tmp_path / "tests" / "test_one.py").write_text(text)
    assert Found(tmp_path).problems() == problem


class Asked:
    """The configuration of a run: what somebody has asked for."""

    def __init__(self, *options: str, paths: tuple[str, ...] = ()) -> None:
        self.options, self.args = options, [*paths]
        source = pytest.Config.ArgsSource
        self.args_source = source.ARGS if paths else source.TESTPATHS

    def getoption(self, name: str) -> bool:
        """Say whether an option was given."""
        return name in self.options


class Item:
    """A test, with marks."""

    def __init__(self, *marks: str) -> None:
        self.marks, self.path = marks, ROOT / "tests/plan/test_one.py"

    def get_closest_marker(self, name: str) -> str | None:
        """Return the name of a mark that it has."""
        return name if name in self.marks else None


@pytest.mark.parametrize(
    ("asked", "runs"),
    [
        (Asked(), [""]),
        (Asked("--all"), ["", "long"]),
        (Asked(paths=("tests/plan",)), ["", "long"]),
        (Asked(paths=("tests/plan/test_one.py::test_one",)), ["", "long", "release"]),
        (Asked("--release"), ["release"]),
        (Asked("--all", "--release", paths=("tests/plan",)), ["release"]),
    ],
    ids=["run.sh", "all", "folder", "id", "release", "release of a folder"],
)
def test_variants_run_before_a_release_or_by_their_ids(
    pytestconfig: pytest.Config, asked: Asked, runs: list[str]
) -> None:
    conftest = pytestconfig.pluginmanager.get_plugin(str(ROOT / "tests/conftest.py"))
    assert conftest is not None
    assert [mark for mark in ("", "long", "release") if not conftest._is_left_out(Item(mark), asked)] == runs
