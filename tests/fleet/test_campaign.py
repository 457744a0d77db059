"""A short campaign of random faults, see campaign.py. JOBCTL_TEST_FAULTS and JOBCTL_TEST_SEED say how many, and which."""

from __future__ import annotations

import os
import sysconfig

import pytest

from .campaign import campaign

FAULTS, SEED = int(os.environ.get("JOBCTL_TEST_FAULTS", "6")), int(os.environ.get("JOBCTL_TEST_SEED", "1"))


@pytest.mark.parametrize("etcd", [False, True], ids=["alone", "etcd"])
@pytest.mark.parametrize("elastic", [False, True], ids=["fixed", "elastic"])
def test_whatever_happens_it_trains_on(can_have_fleet: None, elastic: bool, etcd: bool) -> None:
    one = campaign(SEED, FAULTS, elastic=elastic, etcd=etcd, framework="light")
    assert sum(one.faults.values()) == FAULTS


@pytest.mark.parametrize("framework", ["torch", "mindspore", "torch-ps"])
def test_so_do_jobs_of_frameworks(can_have_fleet: None, framework: str) -> None:
    """With one fault unless more are asked for: a fault costs all processes a start."""
    pytest.importorskip("torch", reason="the extra `examples` is not installed")
    if sysconfig.get_python_version() != "3.11":
        pytest.skip("the image's Python is 3.11, and cannot import what is installed for another")
    count = int(os.environ.get("JOBCTL_TEST_FAULTS", "1"))
    assert sum(campaign(SEED, count, framework=framework).faults.values()) == count
