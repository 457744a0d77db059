"""Whom a supervisor answers whose loop hangs, as on a file system that does."""

from __future__ import annotations

from jobctl.jobspec.deploy.host.engine import TIMEOUT as ENGINE_TIMEOUT
from jobctl.jobspec.deploy.host.lock import ANSWER_TIMEOUT
from jobctl.jobspec.deploy.model.liveness import SILENCE
from jobctl.jobspec.deploy.model.loop_watch import HUNG_AFTER, LATE
from jobctl.jobspec.deploy.model.tick import tick_of
from jobctl.jobspec.deploy.transport.base import TIMEOUT as TIMEOUT_OF_COMMANDS
from jobctl.jobspec.deploy.transport.connecting import CONNECT_TIMEOUT

from .test_detector import Supervisor


def hanging(**how: bool) -> Supervisor:
    """A supervisor whose launchers have got leases, and whose loop has turned just now."""
    one = Supervisor()
    one.later(LATE + 1, 0, 1, 2)
    one.detector.turned(**{"all_run": True, **how})
    return one


def test_a_loop_that_hangs_leaves_nodes_that_run_their_leases() -> None:
    one = hanging()
    one.later(2 * HUNG_AFTER, 0, 1, 2)
    assert one.tick(0) is not None


def test_launchers_hear_nothing_of_a_loop_that_hangs_once_a_node_has_reported_something() -> None:
    one = hanging()
    one.later(HUNG_AFTER, 0, 1, 2)
    assert one.tick(1, report="1.2") is not None
    one.later(0.5, 0, 2)
    assert [one.tick(node, report=f"1.{1 + (node == 1)}") for node in (0, 1, 2)] == [None, None, None]
    one.detector.turned(all_run=False)
    one.later(1, 0, 2)
    assert one.tick(0) is not None


def test_a_report_counts_that_the_loop_has_not_seen_when_it_turned_last() -> None:
    one = hanging()
    one.tick(1, report="1.2")
    one.later(LATE - 1, 0, 2)
    one.detector.turned(all_run=True)  # its host is still being read
    one.later(HUNG_AFTER + 0.5, 0, 2)
    assert one.detector.hear(tick_of({"node": 0, "tick": "t", "generation": "job-4", "report": "1.1"}), "h0") is None


def test_launchers_hear_nothing_of_a_loop_that_hangs_once_a_node_is_silent() -> None:
    one = hanging()
    one.later(HUNG_AFTER + 1, 0, 1, 2)
    assert one.tick(0) is not None
    one.later(SILENCE + 0.5, 0, 1)
    assert one.tick(0) is None


def test_launchers_hear_nothing_of_a_loop_that_hangs_over_a_failure() -> None:
    one = hanging(all_run=False)
    one.later(HUNG_AFTER, 0, 1, 2)
    assert one.tick(0) is not None
    one.later(0.5, 0, 1, 2)
    assert one.tick(0) is None


def test_a_loop_that_does_what_takes_long_does_not_hang() -> None:
    one = hanging(all_run=False)
    with one.detector.at_length():
        one.later(10 * HUNG_AFTER, 0, 1, 2)
        assert one.tick(0) is not None
    one.later(HUNG_AFTER, 0, 1, 2)
    assert one.tick(0) is not None
    one.later(0.5, 0, 1, 2)
    assert one.tick(0) is None


def test_a_loop_hangs_after_more_than_a_host_that_has_gone_silent_costs() -> None:
    assert HUNG_AFTER >= ANSWER_TIMEOUT + CONNECT_TIMEOUT + ENGINE_TIMEOUT + TIMEOUT_OF_COMMANDS
    assert max(ENGINE_TIMEOUT, TIMEOUT_OF_COMMANDS) <= LATE
