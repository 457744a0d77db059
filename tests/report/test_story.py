"""The story of a run, told from its events and the steps that were noted: whole values, and what holds for any log."""

from __future__ import annotations

import json
import pprint
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobctl.jobspec.deploy.store import events
from jobctl.jobspec.deploy.store.history import StepProgress, read_progress, record_progress
from jobctl.jobspec.report.goodput import Share
from jobctl.jobspec.report.html import page
from jobctl.jobspec.report.incidents import Incident
from jobctl.jobspec.report.report import tell
from jobctl.jobspec.report.runs import events_of, runs
from jobctl.jobspec.report.timeline import NodeLine, StateSpan
from tests.report.log_lines import LOG, STEPS, Line, again, asked, failure, line, node, start, told

GOLDEN = Path(__file__).parents[1] / "golden" / "story" / "failure-and-recovery.txt"  # renewed with --update-golden


def test_a_failure_and_its_recovery(request: pytest.FixtureRequest) -> None:
    """The whole story, but for the events, which are those of the log."""
    story = tell("job", LOG, STEPS, None)
    assert story is not None
    assert story.events == events_of(LOG)
    found = pprint.pformat(asdict(replace(story, events=())), width=118, sort_dicts=False) + "\n"
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text()


def test_without_steps_a_failure_costs_until_all_ran_again() -> None:
    story = told(LOG)
    (only,) = story.failures
    assert (only.step, only.training, only.lost, only.outcome) == (50, None, 4.0, "ran again")
    assert story.shares == (
        Share("starting", 100.0, 103.0),
        Share("running", 103.0, 160.0),
        Share("down", 160.0, 161.0),
        Share("starting", 161.0, 164.0),
        Share("running", 164.0, 242.0),
    )
    assert (story.by_steps, story.step, story.ratio) == (False, None, 135.0 / 142.0)


def test_the_next_failure_takes_over_what_was_not_made_up_for() -> None:
    log = (*LOG[:12], node(175.0, 1, "failed", 2), failure(176.0), again(177.0, 3, "node 1 failed"))
    log = (*log, node(178.0, 0, "running", 3), node(178.0, 1, "running", 3))
    steps = (*STEPS[:6], StepProgress(190.0, 3, 40), StepProgress(210.0, 3, 60))
    story = told(log, steps, 220.0)
    assert [(f.at, f.step, f.lost, f.outcome) for f in story.failures] == [
        (160.0, 50, 15.0, "failed again"),
        (175.0, 40, 25.0, "regained"),
    ]
    assert (story.phase, story.end, story.lost) == ("running", 220.0, 40.0)


@pytest.mark.parametrize(
    ("more", "now", "lost", "outcome", "phase"),
    [
        ((), 170.0, 10.0, "not yet", "running"),
        ((), None, 4.0, "not yet", "unknown"),
        ((line(166.0, "stopped", "job stopped by the user"),), None, 6.0, "ended", "stopped"),
        ((line(166.0, "down", "job taken down"),), None, 6.0, "ended", "down"),
        ((line(166.0, "down", "job taken down", phase="failed", reason="x"),), None, 6.0, "ended", "failed"),
        ((line(166.0, "failed", "job failed: too long"),), None, 6.0, "ended", "failed"),
        ((line(166.0, "stopped", ""), asked(1166.0, 3, "the job was stopped")), 1170.0, 10.0, "not yet", "running"),
    ],
)
def test_a_failure_that_is_not_over(more: tuple[Line, ...], now: float, lost: float, outcome: str, phase: str) -> None:
    story = told((*LOG[:12], *more), STEPS[:5], now)
    assert ([(f.lost, f.outcome) for f in story.failures], story.phase) == ([(lost, outcome)], phase)


def test_a_job_that_is_given_up() -> None:
    reason = "node 1: rank 1 exited with code 7; all 0 restarts of `recovery.max_restarts` are used up"
    log = (
        *LOG[:8],
        failure(160.1, reason, tail=["boom"], log="workerlog.0"),
        line(161.0, "failed", f"job failed: {reason}"),
    )
    story = told(log)
    assert story.failures == (
        Incident(
            at=160.0,
            generation=1,
            node=1,
            cause=reason,
            step=50,
            log="workerlog.0",
            tail=("boom",),
            detected=160.1 - 160.0,
            stopped=None,
            running=None,
            training=None,
            until=161.0,
            lost=1.0,
            outcome="ended",
        ),
    )
    assert [(n.node, n.spans[-1].state) for n in story.nodes] == [(0, "running"), (1, "failed")]


def test_a_failure_that_no_supervisor_saw_is_one() -> None:
    log = (
        *LOG[:8],
        start(200.0, 1),
        asked(201.0, 2, "node 1: rank 1 exited with code 7"),
        node(202.0, 1, "running", 2),
    )
    (only,) = told(log).failures
    assert (only.at, only.detected, only.stopped, only.lost, only.cause) == (
        160.0,
        None,
        41.0,
        42.0,
        "node 1: rank 1 exited with code 7 (generation 1)",
    )


def test_a_node_that_was_lost_and_moves() -> None:
    hosts = {"0": "gpu01", "1": "gpu03"}
    log = (
        start(0.0, 0, "gpu01"),
        start(0.0, 1, "gpu02"),
        asked(1.0, 1),
        node(2.0, 0, "running", 1, host="gpu01"),
        node(2.0, 1, "running", 1, host="gpu02"),
        node(50.0, 1, "lost", 0, host="gpu02", message="node 1: gpu02 does not answer"),
        node(80.0, 1, "fenced", 0, host="gpu02"),
        line(81.0, "moved", "node 1 moves", node=1, host="gpu03", **{"from": "gpu02"}),
        again(85.0, 2, "node 1 was lost", hosts=hosts),
        node(90.0, 0, "running", 2, host="gpu01"),
        node(91.0, 1, "running", 2, host="gpu03"),
        line(92.0, "brand-new", "something of a later version", figure=3),
    )
    story = told(log, now=100.0)
    assert story.nodes[1] == NodeLine(
        1,
        (
            StateSpan("starting", 0.0, 2.0, "gpu02", 1, "start node 1 on gpu02: not running"),
            StateSpan("running", 2.0, 50.0, "gpu02", 1, "node 1 on localhost running"),
            StateSpan("lost", 50.0, 80.0, "gpu02", None, "node 1: gpu02 does not answer"),
            StateSpan("fenced", 80.0, 81.0, "gpu02", None, "node 1 on localhost fenced"),
            StateSpan("starting", 81.0, 91.0, "gpu03", 2, "node 1 moves"),
            StateSpan("running", 91.0, 100.0, "gpu03", 2, "node 1 on localhost running"),
        ),
    )
    assert [(n.hosts, n.eventful) for n in story.nodes] == [(("gpu01",), False), (("gpu02", "gpu03"), True)]
    assert [(f.at, f.cause, f.lost, f.outcome) for f in story.failures] == [
        (50.0, "node 1: gpu02 does not answer", 41.0, "ran again")
    ]
    assert story.events[-1].details == {"figure": 3}


def test_a_node_that_comes_back_by_itself_is_no_failure() -> None:
    log = (*LOG[:7], node(120.0, 1, "lost", 0), node(130.0, 1, "running", 1), asked(200.0, 2, "`jobctl restart`"))
    assert told(log).failures == ()


def test_a_node_that_leaves_an_elastic_job() -> None:
    log = (*LOG[:7], again(150.0, 2, "node 1 is gone", (0,)), node(151.0, 0, "running", 2))
    assert [(n.node, n.spans[-1].end) for n in told(log, now=200.0).nodes] == [(0, 200.0), (1, 150.0)]


def test_a_pause_is_not_counted() -> None:
    stopped = (*LOG[:7], node(130.0, 0, "exited", 1), line(131.0, "stopped", "job stopped by the user"))
    more = (start(9000.0, 0), asked(9001.0, 2, "the job was stopped"), node(9004.0, 0, "running", 2))
    steps = (
        StepProgress(110.0, 1, 0),
        StepProgress(130.0, 1, 20),
        StepProgress(9011.0, 2, 20),
        StepProgress(9031.0, 2, 40),
    )
    story = told((*stopped, *more), steps, 9031.0)
    assert story.shares == (
        Share("starting", 100.0, 110.0),
        Share("kept", 110.0, 130.0),
        Share("no step", 130.0, 131.0),
        Share("paused", 131.0, 9001.0),
        Share("starting", 9001.0, 9011.0),
        Share("kept", 9011.0, 9031.0),
    )
    assert (story.paused, story.ratio) == (8870.0, 40.0 / 61.0)


@pytest.mark.parametrize(
    ("log", "lengths"),
    [
        ((), []),
        ((asked(1, 1), line(2, "down")), [2]),
        ((asked(1, 1), line(2, "down"), line(3, "supervisor-ended"), line(4, "down")), [4]),
        ((asked(1, 1), line(2, "down"), line(3, "notify-failed"), asked(4, 1)), [3, 1]),
        ((asked(1, 1), line(2, "down"), start(3, 0), asked(4, 1)), [2, 2]),
        ((asked(1, 1), line(2, "down"), start(3, 0)), [2, 1]),
        ((asked(1, 1), line(2, "stopped"), asked(3, 2), line(4, "succeeded"), asked(5, 3)), [5]),
        ((asked(1, 1), line(2, "succeeded"), line(3, "up", fresh=True), start(3, 0), asked(4, 2)), [2, 3]),
        ((asked(1, 1), line(2, "succeeded"), line(3, "up", fresh=False), asked(4, 2)), [4]),
        ((asked(1, 1), start(2, 0), asked(3, 1)), [1, 2]),
        ((asked(1, 1), again(2, 1, "the job is new"), again(3, 2, "x")), [3]),
    ],
)
def test_a_run_begins_anew(log: tuple[Line, ...], lengths: list[int]) -> None:
    assert [len(run) for run in runs(events_of(log))] == lengths


def test_the_last_run_is_told() -> None:
    story = told((*LOG, start(400.0, 0), asked(401.0, 1), node(402.0, 0, "running", 1)), STEPS, 410.0)
    assert (story.earlier, story.begin, story.end, story.curves, story.failures) == (1, 400.0, 410.0, (), ())


def test_nothing_is_told_of_no_log() -> None:
    assert tell("job", [], (), 1.0) is None


def test_steps_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "job" / "progress.jsonl"
    assert read_progress(path) == ()
    record_progress(path, 1.5, 1, 10)
    record_progress(path, 2.5, 2, 7)
    assert path.read_text() == '{"at": 1.5, "generation": 1, "step": 10}\n{"at": 2.5, "generation": 2, "step": 7}\n'
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_progress(path) == (StepProgress(1.5, 1, 10), StepProgress(2.5, 2, 7))


def test_what_is_no_record_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    bad = ['{"at": 1, "gener', "null", "[1]", '{"at": NaN, "generation": 1, "step": 2}', '{"at": 1, "step": 2}', "\\"]
    bad += ['{"at": true, "generation": 1, "step": 2}', f'{{"at": 1, "generation": 1, "step": {10**30}}}', "\udcff"]
    path.write_text(
        "\n".join([*bad, '{"at": 3, "generation": 1, "step": 2}', '{"at": 4, "gen']), errors="surrogateescape"
    )
    assert read_progress(path) == (StepProgress(3.0, 1, 2),)


# What a log may hold, in any order: the story is told, and what it says of time adds up.
_AT = st.floats(0, 1000, allow_nan=False)
_NODE, _NUMBER, _STEP = st.integers(0, 2), st.integers(1, 4), st.none() | st.integers(0, 100)
_STATES = st.sampled_from(["starting", "running", "exited", "failed", "lost", "fenced", "odd"])
_LINES = st.lists(
    st.one_of(
        st.builds(start, _AT, _NODE, st.sampled_from(["a", "b"])),
        st.builds(asked, _AT, _NUMBER),
        st.builds(lambda at, fresh: line(at, "up", fresh=fresh), _AT, st.booleans()),
        st.builds(again, _AT, _NUMBER, st.just("why"), st.sampled_from([(0, 1), (0, 1, 2), (1,)])),
        st.builds(
            lambda at, n, s, g, p: node(at, n, s, g, progress=p, exit_code=p), _AT, _NODE, _STATES, _NUMBER, _STEP
        ),
        st.builds(
            lambda at, n, p, alone: failure(at, node=n, progress=p, alone=alone), _AT, _NODE, _STEP, st.booleans()
        ),
        st.builds(lambda at, n: line(at, "moved", "", node=n, host="c"), _AT, _NODE),
        st.builds(line, _AT, st.sampled_from(["stopped", "failed", "succeeded", "down", "supervisor-ended", "odd"])),
    ),
    max_size=25,
)
_RECORDS = st.lists(st.builds(StepProgress, _AT, _NUMBER, st.integers(0, 100)), max_size=15)


@settings(max_examples=300)
@given(_LINES, _RECORDS, st.none() | _AT, st.booleans())
def test_time_adds_up(lines: list[Line], records: list[StepProgress], now: float | None, ordered: bool) -> None:
    lines = sorted(lines, key=lambda one: one["time"]) if ordered else lines
    story = tell("job", lines, records, now)
    if story is None:
        return
    assert story.begin <= story.end
    whole = [(share.begin, share.end) for share in story.shares]
    if whole:
        assert (whole[0][0], whole[-1][1]) == (story.begin, story.end)
    assert all(begin < end for begin, end in whole)
    assert all(left[1] == right[0] for left, right in pairwise(whole))
    assert story.ratio is None or 0 <= story.ratio <= 1
    assert all(f.lost >= 0 for f in story.failures)
    assert story.lost <= story.end - story.begin - story.paused + 1e-6
    for each in story.nodes:
        assert all(story.begin <= span.begin < span.end <= story.end for span in each.spans)
        assert all(left.end <= right.begin for left, right in pairwise(each.spans))
    assert page(story, 0.0).startswith("<!doctype html>")


@pytest.mark.parametrize(
    "bad",
    [
        None,
        [],
        {},
        {"time": "soon"},
        {"time": float("nan"), "event": "node"},
        {"time": True, "event": "down"},
    ],
)
def test_lines_that_are_no_events_are_passed_over(bad: Any) -> None:
    assert told((bad, *LOG), STEPS) == told(LOG, STEPS)


def test_details_of_any_kind_do_no_harm() -> None:
    odd: list[Any] = [None, -1, 10**40, "x", [], {}, ["a", None], True, 1.5, {"a": 1}, {"99999999999999": 2}]
    keys = ("node", "state", "generation", "exit_code", "progress", "tail", "log", "members", "hosts", "host", "from")
    kinds = ("node", "failure", "generation", "moved", "step", "up", "failed")
    lines = [
        line(5.0, kind, "generation 2 begins: x", **{key: value}) for kind in kinds for key in keys for value in odd
    ]
    assert page(told([asked(1.0, 1), *lines]), 0.0).endswith("</html>\n")


def test_the_log_is_read_as_events_are_written(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for one in LOG:
        details = {key: value for key, value in one.items() if key not in ("time", "event", "message")}
        events.record(path, one["time"], one["event"], one["message"], **details)
    lines, _ = events.read(path)
    assert told(lines, STEPS) == told(json.loads(json.dumps(LOG)), STEPS)
