"""Hosts that somebody looks at, which this machine plays: one of them may go silent."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.container import SeenContainer
from jobctl.jobspec.deploy.model.control import Ledger
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.targets.hosts import Hosts
from jobctl.jobspec.deploy.transport import live_fanout
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.spec.hosts import Host
from tests.deploy.apply.test_executor import TWO
from tests.tools.waiting import PATIENCE

QUICK = 0.3  # seconds, in place of those after which a host that does not answer is given up


class Enough(Exception):
    """The test has seen what it wanted."""


class GoesSilentToo:
    """A channel to a host that may go silent."""

    def __init__(self, channel: socket.socket, host: GoesSilent) -> None:
        self._channel, self._host = channel, host

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def recv(self, size: int) -> bytes:
        if self._host.silent:
            self._host.over.wait()
            raise TimeoutError
        return self._channel.recv(size)


class GoesSilent(LocalTransport):
    """A host that answers until `silent`, and then not before `over`."""

    def __init__(self, host: str, over: threading.Event) -> None:
        super().__init__(host)
        self.silent, self.over = False, over

    def run(self, argv: Sequence[str], *args: Any, **how: Any) -> Result:
        if self.silent:
            self.over.wait()
            raise HostError(self.host, "silent", "it does not answer")
        return super().run(argv, *args, **how)

    def dial(self, argv: Sequence[str]) -> Any:
        return GoesSilentToo(super().dial(argv), self)


class Watched(Hosts):
    """Two hosts, a node on each, whose progress the test writes; the second may go silent."""

    interval = 0.0

    def __init__(self, tmp_path: Path, over: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        known = tuple(Host(name, dir=str(tmp_path / name)) for name in ("h0", "h1"))
        super().__init__(JobDir(tmp_path / "jobs" / "job"), "ssh", Inventory(known), TWO)
        self.job.create()
        self.transports = {name: GoesSilent(name, over) for name in ("h0", "h1")}
        for name, host_job in self.host_jobs.items():
            host_job.transport = self.transports[name]
            running = SeenContainer(int(name[1]), "trainer", name, True, "hash", "me@here")
            host_job.containers.seen = lambda running=running: (running,)  # type: ignore[method-assign]
            host_job.send([], ["run", f"node-{name[1]}"])
        self.observe()
        with self.lock("up"):
            self.begin(first_generation(TWO), Ledger(1.0, "code"))

    def step(self, node: int, step: int) -> None:
        """Have a node report how far it is."""
        report = {"node": node, "generation": 1, "state": "running", "progress": step, "processes": []}
        path = self.host_jobs[f"h{node}"].work / f"node-{node}" / "report.json"
        Path(path).write_text(json.dumps(report))

    def go_silent(self, *names: str, quiet: float = QUICK) -> None:
        """Have hosts say nothing from now on, and be given up after `quiet` seconds; the others are waited for later."""
        for name in names:
            self.transports[name].silent = True
        patience = PATIENCE if set(names) <= set(self.failures) else quiet
        for name in ("SILENCE_TIMEOUT", *(["FIRST_ANSWER_TIMEOUT"] if set(names) == set(self.transports) else [])):
            self.monkeypatch.setattr(live_fanout, name, patience)


@contextlib.contextmanager
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """Yield hosts that are waited for as long as it takes, until one goes silent."""
    for name, seconds in {"FIRST_ANSWER_TIMEOUT": PATIENCE, "SILENCE_TIMEOUT": PATIENCE, "STALE": QUICK}.items():
        monkeypatch.setattr(live_fanout, name, seconds)
    over = threading.Event()
    yield Watched(tmp_path, over, monkeypatch)
    over.set()
