"""The planted bugs as files: what each breaks, which test catches it, and where it goes."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.tools.syntax import statements

HOME = Path(__file__).parent
ROOT = HOME.parents[1]

_CAUGHT_BY = re.compile(r"^Caught-by: (\S.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Hunk:
    """One place of a patch: the lines that it looks for in `file`, and those that it puts there."""

    file: str
    old: str
    new: str

    def misfit(self, root: Path) -> str | None:
        """Say why it has no place in the tree at `root`, or more than one; None if it has one."""
        count = self._text(root).count(f"\n{self.old}")
        if count == 1:
            return None
        return f"{self.file}: {'nowhere' if count == 0 else f'{count} times'} the lines that it changes:\n{self.old}"

    def apply(self, root: Path) -> None:
        """Change the file in a tree in which it fits."""
        text = self._text(root).replace(f"\n{self.old}", f"\n{self.new}")
        (root / self.file).write_text(text[1:], encoding="utf-8")

    def _text(self, root: Path) -> str:
        path = root / self.file
        return f"\n{path.read_text(encoding='utf-8')}" if path.is_file() else ""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug. `test` is the pytest id of the quickest test that catches it."""

    name: str
    path: Path
    sentence: str
    test: str
    hunks: tuple[Hunk, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it changes."""
        return tuple(dict.fromkeys(hunk.file for hunk in self.hunks))

    def problems(self) -> list[str]:
        """Say what keeps the patch from being tried on this tree: where it does not fit, and a test that is not there."""
        found = [hunk.misfit(ROOT) for hunk in self.hunks] or ["the patch changes nothing"]
        return [*filter(None, found), *filter(None, [_missing(self.test)])]


def mutants(word: str = "") -> list[Mutant]:
    """Return the planted bugs whose names contain `word`, by name."""
    found = (_read(path) for path in sorted(HOME.rglob("*.patch")))
    return [mutant for mutant in found if word in mutant.name]


def _read(path: Path) -> Mutant:
    name = path.relative_to(HOME).with_suffix("").as_posix()
    header, begin, diff = path.read_text(encoding="utf-8").partition("--- a/")
    test = _CAUGHT_BY.search(header)
    sentence = header.partition("Caught-by:")[0].strip()
    if not (begin and test and sentence):
        raise ValueError(f"{path}: it needs a sentence, a line `Caught-by: tests/…::test_…`, and a diff")
    return Mutant(name, path, sentence, test[1].strip(), tuple(_hunks(begin + diff)))


def _hunks(diff: str) -> list[Hunk]:
    """Return the places of a unified diff."""
    found: list[Hunk] = []
    for part in re.split(r"^--- a/", diff, flags=re.MULTILINE)[1:]:
        file = part.partition("\n")[0]
        for body in re.split(r"^@@ .*\n", part, flags=re.MULTILINE)[1:]:
            lines = [line for line in body.splitlines() if line[:1] in (" ", "+", "-")]
            old = "".join(f"{line[1:]}\n" for line in lines if line[0] != "+")
            new = "".join(f"{line[1:]}\n" for line in lines if line[0] != "-")
            found.append(Hunk(file, old, new))
    return found


def _missing(test: str) -> str | None:
    """Say that a test is not there, None if it is. What is in brackets, a parameter, only pytest knows."""
    file, *names = test.partition("[")[0].split("::")
    if names and names[-1] in _functions(ROOT / file):
        return None
    return f"{test}: there is no such test"


@cache
def _functions(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in statements(tree) if isinstance(node, ast.FunctionDef))
