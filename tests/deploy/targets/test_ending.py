"""How jobctl waits until the processes of a job have ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import LockLost, break_lock, hold
from jobctl.jobspec.deploy.targets import ending
from jobctl.jobspec.deploy.targets.local.deployer import Local
from tests.deploy.apply.test_executor import RUNNING


class Ending:
    """A job whose processes end after so many seconds, by a clock of its own."""

    pause = 0.2

    def __init__(self, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds, self.now, self.looks, self.told = seconds, 0.0, 0, list[str]()
        monkeypatch.setattr(ending.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(ending.time, "sleep", self.sleep)
        self.tell = self.told.append

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def command(self, verb: Any, grace: float) -> None:
        self.told.append(f"{verb} within {grace:g} s")

    def observe(self) -> Observed:
        self.looks += 1
        state: Any = "running" if self.now < self.seconds else "exited"
        return replace(RUNNING, nodes=tuple(replace(node, state=state) for node in RUNNING.nodes))


def test_processes_that_end_at_once_keep_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Ending(0.1, monkeypatch)
    ending.stop_processes(job, 45.0, "pause")
    assert job.now == pytest.approx(0.1, abs=0.03)
    assert job.told[:2] == ["pause within 45 s", "waiting for node 0 on h0, node 1 on h1 to end; SIGKILL in 45 s"]


def test_hosts_are_asked_less_often_where_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Ending(11.0, monkeypatch)
    ending.stop_processes(job, 45.0)
    assert (round(job.now), job.looks) == (11, pytest.approx(100, abs=3))


@pytest.mark.parametrize("ends", ["down", "finish"])
def test_a_command_that_lost_its_lock_while_it_waited_ends_nothing_more(
    ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped by Ctrl-Z, say; what runs now is what another command has brought up since."""
    directory, ended = JobDir(tmp_path / "jobs" / "demo"), list[str]()
    with hold(directory.lock, "down") as held:

        def wait(*of: object) -> None:
            break_lock(directory.lock)

        fleet: Any = SimpleNamespace(job=directory, plan=None, host_jobs={}, check_here=held.check, not_locked=dict)
        fleet.on_each = fleet.failures = lambda *of: ended.append("erased")
        monkeypatch.setattr(ending, "wait_for_launchers", wait)
        monkeypatch.setattr(
            "jobctl.jobspec.deploy.targets.local.deployer.processes.kill_marked", lambda work: ended.append("killed")
        )
        local: Any = SimpleNamespace(command=lambda *of: None, fleet=fleet, work=directory.host)
        ends_it = {
            "down": lambda: ending.take_down(fleet, wait, lambda job, into: True, lambda: None),
            "finish": lambda: Local.finish(local, 1.0),
        }
        with pytest.raises(LockLost, match="the lock on this machine was lost"):
            ends_it[ends]()
    assert ended == []


def test_what_is_on_a_host_that_could_not_be_locked_is_left_there(tmp_path: Path) -> None:
    """It does not answer, or its folders are not ours: somebody else may have made them."""
    foreign, erased = HostError("h1", "no-permission", "it belongs to somebody else"), list[str]()
    fleet: Any = SimpleNamespace(job=JobDir(tmp_path / "jobs" / "demo"), plan=None, host_jobs={"h0": 0, "h1": 1})
    fleet.check_here, fleet.not_locked = lambda: None, lambda: {"h1": foreign}
    fleet.on_each = lambda hosts, task: erased.extend(hosts) or SimpleNamespace(done={})
    fleet.failures = lambda outcome: {}
    _, failed = ending.take_down(fleet, lambda: None, lambda job, into: True, lambda: None)
    assert (erased, failed) == (["h0"], {"h1": foreign})
