"""Which rank a hang is blamed on, and what its event says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode, ObservedProcess
from jobctl.jobspec.supervise.changes import failure_details
from jobctl.jobspec.supervise.failures import STACKS_WAIT, first_failure

from .observed_jobs import NOW, failure, job, node


def hung(*ranks: tuple[int, int | None, str | None]) -> Observed:
    """A job of one node per rank that was called hung; of each its step, and where it stood."""
    common = failure(kind="hang", rank=None, exit_code=None, reason="no progress for 30 s (hang_timeout)")
    nodes = [
        node(
            rank,
            "failed",
            failure=replace(common, node=rank),
            processes=(ObservedProcess(rank, 0, "failed", None, -9, None, step, where),),
        )
        for rank, step, where in ranks
    ]
    return job(*nodes)


@pytest.mark.parametrize(
    ("ranks", "more"),
    [
        ([(0, 8, None), (1, 7, None), (2, 8, None)], "; rank 1 is at step 7, the others at 8"),
        ([(0, 9, None), (1, 7, None), (2, 8, None)], "; rank 1 is at step 7, the others at 8 and 9"),
        ([(0, 8, "f"), (1, 8, "f"), (2, 8, "g")], "; rank 2 is in g, the others in f"),
        ([(0, 8, "f"), (1, 8, "g")], ""),
        ([(0, 7, "f"), (1, 7, "f"), (2, 8, "f")], ""),
        ([(0, 8, "f"), (1, None, "f"), (2, None, "h"), (3, None, "g")], ""),
        ([(0, None, None)], ""),
    ],
)
def test_the_odd_rank_out_of_a_hang_is_named(ranks: list[tuple[int, int | None, str | None]], more: str) -> None:
    first = first_failure(hung(*ranks), NOW)
    assert first is not None
    assert first.reason == "no progress for 30 s (hang_timeout)" + more


def test_a_rank_that_has_ended_well_is_not_the_odd_one() -> None:
    done = node(1, "exited", processes=(ObservedProcess(1, 0, "exited", None, 0, None, 7, None),))
    first = first_failure(job(*hung((0, 8, None), (2, 8, None)).nodes, done), NOW)
    assert first is not None
    assert first.reason == "no progress for 30 s (hang_timeout)"


def test_a_hang_is_judged_once_all_nodes_have_said_where_they_stand() -> None:
    alone = hung((0, 8, "f")).nodes[0]
    alone = replace(alone, failure=replace(alone.failure, at=NOW - 1.0))  # type: ignore[arg-type]
    assert first_failure(job(alone, node(1)), NOW) is None
    assert first_failure(job(alone, node(1, stacks_written=True)), NOW) is not None
    assert first_failure(job(alone, node(1, role="server")), NOW) is not None
    assert first_failure(job(alone, node(1)), NOW - 1.0 + STACKS_WAIT) is not None


def test_servers_are_not_the_odd_ones() -> None:
    """Their ranks begin at 0 as well."""
    server = node(2, role="server", processes=(ObservedProcess(0, 0, "running", None, None, None, None, "h"),))
    first = first_failure(job(*hung((0, None, "f"), (1, None, "f")).nodes, server), NOW)
    assert first is not None
    assert first.reason == "no progress for 30 s (hang_timeout)"


def test_the_event_of_a_hang_says_where_each_process_stands() -> None:
    def at(rank: int, where: str) -> ObservedNode:
        process = ObservedProcess(rank, 0, "failed", None, None, None, 8, where, (where, "main"))
        return replace(hung((rank, 8, where)).nodes[0], processes=(process,))

    seen = job(*(at(rank, "f") for rank in range(20)), at(20, "g"))
    first = first_failure(seen, NOW)
    assert first is not None
    details = failure_details(first, seen)
    assert details["stacks"] == [
        {"who": ["node20 rank20"], "more": 0, "where": "g", "stack": ["g", "main"]},
        {"who": [f"node{n} rank{n}" for n in range(16)], "more": 4, "where": "f", "stack": ["f", "main"]},
    ]
    assert "stacks" not in failure_details(replace(first, kind="exit"), seen)
