"""How many worlds a test plays, and what it looks for in them. JOBCTL_TEST_WORLDS says how many, where not 100."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable

import pytest

from .world import Twice

WORLDS = int(os.environ.get("JOBCTL_TEST_WORLDS", "100"))
SEARCHED = 4000  # worlds among which a bug is looked for


def hold_all(seeds: Iterable[int], verdict: Callable[[int], str | None]) -> None:
    """Fail for the first world in which a node trains twice, or of which `verdict` says that something is wrong."""
    for seed in seeds:
        try:
            wrong = verdict(seed)
        except Twice as twice:
            raise AssertionError(f"seed {seed}: {twice}") from twice
        assert wrong is None, f"seed {seed}: {wrong}"


def find(shows: Callable[[int], bool], first: int) -> None:
    """Look for a world that shows a bug put there on purpose: first in the one that has, then in those after it.

    A change of how worlds go makes other ones the first. Whoever sees that in the summary writes the new seed down.
    """
    for seed in range(first, first + SEARCHED):
        if shows(seed):
            if seed != first:
                warnings.warn(f"the first world that shows it is no longer {first}, but {seed}", stacklevel=2)
            return
    pytest.fail(f"not found in {SEARCHED} worlds")


def shows_twice(live: Callable[[int], object]) -> Callable[[int], bool]:
    """Say of each world whether a node trains twice in it."""

    def shows(seed: int) -> bool:
        try:
            live(seed)
        except Twice:
            return True
        return False

    return shows
