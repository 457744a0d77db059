"""What a supervisor writes down: what goes on is told once, and progress at times."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.model.control import JobResult
from jobctl.jobspec.deploy.model.observed import Observed, ObservedProcess
from jobctl.jobspec.deploy.store import events
from jobctl.jobspec.deploy.store.history import read_progress
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.launcher.report.node_report import StartWay
from jobctl.jobspec.plan.generation import AutonomyTerms, Base, Generation
from jobctl.jobspec.plan.recovery import Failure
from jobctl.jobspec.supervise.decisions import Stay
from jobctl.jobspec.supervise.recorder import PROGRESS, Recorder

from .clocks import ByHand
from .jobs_on_hosts import GENERATION, failed, job, node


class Told:
    """A recorder with a clock that is set by hand, and what it has written down."""

    def __init__(self, path: Path) -> None:
        self.job, self.clock = JobDir(path / "jobs" / "job"), ByHand()
        self.job.create()
        self.recorder = Recorder(self.job, self.clock, lambda text: None)

    def look(self, step: int, later: float = 0.0) -> None:
        """See the job at a step, so many seconds after the last look."""
        self.clock.time += later
        self.recorder.notice(at(step))

    @property
    def steps(self) -> list[int]:
        return [one.step for one in read_progress(self.job.progress)]

    @property
    def messages(self) -> list[str]:
        path = self.job.events
        return [json.loads(line)["message"] for line in path.read_text().splitlines()] if path.exists() else []


def at(step: int) -> Observed:
    return job(*(node(index, progress=step) for index in range(len(GENERATION.members))))


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def with_paces(*seconds: float | None) -> Observed:
    processes = [
        ObservedProcess(rank, 0, "running", 7, None, "cpu:0", own_seconds=own) for rank, own in enumerate(seconds)
    ]
    return job(*(node(rank, host=f"h{rank}", processes=(process,)) for rank, process in enumerate(processes)))


def test_a_node_that_makes_the_others_wait_is_told_once(told: Told) -> None:
    told.recorder.notice(with_paces(0.10, 0.11, 0.13))
    told.recorder.notice(with_paces(0.10, 0.11, 0.14))
    told.recorder.notice(with_paces(0.10, 0.11, 0.15))
    found = [json.loads(line) for line in told.job.events.read_text().splitlines()]
    (event,) = (event for event in found if event["event"] == "straggler")
    assert {key: event[key] for key in ("node", "rank", "host", "seconds", "median", "generation")} == {
        "node": 2,
        "rank": 2,
        "host": "h2",
        "seconds": 0.14,
        "median": 0.11,
        "generation": 4,
    }
    assert event["message"] == (
        "node 2 on h2 is a straggler: rank 2 needs 0.14 s for its part of each step, 1.3 times the median (0.11 s)"
    )


def test_a_later_supervisor_does_not_tell_a_straggler_again(told: Told) -> None:
    for _ in range(2):
        told.recorder.notice(with_paces(0.10, 0.11, 0.14))
        told.recorder = Recorder(told.job, told.clock, lambda text: None)
    told.recorder.notice(with_paces(0.14, 0.11, 0.10))  # another node is slow now
    named = [message.split(" is ")[0] for message in told.messages if "straggler" in message]
    assert named == ["node 2 on h2", "node 0 on h0"]


def test_a_straggler_that_is_excluded_is_a_failure_too(told: Told) -> None:
    told.recorder.notice(with_paces(0.10, 0.11, 0.14))
    told.recorder.notice(with_paces(0.10, 0.11, 0.14))
    failure = replace(failed(kind="straggler"), node=2)
    looks = [told.recorder.is_news(failure, with_paces(0.10, 0.11, 0.14)) for _ in range(2)]
    assert ("straggler" in told.messages[-1], looks) == (True, [True, False])


def test_a_straggler_that_stays_is_told_once_in_a_generation(told: Told) -> None:
    stays = Stay(2, "h2", "no other host is free")
    for _ in range(2):
        told.recorder.stay(stays, with_paces(0.10, 0.11, 0.14))
        told.recorder.stay(stays, with_paces(0.10, 0.11, 0.14))
        told.recorder = Recorder(told.job, told.clock, lambda text: None)
    assert told.messages == ["node 2 stays on h2, though it is a straggler: no other host is free"]
    later = replace(at(1), control=replace(at(1).control, generation=replace(GENERATION, number=5)))
    told.recorder.stay(stays, later)
    assert len(told.messages) == 2


def test_nobody_is_slow_before_all_nodes_tell(told: Told) -> None:
    told.recorder.notice(with_paces(0.5, None, None))
    told.recorder.notice(with_paces(0.1, 0.5, None))  # the third has not made enough steps
    told.recorder.notice(with_paces(0.1, 0.1, 0.12))
    assert not [message for message in told.messages if "straggler" in message]


def test_progress_is_written_down_at_times(told: Told) -> None:
    told.look(1)
    told.look(2, PROGRESS - 1)
    told.look(3, 1)
    told.look(3, PROGRESS)  # it stands still
    assert told.steps == [1, 3]


def test_progress_is_written_down_by_a_clock_that_was_set_back(told: Told) -> None:
    told.look(1, 3600)
    told.look(2, -3600)
    told.look(3, PROGRESS - 1)
    told.look(4, 1)
    assert told.steps == [1, 2, 4]


def test_the_first_step_of_a_generation_is_written_down_at_once(told: Told) -> None:
    told.look(1)
    late = replace(GENERATION, number=5)
    nodes = tuple(node(index, progress=2, generation=5) for index in range(3))
    told.recorder.notice(replace(at(2), control=replace(at(2).control, generation=late), nodes=nodes))
    assert told.steps == [1, 2]


def test_what_goes_on_is_told_once(told: Told) -> None:
    for _ in range(3):
        told.recorder.once("waits", "waiting", "it waits")
    assert told.messages == ["it waits"]
    told.recorder.once("fails", "failure", "it fails")
    told.recorder.once("waits", "waiting", "it waits")
    told.recorder.forget()
    told.recorder.once("waits", "waiting", "it waits")
    assert told.messages == ["it waits", "it fails", "it waits", "it waits"]


def test_what_nodes_do_is_told_when_it_changes(told: Told) -> None:
    told.look(1)
    told.look(2)
    assert told.messages == [f"node {n} on h{n} runs generation 4" for n in range(3)]
    gone = replace(at(2), nodes=(*at(2).nodes[:2], node(2, state="failed", reason="it was killed")))
    told.recorder.notice(gone)
    assert len(told.messages) == 4
    assert "it was killed" in told.messages[-1]


def test_a_later_supervisor_tells_of_nodes_what_nobody_has_told_yet(told: Told) -> None:
    """Not launchers either; but what is so again, for the same supervisor, is news."""
    runs = {"event": "node", "generation": 4, "node": 2, "state": "running", "message": "a launcher said so"}
    events.KnownEvents(told.job.events).add([{**runs, "time": 990.0, "id": "0.0 node 4 2 running"}])
    for _ in range(2):
        told.look(1)
        told.recorder = Recorder(told.job, told.clock, lambda text: None)
    assert sorted(told.messages) == ["a launcher said so", *(f"node {n} on h{n} runs generation 4" for n in range(2))]
    told.look(1)
    told.recorder.notice(replace(at(2), nodes=(*at(2).nodes[:2], node(2, state="lost"))))
    told.look(3)
    assert told.messages[3:] == ["node 2 on h2 is not heard", "node 2 on h2 runs generation 4"]


def test_what_launchers_have_decided_is_told_once(told: Told) -> None:
    """Also where their own events are lost with their hosts: the order has the failures."""
    first = Failure(4, 990.0, 1, "h1", 1, 3, "exit", None, 1.0, reason="rank 1 exited with code 3")
    second = replace(first, generation=5, at=995.0)
    alone = AutonomyTerms(3, (), (20000, 29999), (first, second), Base(4, "g4"))
    ended = replace(GENERATION, number=5, command="stop", autonomy=alone, why="node 1: it is a bug")
    now = replace(at(1), control=replace(at(1).control, generation=ended))
    for _ in range(2):
        told.recorder.notice(now)
        told.recorder = Recorder(told.job, told.clock, lambda text: None)
    words = "node 1: rank 1 exited with code 3"
    assert [message for message in told.messages if "runs generation" not in message] == [
        f"{words}; the launchers decided",
        f"generation 5 begins: {words} (the launchers agreed)",
        f"{words}; the launchers decided",
    ]


def begun(told: Told, *ways: StartWay | None) -> list[dict[str, object]]:
    """Return what was told of the start of a generation whose nodes were started so."""
    told.recorder.notice(job(*(node(index, start=way) for index, way in enumerate(ways))))
    lines = [json.loads(line) for line in told.job.events.read_text().splitlines()]
    return [line for line in lines if line["event"] == "generation-begun"]


STANDBY, COLD = StartWay(True, None), StartWay(False, "standby was not ready")


def test_how_a_generation_was_started_is_told_once_when_all_nodes_have(told: Told) -> None:
    told.recorder.generation(GENERATION, GENERATION.number, "rank 1 was killed", 1000.0)
    assert begun(told, STANDBY, STANDBY, None) == []
    begun(told, STANDBY, STANDBY, STANDBY)
    (event,) = begun(told, STANDBY, STANDBY, STANDBY)
    assert event["message"] == f"generation {GENERATION.number} was started from standby"
    assert [event[key] for key in ("generation", "by", "cause", "standby", "cold_because")] == [
        GENERATION.number,
        "supervisor",
        "rank 1 was killed",
        True,
        None,
    ]


@pytest.mark.parametrize(
    ("ordered", "by", "cause"),
    [
        (replace(GENERATION, cause="the job is new"), "supervisor", "the job is new"),
        (
            replace(
                GENERATION, cause="the job is new", autonomy=AutonomyTerms(3, (), (20000, 29999), (), Base(3, "g3"))
            ),
            "launchers",
            "the command that stopped the job for a change was cut off",
        ),
    ],
    ids=["a command", "launchers that go back"],
)
def test_who_has_begun_a_generation_of_which_no_supervisor_has_told_is_in_its_order(
    told: Told, ordered: Generation, by: str, cause: str
) -> None:
    now = job(*(node(index, start=COLD) for index in range(3)))
    told.recorder.notice(replace(now, control=replace(now.control, generation=ordered)))
    (event,) = [event for event in events.read(told.job.events)[0] if event["event"] == "generation-begun"]
    assert (event["generation"], event["by"], event["cause"]) == (GENERATION.number, by, cause)


def test_one_cold_node_makes_a_cold_generation(told: Told) -> None:
    (event,) = begun(told, STANDBY, COLD, STANDBY)
    assert (event["standby"], event["cold_because"]) == (False, "standby was not ready")


def test_a_later_supervisor_does_not_tell_it_again(told: Told) -> None:
    begun(told, STANDBY, STANDBY, STANDBY)
    told.recorder = Recorder(told.job, told.clock, lambda text: None)
    assert len(begun(told, STANDBY, STANDBY, STANDBY)) == 1


@pytest.mark.parametrize("phase", ["failed", "succeeded", "stopped"])
def test_an_end_that_nobody_had_the_time_to_record_is_recorded_once(told: Told, phase: str) -> None:
    ended = at(1)
    result = JobResult(phase, "no good", told.clock.time)  # type: ignore[arg-type]
    ledger = replace(ended.control.ledger, result=result)
    ended = replace(ended, control=replace(ended.control, ledger=ledger))
    events.record(told.job.events, told.clock.time - 1, phase, "job ended: of an earlier generation")
    for _ in range(2):
        told.recorder.ending(ended)
    assert told.messages[1:] == ([] if phase == "stopped" else [f"job {phase}: no good"])
