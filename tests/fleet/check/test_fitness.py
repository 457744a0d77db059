"""A fitness check of real hosts, some of which have a fault: it names them, and no other.

The hosts share this machine's cores, so they are measured in turn, and the numbers are what a core does for them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.check.unfit import HALF, SLOW, WRONG_SUM, Condition, device_of, mend, wire_packets, wrap_docker
from tests.fleet.fleet import Fleet
from tests.fleet.jobs import SPEC, Jobs


@pytest.fixture
def four_hosts(hosts_of: Callable[[int], Fleet]) -> Iterator[Fleet]:
    made = hosts_of(4)
    for host in made.hosts:
        wire_packets(host)
    yield made
    for host in made.hosts:
        mend(host, [other for other in made.hosts if other is not host])


def checked(jobs: Jobs, bad: Mapping[str, Condition]) -> tuple[set[tuple[str, str, str]], list[dict[str, Any]]]:
    """Make the hosts so, all others healthy, and check them; return who is accused of what, and all findings."""
    hosts = jobs.fleet.hosts
    for host in hosts:
        bad.get(host.name, Condition()).of(host, [other for other in hosts if other is not host], jobs.checkpoints)
    done = jobs.run("check", *jobs.where, "--target", "ssh", "--fitness", "-o", "json")
    findings = json.loads(done.stdout)["findings"]
    assert done.returncode == 3, done.stdout + done.stderr
    return {(one["host"], one["check"], one["code"]) for one in findings if one["verdict"] == "error"}, findings


def told(findings: list[dict[str, Any]]) -> str:
    """Return what was measured, a line for each: pytest shortens a list of findings."""
    return "".join(
        f"\n{one['host']} {one['check']}: {one['value']:g} {one['unit']} of {one['median']}: {one['code'] or 'ok'}"
        for one in findings
        if one["value"] is not None
    )


def test_hosts_with_a_fault_are_named_and_no_other(four_hosts: Fleet, tmp_path: Path) -> None:
    """One may use four fifths of the cores, the link of one has half the speed, and one adds wrongly."""
    jobs = Jobs(tmp_path, four_hosts, SPEC.replace("nodes: 2", "nodes: 4"))
    bad = {"h2": Condition(rate=HALF), "h3": Condition(share=0.8), "h4": Condition(adds=WRONG_SUM)}
    accused, findings = checked(jobs, bad)
    assert accused == {
        ("h2", "link", "slow-link"),
        ("h3", "compute", "slow-host"),
        ("h4", "collective", "wrong-result"),
    }, told(findings)
    (slow,) = (one for one in findings if one["code"] == "slow-host")
    assert 0.7 < slow["value"] / slow["median"] < 0.88, slow
    assert slow["unit"] == "Mround/s"
    assert {one["check"] for one in findings if one["host"] == "h1"} >= {"inventory", "compute", "memory", "storage"}
    assert jobs.containers() == [[], [], [], []]
    assert list(jobs.checkpoints.glob(".jobctl-fitness-*")) == []


def test_a_link_that_loses_packets_and_a_slow_disk_are_named(four_hosts: Fleet, tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, four_hosts, SPEC.replace("nodes: 2", "nodes: 4"))
    bad = {"h3": Condition(loss=1.0), "h4": Condition(disk=SLOW)}
    try:
        device_of(jobs.checkpoints)
    except OSError as error:
        problem = f"the disk of {jobs.checkpoints} cannot be bounded: {error}"
        (pytest.fail if os.environ.get("JOBCTL_FLEET") == "required" else pytest.skip)(problem)
    accused, findings = checked(jobs, bad)
    assert accused == {("h3", "link", "slow-link"), ("h4", "storage", "slow-storage")}, told(findings)


def test_up_goes_on_with_a_spare_in_the_place_of_a_slow_host(four_hosts: Fleet, tmp_path: Path) -> None:
    """Of two hosts, one may use half of the cores."""
    first, _, slow, spare = four_hosts.hosts
    wrap_docker(slow, ["--cpus", f"{0.5 * (os.cpu_count() or 1):g}"])
    jobs = Jobs(tmp_path, four_hosts, SPEC + "fitness: quick\n")
    lines = [f"{host.name} addr={host.address}" for host in (first, slow, spare)]
    (jobs.code / "hosts.txt").write_text("\n".join(lines) + " spare\n")
    done = jobs.up("--target", "ssh", check=True)
    assert (done.returncode, "node 1 runs on spare h4: h3: all cores" in done.stderr) == (0, True), done.stderr
    assert [member["host"] for member in jobs.order()["members"]] == ["h1", "h4"]
    assert [event["host"] for event in jobs.happened("host-failed")] == ["h3"]
    jobs.ok("down")
