"""Which events of a job become which messages, however often supervisors were killed and began again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobctl.jobspec.launcher.telling.news import News, Told
from jobctl.jobspec.launcher.telling.storm import summed_up
from jobctl.jobspec.notify.told import kept_told, told_from

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


AFTER_TEN = "It runs again after 10 s"
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
        ("recovered", f"{FAILS['message']}; then {second['message']}. {AFTER_TEN}, in generation 3.", (0, 1), 10.0)
    ]


def test_a_message_names_the_first_and_the_last_failures_of_many() -> None:
    fails = [{**FAILS, "message": f"failure {number}", "generation": number} for number in range(1, 12)]
    again = {**RUNS, "generation": 12}
    (text,) = (text for _, text, _, _ in told(BEGINS, *fails, again))
    first, last = (
        "failure 1; then failure 2; then failure 3; then failure 4",
        "failure 8; then failure 9; then failure 10",
    )
    assert text.startswith(f"{first}; then 3 more failures; then {last}; then failure 11. It runs again")


RESTART = line(22.0, "step", "generation 2", step="generation", generation=2, cause="`jobctl restart`")


def test_a_failure_is_told_though_a_person_restarts_the_job() -> None:
    assert told(BEGINS, FAILS, RESTART, RUNS) == [("recovered", RECOVERED, (1,), 4.5)]
    assert kinds(BEGINS, RESTART, RUNS) == []
    assert kinds(BEGINS, FAILS, line(21.0, "stopped", "job stopped by the user"), RESTART, RUNS) == []


def test_a_failure_is_told_though_generations_count_from_1_again() -> None:
    """Somebody has taken the job down who knows its hosts only, so nothing here says so."""
    fails, up = {**FAILS, "generation": 7}, {**BEGINS, "time": 30.0}
    runs = {**RUNS, "generation": 1, "time": 32.0}
    assert told(BEGINS, fails, up, runs) == [
        ("recovered", f"{FAILS['message']}. It runs again after 12 s, in generation 1.", (1,), 12.0)
    ]


@pytest.mark.parametrize("late", [0, 1, 2])
def test_a_failure_that_launchers_tell_of_late_is_told_with_what_it_cost(late: int) -> None:
    """A host that was not reached has kept it; the job has run on, and may have failed again."""
    fails, runs = {**FAILS, "id": "1.0 failure 1"}, {**RUNS, "id": "1.0 generation-begun 2"}
    second = line(40.0, "failure", "node 0: rank 0 ended with code 1", generation=2, node=0, kind="process")
    lines = [runs, second]
    found = told(BEGINS, *lines[:late], fails, *lines[late:], {**runs, "generation": 3, "time": 45.0})
    assert [(nodes, cost) for _, _, nodes, cost in found] == [((1,), 4.5), ((0,), 5.0)]
    assert all(any(one["message"] in text for _, text, _, _ in found) for one in (fails, second))


def test_a_failure_that_is_read_late_has_the_id_by_which_launchers_have_told_it() -> None:
    """Each host has its own clock; launchers know the failure before the generation that follows it."""
    fails, runs = {**FAILS, "id": "1.0 failure 1"}, {**RUNS, "id": "1.0 generation-begun 2"}
    other = {**fails, "id": "1.0 failure 1 again", "node": 0, "message": "node 0: rank 0 hangs"}
    launchers = ids(BEGINS, fails, runs)
    assert ids(BEGINS, runs, fails) == launchers
    news = News("demo", "demo-1")
    news.read([BEGINS, runs])
    news = News("demo", "demo-1", told_from(json.loads(json.dumps(kept_told(news.told)))))
    news.read([fails])
    news = News("demo", "demo-1", told_from(json.loads(json.dumps(kept_told(news.told)))))
    news.read([other])  # which that message has not told
    assert len({*launchers, *(one.id for one in news.found)}) == 2


def test_what_launchers_have_told_has_the_same_id_in_every_run() -> None:
    """`up --fresh` begins another run, and tells what is left of the one before."""
    fails, runs = {**FAILS, "id": "1.0 failure 1", "kind": "hang"}, {**RUNS, "id": "1.0 generation-begun 2"}
    assert len(ids(BEGINS, fails, runs)) == 2
    assert ids(BEGINS, fails, runs, run="demo-2") == ids(BEGINS, fails, runs)
    assert ids(BEGINS, {**fails, "id": "2.0 failure 1"}) != ids(BEGINS, fails)
    supervised = {name: value for name, value in fails.items() if name != "id"}
    assert ids(BEGINS, supervised, run="demo-2") != ids(BEGINS, supervised)


def test_down_tells_an_end_with_the_id_by_which_launchers_have_told_it() -> None:
    succeeded = line(
        30.0, "succeeded", "job succeeded: all nodes ended with code 0", generation=2, id="1.0 succeeded 2"
    )
    down = line(40.0, "down", "job taken down", phase="succeeded", reason="all nodes ended", ends="1.0 succeeded 2")
    assert ids(BEGINS, down) == ids(BEGINS, succeeded) == ids(BEGINS, succeeded, down)


def ids(*lines: dict[str, Any], run: str = "demo-1") -> list[str]:
    news = News("demo", run)
    news.read(lines)
    return [one.id for one in news.found]


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
    alone = {**LOST, "message": "a launcher has no lease, and so begins nothing", "id": "1.0 waiting 1"}
    assert kinds(BEGINS, FAILS, alone, AGAIN, RUNS, {**alone, "time": 90.0}) == ["recovered"]
    assert kinds(BEGINS, alone, LOST) == ["host-lost", "waiting"]


def test_a_host_that_comes_back_ends_the_waiting() -> None:
    back = line(80.0, "node", "node 1 on gpu02 runs generation 1", node=1, state="running", generation=1)
    found = told(BEGINS, LOST, back, {**LOST, "time": 90.0})
    assert [event for event, *_ in found] == ["host-lost", "waiting", "recovered", "host-lost", "waiting"]
    assert found[2][3] == 60.0


FULL = line(20.0, "waiting", "cannot act: [Errno 28] No space left on device", lasting=True)


def test_a_wait_that_ends_without_a_new_generation_is_over() -> None:
    """What happens after that is told by itself: also the same wait."""
    over = line(30.0, "goes-on", "the job waits no longer")
    fails, again, runs = ({**event, "time": event["time"] + 80} for event in (FAILS, AGAIN, RUNS))
    full_again, full_over = {**FULL, "time": 200.0}, {**over, "time": 201.0}
    assert told(BEGINS, FULL, over, fails, again, runs, full_again, full_over) == [
        ("waiting", FULL["message"], (), None),
        ("recovered", f"{FULL['message']}. That was over after 10 s.", (), None),
        ("recovered", RECOVERED, (1,), 4.5),
        ("waiting", FULL["message"], (), None),
        ("recovered", f"{FULL['message']}. That was over after 1 s.", (), None),
    ]
    assert kinds(BEGINS, FAILS, FULL, over, AGAIN, RUNS) == ["waiting", "recovered"]  # from the failure


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


def test_nodes_that_begin_again_alone_at_the_same_time_recover_each_for_itself() -> None:
    first, second = {**FAILS, "alone": True}, {**FAILS, "alone": True, "node": 0, "message": "node 0", "time": 22.0}
    back = [line(at, "node", "runs", node=node, state="running", generation=1) for at, node in ((25.0, 1), (26.0, 0))]
    assert [(nodes, cost) for _, _, nodes, cost in told(BEGINS, first, second, *back)] == [((1,), 5.0), ((0,), 4.0)]
    whole = {**FAILS, "message": "node 2", "node": 2, "time": 23.0}
    assert told(BEGINS, first, second, whole, AGAIN, RUNS) == [
        ("recovered", f"{FAILS['message']}; then node 0; then node 2. {RECOVERED.partition('. ')[2]}", (0, 1, 2), 4.5)
    ]


def test_the_end_of_a_job_names_failures_that_it_has_not_recovered_from() -> None:
    failed = line(30.0, "failed", "job failed: no host is left", generation=2)
    assert told(BEGINS, FAILS, AGAIN, failed) == [
        ("failed", f"job failed: no host is left. Before that: {FAILS['message']}", (1,), None)
    ]


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
    kept = json.loads(json.dumps(kept_told(first.told)))
    second = News("demo", "demo-1", told_from(kept))
    second.read(lines[cut:])
    assert first.found + second.found == whole.found
    assert second.told == whole.told


def test_a_summary_says_what_it_replaces() -> None:
    news = News("demo", "demo-1")
    news.read([BEGINS, {**FAILS, "kind": "hang"}, AGAIN, RUNS])
    (one,) = summed_up(news.found)
    assert one.event == "summary"
    assert one.text == f"2 events in a short time: 1 hang, 1 recovered. The last one: {RECOVERED}"
    assert one.covers == tuple(message.id for message in news.found)
    assert summed_up(news.found[:1]) == news.found[:1]
    assert summed_up([]) == []


def test_lines_of_another_version_are_left_out() -> None:
    strange = [{}, {"time": "x"}, {**LOST, "nodes": "all"}, {**FAILS, "node": "1", "generation": None}]
    assert [event for event, *_ in told(BEGINS, *strange)] == ["waiting"]
    assert told_from({"trouble": {"at": "x"}, "away": [None, "1"], "lost": 3, "begun": [1]}) == Told()


def test_what_an_earlier_version_kept_is_read() -> None:
    trouble = {"at": 20.0, "generation": 1, "kind": "process", "text": FAILS["message"], "nodes": [1], "alone": False}
    news = News("demo", "demo-1", told_from({"generation": 1, "trouble": trouble}))
    news.read([AGAIN, RUNS])
    assert [one.text for one in news.found] == [RECOVERED]


def test_a_machine_that_an_allocation_has_given_up_is_told_of_once() -> None:
    """Those who decide there are the coordinator and Slurm. There is no supervisor who finds out himself."""
    lost = line(
        20.0, "host-lost", "s2 does not answer: node 1 moves to s3", node=1, by="allocation", id="1.0 allocation 9"
    )
    fails = {**FAILS, "id": "1.0 failure 1"}
    runs = {**RUNS, "id": "1.0 generation-begun 2"}
    assert kinds(BEGINS, lost, fails, AGAIN, runs) == ["host-lost", "recovered"]
    assert told(BEGINS, {**lost, "by": "supervisor"}) == []


@pytest.mark.parametrize("by", ["allocation", "slurm"])
def test_a_job_that_waits_in_an_allocation_or_for_one_needs_a_person(by: str) -> None:
    waits = line(20.0, "waiting", "s2 does not answer", nodes=[1], lasting=True, by=by, id="1.0 allocation 9")
    runs = {**RUNS, "id": "1.0 generation-begun 2"}
    assert kinds(BEGINS, waits, AGAIN, runs) == ["host-lost", "waiting", "recovered"]
    assert kinds(BEGINS, {**waits, "by": "launchers"}, AGAIN, runs) == []  # the next supervisor tells of it
