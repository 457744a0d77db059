"""Which machine has which node of a job, and how many nodes an elastic job has."""

from __future__ import annotations

from typing import Any

from jobctl.jobspec.allocation.places import Places
from jobctl.jobspec.allocation.size import STEADY, JobSize

HOSTS = ("s1", "s2", "s3")
SETTINGS = {"min_nodes": 1, "spares": 0, "shrinks": True, "host_timeout": 6.0}
GONE = 8.5  # seconds: `host_timeout`, the margin, and a little


def places(slots: list[int], heard: tuple[str, ...] = HOSTS, hosts: tuple[str, ...] = HOSTS) -> Places:
    """Return the places of an allocation whose machines were heard at 0."""
    made = Places(hosts, slots)
    hear(made, 0.0, *heard)
    return made


def hear(made: Places, now: float, *hosts: str, **said: Any) -> None:
    for runner in made.runners.values():
        if runner.host in hosts:
            runner.heard, runner.sender, runner.said = now, (f"10.0.0.{runner.host[1:]}", 1), said


def where(made: Places) -> dict[int, tuple[str, int]]:
    return {node: (runner.host, runner.slot) for node, runner in made.at.items()}


def test_a_machine_takes_one_node_of_each_role() -> None:
    made = places([0, 0, 1])
    made.deal(made.ready(0.0)[:2])
    assert where(made) == {0: ("s1", 0), 1: ("s2", 0), 2: ("s1", 1)}
    assert made.names() == {"node-0": ["10.0.0.1", 0], "node-1": ["10.0.0.2", 0], "node-2": ["10.0.0.1", 1]}
    assert made.spares(0.0) == [{"host": "s3", "state": "ready"}]
    assert [runner.host for runner in made.free(0.0, 1)] == ["s2", "s3"]


def test_a_machine_is_ready_once_all_its_runners_answer() -> None:
    made = places([0, 1], heard=("s1", "s3"))
    assert made.ready(0.0) == ["s1", "s3"]
    made.runners["s2", 0].heard = 0.0
    assert (made.ready(0.0), made.silent(0.0)) == (["s1", "s3"], ["s2"])


def test_a_job_begins_when_all_machines_answer_or_enough_of_them_after_a_while() -> None:
    settings = {**SETTINGS, "min_nodes": 2}
    size = JobSize(places([0, 0, 0], heard=("s1", "s2")), settings)
    assert (size.first(0.0, 5.0), size.first(0.0, 21.0)) == (0, 2)
    assert JobSize(places([0, 0, 0], heard=("s1",)), settings).first(0.0, 21.0) == 0
    assert JobSize(places([0, 0, 0]), settings).first(0.0, 0.0) == 3
    assert JobSize(places([0, 0, 0]), {**settings, "spares": 1}).first(0.0, 0.0) == 2


def elastic(**settings: Any) -> tuple[Places, JobSize]:
    made = places([0, 0, 0])
    made.deal(HOSTS)
    return made, JobSize(made, {**SETTINGS, **settings})


def test_an_elastic_job_goes_on_without_a_machine_once_its_lease_is_over() -> None:
    made, size = elastic()
    hear(made, GONE - 1, "s1", "s3")
    assert size.change(7.9) is None
    wanted = size.change(GONE)
    assert wanted is not None
    assert {node: runner.host for node, runner in wanted.items()} == {0: "s1", 2: "s3"}
    made.resize(wanted)
    assert (made.turns[0], made.missing(), size.change(GONE)) == (2, [1], None)


def test_a_job_does_not_shrink_below_its_least_number_or_against_its_spec() -> None:
    for settings, heard in (({"min_nodes": 2}, ["s1"]), ({"shrinks": False}, ["s1", "s3"])):
        made, size = elastic(**settings)
        hear(made, GONE, *heard)
        assert size.change(GONE) is None


def test_a_job_grows_onto_a_machine_that_answers_for_a_while() -> None:
    made = places([0, 0, 0])
    made.deal(HOSTS[:2])
    size = JobSize(made, SETTINGS)
    assert size.change(0.0) is None
    hear(made, 5.0, *HOSTS[:2])
    assert size.change(5.0) is None  # s3 is silent: it counts again from here
    hear(made, 6.0, *HOSTS)
    assert size.change(6.0) is None
    hear(made, 6.0 + STEADY, *HOSTS)
    wanted = size.change(6.0 + STEADY)
    assert wanted is not None
    assert {node: runner.host for node, runner in wanted.items()} == {0: "s1", 1: "s2", 2: "s3"}


def test_a_spare_stays_one_while_no_machine_is_lost() -> None:
    made = places([0, 0, 0])
    made.deal(HOSTS[:2])
    size = JobSize(made, {**SETTINGS, "spares": 1})
    for now in (0.0, STEADY + 1):
        hear(made, now, *HOSTS)
        assert size.change(now) is None


def test_a_job_that_is_scaled_changes_at_once_and_within_its_range() -> None:
    made, size = elastic()
    size.ask(2)
    wanted = size.change(0.0)
    assert wanted is not None
    assert made.why_changed(wanted, 0.0) == ("resized", "as `jobctl scale` says")
    made.resize(wanted)
    assert {node: runner.host for node, runner in made.at.items()} == {0: "s1", 1: "s2"}
    hear(made, STEADY + 1, *HOSTS)
    assert size.change(STEADY + 1) is None  # it does not grow again by itself
    size.ask(9)
    wanted = size.change(STEADY + 1)
    assert wanted is not None
    assert sorted(wanted) == [0, 1, 2]
    assert JobSize(places([0, 0, 0]), {**SETTINGS, "min_nodes": 2}, 1).first(0.0, 0.0) == 2
    assert JobSize(places([0, 0, 0]), SETTINGS, 2).first(0.0, 0.0) == 2  # in the allocation that follows


def test_a_machine_that_a_drill_plays_lost_is_not_heard_for_a_while() -> None:
    made = places([0, 0, 1])
    made.play_lost("s2", 40.0)
    assert {(r.host, r.slot): r.deaf for r in made.runners.values() if r.deaf} == {("s2", 0): 40.0, ("s2", 1): 40.0}


def test_only_a_report_about_this_turn_tells_how_a_node_has_ended() -> None:
    made = places([0, 0])
    made.deal(HOSTS[:2])
    made.resize(dict(made.at))
    hear(made, 1.0, "s1", node=0, turn=1, ended=0)
    hear(made, 1.0, "s2", node=1, turn=2, ended=3)
    assert made.codes() == {1: 3}


def test_a_node_runs_while_its_runner_has_a_launcher() -> None:
    made = places([0, 0, 0])
    made.deal(HOSTS)
    hear(made, 1.0, "s1", node=0, turn=1, ended=None, alive=True)
    hear(made, 1.0, "s2", node=1, turn=1, ended=137, alive=False)
    hear(made, 1.0, "s3", node=None, turn=0, ended=143, alive=False)  # a new runner, which was told to stop at once
    assert (made.running(1.0), made.running(9.0)) == ([0], [])


def test_a_machine_that_is_missed_is_told_of_once_until_another_one_is() -> None:
    made = places([0, 0, 0])
    made.deal(HOSTS)
    hear(made, GONE, "s1", "s3")
    assert made.missed(GONE, 8.0) == [1]
    assert made.missed(GONE + 1, 8.0) == []
    assert made.missed(2 * GONE, 8.0) == [0, 1, 2]
    hear(made, 2 * GONE, *HOSTS)
    assert made.missed(2 * GONE, 8.0) == []
    assert made.missed(4 * GONE, 8.0) == [0, 1, 2]  # it was back in between
