"""Code on its way to hosts: what leaves this machine for it, counted where its cable ends."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.host import Host
from tests.fleet.jobs import SPEC, Jobs
from tests.fleet.sent import count, have_ended

SIZE = 40_000_000
LITTLE = 400_000  # bytes of commands and answers that any command of jobctl's sends to three hosts


@pytest.fixture
def jobs(tmp_path: Path, hosts_of: Callable[[int], Fleet]) -> Iterator[Jobs]:
    """A job of up to three hosts, with a large file in its code. It is on no host yet."""
    fleet = hosts_of(3)
    made = Jobs(tmp_path, fleet, SPEC.replace("nodes: 2", "nodes: 2:3"))
    (made.code / "weights").write_bytes(os.urandom(SIZE))
    yield made
    assert made.run("down", *made.where).returncode == 0


def versions(host: Host) -> list[Path]:
    """Return the versions of the code on a host."""
    return [path for path in host.home.glob(".jobctl/*/counter/code/*") if path.is_dir()]


def have_all(jobs: Jobs) -> list[bool]:
    """Say for each host whether its newest version of the code is that of this machine."""
    wanted = {name: (jobs.code / name).read_bytes() for name in ("counter.py", "weights")}
    newest = [max(versions(host), key=lambda path: path.stat().st_mtime, default=None) for host in jobs.fleet.hosts]
    return [path is not None and wanted == {name: (path / name).read_bytes() for name in wanted} for path in newest]


def sent_for(jobs: Jobs, *command: str) -> int:
    """Run a command of jobctl's; return how many bytes have left this machine."""
    before = count(jobs.fleet.bridge, "tx")
    jobs.ok(*command)
    return count(jobs.fleet.bridge, "tx") - before


def change_a_line(jobs: Jobs) -> None:
    with (jobs.code / "counter.py").open("a") as script:
        script.write("# another line\n")


def test_much_code_leaves_this_machine_once_and_no_more_of_it_than_hosts_lack(jobs: Jobs) -> None:
    prepare = ("prepare", *jobs.where, "--skip-check")
    first, nothing = sent_for(jobs, *prepare), sent_for(jobs, *prepare)
    assert have_all(jobs) == [True] * 3
    change_a_line(jobs)
    line = sent_for(jobs, *prepare)
    assert have_all(jobs) == [True] * 3
    (jobs.code / "weights").write_bytes(os.urandom(SIZE))
    large = sent_for(jobs, *prepare)
    print(f"sent: {first}, {large} for a large file, {line} for a line, {nothing} for nothing")
    assert have_all(jobs) == [True] * 3
    assert max(first, large) - nothing < 1.02 * SIZE
    assert nothing < line < nothing + LITTLE
    have_ended(jobs)


def test_a_host_that_comes_later_takes_the_code_from_another_one(jobs: Jobs) -> None:
    """For `run` on it, and when the job grows. Something in a container has changed the code of the first one."""
    jobs.ok("up", *jobs.where, "--skip-check", "--on", "h1,h2")
    jobs.trains(step=1)
    (first,) = versions(jobs.fleet[0])
    (first / "weights").write_bytes(b"written by the script")
    look = ("run", *jobs.where, "--node", "2", "--", "sha256sum", "weights")
    looked = sent_for(jobs, *look)
    assert versions(jobs.fleet[2]) == []
    grown = sent_for(jobs, "up", *jobs.where, "--skip-check")
    assert len(jobs.trains(step=1, after=1)["nodes"]) == 3
    print(f"sent: {looked} for run, {grown} for a third host")
    assert have_all(jobs) == [False, True, True]
    assert max(looked, grown) < 0.1 * SIZE
