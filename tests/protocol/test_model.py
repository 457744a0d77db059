"""The protocol of the launchers and the supervisor in docs/protocol.md, with all that can happen to it.

JOBCTL_TEST_MODEL=large searches larger jobs too, and looks for every planted bug: minutes, and some GB of memory.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from .model import MODEL, Instance, search

LARGE = os.environ.get("JOBCTL_TEST_MODEL") == "large"
JOBS = {
    "two nodes": Instance(2),
    "two nodes go on": Instance(2, others=False, progress=True),
    "three nodes without a supervisor go on": Instance(3, supervisor=False, progress=True),
    "three nodes without a supervisor, and a hot spare": Instance(3, supervisor=False, progress=True, hot=True),
    "two nodes that may end": Instance(2, others=False, progress=True, ends=True),
    "two nodes and a change that is cut off": Instance(2, others=False, progress=True, pauses=True),
    "three nodes without a supervisor, and a change that is cut off": Instance(
        3, supervisor=False, progress=True, hot=True, pauses=True
    ),
    "three nodes without a supervisor that may end": Instance(3, supervisor=False, progress=True, hot=True, ends=True),
}
LARGE_JOBS = {
    "three nodes go on": Instance(3, others=False, progress=True, options=("-O1",)),
    "three nodes, several supervisors": Instance(3, progress=True, options=("-O2",)),
    "four nodes without a supervisor go on": Instance(4, supervisor=False, progress=True, options=("-O1",)),
    "three nodes and a hot spare": Instance(3, others=False, hot=True, options=("-O2", "-DCOLLAPSE")),
    "four nodes without a supervisor, and a hot spare": Instance(
        4, supervisor=False, progress=True, hot=True, options=("-O1",)
    ),
    "four nodes": Instance(4, others=False, progress=True, options=("-O2", "-DCOLLAPSE")),
}
# Each with the smallest job that shows it.
BUGS = {
    "AT_ONCE": Instance(2),  # the supervisor answers a node that has moved before others have gone over
    "NUMBER": Instance(2),  # a generation of launchers counts more than one of the supervisor if its number is higher
    "NO_GOSSIP": Instance(3, supervisor=False, progress=True),  # launchers do not pass orders on
    "FORGETS_ANSWERS": Instance(2),  # in a new generation, launchers do not know whom they have just answered
    "FORGETS_ORDER": Instance(2),  # a launcher that is started again goes back to the control file
    "AMNESIA": Instance(2),  # one that is started again takes it that it has answered nobody
    "HALF": Instance(2),  # a second supervisor decides with half of the job
    "NO_FENCE": Instance(2),  # processes run on when the lease is over
    "NO_LEASE": Instance(2),  # processes begin without one
    "OWN_VOTE": Instance(3, others=False),  # a node that has moved counts its own vote
    "MOVED_VOTES": Instance(3, others=False, hot=True),  # and goes on to, where launchers have moved it
    "FORGETS_MOVE": Instance(
        3, others=False, hot=True
    ),  # a launcher forgets it, as the next supervisor did not know it
    "SUPERVISOR_AT_ONCE": Instance(3, others=False, hot=True),  # a supervisor that did not know it answers at once
    "UNCONFIRMED": Instance(3, others=False, hot=True),  # a supervisor counts launchers to which its answers do not get
    "WAITS_FOR_EVER": Instance(3, supervisor=False, progress=True, pauses=True),  # launchers, for a change
    "STOP_IS_PAUSE": Instance(2, others=False, pauses=True),  # launchers go on after any other stop, too
    "END_LOSES": Instance(3, supervisor=False, progress=True, hot=True, ends=True),  # it gives way to a later `run`
}
QUICK = ("AT_ONCE", "NUMBER", "NO_GOSSIP")


@pytest.mark.parametrize(
    "job",
    [
        *(
            pytest.param(name, marks=[pytest.mark.long] if name != "two nodes go on" else [])
            for name, job in JOBS.items()
        ),
        *(LARGE_JOBS if LARGE else ()),
    ],
)
def test_no_node_ever_runs_twice(job: str, tmp_path: Path) -> None:
    """And where it says so: once nothing fails any more, all nodes train, or all have stopped."""
    found = search({**JOBS, **LARGE_JOBS}[job], tmp_path)
    print(f"{job}: {found.states} states")
    assert found.wrong is None
    assert found.states > 1000


@pytest.mark.parametrize(
    "bug", BUGS if LARGE else [QUICK[0], *(pytest.param(bug, marks=pytest.mark.long) for bug in QUICK[1:])]
)
def test_a_planted_bug_is_found(bug: str, tmp_path: Path) -> None:
    job = BUGS[bug]
    planted = replace(job, bug=bug, options=("-O0",))
    assert search(planted, tmp_path).wrong is not None


def test_every_bug_of_the_model_is_looked_for() -> None:
    assert set(re.findall(r"BUG_(\w+)", MODEL.read_text())) == set(BUGS)
