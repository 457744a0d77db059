"""What hosts hand on to each other: how much of it leaves this machine, and when the programs that do it have ended."""

from __future__ import annotations

from pathlib import Path

from jobctl.jobspec.deploy.host.scripts import MARK
from tests.fleet.host import Host
from tests.fleet.jobs import Jobs
from tests.fleet.machine import sh
from tests.tools.waiting import promptly


def count(device: str, what: str) -> int:
    """Return how many bytes a device has sent or received, as this machine sees it."""
    return int(Path(f"/sys/class/net/{device}/statistics/{what}_bytes").read_text())


def programs(host: Host) -> str:
    """Return the programs on a host that hand images on."""
    pids = sh("ip", "netns", "pids", host.namespace).split()
    return "".join(line for line in sh("ps", "-o", "args=", *pids).splitlines() if MARK in line)


def have_ended(jobs: Jobs) -> None:
    """Wait until these programs have noticed on all hosts that the command is over."""
    promptly(lambda: not any(map(programs, jobs.fleet.hosts)))
