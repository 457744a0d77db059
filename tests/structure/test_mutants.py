"""Planted bugs stay plantable: each patch has its one place in the tree, and names a test that is there."""

from __future__ import annotations

import pytest

from tests.mutants.patches import HOME, Hunk, Mutant, mutants

FOLDERS = sorted(path.name for path in HOME.iterdir() if any(path.glob("*.patch")))


@pytest.fixture(scope="module")
def planted() -> list[Mutant]:
    """All planted bugs, which take a second to read."""
    return mutants()


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_planted_bug_fits_the_tree(folder: str, planted: list[Mutant]) -> None:
    found = {mutant.name: mutant.problems() for mutant in planted if mutant.path.parent.name == folder}
    assert {name: problems for name, problems in found.items() if problems} == {}
    assert found


def test_each_planted_bug_is_in_one_of_the_folders(planted: list[Mutant]) -> None:
    assert [mutant.name for mutant in planted if mutant.path.parent not in {HOME / name for name in FOLDERS}] == []


def test_no_two_planted_bugs_are_the_same(planted: list[Mutant]) -> None:
    seen: dict[object, str] = {}
    twice = [
        (mutant.name, seen[mutant.hunks])
        for mutant in planted
        if seen.setdefault(mutant.hunks, mutant.name) != mutant.name
    ]
    assert twice == []


def test_what_keeps_a_bug_from_being_planted_is_told(planted: list[Mutant]) -> None:
    here = "tests/structure/test_mutants.py"
    nowhere, often = Hunk(here, "no such line here\n", "\n"), Hunk(here, "\n", "# \n")
    lost = Mutant("a/b", HOME, "It is lost.", f"{here}::test_that_is_not_there", (nowhere, often))
    problems = [problem.partition(":")[2].strip()[:20] for problem in lost.problems()]
    assert problems[0].startswith("nowhere the lines")
    assert "times the lines" in problems[1]
    assert lost.problems()[2] == f"{here}::test_that_is_not_there: there is no such test"
    assert Mutant("a/b", HOME, "Nothing.", planted[0].test, ()).problems() == ["the patch changes nothing"]
