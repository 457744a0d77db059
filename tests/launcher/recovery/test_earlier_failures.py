"""Orders tell of the last failures of launchers, and count those before: the budget is exact, and an order stays small."""

from __future__ import annotations

import json
import random

import pytest

from jobctl.jobspec.launcher.failure import NodeFailure
from jobctl.jobspec.launcher.order.autonomy_terms import FAILURES_TOLD, TIMES_TOLD, AutonomyTerms
from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.order.order_news import OrderNews
from jobctl.jobspec.launcher.records import changed
from jobctl.jobspec.launcher.recovery.autonomy import FailedNode
from jobctl.jobspec.launcher.system.files import TAIL_ALONE, TAIL_CHARACTERS

from .failed_nodes import failed, order

MANY = 2000  # failures
ETCD = 1.5e6  # bytes of a request that etcd takes by default
DATAGRAM = 65507  # bytes


def failure(number: int, at: float) -> NodeFailure:
    """A failure as long as a launcher writes one."""
    of: FailedNode = failed(tail=["x" * TAIL_CHARACTERS] * TAIL_ALONE)
    return changed(of.failure, generation=number, at=at, host="a-host-with-a-name-of-some-length.example.org")


def after(times: list[float], **terms: object) -> Order:
    """The order after a failure at each of these times."""
    made = order(**terms)
    for number, at in enumerate(times, 2):
        assert made.autonomy is not None
        made = changed(made, number=number + 1, autonomy=made.autonomy.with_failure(failure(number, at)))
    return made


def terms_of(made: Order) -> AutonomyTerms:
    assert made.autonomy is not None
    return made.autonomy


def sent(made: Order) -> str:
    return json.dumps(made.news().to_json())


@pytest.mark.parametrize("window", [None, 1e9])
def test_an_order_stays_small_and_the_budget_exact(window: float | None) -> None:
    made = after([1e9 + 1.234567 * number for number in range(MANY)], restarts=MANY + 5, window=window)
    assert terms_of(made).restarts_left(1e9 + 2 * MANY) == 5
    assert len(json.dumps(made.to_json())) < ETCD / 10
    assert len(sent(made)) < DATAGRAM
    read = Order.from_json(json.loads(json.dumps(made.to_json())))
    assert (read, terms_of(read).restarts_left(1e9 + 2 * MANY)) == (made, 5)


def test_the_last_failures_are_told() -> None:
    """One more than these: it is counted, and everything else about it is forgotten."""
    made = after([float(number) for number in range(FAILURES_TOLD + 1)])
    terms = terms_of(made)
    assert [one.generation for one in terms.failures] == list(range(3, FAILURES_TOLD + 3))
    assert terms.earlier is not None
    assert (terms.earlier.first, terms.earlier.count, list(terms.earlier.at)) == (2, 1, [])
    assert terms_of(after([1.0] * FAILURES_TOLD)).earlier is None


@pytest.mark.parametrize("window", [60.0, 2000.0, 6000.0])
def test_within_a_window_the_budget_is_as_if_all_were_told(window: float) -> None:
    chance, times = random.Random(window), [1000.0]
    for _ in range(300):
        times.append(times[-1] + chance.choice((1.0, 5.0, 40.0)))
        left = terms_of(after(times[-1:])).restarts  # what `order` gives
    made, now = after(times, window=window), times[-1]
    for later in (0.0, 1.0, window / 2, window - 1.0, window + 1.0):
        counting = sum(1 for at in times if at >= now + later - window)
        assert terms_of(made).restarts_left(now + later) == left - counting


def test_more_times_than_there_is_room_for_count_for_good() -> None:
    """The budget may end too soon then; it never fails to end."""
    made = after([1e6] * (TIMES_TOLD + FAILURES_TOLD + 7), restarts=TIMES_TOLD, window=60.0)
    terms = terms_of(made)
    assert terms.earlier is not None
    assert (terms.earlier.count, len(terms.earlier.at)) == (7, TIMES_TOLD)
    assert terms.restarts_left(1e6 + 61.0) == TIMES_TOLD - 7


def test_another_launcher_learns_what_counts() -> None:
    made = after([float(number) for number in range(70)], restarts=80)
    known = order(restarts=80).with_news(OrderNews.from_json(json.loads(sent(made))))
    assert (terms_of(known).restarts_left(99.0), len(terms_of(known).failures)) == (10, FAILURES_TOLD)


def test_an_earlier_version_tells_of_all_and_counts_none() -> None:
    """In its orders, not to others."""
    all_told = [failure(number, 1.0).to_json() for number in range(2, 72)]
    made = order(*all_told, restarts=80)
    assert (terms_of(made).restarts_left(99.0), terms_of(made).earlier) == (10, None)
    known = order(restarts=80).with_news(OrderNews.from_json(json.loads(sent(made))))
    assert terms_of(known).restarts_left(99.0) == 10
    short = {**made.news().to_json(), "failures": all_told[-FAILURES_TOLD:]}
    del short["earlier"]
    assert terms_of(order(restarts=80).with_news(OrderNews.from_json(short))).restarts_left(99.0) == 30
