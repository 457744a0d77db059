"""Launchers that forget, as docs/protocol.md has them, with all that can happen to them.

JOBCTL_TEST_MODEL=large searches jobs of three nodes too.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from .model import FORGETTING, Forgetful, search
from .test_model import LARGE

if TYPE_CHECKING:
    from pathlib import Path

JOBS = {
    "two nodes": Forgetful(),
    # Four million states: -O2 takes 0.7 seconds more than -O1 to compile, and 7 less to search.
    "two nodes, one launcher after another": Forgetful(losses=2, options=("-O2",)),
}
LARGE_JOBS = {
    "three nodes": Forgetful(3, generations=1, options=("-O1",)),
    "three nodes, one launcher after another": Forgetful(3, losses=2, generations=1, options=("-O2", "-DCOLLAPSE")),
}
# Each with the smallest job that shows it.
BUGS = {
    "UNMET": Forgetful(progress=False),  # a node begins in the base order, whomever the others have met
    "NONE_MET": Forgetful(progress=False),  # it begins, too, where a member has said that it has met none of its node
    "MEETS_AGAIN": Forgetful(progress=False),  # a launcher meets another one as long as its own node has not begun
    "ANY_LAUNCHER": Forgetful(losses=2, progress=False),  # it takes the word of one that it has not met
    "STAYS": Forgetful(),  # one that forgot does not count as failed
    "LOST_TO_RUNNING": Forgetful(),  # it does only where a member that runs has met an earlier one
}


@pytest.mark.parametrize(
    "job",
    [
        *(pytest.param(name, marks=[pytest.mark.long] if name != "two nodes" else []) for name in JOBS),
        *(LARGE_JOBS if LARGE else ()),
    ],
)
def test_no_gang_runs_with_a_launcher_that_forgot(job: str, tmp_path: Path) -> None:
    """And no node begins twice in an order; and all train once nothing fails any more."""
    found = search({**JOBS, **LARGE_JOBS}[job], tmp_path)
    print(f"{job}: {found.states} states")
    assert found.wrong is None
    assert found.states > 1000


@pytest.mark.parametrize(
    "bug", [pytest.param(bug, marks=[] if bug in {"UNMET", "STAYS"} else pytest.mark.long) for bug in BUGS]
)
def test_a_bug_that_is_planted_in_forgetting_is_found(bug: str, tmp_path: Path) -> None:
    assert search(replace(BUGS[bug], bug=bug), tmp_path).wrong is not None


def test_every_bug_of_forgetting_is_looked_for() -> None:
    assert set(re.findall(r"BUG_(\w+)", FORGETTING.read_text())) == set(BUGS)
