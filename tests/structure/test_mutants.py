"""Planted bugs stay plantable: each patch has its one place in the tree, and names a test that is there."""

from __future__ import annotations

import pytest
from mutants.patches import Mutant, mutants

PLANTED = mutants()


@pytest.mark.parametrize("mutant", PLANTED, ids=[mutant.name for mutant in PLANTED])
def test_a_planted_bug_fits_the_tree(mutant: Mutant) -> None:
    assert mutant.problems() == []


def test_no_two_planted_bugs_are_the_same() -> None:
    seen: dict[object, str] = {}
    twice = [
        (mutant.name, seen[mutant.hunks])
        for mutant in PLANTED
        if seen.setdefault(mutant.hunks, mutant.name) != mutant.name
    ]
    assert twice == []
