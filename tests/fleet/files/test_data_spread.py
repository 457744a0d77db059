"""Data that hosts hand on to each other: what leaves this machine for it, and a host that is cut off in the middle."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.host import Host
from tests.fleet.jobs import SPEC, Jobs
from tests.fleet.sent import count, have_ended
from tests.tools.waiting import eventually

SIZE = 40_000_000
MORE = 1.02  # times the bytes that are missing may leave this machine


@pytest.fixture
def jobs(tmp_path: Path, hosts_of: Callable[[int], Fleet]) -> Iterator[Jobs]:
    """A job of three hosts with data of this machine, and hosts that have all but the data."""
    fleet = hosts_of(3)
    spec = SPEC.replace("nodes: 2", "nodes: 3")
    made = Jobs(tmp_path, fleet, spec)
    made.ok("prepare", *made.where, "--skip-check")
    data = tmp_path / "pictures"
    data.mkdir()
    (data / "big").write_bytes(os.urandom(SIZE))
    for number in range(50):
        (data / f"small{number}").write_bytes(os.urandom(1000))
    made.spec(f"{spec}data: ['{data}:/data']\n")
    yield made
    for host in fleet.hosts:
        host.plug_cable()
        host.slow_link(None)
    assert made.run("data", "remove", "--yes", *made.where).returncode == 0
    assert made.run("down", *made.where).returncode == 0


def whole(host: Host) -> list[Path]:
    return [path for path in host.home.glob(".jobctl/*/.data/*/*/big") if path.parent.name != "incomplete"]


def begun(host: Host) -> int:
    return sum(path.stat().st_size for path in host.home.glob(".jobctl/*/.data/*/incomplete/big"))


def sent_for(jobs: Jobs) -> int:
    """Prepare the job; return how many bytes have left this machine."""
    before = count(jobs.fleet.bridge, "tx")
    jobs.ok("prepare", *jobs.where, "--skip-check")
    return count(jobs.fleet.bridge, "tx") - before


def test_data_leaves_this_machine_once(jobs: Jobs) -> None:
    """A changed file too. Of a version that hosts have, nothing travels."""
    first = sent_for(jobs)
    nothing = sent_for(jobs)
    data = jobs.directory / "pictures"
    (data / "big").write_bytes(os.urandom(SIZE))
    changed = sent_for(jobs)
    print(f"sent: {first}, {changed}; for nothing: {nothing}")
    assert [len(whole(host)) for host in jobs.fleet.hosts] == [2, 2, 2]
    have_ended(jobs)
    assert max(first, changed) - nothing < MORE * (SIZE + 50_000), nothing


def test_a_host_that_is_cut_off_gets_the_rest_of_the_data_from_another_host(jobs: Jobs) -> None:
    second, third = jobs.fleet[1], jobs.fleet[2]
    second.slow_link("16mbit")  # who looks on may be slow
    prepare = jobs.start("prepare", *jobs.where, "--skip-check")
    eventually(lambda: begun(third) > SIZE // 8)
    third.pull_cable()
    second.slow_link(None)
    code = prepare.wait(400)
    assert (code, [len(whole(host)) for host in jobs.fleet.hosts]) == (4, [1, 1, 0]), prepare.printed()
    assert "h3: it has stopped to answer" in prepare.printed()[1]
    third.plug_cable()
    part, arrived = begun(third), count(third.cable, "tx")
    assert part > SIZE // 8
    assert sent_for(jobs) < 0.1 * SIZE
    assert count(third.cable, "tx") - arrived < 1.1 * SIZE - part  # it goes on where it was
    assert [len(whole(host)) for host in jobs.fleet.hosts] == [1, 1, 1]
    assert [begun(host) for host in jobs.fleet.hosts] == [0, 0, 0]
