"""A short campaign of random faults, see campaign.py. JOBCTL_TEST_FAULTS and JOBCTL_TEST_SEED say how many, and which."""

from __future__ import annotations

import os

import pytest

from .campaign import campaign

FAULTS, SEED = int(os.environ.get("JOBCTL_TEST_FAULTS", "3")), int(os.environ.get("JOBCTL_TEST_SEED", "1"))


@pytest.mark.parametrize("etcd", [False, True], ids=["alone", "etcd"])
@pytest.mark.parametrize("elastic", [False, True], ids=["fixed", "elastic"])
def test_whatever_happens_it_trains_on(can_have_fleet: None, elastic: bool, etcd: bool) -> None:
    one = campaign(SEED, FAULTS, elastic=elastic, etcd=etcd, framework="light")
    assert sum(one.faults.values()) == FAULTS
