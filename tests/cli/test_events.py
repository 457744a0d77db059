"""Which events `--since` and `--tail` choose, and when those who follow them have seen the last."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jobctl.console import deliver
from jobctl.jobspec.deploy.apply.clock import Clock
from jobctl.jobspec.deploy.model.control import JobResult
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.store import events
from jobctl.jobspec.deploy.store.events import EventFile
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import hold
from jobctl.options import Format
from jobctl.views.events import END_TIMEOUT, EventChoice, show_events
from tests.deploy.apply.test_executor import RUNNING

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


def test_a_full_disk_is_named_where_the_report_goes(jobctl: Any) -> None:
    events.record(Path("state/jobs/small/events.jsonl"), 1000.0, "down", "job taken down")
    Path("full.html").symlink_to("/dev/full")
    ran = jobctl("report", "-o", "full.html")
    assert (ran.code, ran.err) == (2, "error: full.html: No space left on device\nhint: make room there\n")


@pytest.mark.parametrize("command", ["events", "report"])
def test_nothing_is_known_of_a_job_whose_hosts_do_not_answer(jobctl: Any, command: str) -> None:
    """That is no slip of the user's: the same command may do later."""
    Path("hosts.txt").write_text("127.0.0.1:1\n")
    ran = jobctl(command, "--hosts", "hosts.txt")
    assert (ran.code, ran.out) == (3, "")
    assert "error: no host answers, and no " in ran.err
    assert "127.0.0.1: nothing listens at its SSH port" in ran.err
    if command == "events":
        told = json.loads(jobctl(command, "--hosts", "hosts.txt", "-o", "json").out)
        assert [(one["host"], one["code"]) for one in told["failed_hosts"]] == [("127.0.0.1", "connection-refused")]


class Ending(Clock):
    """A job that has failed; who is to write that down does so after `turns` of those who wait. Each takes a second."""

    interval = 1.0
    plan = None

    def __init__(self, directory: Path, turns: int = 1000) -> None:
        self.job, self.turns, self.slept = JobDir(directory / "jobs" / "small"), turns, 0
        self.failures: dict[str, Any] = {}
        self.tell("up", 1.0, "brought up")

    def tell(self, kind: str, at: float, message: str) -> None:
        events.record(self.job.events, at, kind, message)

    def events(self) -> EventFile:
        return EventFile(self.job.events)

    def observe(self) -> Observed:
        ledger = replace(RUNNING.control.ledger, result=JobResult("failed", "no luck", 5.0))
        return replace(RUNNING, control=replace(RUNNING.control, ledger=ledger))

    def now(self) -> float:
        return 100.0 + self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += 1
        if self.slept == self.turns:
            self.tell("failed", 5.0, "job failed: no luck")

    def followed(self, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
        """Follow the events; return how often that waited, and what it printed."""
        handle: Any = self
        show_events(handle, EventChoice(), Format.text, follow=True, clock=self)
        deliver()
        return self.slept, [line.split("  ", 1)[1] for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("lock", ["supervisor_lock", "lock"])
def test_following_ends_with_how_the_job_has_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lock: str
) -> None:
    """The supervisor and `stop` write it after the job counts as ended."""
    ending = Ending(tmp_path, turns=3)
    with hold(getattr(ending.job, lock), "stop"):
        assert ending.followed(capsys) == (3, ["brought up", "job failed: no luck"])
        assert ending.followed(capsys) == (3, ["brought up", "job failed: no luck"])  # nothing is to come


def test_following_does_not_take_an_earlier_end_for_the_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ending = Ending(tmp_path, turns=2)
    ending.tell("stopped", 2.0, "stopped")
    ending.tell("generation", 3.0, "begins")
    with hold(ending.job.supervisor_lock, "supervise"):
        assert ending.followed(capsys) == (2, ["brought up", "stopped", "begins", "job failed: no luck"])


def test_following_ends_where_nobody_tells_how_the_job_has_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ending = Ending(tmp_path)
    assert ending.followed(capsys) == (0, ["brought up"])
    with hold(ending.job.supervisor_lock, "supervise"):  # which is stuck
        assert ending.followed(capsys) == (END_TIMEOUT, ["brought up"])
