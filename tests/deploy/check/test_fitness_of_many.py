"""A whole check of many hosts, as it would be of as many machines: what it asks of each of them, and whom it names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tools.playedhosts import PlayedCheck

SHORT: dict[str, Any] = {"compute": 0.001, "memory": 0.001, "bytes": 1 << 12, "link": 0.001}


@pytest.mark.parametrize("count", [4, 8, 64])
def test_a_host_is_asked_as_much_whatever_the_number_of_hosts(count: int, tmp_path: Path) -> None:
    """Two rounds of pairs: in each of them a host sends once and receives once. None but the bad ones are asked again."""
    check = PlayedCheck(count, tmp_path, cores={"p1": 0.8}, links={"p2": 0.5})
    check.effort = replace(check.effort, **SHORT)
    found = check.run()
    assert {(one.host, one.check, one.code) for one in found if one.verdict == "error"} == {
        ("p1", "compute", "slow-host"),
        ("p2", "link", "slow-link"),
    }
    rounds, again = check.effort.rounds, check.effort.again
    assert {host: check.asked[host, "compute"] for host in check.sessions} == {
        host: rounds + (again if host == "p1" else 0) for host in check.sessions
    }
    healthy = [host for host in check.sessions if host not in ("p2", "p3")]  # p3 is the first partner of p2
    partners = {host for host in healthy if check.asked[host, "send"] > 1}
    assert all(check.asked[host, what] == 1 for what in ("send", "receive") for host in healthy if host not in partners)
    assert len(partners) <= 2  # those that prove p2 and p3 in the second round


FAULTS = {("p1", "slow-host"), ("p2", "slow-link"), ("p5", "slow-link"), ("p6", "slow-storage")}


@pytest.mark.parametrize("bad", [False, True])
def test_hosts_of_one_machine_wait_for_each_other_no_longer_than_it_takes(bad: bool, tmp_path: Path) -> None:
    """Each is measured once. What is bad for certain after another look or two is not looked at again."""
    check = PlayedCheck(8, tmp_path, cores={"p1": 0.8} if bad else {}, links={"p2": 0.5} if bad else {})
    check.together = True
    if bad:
        check.losses, check.disks = {"p5": 0.01}, {"p6": 0.05}
    check.effort = replace(check.effort, **SHORT)
    found = check.run()
    assert {(one.host, one.code) for one in found if one.verdict == "error"} == (FAULTS if bad else set())
    healthy = [host for host in check.sessions if not bad or host not in ("p1", "p2", "p5", "p6")]
    assert {check.asked[host, "compute"] for host in healthy} == {1}
    assert {check.asked[host, "memory"] for host in healthy} == {1}
    stored = sorted(check.asked[host, "storage"] for host in healthy)
    assert stored == ([1] * 3 + [4] if bad else [1] * 8)  # one of them is the measure of the slow disk
    sent = sum(check.asked[host, "send"] for host in check.sessions)
    if bad:
        assert [check.asked["p1", what] for what in ("compute", "memory")] == [3, 3]
        assert check.asked["p6", "storage"] == 4
    # Four pairs; a proven partner for each of the four hosts of bad pairs; each bad pair twice more. In both directions.
    assert sent == (2 * (4 + 4 + 2 * 2) if bad else 2 * 4)
