"""What a campaign of fitness checks plays, and how it counts. It needs no hosts."""

from __future__ import annotations

import collections
import random

from tests.fleet.check.fitness_campaign import Tally, schedule
from tests.fleet.check.unfit import FAULTS

HOSTS = [f"h{number}" for number in range(1, 9)]


def test_each_fault_is_played_as_often_as_asked_for() -> None:
    rounds = schedule(random.Random(1), HOSTS, faults=20, healthy=50)
    assert collections.Counter(fault.name for bad in rounds for fault in bad.values()) == {
        fault.name: 20 for fault in FAULTS
    }
    assert sum(not bad for bad in rounds) == 50
    assert {len({fault.name for fault in bad.values()}) == len(bad) for bad in rounds} == {True}
    assert rounds == schedule(random.Random(1), HOSTS, faults=20, healthy=50)
    assert rounds != schedule(random.Random(2), HOSTS, faults=20, healthy=50)


def test_of_few_hosts_one_has_a_slow_link_at_most() -> None:
    """With two of four, no pair of the first round may be a healthy one."""
    for bad in schedule(random.Random(1), HOSTS[:4], faults=20, healthy=0):
        assert sum(fault.check == "link" for fault in bad.values()) <= 1
        assert len(bad) <= 2


def test_a_check_that_names_another_fault_is_wrong() -> None:
    tally = Tally()
    tally.add(True, 3.0)
    tally.add(False, 5.0)
    assert (tally.right, tally.wrong, tally.seconds) == (1, 1, [3.0, 5.0])
