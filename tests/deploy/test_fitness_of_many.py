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
