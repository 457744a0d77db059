"""A short campaign of random faults, see campaign.py. JOBCTL_TEST_FAULTS and JOBCTL_TEST_SEED say how many, and which."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.fleet.campaign.campaign import JobKind, campaign
from tests.fleet.fleet import Fleet

FAULTS, SEED = int(os.environ.get("JOBCTL_TEST_FAULTS", "3")), int(os.environ.get("JOBCTL_TEST_SEED", "1"))


OTHERS = pytest.mark.release("tests/fleet/campaign/test_campaign.py::test_whatever_happens_it_trains_on")


@pytest.mark.parametrize(
    ("elastic", "etcd"),
    [
        pytest.param(False, True, id="fixed-etcd"),
        pytest.param(True, False, id="elastic-leases"),
        pytest.param(False, False, id="fixed-leases", marks=OTHERS),
        pytest.param(True, True, id="elastic-etcd", marks=OTHERS),
    ],
)
def test_whatever_happens_it_trains_on(hosts_of: Callable[[int], Fleet], elastic: bool, etcd: bool) -> None:
    one = campaign(SEED, FAULTS, JobKind("light", elastic, etcd, notify=True), hosts_of=hosts_of)
    assert sum(one.faults.values()) == FAULTS


def test_it_trains_on_while_the_controller_is_off(hosts_of: Callable[[int], Fleet]) -> None:
    """From the first minute until the job has ended."""
    one = campaign(SEED, FAULTS, JobKind("light", alone=True), hosts_of=hosts_of)
    assert sum(one.faults.values()) == FAULTS
