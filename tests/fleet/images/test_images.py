"""An image that hosts hand on to each other: what leaves this machine for it, and a host that is cut off in the middle."""

from __future__ import annotations

import copy
import io
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.host import Host
from tests.fleet.jobs import SPEC, Jobs
from tests.fleet.machine import IMAGE
from tests.fleet.sent import count, have_ended
from tests.tools.waiting import eventually

NAME = "jobctl-test-handed-on:1"
SIZE = 30_000_000


@pytest.fixture
def jobs(tmp_path: Path, hosts_of: Callable[[int], Fleet]) -> Iterator[Jobs]:
    """A job of hosts h2, h3 and h4. The engine of h1 plays that of this machine, and has the image."""
    fleet = hosts_of(4)
    engine, others = fleet[0], copy.copy(fleet)
    others.hosts = fleet.hosts[1:]
    made = Jobs(tmp_path, others, SPEC.replace(IMAGE, NAME).replace("nodes: 2", "nodes: 3"))
    made.environ["DOCKER_HOST"] = f"unix://{engine.socket}"
    with tarfile.open(tmp_path / "image.tar", "w") as archive:
        member = tarfile.TarInfo("weights")
        member.size = SIZE
        archive.addfile(member, io.BytesIO(os.urandom(SIZE)))
    engine.docker("import", str(tmp_path / "image.tar"), NAME)
    yield made
    for host in fleet.hosts:
        host.docker("rmi", "--force", NAME, check=False)
        host.plug_cable()
        host.slow_link(None)
    assert made.run("down", *made.where).returncode == 0


def has(host: Host) -> bool:
    return NAME in host.docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}").split()


def test_an_image_leaves_this_machine_once(jobs: Jobs) -> None:
    """The host in the middle is cut off meanwhile. It gets the image later, from another host."""
    second, third, _ = jobs.fleet.hosts
    second.slow_link("16mbit")  # who looks on may be slow
    sent, arrived = count(jobs.fleet.bridge, "tx"), count(third.cable, "tx")
    prepare = jobs.start("prepare", *jobs.where, "--skip-check")
    eventually(lambda: count(third.cable, "tx") - arrived > SIZE // 8)
    third.pull_cable()
    second.slow_link(None)
    code = prepare.wait(400)
    assert (code, [has(host) for host in jobs.fleet.hosts]) == (4, [True, False, True]), prepare.printed()
    assert "h3: it has stopped to answer" in prepare.printed()[1]
    assert count(jobs.fleet.bridge, "tx") - sent < 1.2 * SIZE
    third.plug_cable()
    (kept,) = third.home.glob(".jobctl/*/*/arriving/*")
    part = kept.stat().st_size
    sent, arrived = count(jobs.fleet.bridge, "tx"), count(third.cable, "tx")
    jobs.ok("prepare", *jobs.where, "--skip-check")
    assert count(third.cable, "tx") - arrived < 1.1 * SIZE - part  # it goes on where it was
    assert [list(host.home.glob(".jobctl/*/*/arriving")) for host in jobs.fleet.hosts] == [[], [], []]
    assert [has(host) for host in jobs.fleet.hosts] == [True, True, True]
    assert count(jobs.fleet.bridge, "tx") - sent < 0.2 * SIZE
    have_ended(jobs)
    ids = {host.docker("image", "inspect", "--format", "{{.Id}}", NAME) for host in jobs.fleet.hosts}
    assert len(ids) == 1
