"""`check --fitness`: its option, and its table."""

from __future__ import annotations

from typing import Any

import pytest

from jobctl.commands.check import _summary
from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.operations.inspect.check import CheckResult
from jobctl.main import _fill_fitness
from jobctl.views.fitness import show_fitness


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["check", "--fitness", "job.yaml"], ["check", "--fitness=quick", "job.yaml"]),
        (["check", "job.yaml", "--fitness"], ["check", "job.yaml", "--fitness=quick"]),
        (["check", "--fitness=full", "job.yaml"], ["check", "--fitness=full", "job.yaml"]),
        (["check", "--fitness", "full"], ["check", "--fitness", "full"]),
        (["run", "--", "x", "--fitness"], ["run", "--", "x", "--fitness"]),
    ],
)
def test_the_option_needs_no_value(given: list[str], meant: list[str]) -> None:
    assert _fill_fitness(given) == meant


def test_this_machine_alone_is_not_compared(jobctl: Any) -> None:
    ran = jobctl("check", "--fitness")
    assert (ran.code, "`--fitness` compares hosts" in ran.err, "--hosts" in ran.err) == (2, True, True)
    assert jobctl("check", "--fitness=some").code == 2


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    slow = Finding("h2", "compute", "error", "slow", "slow-host", "look", 4.8, 6.0, "Mround/s")
    show_fitness(
        [
            Finding("h1", "ssh", "ok", "answers"),
            Finding("h1", "compute", "ok", "fine", None, None, 6.0, 6.0, "Mround/s"),
            Finding("h1", "memory", "ok", "fine", None, None, 14.0, None, "GB/s"),
            slow,
            Finding("h2", "memory", "ok", "fine", None, None, 1400.0, 140.0, "GB/s"),
        ]
    )
    rows = capsys.readouterr().out.splitlines()
    assert [row.split() for row in rows[1:]] == [
        ["compute", "h1", "6", "Mround/s", "█" * 20, "100", "%", "of", "6", "ok"],
        ["compute", "h2", "4.8", "Mround/s", "█" * 16, "80", "%", "of", "6", "slow-host"],
        ["memory", "h1", "14", "GB/s", "-", "ok"],
        ["memory", "h2", "1400", "GB/s", "█" * 30, "1000", "%", "of", "140", "ok"],
    ]
    assert len({row.index(word) for row, word in zip(rows[1:], ("100", "80", "-", "1000"), strict=True)}) == 1
    show_fitness([Finding("h1", "ssh", "ok", "answers")])
    assert capsys.readouterr().out == ""


def test_the_summary_does_not_call_fit_what_was_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    def said(*findings: Finding) -> str:
        _summary(CheckResult(findings, tuple(dict.fromkeys(one.host for one in findings)), cluster=False))
        return capsys.readouterr().err

    fast = Finding("h1", "compute", "ok", "fine", None, None, 6.0, 6.0, "Mround/s")
    devices = Finding("h1", "compute", "skipped", "its devices were not measured", None)
    slow = Finding("h2", "compute", "error", "slow", "slow-host", "look", 4.8, 6.0, "Mround/s")
    left_out = Finding("h3", "compute", "skipped", "no node of the job is there: not measured")
    assert said(fast, devices) == "2 verdicts on 1 host: all fit\n"
    assert said(fast, left_out) == "2 verdicts on 2 hosts: 1 not measured, all others fit\n"
    assert said(fast, slow, left_out) == "3 verdicts on 3 hosts: 1 not measured, 1 not fit\n"
    assert said(left_out) == "1 verdict on 1 host: 1 not measured\n"
