"""Which events of a job become which messages, however often supervisors were killed and began again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobctl.jobspec.notify.news import News, Told, summary

from .tools import line

BEGINS = line(10.0, "step", "generation 1", step="generation", generation=1, cause="up")
FAILS = line(
    20.0, "failure", "node 1: rank 2 ended with code 3", generation=1, node=1, kind="process", exit_code=3, progress=40
)
AGAIN = line(21.0, "generation", "generation 2 begins", generation=2, cause="node 1", by="supervisor")
RUNS = line(24.5, "generation-begun", "generation 2 was started", generation=2, by="supervisor")
STARTED = line(22.0, "supervisor-started", "supervisor started")


def told(*lines: dict[str, Any]) -> list[tuple[str, str, tuple[int, ...], float | None]]:
    """Return event, text, nodes and cost of what is told of a log."""
    news = News("demo", "demo-1", Told())
    news.read(lines)
    return [(one.event, one.text, one.nodes, one.cost) for one in news.found]


def kinds(*lines: dict[str, Any]) -> list[str]:
    return [event for event, *_ in told(*lines)]


RECOVERED = "node 1: rank 2 ended with code 3. It runs again after 4.5 s, in generation 2."


def test_a_failure_that_is_recovered_from_is_told_with_its_cost() -> None:
    assert told(BEGINS, FAILS, AGAIN, RUNS) == [("recovered", RECOVERED, (1,), 4.5)]


def test_a_supervisor_that_records_a_failure_again_tells_nothing_twice() -> None:
    hang = {**FAILS, "kind": "hang"}
    assert kinds(BEGINS, hang, STARTED, {**hang, "time": 23.0}, AGAIN, STARTED, RUNS) == ["hang", "recovered"]


def test_a_failure_before_the_job_has_recovered_is_part_of_the_same_trouble() -> None:
    second = line(23.0, "failure", "node 0: rank 0 ended with code 1", generation=2, node=0, kind="process")
    third = line(25.0, "generation", "generation 3 begins", generation=3, cause="node 0")
    again = line(30.0, "generation-begun", "generation 3 was started", generation=3)
    found = told(BEGINS, FAILS, AGAIN, second, third, again)
    assert found == [
        ("recovered", "node 0: rank 0 ended with code 1. It runs again after 10 s, in generation 3.", (0,), 10.0)
    ]


def test_what_a_person_restarts_has_not_recovered_by_itself() -> None:
    restart = line(22.0, "step", "generation 2", step="generation", generation=2, cause="`jobctl restart`")
    assert kinds(BEGINS, FAILS, restart, RUNS) == []


def test_how_a_job_ends_is_told_once() -> None:
    failed = line(30.0, "failed", "job failed: `recovery.max_restarts` (3) is used up")
    down = line(40.0, "down", "job taken down", phase="failed", reason="`recovery.max_restarts` (3) is used up")
    assert kinds(BEGINS, FAILS, failed, {**failed, "time": 31.0}, down) == ["failed"]
    # Nobody had the time to record it: `down` found out.
    assert told(BEGINS, down) == [("failed", "job failed: `recovery.max_restarts` (3) is used up", (), None)]
    assert kinds(BEGINS, line(30.0, "stopped", "job stopped by the user"), {**down, "phase": None}) == []


def test_a_job_that_is_brought_up_again_can_fail_again() -> None:
    failed = line(30.0, "failed", "job failed: no good")
    begins = {**BEGINS, "time": 50.0, "generation": 2}
    assert kinds(BEGINS, failed, begins, {**failed, "time": 60.0}) == ["failed", "failed"]
    news = News("demo", "demo-1")
    news.read([BEGINS, failed, begins, {**failed, "time": 60.0}])
    assert len({one.id for one in news.found}) == 2


LOST = line(
    20.0, "waiting", "node 1: gpu02 is not heard; there is no other host for it", lasting=True, nodes=[1], node=None
)


def test_waiting_for_a_person_is_told_once_while_it_lasts() -> None:
    brief = line(15.0, "waiting", "node 1: gpu02 is not heard; moves …", lasting=False, nodes=[1])
    away = line(14.0, "node", "node 1 on gpu02 is not heard", node=1, state="lost", generation=1)
    assert kinds(BEGINS, away, brief, LOST, STARTED, away, {**LOST, "time": 25.0}) == ["host-lost", "waiting"]


def test_what_a_launcher_waited_for_that_nobody_reached_wakes_nobody() -> None:
    """Its events are collected once it is reached again: the job has gone on, or the supervisor tells that it waits."""
    alone = {**LOST, "message": "no supervisor is there: has no lease, and so begins nothing", "id": "1.0 waiting 1"}
    assert kinds(BEGINS, FAILS, alone, AGAIN, RUNS, {**alone, "time": 90.0}) == ["recovered"]
    assert kinds(BEGINS, alone, LOST) == ["host-lost", "waiting"]


def test_a_host_that_comes_back_ends_the_waiting() -> None:
    back = line(80.0, "node", "node 1 on gpu02 runs generation 1", node=1, state="running", generation=1)
    found = told(BEGINS, LOST, back, {**LOST, "time": 90.0})
    assert [event for event, *_ in found] == ["host-lost", "waiting", "recovered", "host-lost", "waiting"]
    assert found[2][3] == 60.0


def test_a_lost_host_is_told_when_its_node_moves() -> None:
    moved = line(55.0, "failure", "gpu02 is lost; restarting all nodes", generation=1, node=1, kind="host")
    assert kinds(BEGINS, moved, {**AGAIN, "time": 56.0}, {**RUNS, "time": 60.0}) == ["host-lost", "recovered"]
    assert kinds(BEGINS, LOST, moved, {**AGAIN, "time": 56.0}, {**RUNS, "time": 60.0}) == [
        "host-lost",
        "waiting",
        "recovered",
    ]


def test_a_node_that_begins_again_alone_recovers_each_time() -> None:
    """The others go on, so the generation stays the same."""
    fails = {**FAILS, "alone": True}
    back = line(26.0, "node", "node 1 runs generation 1", node=1, state="running", generation=1)
    other = {**back, "node": 0, "time": 22.0}
    assert kinds(BEGINS, fails, other, back, {**fails, "time": 30.0}, {**back, "time": 33.0}) == ["recovered"] * 2
    alone = line(30.0, "process-restarted", "node 0: rank 1 was started again", node=0)
    assert told(BEGINS, alone) == [("recovered", "node 0: rank 1 was started again", (0,), None)]


def test_a_slow_node_is_told() -> None:
    slow = line(20.0, "straggler", "node 3 is slow: 1.9 s a step, median 1.2 s", node=3, seconds=1.9, median=1.2)
    assert told(BEGINS, slow) == [("straggler", "node 3 is slow: 1.9 s a step, median 1.2 s", (3,), None)]


@pytest.mark.parametrize("cut", range(6))
def test_it_makes_no_difference_when_the_log_is_read(cut: int) -> None:
    lines = [BEGINS, {**FAILS, "kind": "hang"}, STARTED, AGAIN, RUNS, LOST]
    whole = News("demo", "demo-1")
    whole.read(lines)
    first = News("demo", "demo-1")
    first.read(lines[:cut])
    kept = json.loads(json.dumps(first.told.record()))
    second = News("demo", "demo-1", Told.from_record(kept))
    second.read(lines[cut:])
    assert first.found + second.found == whole.found
    assert second.told == whole.told


def test_a_summary_says_what_it_replaces() -> None:
    news = News("demo", "demo-1")
    news.read([BEGINS, {**FAILS, "kind": "hang"}, AGAIN, RUNS])
    (one,) = summary(news.found)
    assert one.event == "summary"
    assert one.text == f"2 events in a short time: 1 hang, 1 recovered. The last one: {RECOVERED}"
    assert one.covers == tuple(message.id for message in news.found)
    assert list(summary([])) == []


def test_lines_of_another_version_are_left_out() -> None:
    strange = [{}, {"time": "x"}, {**LOST, "nodes": "all"}, {**FAILS, "node": "1", "generation": None}]
    assert [event for event, *_ in told(BEGINS, *strange)] == ["waiting"]
    assert Told.from_record({"trouble": {"at": "x"}, "away": [None, "1"], "lost": 3}) == Told()
