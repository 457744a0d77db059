"""How `up` ends: by which of the job's hosts did their part."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from typer import Exit

from jobctl.jobspec.deploy.apply.deployer import AllUnreachable
from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.model.control import NOTHING
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.operations.lifecycle import wait
from jobctl.jobspec.operations.lifecycle.base import Applied, Stopped
from jobctl.options import Format
from jobctl.views import logs, outcome
from jobctl.views.failure import command
from tests.deploy.apply.test_executor import RUNNING, TWO

NO = DeployError("no")
STEP = Step("start", "node 0 on h0", "not running", node=0, host="h0")


@pytest.mark.parametrize(
    ("failed", "held", "code"),
    [
        ((), False, 0),
        (("h1",), False, 4),
        (("h0", "h1"), False, 3),
        (("s0",), False, 4),
        ((), True, 4),
        (("h0", "h1"), True, 4),
    ],
)
def test_the_exit_code_says_whether_all_some_or_no_hosts_did_their_part(
    failed: tuple[str, ...], held: bool, code: int
) -> None:
    assert Applied(TWO, (), dict.fromkeys(failed, NO), ready=True, held=held).code == code


def test_a_change_that_nobody_makes_later_has_changed_nothing() -> None:
    failed = dict.fromkeys(("h0", "h1"), NO)
    assert Applied(TWO, (), failed, ready=True, held=True, supervised=False).code == 3


def test_a_job_that_has_not_begun_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    done = Applied(TWO, (STEP,), {}, ready=False)
    assert outcome.finish_up(SimpleNamespace(), done, follow=False, output=Format.text) == 4  # type: ignore[arg-type]
    assert "has not begun: too few of its nodes can take part" in capsys.readouterr().err


@pytest.mark.parametrize("output", list(Format))
@pytest.mark.parametrize(
    ("phase", "failed", "code"),
    [
        ("running", (), 0),
        ("running", ("h1",), 4),
        ("succeeded", (), 0),
        ("failed", (), 1),
        ("failed", ("h1",), 1),
        ("degraded", (), 1),
        ("degraded", ("h1",), 4),  # it goes on without the host
        ("stopped", (), 1),
    ],
)
def test_the_exit_code_of_up_and_restart_is_the_same_in_both_forms(
    output: Format,
    phase: str,
    failed: tuple[str, ...],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    generation = SimpleNamespace(number=3)
    observed = SimpleNamespace(members=(), control=SimpleNamespace(generation=generation))
    state = SimpleNamespace(phase=phase, reason="why", observed=observed, unreachable={})
    monkeypatch.setattr(wait, "wait_until_up", lambda handle, reporter, without: state)
    monkeypatch.setattr(outcome, "show_tail", lambda observed: None)
    monkeypatch.setattr(outcome, "status_json", lambda handle: {"job": "a"})
    handle: Any = SimpleNamespace(job=SimpleNamespace(name="a"))
    problems = dict.fromkeys(failed, NO)
    done = Applied(TWO, (STEP,), problems, ready=True, held=False)
    restarted: Any = SimpleNamespace(failed=problems, begins=True)
    assert outcome.finish_up(handle, done, follow=False, output=output) == code
    assert outcome.finish_restart(handle, restarted, output) == code
    out, err = capsys.readouterr()
    assert (out.count('"job": "a"'), f"error: job `a` {phase}: why" in err) == (
        2 if output is Format.json else 0,
        phase not in ("running", "succeeded"),
    )


@pytest.mark.parametrize(
    ("phase", "silent", "said", "code"),
    [
        ("unknown", True, "error: job `a` was started, and whether it runs is not known: why", 4),
        ("degraded", True, "error: job `a` degraded: why", 4),
        ("degraded", False, "error: job `a` degraded: why", 1),  # a spare is silent, and no node is on that
    ],
)
def test_a_job_that_was_started_on_hosts_that_are_silent_now_has_not_failed(
    phase: str, silent: bool, said: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor was nothing changed, which is what 3 says."""
    observed = SimpleNamespace(members=[SimpleNamespace(reachable=not silent)])
    state = SimpleNamespace(phase=phase, reason="why", observed=observed, unreachable={"h1": NO})
    monkeypatch.setattr(wait, "wait_until_up", lambda handle, reporter, without: state)
    monkeypatch.setattr(outcome, "show_tail", lambda observed: None)
    handle: Any = SimpleNamespace(job=SimpleNamespace(name="a"))
    done = Applied(TWO, (STEP,), {}, ready=True)
    assert outcome.finish_up(handle, done, follow=False, output=Format.text) == code
    assert capsys.readouterr().err.splitlines()[0] == said


@pytest.mark.parametrize("output", list(Format))
@pytest.mark.parametrize(
    ("away", "said"),
    [
        ((), "job `a` is running as the spec says; nothing to do"),
        (("h1",), "job `a` was as the spec says; nothing to do. By now it is degraded: "),
        (("h0", "h1"), "job `a` was as the spec says; nothing to do. By now it is unknown: h0, h1 cannot be reached"),
    ],
)
def test_hosts_that_go_silent_after_up_has_looked_do_not_make_it_fail(
    away: tuple[str, ...],
    said: str,
    output: Format,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    silent = dict.fromkeys(away, "no answer")
    nodes = tuple(replace(node, reachable=node.host not in away) for node in RUNNING.nodes)
    seen = replace(RUNNING, nodes=nodes, unreachable=silent)

    def look() -> Observed:
        if len(away) == 2:
            raise AllUnreachable(dict.fromkeys(away, NO), Observed(NOTHING, (), supervised=False, unreachable=silent))
        return seen

    monkeypatch.setattr(outcome, "status_json", lambda handle: {"job": "a"})
    handle: Any = SimpleNamespace(job=SimpleNamespace(name="a"), observe=look)
    done = Applied(TWO, (), {}, ready=True)
    assert outcome.finish_up(handle, done, follow=False, output=output) == 0
    assert capsys.readouterr().err.startswith(said)


def test_following_a_job_that_runs_prints_its_lines_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(outcome, "status_json", lambda handle: {"job": "a"})
    monkeypatch.setattr(logs, "follow_job", lambda handle, output: 7)
    handle: Any = SimpleNamespace(job=SimpleNamespace(name="a"), observe=lambda: RUNNING)
    done = Applied(TWO, (), {}, ready=True)
    assert outcome.finish_up(handle, done, follow=True, output=Format.json) == 7
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("ready", [True, False])
def test_following_a_job_of_which_there_are_no_lines_prints_its_state_as_one(
    ready: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(outcome, "status_json", lambda handle: {"job": "a"})
    nodes = tuple(replace(node, state="exited", exit_code=0) for node in RUNNING.nodes)
    ended = replace(RUNNING, nodes=nodes, verdict=("succeeded", None))
    handle: Any = SimpleNamespace(job=SimpleNamespace(name="a"), observe=lambda: ended)
    done = Applied(TWO, () if ready else (STEP,), {}, ready=ready)
    assert outcome.finish_up(handle, done, follow=True, output=Format.json) == (0 if ready else 4)
    assert capsys.readouterr().out == '{"job": "a", "failed_hosts": []}\n'


def test_a_stop_names_the_hosts_that_do_not_answer_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(outcome, "status_json", lambda handle: {"job": "a"})
    handle: Any = SimpleNamespace(job=SimpleNamespace(name="a"))
    assert outcome.finish_stop(handle, Stopped("stopped", failures={"h1": NO}), Format.json) == 4
    assert [one["host"] for one in json.loads(capsys.readouterr().out)["failed_hosts"]] == ["h1"]


def test_a_restart_that_does_not_begin_is_told_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(outcome, "status_json", lambda handle: {"job": "a"})
    handle: Any = SimpleNamespace(job=SimpleNamespace(name="a"))
    done: Any = SimpleNamespace(failed={"h1": NO}, begins=False)
    assert outcome.finish_restart(handle, done, Format.json) == 4
    told = capsys.readouterr()
    assert [one["host"] for one in json.loads(told.out)["failed_hosts"]] == ["h1"]
    assert told.err.splitlines()[-2:] == [
        "error: job `a` has not begun again",
        "hint: fix what is reported above, then `jobctl restart a`",
    ]


def test_up_follow_waits_for_hosts_that_are_silent_once_the_job_was_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = Observed(NOTHING, (), supervised=False)
    answers = iter([AllUnreachable({"h0": NO, "h1": NO}, nothing)] * 2)

    def show_logs(*_: Any) -> dict[str, Any]:
        for silent in answers:
            raise silent
        return {}

    monkeypatch.setattr(logs, "show_logs", show_logs)
    ended = SimpleNamespace(phase="succeeded")
    monkeypatch.setattr(wait, "wait_until_ended", lambda handle: ended)
    handle: Any = SimpleNamespace(job=SimpleNamespace(name="a"), interval=0.0)
    assert logs.follow_job(handle, Format.text) == 0
    said = "no answer from h0, h1: whether job `a` runs is not known; still waiting\n"
    assert capsys.readouterr().err == f"{said}job `a` succeeded\n"


@pytest.mark.parametrize("output", list(Format))
def test_ctrl_c_detaches_from_a_job_and_is_no_error(
    output: Format, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any) -> int:
        raise KeyboardInterrupt

    @command
    def follow(output: Format) -> None:
        outcome.raise_code(logs.follow_job(handle, output))

    monkeypatch.setattr(logs, "show_logs", interrupted)
    handle: Any = SimpleNamespace(job=SimpleNamespace(name="a"))
    with pytest.raises(Exit) as ended:
        follow(output=output)
    said = capsys.readouterr()
    assert (ended.value.exit_code, said.out) == (130, "")
    assert "detached; job `a` goes on" in said.err
