"""Nodes that fail, and begin again while the others go on: what that costs, and what it does not."""

from __future__ import annotations

from jobctl.jobspec.deploy.store.history import StepProgress
from jobctl.jobspec.report.html import page
from tests.report.log_lines import LOG, Line, asked, failure, line, node, told


def rejoin(at: float, number: int) -> Line:
    """Return the failure of a node that begins again while the others go on."""
    return failure(at, f"node {number} failed; it is started again while the others go on", node=number, alone=True)


def test_a_node_that_begins_again_alone_ends_no_generation() -> None:
    log = (
        *LOG[:7],
        node(160.0, 1, "failed", 1, exit_code=7),
        rejoin(160.5, 1),
        node(161.0, 1, "starting", 1),
        rejoin(162.0, 1),  # by the next supervisor
        node(170.0, 1, "running", 1),
        node(180.0, 0, "failed", 1),
        rejoin(180.5, 0),
        node(185.0, 1, "failed", 1),
        rejoin(185.5, 1),
        node(190.0, 0, "running", 1),
        node(195.0, 1, "running", 1),
        line(240.0, "succeeded", "job succeeded"),
    )
    story = told(log, [StepProgress(110.0 + step, 1, step) for step in range(0, 121, 10)])
    assert [(f.at, f.node, f.running, f.until, f.lost, f.outcome, f.alone) for f in story.failures] == [
        (160.0, 1, 10.0, 170.0, 10.0, "ran again", True),
        (180.0, 0, 10.0, 190.0, 10.0, "ran again", True),
        (185.0, 1, 10.0, 195.0, 5.0, "ran again", True),
    ]
    assert [(share.use, share.end) for share in story.shares] == [
        ("starting", 110.0),
        ("kept", 230.0),
        ("no step", 240.0),
    ]


def test_what_ends_a_generation_in_which_a_node_began_again_alone() -> None:
    log = (*LOG[:7], node(120.0, 1, "failed", 1), rejoin(120.5, 1), node(130.0, 1, "failed", 1), *LOG[8:14])
    story = told(log)
    assert [(f.at, f.lost, f.outcome, f.alone) for f in story.failures] == [
        (120.0, 10.0, "failed again", True),
        (130.0, 34.0, "ran again", False),
    ]
    back = page(told((*log[:9], node(125.0, 1, "running", 1)), now=130.0), 0.0)
    assert [text in back for text in ("running <b", "all running <b", ">until it ran again")] == [True, False, True]


def test_a_command_that_ends_the_wait_for_a_node_alone() -> None:
    log = (*LOG[:7], node(120.0, 1, "failed", 1), rejoin(120.5, 1), asked(125.0, 2), node(127.0, 1, "running", 2))
    assert [(f.at, f.lost, f.outcome) for f in told(log, now=140.0).failures] == [(120.0, 7.0, "ran again")]
