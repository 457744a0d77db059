"""Somebody who looks on sees each host at its own pace, although another one does not answer."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.model.usage import NodeUsage
from jobctl.jobspec.deploy.store import events
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.transport import live_fanout
from jobctl.jobspec.deploy.transport.live_fanout import LiveFanOut
from jobctl.jobspec.operations.inspect import metrics, top
from jobctl.jobspec.operations.inspect.metrics import MetricsSource
from jobctl.jobspec.operations.inspect.status import look_on
from jobctl.jobspec.operations.inspect.top import LoadWatch
from jobctl.options import Format
from jobctl.views import events as events_view
from jobctl.views import status as status_view
from jobctl.views.events import EventChoice, show_events
from jobctl.views.failure import Failed
from jobctl.views.status import watch_status
from tests.deploy.targets.watched import Enough, Watched, watched
from tests.tools.waiting import PATIENCE, PROMPT, promptly


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """Hosts that are waited for as long as it takes, until one goes silent."""
    with watched(tmp_path, monkeypatch) as made:
        yield made


def silence(hosts: Watched, is_it: Callable[[str], bool], shown: Callable[[], str]) -> Callable[[float], None]:
    """Return what is done between two looks: the second host goes silent, the first one trains on until that is seen."""
    rounds, deadline = 0, time.monotonic() + PROMPT

    def between(seconds: float) -> None:
        nonlocal rounds
        rounds += 1
        text = shown()
        assert time.monotonic() < deadline, text
        time.sleep(0.01)
        hosts.go_silent("h1")
        hosts.step(0, 1000 + rounds)
        if is_it(text):
            raise Enough

    return between


def test_status_watch(hosts: Watched, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[int] = []

    def is_it(text: str) -> bool:
        rows = [line.split() for line in text.splitlines()]
        first = next((row for row in rows if row[:3] == ["0", "trainer", "h0"]), None)
        if first is None or first[-3] == "-" or "h1: it does not answer; unreachable since " not in text:
            return False
        seen.append(int(first[-3]))
        return len(set(seen)) == 3  # the row of the other one goes on

    pause = silence(hosts, is_it, lambda: capsys.readouterr().out)
    monkeypatch.setattr(status_view, "pause", pause)
    for node in (0, 1):
        hosts.step(node, 5)
    with pytest.raises(Enough):
        watch_status(hosts, False, Format.text)
    assert seen == sorted(seen)


def test_top(hosts: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    for node in (0, 1):
        hosts.step(node, 5)
    watch = LoadWatch(hosts)
    monkeypatch.setattr(top, "pause", silence(hosts, lambda text: False, str))
    seen: set[int | None] = set()
    for load in watch.looks():
        by_host = {one.node.host: one.node for one in load.nodes}
        if not by_host["h1"].reachable:
            assert "unreachable since" in hosts.failures["h1"].message
            seen.add(by_host["h0"].progress)
        if len(seen) == 3:
            break


def test_metrics_that_are_served(hosts: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(tmp_path))
    (hosts.job.root / "job.json").write_text(json.dumps({"target": "ssh", "spec": None}))
    source = MetricsSource(["job"], live=True)
    now = 0.0
    source.clock = lambda: now
    look_on(hosts)
    source._jobs._handles["job"] = hosts.job.stamp(), hosts
    hosts.step(0, 5)
    assert " 5\n" in source.text()
    steps = itertools.count(2000)

    def goes_on() -> bool:
        """Say whether the first host's newest step is told, although the other one is known to be silent."""
        nonlocal now
        hosts.go_silent("h1", quiet=6.0)  # in which the first one answers: a job of which no host does is let go of
        now += 60.0
        hosts.step(0, step := next(steps))
        return f" {step}\n" in source.text() and "h1" in hosts.failures

    promptly(goes_on)


def test_who_looks_once_waits_for_slow_hosts(hosts: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A login takes longer than who looks on would wait: metrics that are printed, and `top --once`, have figures."""
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(tmp_path))
    for name in ("FIRST_ANSWER_TIMEOUT", "SILENCE_TIMEOUT"):
        monkeypatch.setattr(live_fanout, name, 0.0)
    monkeypatch.setattr(top, "pause", lambda seconds: None)
    (hosts.job.root / "job.json").write_text(json.dumps({"target": "ssh", "spec": None}))
    source = MetricsSource(["job"])
    source._jobs._handles["job"] = hosts.job.stamp(), hosts
    text = source.text()
    assert [f'jobctl_host_load{{host="{name}"}}' in text for name in ("h0", "h1")] == [True, True]
    for host_job in hosts.host_jobs.values():
        host_job.containers.usage = lambda container: NodeUsage(1.0, 2.0)  # type: ignore[method-assign]
    (load,) = LoadWatch(hosts, once=True).looks()
    assert [one.memory for one in load.nodes] == [2.0, 2.0]


def test_metrics_that_are_served_cost_a_question_to_each_host(
    hosts: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first look, no command is run. A story is not told at each look. What is down is let go of."""
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(tmp_path))
    (hosts.job.root / "job.json").write_text(json.dumps({"target": "ssh", "spec": None}))
    source = MetricsSource(None, live=True)
    source._jobs._handles["job"] = hosts.job.stamp(), hosts
    look_on(hosts)
    now, ran, told, closed = 0.0, list[str](), list[str](), list[str]()
    source.clock = source.steady = lambda: now

    def story(directory: JobDir) -> None:
        nonlocal now
        told.append(directory.name)
        now += 1.0  # so long it takes

    for name, transport in hosts.transports.items():
        run = transport.run
        monkeypatch.setattr(transport, "run", lambda *a, n=name, run=run, **how: (ran.append(n), run(*a, **how))[1])
        monkeypatch.setattr(transport, "close", lambda name=name: closed.append(name))
    monkeypatch.setattr(metrics, "story_of", story)
    for step in range(5):
        now += 60.0
        hosts.step(0, 1000 + step)
        assert f" {1000 + step}\n" in source.text()
        if step == 0:
            ran.clear()
    assert (ran, told, closed) == ([], ["job"], [])
    (hosts.job.root / "job.json").unlink()
    now += 60.0
    assert source.text() == "# EOF\n"
    promptly(lambda: sorted(closed) == ["h0", "h1"])
    source.close()


def test_events_that_are_known_here_do_not_wait_for_hosts(
    hosts: Watched, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    events.record(hosts.job.events, 1.0, "step", "known here")
    hosts.fleet.seen, printed = {}, list[str]()
    hosts.go_silent("h1")
    observe = hosts.fleet.observe

    def late() -> Observed:
        printed.append("")
        deadline = time.monotonic() + PROMPT  # in vain, if it came after what hosts tell
        while not ("known here" in printed[-1] and printed[-1].endswith("\n")) and time.monotonic() < deadline:
            printed[-1] += capsys.readouterr().out
            time.sleep(0.02)
        return observe()

    monkeypatch.setattr(hosts.fleet, "observe", late)
    monkeypatch.setattr(events_view, "GATHER_TIMEOUT", 0.0)
    show_events(hosts, EventChoice(), Format.text, follow=False)
    told = capsys.readouterr()
    assert (len(printed), told.out) == (1, "")
    assert told.err.startswith("warning: h1: it does not answer; unreachable since ")


def test_events_of_a_job_of_which_nobody_knows_anything(hosts: Watched) -> None:
    hosts.fleet.seen = {}
    hosts.job.events.unlink(missing_ok=True)
    hosts.go_silent(*hosts.transports)
    with pytest.raises(Failed) as failed:
        show_events(hosts, EventChoice(), Format.text, follow=False)
    assert failed.value.exit_code == 3


def test_a_host_that_is_silent_is_not_waited_for_again_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    over, asked = threading.Event(), list[str]()

    def ask(host: str) -> str:
        asked.append(host)
        if host == "b":
            over.wait()
        return host.upper()

    live = LiveFanOut(str)
    monkeypatch.setattr(live_fanout, "FIRST_ANSWER_TIMEOUT", PATIENCE)
    monkeypatch.setattr(live_fanout, "SILENCE_TIMEOUT", 0.1)
    first = live.on_each(["a", "b"], ask)
    assert first.done == {"a": "A"}
    assert first.failed["b"].message.startswith("b: it does not answer; unreachable since ")
    monkeypatch.setattr(live_fanout, "SILENCE_TIMEOUT", PROMPT)
    begun = time.monotonic()
    assert live.on_each(["a", "b"], ask).done == {"a": "A"}
    assert time.monotonic() - begun < PROMPT / 2
    assert asked.count("b") == 1  # not twice at a time
    over.set()
    while "b" not in live.on_each(["a", "b"], ask).done:
        pass


class Slow:
    """Hosts, of which `silent` ones answer only once the test is over."""

    def __init__(self, silent: Sequence[str] = ()) -> None:
        self.silent, self.over, self.lock = silent, threading.Event(), threading.Lock()
        self.asked, self.running, self.most = list[str](), 0, 0

    def ask(self, host: str) -> str:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.asked.append(host)
        if host in self.silent:
            self.over.wait()
        for _ in range(100):  # others go on
            os.sched_yield()
        with self.lock:
            self.running -= 1
        return host.upper()


def timeouts(monkeypatch: pytest.MonkeyPatch, *, slot: float, first: float, silence: float) -> None:
    """Have two hosts asked at a time, and be patient for so many seconds."""
    for name, value in {"SLOT": slot, "FIRST_ANSWER": first, "SILENCE": silence}.items():
        monkeypatch.setattr(live_fanout, f"{name}_TIMEOUT", value)
    monkeypatch.setattr(live_fanout, "MAX_PARALLEL", 2)


def test_many_hosts_that_are_silent_do_not_keep_others_from_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts(monkeypatch, slot=0.0, first=PROMPT, silence=0.0)
    hosts = Slow(["d1", "d2", "d3", "d4", "d5"])
    assert LiveFanOut(str).on_each([*hosts.silent, "a"], hosts.ask).done == {"a": "A"}
    hosts.over.set()


def test_hosts_that_answered_wait_for_none_that_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts(monkeypatch, slot=PATIENCE, first=PATIENCE, silence=PATIENCE)
    hosts, live = Slow(["d1", "d2", "d3"]), LiveFanOut(str, 0.0)
    assert live.on_each(["a", "b"], hosts.ask).done == {"a": "A", "b": "B"}
    timeouts(monkeypatch, slot=PATIENCE, first=0.0, silence=0.0)
    assert live.on_each(hosts.silent, hosts.ask).done == {}
    promptly(lambda: len(hosts.asked) == 4)  # two of them hold what slots there are
    timeouts(monkeypatch, slot=PATIENCE, first=PROMPT, silence=PROMPT)
    assert live.on_each(["a", "b"], hosts.ask).done == {"a": "A", "b": "B"}
    hosts.over.set()


def test_hosts_that_answer_are_asked_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """If all logged in at once, each login would take too long."""
    timeouts(monkeypatch, slot=PATIENCE, first=PATIENCE, silence=PATIENCE)
    hosts, names = Slow(), [f"h{number}" for number in range(40)]
    assert LiveFanOut(str).on_each(names, hosts.ask).done.keys() == set(names)
    assert hosts.most <= 2


def test_a_host_that_could_not_be_reached_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """To connect takes its time again: nobody waits for that, as long as others answer."""
    again = threading.Event()
    rounds = itertools.count()

    def ask(host: str) -> str:
        if host == "b":
            if next(rounds):
                again.wait()
            raise HostError(host, "no-route", "no route to its address")
        return host.upper()

    for name in ("FIRST_ANSWER_TIMEOUT", "SILENCE_TIMEOUT"):
        monkeypatch.setattr(live_fanout, name, PROMPT)
    live = LiveFanOut(str)
    begun = time.monotonic()
    for _ in range(3):
        outcome = live.on_each(["a", "b"], ask)
        assert (outcome.done, outcome.failed["b"].message[:16]) == ({"a": "A"}, "b: no route to i")
    assert time.monotonic() - begun < PROMPT / 2
    again.set()


def test_what_fails_is_told_with_the_time_since_when(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_ANSWER_TIMEOUT", "SILENCE_TIMEOUT"):
        monkeypatch.setattr(live_fanout, name, PATIENCE)
    answers = [
        HostError("a", "no-route", "no route to its address", "hint"),
        HostError("a", "docker-down", "no engine"),
    ]

    def ask(host: str) -> str:
        raise answers.pop(0)

    live = LiveFanOut(str)
    first, second = (live.on_each(["a"], ask).failed["a"] for _ in range(2))
    assert first.message.startswith("a: no route to its address; unreachable since ")
    assert (first.hint, second.message) == ("hint", "a: no engine")


def test_a_host_that_is_silent_since_another_day_is_told_with_the_date(monkeypatch: pytest.MonkeyPatch) -> None:
    since = time.time() - 3 * 86400
    monkeypatch.setattr(live_fanout, "time", SimpleNamespace(time=lambda: since, monotonic=time.monotonic))

    def ask(host: str) -> str:
        raise HostError(host, "no-route", "no route to its address", "hint")

    failed = LiveFanOut(str).on_each(["a"], ask).failed["a"]
    day = datetime.fromtimestamp(since)
    assert failed.message == f"a: no route to its address; unreachable since {day:%Y-%m-%d %H:%M:%S}"
