"""Somebody who follows logs sees those of each host, also where one is silent for a while, or gets a node later."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.host import logs as host_logs
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.control import JobResult, Ledger
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.operations.inspect.logs import Choice
from jobctl.jobspec.operations.inspect.status import look_on
from jobctl.views import logs as logs_view
from jobctl.views.logs import Form, show_logs
from tests.deploy.targets.watched import Enough, Watched, watched
from tests.tools.waiting import PROMPT


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """Hosts that are waited for as long as it takes, until one goes silent."""
    with watched(tmp_path, monkeypatch) as made:
        yield made


def write_log(hosts: Watched, node: int, lines: int, generation: int = 1) -> None:
    """Have the only process of a node write so many lines."""
    folder = Path(hosts.host_jobs[f"h{node}"].work) / f"node-{node}"
    for part in (f"logs/{generation}", f"processes/{generation}"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / f"processes/{generation}" / "0.json").write_text(json.dumps({"rank": node}))
    with (folder / f"logs/{generation}/workerlog.0").open("w") as file:
        file.writelines(f"line {number} of node {node}\n" for number in range(lines))


def see_silent(hosts: Watched) -> None:
    """Have the second host be given up; from then on the first one is waited for as long as it takes."""
    look_on(hosts)
    hosts.go_silent("h1")
    while set(hosts.failures) != {"h1"}:
        hosts.observe()
    hosts.go_silent("h1")


def end(hosts: Watched, *names: str) -> None:
    """Write down on hosts that the job has failed."""
    ledger = Ledger(1.0, "code", result=JobResult("failed", "it is over", 2.0))
    for name in names:
        hosts.host_jobs[name].hand_over(json.dumps(asdict(ledger)).encode(), b"")


def test_logs_of_a_host_that_answers_only_later(
    hosts: Watched, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for node in (0, 1):
        write_log(hosts, node, 1)
    see_silent(hosts)
    shown: list[str] = []
    deadline = time.monotonic() + PROMPT

    def between(seconds: float) -> None:
        shown.append(capsys.readouterr().out)
        assert time.monotonic() < deadline, shown
        time.sleep(0.01)
        hosts.transports["h1"].silent = False
        hosts.transports["h1"].over.set()
        if "node1 rank1 | line 0 of node 1\n" in shown[-1]:
            end(hosts, "h0", "h1")

    monkeypatch.setattr(logs_view, "pause", between)
    assert show_logs(hosts, Choice(), Form(follow=True)) == {}
    assert shown[0] == "node0 rank0 | line 0 of node 0\n"
    assert shown.count("node1 rank1 | line 0 of node 1\n") == 1


def test_the_last_lines_of_a_host_that_answers_only_later(
    hosts: Watched, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it had before is as old as what others had; what begins later is shown as a whole."""
    for node in (0, 1):
        write_log(hosts, node, 30)
    see_silent(hosts)
    shown: list[str] = []
    deadline = time.monotonic() + PROMPT

    def between(seconds: float) -> None:
        shown.extend(line.partition(" | ")[2] for line in capsys.readouterr().out.splitlines())
        assert time.monotonic() < deadline, shown
        time.sleep(0.01)
        hosts.transports["h1"].silent = False
        hosts.transports["h1"].over.set()
        if shown[-1] == "line 29 of node 1":
            write_log(hosts, 1, 4, generation=2)
        if shown[-1] == "line 3 of node 1":
            end(hosts, "h0", "h1")

    monkeypatch.setattr(logs_view, "pause", between)
    assert show_logs(hosts, Choice(tail=2), Form(follow=True)) == {}
    late = [f"line {number} of node 1" for number in (28, 29, 0, 1, 2, 3)]
    assert shown == ["line 28 of node 0", "line 29 of node 0", *late]


def test_logs_of_a_host_that_never_answers_are_told_to_be_missing(
    hosts: Watched, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for node in (0, 1):
        write_log(hosts, node, 1)
    see_silent(hosts)
    rounds = itertools.count()

    def between(seconds: float) -> None:
        if next(rounds) == 1:
            end(hosts, "h0")

    monkeypatch.setattr(logs_view, "pause", between)
    assert set(show_logs(hosts, Choice(), Form(follow=True))) == {"h1"}
    said = capsys.readouterr()
    assert said.out == "node0 rank0 | line 0 of node 0\n"
    assert said.err.count("error: h1: it does not answer; unreachable since ") == 1
    assert set(show_logs(hosts, Choice(node=1), Form())) == {"h1"}  # nobody knows that there is none


def follow_past_death(hosts: Watched, script: str, choice: Choice, after: int = 0) -> None:
    """Follow logs while the second host is lost as it is to run `script`, `after` others of these; and until it is back."""
    host, calls, rounds = hosts.transports["h1"], itertools.count(), itertools.count()
    run, gone, back = host.run, threading.Event(), threading.Event()

    def fail(argv: Sequence[str], *args: Any, **how: Any) -> Result:
        if argv[2] == SCRIPTS.text(script) and next(calls) >= after:
            gone.set()
        if gone.is_set() and not back.is_set():
            raise HostError("h1", "lost", "the connection was lost")
        return run(argv, *args, **how)

    def between(seconds: float) -> None:
        turn = next(rounds)
        if turn == 2:
            back.set()
        if turn == 4:
            end(hosts, "h0", "h1")

    hosts.monkeypatch.setattr(host, "run", fail)
    hosts.monkeypatch.setattr(host_logs, "RETRY_AFTER", 0.0)
    hosts.monkeypatch.setattr(logs_view, "pause", between)
    assert show_logs(hosts, choice, Form(follow=True)) == {}
    assert gone.is_set()


@pytest.mark.parametrize(
    ("script", "choice", "known"),
    [
        ("read_logs", Choice(), True),
        ("read_logs", Choice(since=1.0), True),
        ("read_logs", Choice(rank=1), False),
        ("read_logs", Choice(node=1, rank=1), False),
        ("list_logs", Choice(node=1), True),
        ("list_logs", Choice(generation=2), True),
    ],
    ids=str,
)
def test_a_host_that_dies_before_its_logs_are_read_is_waited_for(
    hosts: Watched, capsys: pytest.CaptureFixture[str], script: str, choice: Choice, known: bool
) -> None:
    """What is asked for may be there, also if the spec of the job is not `known` here."""
    write_log(hosts, 0, 1)
    write_log(hosts, 1, 1, generation=2)
    hosts.plan = hosts.plan if known else None
    follow_past_death(hosts, script, choice)
    said = capsys.readouterr()
    assert said.out.count("node1 rank1 | line 0 of node 1\n") == 1
    assert said.err == "error: h1: the connection was lost\n"


@pytest.mark.parametrize("reads", [1, 2], ids=["ranks", "lines"])
def test_the_last_lines_of_a_host_that_dies_before_they_are_found(
    hosts: Watched, capsys: pytest.CaptureFixture[str], reads: int
) -> None:
    for node in (0, 1):
        write_log(hosts, node, 30)
    follow_past_death(hosts, "read_logs", Choice(tail=2), after=reads - 1)
    shown = [line.partition(" | ")[2] for line in capsys.readouterr().out.splitlines()]
    assert shown == [f"line {number} of node {node}" for node in (0, 1) for number in (28, 29)]


def test_logs_go_on_while_a_host_is_silent(
    hosts: Watched, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for node in (0, 1):
        write_log(hosts, node, 1)
    shown = ""

    def between(seconds: float) -> None:
        nonlocal shown
        shown += capsys.readouterr().out
        time.sleep(0.01)
        hosts.go_silent("h1")
        write_log(hosts, 0, 10 * (1 + ("h1" in hosts.failures)))
        if "line 19 of node 0\n" in shown:
            raise Enough

    monkeypatch.setattr(logs_view, "pause", between)
    with pytest.raises(Enough):
        show_logs(hosts, Choice(), Form(follow=True))
    assert "line 0 of node 1\n" in shown
