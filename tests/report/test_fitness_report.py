"""What a report tells of the fitness of hosts, and what is kept for it."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.deploy.model.fitness_event import fitness_event
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.speeds import Speed, Speeds
from jobctl.jobspec.operations.inspect.report import story_of
from jobctl.jobspec.operations.lifecycle.records import tell_up
from jobctl.jobspec.report.fitness import FitnessStory, HostHistory, HostVerdict, SlowNode, fitness_of
from jobctl.jobspec.report.fitness_layout import ROWS, deviation, fitness_part
from jobctl.jobspec.report.layout import RunClock
from jobctl.jobspec.report.runs import Event
from tests.deploy.apply.test_executor import TWO

GOOD = Finding("h0", "compute", "ok", "fast", None, None, 5.9, 5.9, "M/s")
SLOW = Finding("h1", "compute", "error", "20 % below", "slow-host", "look", 4.7, 5.9, "M/s")
CLOCK = RunClock(0.0, None)


def check(at: float, *findings: Finding) -> Event:
    found = fitness_event(findings, "quick", "img")
    assert found is not None
    return Event(at, "fitness", found[0], json.loads(json.dumps(found[1])))


def test_of_a_check_the_measured_part_is_kept_and_told_in_a_line() -> None:
    message, details = fitness_event([Finding("h0", "clock", "ok", "right"), GOOD, SLOW], "quick", "img") or ("", {})
    assert message == "fitness (quick): 2 hosts measured, not fit: h1"
    assert [(one["host"], one["check"]) for one in details["findings"]] == [("h0", "compute"), ("h1", "compute")]
    assert fitness_event([Finding("h0", "clock", "ok", "right")], "quick", "img") is None
    assert (fitness_event([GOOD], "full", None) or ("",))[0] == "fitness (full): 1 host measured, all are fit"
    left_out = Finding("h2", "compute", "skipped", "no node of the job is there: not measured")
    assert (fitness_event([GOOD, left_out], "full", None) or ("",))[0] == "fitness (full): 1 host measured, all are fit"
    assert (fitness_event([left_out], "full", None) or ("",))[0] == "fitness (full): 0 hosts measured"


def test_of_each_host_and_check_the_last_verdict_counts() -> None:
    """A spare is measured with the others when it takes a place, and again when a node moves."""
    told = fitness_of([check(1.0, GOOD, SLOW), check(5.0, replace(GOOD, value=5.0))])
    assert told.verdicts == (
        HostVerdict(5.0, "h0", "compute", "ok", "fast", None, 5.0, 5.9, "M/s"),
        HostVerdict(1.0, "h1", "compute", "error", "20 % below", "slow-host", 4.7, 5.9, "M/s"),
    )
    assert (told.mode, told.image, told.hosts) == ("quick", "img", ("h0", "h1"))


def test_stragglers_are_told_with_their_times_and_why_they_stay() -> None:
    about: dict[str, Any] = {"node": 2, "rank": 17, "host": "h2", "seconds": 0.41, "median": 0.31, "generation": 3}
    events = [
        Event(7.0, "straggler", "slow", about),
        Event(7.5, "straggler-stays", "node 2 stays on h2", {"node": 2, "generation": 3}),
        Event(8.0, "straggler", "slow", {**about, "generation": 4}),
        Event(9.0, "straggler", "of an older version", {"node": 2}),
    ]
    first = SlowNode(7.0, 3, 2, 17, "h2", 0.41, 0.31, "node 2 stays on h2")
    assert fitness_of(events).slow == (first, replace(first, at=8.0, generation=4, stays=None))


def test_the_history_of_hosts_that_were_measured_is_shown_by_host() -> None:
    past = {"writing": {("h1", ""): [90.0], ("h9", ""): [1.0]}, "matrix products": {("h0", "cuda:3"): [100.0, 99.0]}}
    told = fitness_of([check(1.0, GOOD, SLOW)]).with_history({**past, "of another version": {("h0", ""): [1.0]}})
    assert told.history == (
        HostHistory("h0", "matrix products cuda:3", "TFLOP/s", (100.0, 99.0)),
        HostHistory("h1", "writing", "MB/s", (90.0,)),
    )


def test_a_report_has_the_past_with_the_same_image_and_effort(tmp_path: Any) -> None:
    job = JobDir(tmp_path / "jobs" / "job")
    job.create()
    first = replace(TWO.nodes[0], container=replace(TWO.nodes[0].container, image="img"))
    plan = replace(TWO, fitness="quick", nodes=(first, *TWO.nodes[1:]))
    for condition, value in (("img quick", 5.0), ("img quick", 6.0), ("img full", 7.0), ("other quick", 8.0)):
        Speeds(tmp_path / "fitness", {"h0": condition}).keep([Speed("h0", "all cores", "", value)])
    handle: Any = SimpleNamespace(job=job)
    tell_up(handle, plan, measured=[GOOD, SLOW])
    assert story_of(job).fitness.history == (HostHistory("h0", "all cores", "Mround/s", (5.0, 6.0)),)


def test_nothing_measured_is_nothing_told(tmp_path: Any) -> None:
    job = JobDir(tmp_path / "jobs" / "job")
    job.create()
    handle: Any = SimpleNamespace(job=job)
    tell_up(handle, TWO)
    assert story_of(job).fitness == FitnessStory()
    assert fitness_part(FitnessStory(), CLOCK) is None


def test_of_many_verdicts_those_are_shown_that_say_something_is_wrong() -> None:
    findings = [replace(GOOD, host=f"h{number}") for number in range(ROWS + 5)] + [SLOW]
    part = fitness_part(fitness_of([check(1.0, *findings)]), CLOCK)
    assert part is not None
    assert (len(part.verdicts), part.hidden) == (ROWS, 5)
    (bad,) = (row for row in part.verdicts if row.bad)
    assert (bad.host, bad.value, bad.median, bad.off, bad.verdict) == (
        "h1",
        "4.7 M/s",
        "5.9",
        "20 % below",
        "slow-host",
    )


@pytest.mark.parametrize(
    ("share", "text"), [(0.8, "20 % below"), (1.0, "equal"), (1.101, "10 % above"), (0.999, "equal")]
)
def test_how_far_off(share: float, text: str) -> None:
    assert deviation(share) == text
