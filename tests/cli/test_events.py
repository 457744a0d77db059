"""Which events `--since` and `--tail` choose."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.store import events
from jobctl.views.events import EventChoice

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()


@pytest.fixture
def told(jobctl: Any) -> Any:
    """Three events of a job, an hour between them."""
    for hour, message in enumerate(("first", "second", "third")):
        events.record(Path("state/jobs/small/events.jsonl"), NOON + 3600 * hour, "step", message)
    return jobctl


@pytest.mark.parametrize(
    ("options", "messages"),
    [
        ((), ["first", "second", "third"]),
        (("--tail", "1"), ["third"]),
        (("--tail", "0"), []),
        (("--tail", "9"), ["first", "second", "third"]),
        (("--since", "2026-01-31T13:00:00+00:00"), ["second", "third"]),
        (("--since", "2026-01-31T13:00:00.001Z"), ["third"]),
        (("--since", "2026-01-31T12:30:00Z", "--tail", "1"), ["third"]),
        (("--since", "2026-01-31T12:00:00Z", "--tail", "2"), ["second", "third"]),
        (("--since", "1s"), []),
    ],
)
def test_since_and_tail_choose(told: Any, options: tuple[str, ...], messages: list[str]) -> None:
    ran = told("events", *options, "-o", "json")
    assert (ran.code, [json.loads(line)["message"] for line in ran.out.splitlines()]) == (0, messages)


def test_n_is_the_namespace_and_the_hint_names_tail(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "gone")
    hint = "hint: `-n` is `--namespace` here; `--tail 2` shows the last 2 events"
    for namespace, last in (("2", True), ("ml", False)):
        ran = told("events", "-n", namespace)
        assert (ran.code, hint in ran.err.splitlines()) == (2, last)


def test_what_is_no_time_is_refused_as_in_logs(told: Any) -> None:
    ran = told("events", "--since", "yesterday")
    assert (ran.code, ran.out, ran.err.splitlines()) == (
        2,
        "",
        [
            "error: `yesterday` is not a time",
            "hint: write how long ago, `10m`, or when, `2026-01-31T14:00:00`",
        ],
    )


def test_so_long_ago_counts_from_now() -> None:
    of = [{"time": NOON}, {"time": NOON + 60}]
    assert EventChoice(NOON + 1).of(of) == of[1:]
    assert EventChoice().of(of) == of


@pytest.mark.parametrize("command", ["events", "report"])
def test_nothing_is_known_of_a_job_whose_hosts_do_not_answer(jobctl: Any, command: str) -> None:
    """That is no slip of the user's: the same command may do later."""
    Path("hosts.txt").write_text("127.0.0.1:1\n")
    ran = jobctl(command, "--hosts", "hosts.txt")
    assert (ran.code, ran.out) == (3, "")
    assert "error: no host answers, and no " in ran.err
    assert "127.0.0.1: nothing listens at its SSH port" in ran.err
