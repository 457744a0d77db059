"""What supervisors make of an etcd: whom they call dead, what launchers may do alone, and what they have done."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from jobctl.jobspec.deploy.model.control import (
    Control,
    Ledger,
    begun_by_launchers,
    ledger_json,
    newest,
    parse_control,
)
from jobctl.jobspec.deploy.model.liveness import FailureDetector
from jobctl.jobspec.deploy.model.tick import tick_of
from jobctl.jobspec.launcher.peers.old_places import MARGIN
from jobctl.jobspec.plan.generation import AutonomyTerms, EarlierFailures, Generation
from jobctl.jobspec.plan.recovery import UNTOLD, Rule
from jobctl.jobspec.render.payload import control_json

from .jobs_on_hosts import GENERATION, failed

WITH = replace(
    GENERATION, began=5.0, autonomy=AutonomyTerms(3, (Rule(None, 7, "fail"),), (20000, 29999)), host_timeout=10.0
)


class Heard:
    """A failure detector, and a clock that is set by hand."""

    def __init__(self, generation: Generation = WITH) -> None:
        self.now = 100.0
        self.detector = FailureDetector(lambda: self.now, "me")
        self.detector.expect(generation)
        self.stamp = ""

    def line(self, node: int, *gone: int) -> str | None:
        """Hear a launcher's tick, which says that others have no lease."""
        line: dict[str, Any] = {"node": node, "tick": "t", "generation": "job-4", "report": "1.1", "progress": 1}
        line |= {"echo": self.stamp or None, "unheard": {str(other): 1.0 for other in gone}}
        answer = self.detector.hear(tick_of(line), f"h{node}")
        self.stamp = answer.split()[1] if answer else self.stamp
        return answer

    def later(self, seconds: float, *nodes: int, gone: tuple[int, ...] = ()) -> None:
        """Let time pass in which some launchers are heard."""
        for _ in range(round(seconds)):
            self.now += 1.0
            for node in nodes:
                self.detector.hear_host(f"h{node}")
                self.line(node, *gone)


def test_a_node_is_dead_once_etcd_says_so() -> None:
    heard = Heard()
    heard.later(3, 0, 1, 2)
    heard.later(10 + MARGIN + 1, 0, 1)
    assert heard.detector.cleared() == frozenset()  # only we cannot hear it
    heard.later(2, 0, 1, gone=(2,))
    assert heard.detector.cleared() == frozenset({2})


def test_whom_we_hear_is_not_dead_whatever_etcd_says() -> None:
    heard = Heard()
    heard.later(20, 0, 1, 2, gone=(2,))
    assert heard.detector.cleared() == frozenset()


def test_most_may_be_dead() -> None:
    heard = Heard()
    heard.later(3, 0, 1, 2)
    heard.later(10 + MARGIN + 1, 0, gone=(1, 2))
    assert (heard.detector.cleared(), heard.detector.too_few()) == (frozenset({1, 2}), False)


def test_where_nobody_is_heard_the_new_launchers_ask_etcd() -> None:
    heard = Heard()
    heard.later(3, 0, 1, 2)
    heard.later(10 + MARGIN - 1)
    assert heard.detector.cleared() == frozenset()
    heard.later(2)
    assert heard.detector.cleared() == frozenset({0, 1, 2})


def test_without_etcd_half_have_to_be_heard() -> None:
    heard = Heard(replace(WITH, autonomy=None))
    heard.later(3, 0, 1, 2)
    heard.later(40)
    assert (heard.detector.cleared(), heard.detector.too_few()) == (frozenset(), True)


def test_what_launchers_began_is_the_newest_and_counts() -> None:
    failure = failed(generation=4)
    assert WITH.autonomy is not None
    began = replace(WITH, number=5, autonomy=replace(WITH.autonomy, failures=(failure,)))
    order = json.loads(control_json(began))
    found = newest(
        [
            Control(WITH, Ledger(900.0, "code")),
            begun_by_launchers({"order": order}),
            begun_by_launchers({"order": None}),
        ]
    )
    assert found == Control(began, Ledger(900.0, "code", (failure,)))
    # And is not counted again once the supervisor has taken note of it.
    assert newest([Control(began, found.ledger)]) == found


def begun(*told: int, earlier: EarlierFailures | None, window: float | None = None) -> Generation:
    """What launchers have begun by themselves, with the failures of these generations, one each second."""
    failures = tuple(failed(generation=number, at=100.0 + number) for number in told)
    terms = AutonomyTerms(3000, (), (20000, 29999), failures=failures, earlier=earlier, window=window)
    return replace(WITH, number=told[-1] + 1, autonomy=terms)


def test_failures_that_launchers_only_count_count_for_supervisors() -> None:
    """Two thousand of them, the first of which a supervisor had seen; one number has none: a command was cut off there."""
    seen = Ledger(1.0, failures=tuple(failed(generation=number, at=100.0 + number) for number in (2, 4, 5)))
    first = seen.with_those_of(begun(*range(60, 110), earlier=EarlierFailures(4, 55)))
    assert (len(first.failures), len({one.generation for one in first.failures})) == (3 + 53 + 50, 106)
    again = first.with_those_of(begun(*range(60, 110), earlier=EarlierFailures(4, 55)))
    later = first.with_those_of(begun(*range(2000, 2050), earlier=EarlierFailures(4, 1995)))
    assert (again, later.counted(None, 9e9)) == (first, 1 + 1995 + 50)
    assert later.failures[-1].kind != UNTOLD
    assert parse_control(None, json.loads(ledger_json(later))).ledger == later


def test_failures_within_a_window_count_for_supervisors_for_as_long_as_for_launchers() -> None:
    times = tuple(100.0 + number for number in range(20, 60))  # those before are out of the window
    generation = begun(*range(60, 110), earlier=EarlierFailures(4, 0, times), window=90.0)
    for seen in ((), (30, 31, 7, 8)):
        ledger = Ledger(1.0, failures=tuple(failed(generation=number, at=100.0 + number) for number in seen))
        after = ledger.with_those_of(generation).with_those_of(generation)
        assert [after.counted(90.0, now) for now in (210.0, 215.0, 240.0)] == [90, 85, 60]


def test_a_control_file_survives() -> None:
    assert WITH.autonomy is not None
    terms = replace(WITH.autonomy, failures=(failed(),), earlier=EarlierFailures(1, 2, (3.5,)))
    began = replace(WITH, autonomy=terms)
    assert parse_control(json.loads(control_json(began)), None).generation == began
    old = json.loads(control_json(GENERATION))
    for later in ("began", "autonomy", "host_timeout"):
        del old[later]
    assert parse_control(old, None).generation == GENERATION


def test_a_job_that_was_brought_up_again_is_newer_whatever_its_number() -> None:
    again = replace(WITH, number=1, began=6.0)
    assert newest([Control(WITH), Control(again)]).generation == again
