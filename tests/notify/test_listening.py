"""The check of a campaign: a failure that no message names is found, whatever jobctl's own rules say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.launcher.telling.news import News
from jobctl.jobspec.report.runs import events_of
from tests.fleet.campaign.listening import Receipt, heard, untold, watched

from .test_news import AGAIN, BEGINS, FAILS, RUNS, STARTED
from .tools import line

SECOND = line(23.0, "failure", "node 0: rank 0 ended with code 1", generation=2, node=0, kind="process")
THIRD = line(30.0, "generation-begun", "generation 3 was started", generation=3)


def told(*lines: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages about a log."""
    news = News("demo", "demo-1")
    news.read(lines)
    return [message.to_json() for message in news.found]


def missed(messages: list[Mapping[str, Any]], *lines: dict[str, Any]) -> list[str]:
    return [one.message for one in untold(events_of(lines), [Receipt(40.0, message) for message in messages])]


def test_failures_that_messages_name_are_told() -> None:
    lines = [BEGINS, FAILS, STARTED, {**FAILS, "time": 22.5, "message": "again"}, AGAIN, SECOND, THIRD]
    assert missed([*told(*lines)], *lines) == []


@pytest.mark.parametrize("wrong", [{"text": "node 7 has failed"}, {"cost_seconds": 1.0}])
def test_a_message_that_is_about_something_else_tells_nothing(wrong: dict[str, Any]) -> None:
    lines = [BEGINS, FAILS, AGAIN, RUNS]
    (message,) = told(*lines)
    assert missed([{**message, **wrong}], *lines) == [FAILS["message"]]
    assert missed([], *lines) == [FAILS["message"]]


def test_only_a_command_that_ends_the_job_makes_a_message_needless() -> None:
    restart = line(22.0, "step", "generation 2", step="generation", generation=2, cause="`jobctl restart`")
    assert missed([], BEGINS, FAILS, restart, RUNS) == [FAILS["message"]]
    assert missed([], BEGINS, FAILS, line(21.0, "stopped", "job stopped by the user"), restart, RUNS) == []


def test_a_failure_that_is_in_no_message_counts_as_lost(tmp_path: Path) -> None:
    """The second one is left out of the words, as though it were the first one again."""
    lines = [BEGINS, FAILS, AGAIN, SECOND, THIRD]
    (log := tmp_path / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    (message,) = told(*lines)
    assert heard(log, [Receipt(30.1, message)]).lost == ()
    message["text"] = message["text"].replace(SECOND["message"], "…")
    assert heard(log, [Receipt(30.1, message)]).lost == (f"failure: {SECOND['message']}",)


def test_time_in_which_nobody_could_tell_does_not_count() -> None:
    away = [(20.0, 30.0), (5.0, 12.0), (25.0, 28.0), (29.0, 33.0), (90.0, 95.0)]
    assert watched(10.0, 40.0, away) == 30.0 - 2.0 - 13.0
    assert watched(13.0, 19.0, away) == 6.0
    assert watched(21.0, 24.0, away) == 0.0
