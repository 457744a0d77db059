"""When hosts are tried again that did not answer. Time is simulated, but for threads that wait."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from jobctl.jobspec.deploy.host import reconnect
from jobctl.jobspec.deploy.host.reconnect import MAX_RETRY_PAUSE, RetryPause, RetryPauses

CUT = 300.0  # seconds for which nobody is heard


def heard_after_a_cut(count: int) -> list[float]:
    """Return how long after a cut each of `count` hosts is heard again, if an attempt takes no time."""
    every = RetryPauses()
    hosts = [every.one() for _ in range(count)]
    due = dict.fromkeys(hosts, 0.0)
    heard: dict[RetryPause, float] = {}
    while due:
        host = min(due, key=lambda one: due[one])
        now = due.pop(host)
        if now < CUT:
            host.fail()
            due[host] = now + host.next()
            continue
        heard[host] = now - CUT
        host.hear()
        due |= {other: now for other in due if other.is_over}
    return [heard[host] for host in hosts]


@pytest.mark.parametrize(("count", "seconds"), [(1, 1.0), (3, 1.0), (12, 2.0), (64, 2.0)])
def test_after_a_cut_all_hosts_are_heard_at_once(count: int, seconds: float) -> None:
    random.seed(1)
    late = sorted(max(heard_after_a_cut(count)) for _ in range(20))
    assert late[18] <= seconds  # of twenty cuts


def test_a_host_that_is_silent_alone_is_tried_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", longest)
    every = RetryPauses()
    alone, _other = every.one(), every.one()
    alone.fail()
    assert [alone.next() for _ in range(6)] == [0.5, 1.0, 2.0, 4.0, MAX_RETRY_PAUSE, MAX_RETRY_PAUSE]
    alone.hear()
    assert alone.next() == 0.5


@pytest.mark.parametrize(("count", "seconds"), [(1, 1.0), (3, 1.0), (9, 3.0), (64, MAX_RETRY_PAUSE)])
def test_where_nobody_is_heard_hosts_are_tried_more_often(
    monkeypatch: pytest.MonkeyPatch, count: int, seconds: float
) -> None:
    monkeypatch.setattr(random, "uniform", longest)
    every = RetryPauses()
    hosts = [every.one() for _ in range(count)]
    for host in hosts:
        host.fail()
    assert [hosts[0].next() for _ in range(6)][-1] == seconds


def test_who_waits_to_try_a_host_does_so_when_another_is_heard_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnect, "FIRST_RETRY_PAUSE", 3600.0)
    monkeypatch.setattr(reconnect, "MAX_RETRY_PAUSE", 3600.0)
    every = RetryPauses()
    one, other, steady = every.one(), every.one(), every.one()
    for host in (one, other):
        host.fail()
    waiting = started(other.wait)
    steady.hear()  # it was heard all the time: that says nothing about others
    assert not other.is_over
    one.hear()
    waiting.join(30)
    assert (waiting.is_alive(), steady.is_over) == (False, False)


def longest(least: float, most: float) -> float:
    return most


def started(task: Callable[[], None]) -> threading.Thread:
    made = threading.Thread(target=task, daemon=True)
    made.start()
    return made
