"""Hosts that exist in words only: their probes wait as long as a real one measures, and tell numbers of their choice.

A check of 64 of them shows what a check of 64 machines does, and how long it takes, but for what machines are slow at.
"""

from __future__ import annotations

import collections
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from jobctl.jobspec.deploy.check.fitness.host_values import DIGEST
from jobctl.jobspec.deploy.check.fitness.measure import FitnessCheck
from jobctl.jobspec.deploy.check.fitness.session import ProbeSession
from jobctl.jobspec.deploy.check.fitness.sums import digest
from jobctl.jobspec.deploy.check.survey import CheckedHost
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.deploy.model.untrusted import Json
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.spec.hosts import parse_hosts
from tests.tools.waiting import PATIENCE

CORES, LINK, DISK = 6.0, 10_000.0, 500.0  # Mround/s, Mbit/s and MB/s of a host that is well


class PlayedProbe(ProbeSession):
    """The probe of a host that has a share of the speed of others: of their cores, and of their links."""

    def __init__(self, check: PlayedCheck, host: str) -> None:
        channel, other = socket.socketpair()
        other.close()
        super().__init__(host, channel, "")
        self.check = check

    def ask(self, what: str, patience: float, **task: Any) -> Json:
        """Wait as long as the task takes, and tell what it measures."""
        self.check.asked[self.host, what] += 1
        said: Json = getattr(self, what)(task)
        return said

    def inventory(self, task: Json) -> Json:
        """Tell that it is like all others."""
        return {"items": {"cores": 2.0}, "driver": {}}

    def _sample(self, task: Json, usual: float) -> Json:
        """Return what two cores of the usual speed did, of which the host may use its share."""
        time.sleep(task["seconds"])
        seconds, share = task["seconds"], self.check.cores.get(self.host, 1.0)
        return {
            "work": usual * share * seconds,
            "wall": seconds,
            "cpu": 2 * share * seconds,
            "idle": 2 * (1 - share) * seconds,
            "workers": 2,
            "cores": 2 * share,
        }

    def compute(self, task: Json) -> Json:
        """Tell how fast its cores are."""
        return {"digest": DIGEST, "sample": self._sample(task, CORES)}

    def memory(self, task: Json) -> Json:
        """Tell how fast its memory is."""
        return {"sample": self._sample(task, 10.0)}

    def storage(self, task: Json) -> Json:
        """Tell how fast its disk is."""
        took = task["bytes"] / 1e6 / DISK / self.check.disks.get(self.host, 1.0)
        time.sleep(2 * took)
        times = {"write_seconds": took, "write_waited": 0.0, "read_seconds": took, "read_waited": 0.0}
        return {"bytes": task["bytes"], "wrong": False, **times}

    def listen(self, task: Json) -> Json:
        """Listen."""
        return {"port": 20000}

    def receive(self, task: Json) -> Json:
        """Receive for some seconds: as much as the slower one of the two hosts can send or receive."""
        sender = self.check.senders[self.host].get(timeout=PATIENCE)
        time.sleep(task["seconds"])
        share = min(self.check.links.get(host, 1.0) for host in (sender, self.host))
        return {"bytes": LINK * share * 1e6 / 8 * task["seconds"], "seconds": task["seconds"]}

    def send(self, task: Json) -> Json:
        """Send for as long as the other host receives."""
        receiver = self.check.by_address[task["to"]]
        self.check.senders[receiver].put(self.host)
        time.sleep(task["seconds"])
        share = min(self.check.links.get(host, 1.0) for host in (receiver, self.host))
        lost = max(self.check.losses.get(host, 0.0) for host in (receiver, self.host))
        return {"again": round(10_000 * lost), "sent": 10_000, "rate": LINK * share * 1e6 / 8}

    def reduce(self, task: Json) -> Json:
        """Add up, rightly."""
        index, count = task["index"], task["count"]
        return {"came": digest(index), "added": digest(index + 1), "sum": digest(count), "seconds": 0.01}


class PlayedCheck(FitnessCheck):
    """A check of so many such hosts. `cores` and `links` are shares of the usual speed, by host; `asked` counts tasks.

    So are `disks`; `losses` are parts of what a link carries. `together`: all of them are one machine, and take turns.
    """

    def __init__(self, count: int, state: Path, cores: Mapping[str, float], links: Mapping[str, float]) -> None:
        lines = [f"p{number} addr=10.0.{number // 250}.{number % 250 + 1}" for number in range(count)]
        hosts = parse_hosts("\n".join(lines) + "\n", "hosts.txt").hosts
        seats = [CheckedHost(HostJob(host, LocalTransport(host.name), "job", "ssh"), ()) for host in hosts]
        super().__init__(None, seats, "quick", state)
        self.cores, self.links = cores, links
        self.disks: Mapping[str, float] = {}
        self.losses: Mapping[str, float] = {}
        self.together = False
        self.by_address = {host.address: host.name for host in hosts}
        self.senders = {host.name: SimpleQueue[str]() for host in hosts}  # who sends to each
        self.asked: collections.Counter[tuple[str, str]] = collections.Counter()

    def _compare(self) -> list[Finding]:
        found = super()._compare()
        self.machines = [list(self.sessions)] if self.together else self.machines
        return found

    def _session(self, host: str) -> ProbeSession:
        return PlayedProbe(self, host)
