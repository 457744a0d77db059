"""What launchers tell people where nobody watches: each thing once, or twice where one was killed, whoever is there."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from jobctl.jobspec.launcher.peers.lease import UNSUPERVISED
from jobctl.jobspec.launcher.peers.messages import PeerMessage
from jobctl.jobspec.launcher.telling.notification import Notification
from jobctl.jobspec.launcher.telling.storm import MINUTE, MOST_A_MINUTE
from jobctl.jobspec.launcher.telling.telling import (
    LASTING,
    LONGEST_RETRY,
    TAKES_OVER,
    Telling,
    Webhook,
    WebhookLine,
    mentioned,
    readable,
    told_of,
)
from jobctl.jobspec.launcher.telling.webhook import DeliveryResult

ALL = frozenset({"failed", "recovered", "hang", "waiting", "succeeded"})
HOOK = Webhook("webhook HOOK (slack)", ALL, "https://hooks.example.com/very-secret", "slack")
TAKEN, AWAY = DeliveryResult(answer="it answered 200 OK"), DeliveryResult("Connection refused")
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
    hook: Webhook = field(default_factory=lambda: HOOK)
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

    def told_on(self, number: int) -> set[str]:
        """Return the marks that a node keeps of what was told."""
        return {str(one["mark"]) for one in self.events[number] if one["event"] == "told"}


class Node:
    """One launcher, as HostTeller has it."""

    def __init__(self, job: Job, number: int) -> None:
        self.job, self.number, self.began = job, number, job.now
        self.telling = Telling(number, job.since.get(number))
        self.line, self.failed, self.dies, self.known = WebhookLine(), False, False, -1

    def hear(self, other: Node) -> None:
        failed = ("signal", 1.0) if other.failed else None
        told = mentioned(other.telling.told, int(self.job.now))
        self.telling.hear(PeerMessage("g1", other.number, tick="t", failed=failed, told=told), self.job.now)
        self.write(told)

    def write(self, told: list[list[str]]) -> None:
        for mark, what, channel in told:
            if mark not in self.telling.done:
                self.telling.done.add(mark)
                kept = event(self.job.now, "told", 1, mark=mark, what=what, channel=channel)
                self.job.events[self.number].append(kept)

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
        message = self.telling.next_of(job.hook, self.line, self.failed, now, WALL + now)
        if message is None:
            return
        if job.takes:
            job.got.append(message)
        if self.dies:
            self.dies = False
            job.down.add(self.number)
        elif self.line.note(message, TAKEN if job.takes else AWAY, now):
            self.write(told_of(message, job.hook.key))


def test_the_first_launcher_tells_each_thing_once() -> None:
    job = Job()
    job.passes(5.0)
    job.happens(failure(106.0, 1, "hang"), begun(107.0, 2))
    job.passes(5.0)
    assert job.told == ["hang", "recovered"]
    text = "node 1: rank 1 was killed by SIGKILL; the launchers decided. It runs again after 1 s, in generation 2."
    assert job.got[1].text == text
    job.passes(3 * TAKES_OVER)
    assert job.told == ["hang", "recovered"]
    assert all(len(job.told_on(number)) == 2 for number in job.launchers)  # whichever host the next supervisor reads


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
    assert message.text == "a launcher waits for node 2, which is not heard"
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
            "job failed: node 1: it is a bug. Before that: node 1: rank 1 was killed by SIGKILL; the launchers decided",
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


def storm(job: Job, failures: int) -> None:
    for number in range(failures):
        job.happens(failure(job.now, number + 1), begun(job.now, number + 2))


def test_a_storm_becomes_one_summary_and_another_launcher_does_not_tell_what_waits_for_it() -> None:
    job = Job()
    job.passes(5.0)
    storm(job, MOST_A_MINUTE + 40)
    job.passes(MINUTE - 1)
    assert job.told == ["recovered"] * MOST_A_MINUTE
    job.passes(MINUTE / 2)
    summary = job.got[MOST_A_MINUTE]
    assert (job.told[MOST_A_MINUTE:], len(summary.covers)) == (["summary"], 40)
    job.passes(3 * MINUTE)
    assert len(job.got) == MOST_A_MINUTE + 1
    assert [len(job.told_on(number)) for number in job.launchers] == [MOST_A_MINUTE + 40] * 3
    job.happens(failure(job.now, 100), begun(job.now, 101))
    job.passes(5.0)
    assert job.told[MOST_A_MINUTE + 1 :] == ["recovered"]


def test_programs_take_more_than_people() -> None:
    job = Job(hook=Webhook("webhook CHAT (json)", ALL, HOOK.url, "json"))
    job.passes(5.0)
    storm(job, MOST_A_MINUTE + 5)
    job.passes(MINUTE)
    assert job.told == ["recovered"] * (MOST_A_MINUTE + 5)


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
