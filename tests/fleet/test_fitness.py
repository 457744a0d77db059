"""A fitness check of real hosts, three of which have a fault each: it names them, and no other.

The hosts share this machine's cores, so they are measured in turn, and the numbers are what a core does for them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .fleet import Fleet
from .host import Host
from .jobs import SPEC, Jobs

# Takes the place of `docker` on a host, and changes what it is to run.
WRAPPER = """\
#!/usr/bin/env python3
import os, sys
argv = sys.argv[1:]
if argv[:1] == ["run"]:
    argv = {change}
os.execv("/usr/bin/docker", ["docker", *argv])
"""
QUOTA = '["run", "--cpus", "{:g}", *argv[1:]]'
WRONG_SUM = '[word.replace("return (one + other) & MODULO", "return (one + other + 1) & MODULO") for word in argv]'


@pytest.fixture
def four_hosts(hosts_of: Callable[[int], Fleet]) -> Iterator[Fleet]:
    made = hosts_of(4)
    yield made
    for host in made.hosts:
        host.slow_link(None)
        host.install_docker()


def wrap_docker(host: Host, change: str) -> None:
    command = host.dir / "bin/docker"
    command.unlink()
    command.write_text(WRAPPER.format(change=change))
    command.chmod(0o755)


def test_hosts_with_a_fault_are_named_and_no_other(four_hosts: Fleet, tmp_path: Path) -> None:
    """One may use four fifths of the cores, one has a slow link, and one adds wrongly."""
    _, linked, throttled, tampered = four_hosts.hosts
    jobs = Jobs(tmp_path, four_hosts, SPEC.replace("nodes: 2", "nodes: 4"))
    for host in four_hosts.hosts:  # by its links, and not by what cores that others use can copy
        host.slow_link("400mbit", "500kb")
    linked.slow_link("20mbit")
    wrap_docker(throttled, QUOTA.format(0.8 * (os.cpu_count() or 1)))
    wrap_docker(tampered, WRONG_SUM)
    done = jobs.run("check", *jobs.where, "--target", "ssh", "--fitness", "-o", "json")
    findings = json.loads(done.stdout)["findings"]
    bad = {(one["host"], one["check"], one["code"]) for one in findings if one["verdict"] == "error"}
    assert bad == {
        ("h2", "link", "slow-link"),
        ("h3", "compute", "slow-host"),
        ("h4", "collective", "wrong-result"),
    }, done.stdout + done.stderr
    assert done.returncode == 3
    (slow,) = (one for one in findings if one["code"] == "slow-host")
    assert 0.7 < slow["value"] / slow["median"] < 0.88, slow
    assert slow["unit"] == "Mround/s"
    assert {one["check"] for one in findings if one["host"] == "h1"} >= {"inventory", "compute", "memory", "storage"}
    assert jobs.containers() == [[], [], [], []]
    assert list(jobs.checkpoints.glob(".jobctl-fitness-*")) == []


def test_up_goes_on_with_a_spare_in_the_place_of_a_slow_host(four_hosts: Fleet, tmp_path: Path) -> None:
    """Of two hosts, one may use half of the cores."""
    first, _, slow, spare = four_hosts.hosts
    wrap_docker(slow, QUOTA.format(0.5 * (os.cpu_count() or 1)))
    jobs = Jobs(tmp_path, four_hosts, SPEC + "fitness: quick\n")
    lines = [f"{host.name} addr={host.address}" for host in (first, slow, spare)]
    (jobs.code / "hosts.txt").write_text("\n".join(lines) + " spare\n")
    done = jobs.up("--target", "ssh", check=True)
    assert (done.returncode, "node 1 runs on spare h4: h3: all cores" in done.stderr) == (0, True), done.stderr
    assert [member["host"] for member in jobs.order()["members"]] == ["h1", "h4"]
    assert [event["host"] for event in jobs.happened("host-failed")] == ["h3"]
    jobs.ok("down")
