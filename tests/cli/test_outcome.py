"""How `up` ends: by which of the job's hosts did their part."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.operations.lifecycle import wait
from jobctl.jobspec.operations.lifecycle.base import Applied
from jobctl.options import Format
from jobctl.views import outcome
from tests.deploy.test_executor import TWO

NO = DeployError("no")


@pytest.mark.parametrize(
    ("failed", "held", "code"),
    [((), False, 0), (("h1",), False, 4), (("h0", "h1"), False, 3), (("s0",), False, 4), ((), True, 4)],
)
def test_the_exit_code_says_whether_all_some_or_no_hosts_did_their_part(
    failed: tuple[str, ...], held: bool, code: int
) -> None:
    assert Applied(TWO, (), dict.fromkeys(failed, NO), ready=True, held=held).code == code


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
    state = SimpleNamespace(phase=phase, reason="why", observed=observed)
    monkeypatch.setattr(wait, "wait_until_up", lambda handle, reporter: state)
    monkeypatch.setattr(outcome, "show_tail", lambda observed: None)
    monkeypatch.setattr(outcome, "status_json", lambda handle: {"job": "a"})
    handle: Any = SimpleNamespace(job=SimpleNamespace(name="a"))
    problems = dict.fromkeys(failed, NO)
    done: Any = Applied(TWO, (SimpleNamespace(),), problems, ready=True, held=False)
    restarted: Any = SimpleNamespace(failed=problems, begins=True)
    assert outcome.finish_up(handle, done, follow=False, output=output) == code
    assert outcome.finish_restart(handle, restarted, output) == code
    out, err = capsys.readouterr()
    assert (out.count('"job": "a"'), f"error: job `a` {phase}: why" in err) == (
        2 if output is Format.json else 0,
        phase not in ("running", "succeeded"),
    )


def test_a_restart_that_does_not_begin_is_told_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(outcome, "status_json", lambda handle: {"job": "a"})
    handle: Any = SimpleNamespace()
    done: Any = SimpleNamespace(failed={"h1": NO}, begins=False)
    assert outcome.finish_restart(handle, done, Format.json) == 4
    assert [one["host"] for one in json.loads(capsys.readouterr().out)["failed_hosts"]] == ["h1"]
