"""What launchers tell people where nobody watches: each thing once, or twice where one was killed, whoever is there."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from jobctl.jobspec.launcher.lease import UNSUPERVISED
from jobctl.jobspec.launcher.notification import Notification, mark_of
from jobctl.jobspec.launcher.peer_messages import PeerMessage
from jobctl.jobspec.launcher.telling import (
    LASTING,
    LONGEST_RETRY,
    MOST_A_MINUTE,
    TAKES_OVER,
    Telling,
    Webhook,
    WebhookLine,
    mentioned,
    readable,
)
from jobctl.jobspec.launcher.webhook import WebhookAnswer

ALL = frozenset({"failed", "recovered", "hang", "waiting", "succeeded"})
HOOK = Webhook("webhook HOOK (json)", ALL, "https://hooks.example.com/very-secret", "json")
TAKEN, AWAY = WebhookAnswer(answer="it answered 200 OK"), WebhookAnswer("Connection refused")
WALL = 1_000_000.0  # the time of day at 0 by `boot_time`
BEGAN = 5.0


def event(at: float, kind: str, generation: int, /, **details: Any) -> dict[str, Any]:
    return {"event": kind, "time": WALL + at, "began": BEGAN, "generation": generation, **details}


def failure(at: float, generation: int, kind: str = "signal") -> dict[str, Any]:
    return event(at, "failure", generation, node=1, kind=kind, reason="rank 1 was killed by SIGKILL")


def begun(at: float, generation: int) -> dict[str, Any]:
    return event(at, "generation-begun", generation, standby=False, cold_because="none here")


def waits(at: float, generation: int) -> dict[str, Any]:
    reason = "waits for node 2, which is not heard"
    return event(at, "waiting", generation, reason=reason, nodes=[2], lasting=True)


@dataclass
class Job:
    """Launchers that hear each other, a webhook, and the time that they share. Nobody watches since `alone`."""

    nodes: int = 3
    now: float = 100.0
    alone: float = 100.0
    takes: bool = True
    got: list[Notification] = field(default_factory=list)
    launchers: dict[int, Node] = field(default_factory=dict)
    down: set[int] = field(default_factory=set)
    events: dict[int, list[dict[str, Any]]] = field(default_factory=dict)  # on disk
    since: dict[int, float | None] = field(default_factory=dict)  # likewise

    def __post_init__(self) -> None:
        for number in range(self.nodes):
            self.events[number] = []
            self.start(number)

    def start(self, number: int) -> None:
        self.down.discard(number)
        self.launchers[number] = Node(self, number)

    def happens(self, *told: dict[str, Any], on: tuple[int, ...] | None = None) -> None:
        for number in range(self.nodes) if on is None else on:
            self.events[number] += [dict(one) for one in told]

    def passes(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += 1.0
            there = [node for number, node in self.launchers.items() if number not in self.down]
            for node in there:
                for other in there:
                    if other is not node:
                        other.hear(node)
            for node in there:
                if node.number not in self.down:
                    node.turn()

    @property
    def told(self) -> list[str]:
        return [message.event for message in self.got]


class Node:
    """One launcher, as HostTeller has it."""

    def __init__(self, job: Job, number: int) -> None:
        self.job, self.number, self.began = job, number, job.now
        self.telling = Telling(number, job.since.get(number))
        self.line, self.failed, self.dies, self.known = WebhookLine(), False, False, -1

    def hear(self, other: Node) -> None:
        failed = ("signal", 1.0) if other.failed else None
        told = mentioned(self.job.events[other.number])
        self.telling.hear(PeerMessage("g1", other.number, tick="t", failed=failed, told=told), self.job.now)
        for mark, what, channel in told:
            self.write(mark, what, channel)

    def write(self, mark: str, what: str, channel: str) -> None:
        if mark not in self.telling.done:
            self.telling.done.add(mark)
            self.job.events[self.number].append(event(self.job.now, "told", 1, mark=mark, what=what, channel=channel))

    def turn(self) -> None:
        job, now = self.job, self.job.now
        watched = now < job.alone
        heard = now if watched else job.alone if job.alone > self.began else None
        supervised = watched or now - (self.began if heard is None else heard) <= UNSUPERVISED
        quiet = self.telling.watched(heard, supervised, self.began, now, WALL + now)
        job.since[self.number] = self.telling.since
        if quiet:
            return
        if self.known != len(job.events[self.number]):
            self.known = len(job.events[self.number])
            self.telling.read("demo", "demo-1", job.events[self.number], now)
        message = self.telling.next_of(HOOK, self.line, self.failed, now, WALL + now)
        if message is None:
            return
        if job.takes:
            job.got.append(message)
        if self.dies:
            self.dies = False
            job.down.add(self.number)
        elif self.line.note(message, TAKEN if job.takes else AWAY, now):
            self.write(mark_of(message.id, HOOK.key), message.event, HOOK.key)


def test_the_first_launcher_tells_each_thing_once() -> None:
    job = Job()
    job.passes(5.0)
    job.happens(failure(106.0, 1, "hang"), begun(107.0, 2))
    job.passes(5.0)
    assert job.told == ["hang", "recovered"]
    text = "node 1: rank 1 was killed by SIGKILL; no supervisor was there. It runs again after 1 s, in generation 2."
    assert job.got[1].text == text
    job.passes(3 * TAKES_OVER)
    assert job.told == ["hang", "recovered"]
    assert all(len(mentioned(told)) == 2 for told in job.events.values())  # whichever host the next supervisor reads


def test_nobody_tells_beside_a_supervisor_or_what_happened_while_one_watched() -> None:
    job = Job(alone=150.0)
    job.happens(failure(106.0, 1), begun(107.0, 2))
    job.passes(49.0)
    assert job.told == []
    job.passes(100.0)  # it is gone: what it has seen, the next one tells
    assert job.told == []
    job.happens(failure(job.now, 2), begun(job.now + 1, 3))
    job.passes(3.0)
    assert [(one.event, one.generation) for one in job.got] == [("recovered", 3)]


def test_a_supervisor_that_comes_back_is_left_to_tell() -> None:
    job = Job()
    job.passes(5.0)
    job.alone = 1000.0
    job.happens(failure(106.0, 1), begun(107.0, 2))
    job.passes(2 * TAKES_OVER)
    assert job.told == []
    assert set(job.since.values()) == {None}


def test_another_launcher_tells_what_the_first_one_cannot() -> None:
    job = Job()
    job.passes(5.0)
    job.launchers[0].line.due = 1e9  # its host has no way to the webhook
    job.happens(failure(106.0, 1), begun(107.0, 2))
    job.passes(TAKES_OVER - 1)
    assert job.told == []
    job.passes(5.0)
    assert job.told == ["recovered"]
    job.launchers[0].line.due = 0.0
    job.passes(TAKES_OVER)
    assert job.told == ["recovered"]


def test_the_next_one_is_the_first_once_the_first_is_gone() -> None:
    job = Job()
    job.passes(5.0)
    job.down.add(0)
    job.happens(failure(106.0, 1), begun(107.0, 2))
    job.passes(4.0)
    assert job.told == ["recovered"]


def test_a_launcher_that_was_killed_after_sending_repeats_one_message() -> None:
    job = Job()
    job.passes(5.0)
    job.launchers[0].dies = True
    job.happens(failure(106.0, 1), begun(107.0, 2))
    job.passes(10.0)
    job.start(0)
    job.passes(3 * TAKES_OVER)
    assert job.told == ["recovered", "recovered"]
    assert job.got[0] == job.got[1]


def test_a_launcher_that_was_started_again_remembers_what_it_has_told() -> None:
    job = Job(nodes=1)
    job.passes(5.0)
    job.happens(failure(106.0, 1), begun(107.0, 2))
    job.passes(5.0)
    job.start(0)
    job.passes(2 * TAKES_OVER)
    assert job.told == ["recovered"]


def test_a_short_wait_wakes_nobody_and_a_long_one_is_told_by_one_of_those_that_wait() -> None:
    job = Job()
    job.passes(5.0)
    for number in (1, 2):
        job.launchers[number].failed = True
    job.happens(waits(106.0, 1), on=(1, 2))
    job.passes(LASTING - 10)
    assert job.told == []
    job.passes(3 * TAKES_OVER)
    (message,) = job.got
    assert (message.event, message.nodes) == ("waiting", (2,))
    assert message.text == "no supervisor is there: waits for node 2, which is not heard"
    job = Job()
    job.passes(5.0)
    job.happens(waits(106.0, 1), begun(130.0, 2))  # it was back before anybody was told: there was no trouble
    job.passes(3 * LASTING)
    assert "waiting" not in job.told


def test_how_the_job_ended_is_told() -> None:
    job = Job()
    job.passes(5.0)
    job.happens(failure(106.0, 1), event(107.0, "failed", 1, reason="node 1: it is a bug"))
    job.passes(5.0)
    assert [(one.event, one.text) for one in job.got] == [
        (
            "failed",
            "job failed: node 1: it is a bug. Before that: node 1: rank 1 was killed by SIGKILL; no supervisor was there",
        )
    ]
    job = Job()
    job.passes(5.0)
    job.happens(event(106.0, "succeeded", 1, reason="all nodes ended with code 0"), on=(0,))
    job.passes(5.0)
    assert [(one.event, one.text) for one in job.got] == [("succeeded", "job succeeded: all nodes ended with code 0")]


def test_a_webhook_that_is_away_is_tried_after_pauses_that_grow() -> None:
    job = Job(nodes=1)
    job.takes = False
    line, tried = job.launchers[0].line, 0
    job.passes(5.0)
    job.happens(failure(106.0, 1), begun(107.0, 2))
    for _ in range(600):
        before = line.due
        job.passes(1.0)
        tried += line.due != before
    assert tried == 10  # after 1, 2, 4, … 256 seconds
    assert line.pause == LONGEST_RETRY
    job.takes = True
    job.passes(LONGEST_RETRY)
    assert job.told == ["recovered"]


def test_a_message_that_is_refused_delays_no_other_and_a_storm_waits_for_its_minute() -> None:
    line = WebhookLine()
    calm = [Notification(f"id{n}", "demo", "demo-1", "recovered", WALL, 1, "text") for n in range(12)]
    assert not line.note(calm[0], WebhookAnswer("it answered 400", refused=True), 100.0)
    assert [line.is_free(one, 100.0) for one in calm[:2]] == [False, True]
    assert line.is_free(calm[0], 101.0)
    line.note(calm[1], WebhookAnswer("it answered 429", wait=40.0), 100.0)
    assert line.due == 140.0
    for one in calm[:MOST_A_MINUTE]:
        line.note(one, TAKEN, 150.0)
    urgent = Notification("id", "demo", "demo-1", "failed", WALL, 1, "text")
    assert [line.is_free(one, 151.0) for one in (calm[-1], urgent)] == [False, True]
    assert line.is_free(calm[-1], 211.0)


@pytest.mark.parametrize("seed", range(30))
def test_whoever_is_killed_nothing_is_lost_and_little_repeated(seed: int) -> None:
    """Launchers die, also after the webhook has taken a message, and it is away at times."""
    chance, job = random.Random(seed), Job()
    job.passes(5.0)
    for generation in range(1, 9):
        job.takes = chance.random() < 0.8
        victim = chance.randrange(3)
        for number, launcher in job.launchers.items():
            launcher.dies = number == victim and chance.random() < 0.5
        job.happens(failure(job.now, generation), begun(job.now + 1, generation + 1))
        job.passes(chance.uniform(5.0, 40.0))
        for number in list(job.down):
            job.start(number)
    job.takes = True
    for launcher in job.launchers.values():
        launcher.dies = False
    job.passes(3 * LONGEST_RETRY)
    times = Counter(one.id for one in job.got)
    assert sorted({one.generation for one in job.got}) == list(range(2, 10))
    assert len(times) == 8
    assert max(times.values()) <= 3  # one was killed, and another one tried as well since the webhook was away


def test_what_this_version_does_not_know_is_left_out() -> None:
    other = event(106.0, "of-the-future", 1)
    assert [one["id"] for one in readable([failure(106.0, 1), other, begun(107.0, 2)])] == [
        "5.0 failure 1",
        "5.0 generation-begun 2",
    ]


def test_clocks_that_differ_hide_no_recovery() -> None:
    """By the clock of a host, its node may have failed before the generation began in which it did."""
    job = Job()
    job.passes(5.0)
    job.happens(failure(106.0, 1), begun(109.0, 2), failure(108.0, 2), begun(111.0, 3))
    job.passes(5.0)
    assert [(one.event, one.text[-13:]) for one in job.got] == [
        ("recovered", "generation 2."),
        ("recovered", "generation 3."),
    ]
