"""How jobctl waits until the processes of a job have ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import LockLost, break_lock, hold
from jobctl.jobspec.deploy.targets import ending
from jobctl.jobspec.deploy.targets.local.deployer import Local
from jobctl.jobspec.deploy.transport.fanout import failures_of, fan_out
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.plan.generation import Generation
from jobctl.jobspec.spec.hosts import Host
from tests.deploy.apply.test_executor import RUNNING
from tests.tools.own_time import set_time


class Ending:
    """A job whose processes end after so many seconds, by a clock of its own."""

    pause = 0.2

    def __init__(self, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds, self.now, self.looks, self.told = seconds, 0.0, 0, list[str]()
        set_time(monkeypatch, ending, monotonic=lambda: self.now, sleep=self.sleep)
        self.tell, self.control, self.begun = self.told.append, RUNNING.control, list[Generation]()

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def command(self, verb: Any, grace: float) -> None:
        assert self.control.generation is not None
        self.told.append(f"{verb} {self.control.generation.number} within {grace:g} s")
        ended = self.control.generation.told("stop", grace)
        self.control = replace(self.control, generation=self.begun.pop() if self.begun else ended)

    def observe(self) -> Observed:
        self.looks += 1
        state: Any = "running" if self.now < self.seconds else "exited"
        nodes = tuple(replace(node, state=state) for node in RUNNING.nodes)
        return replace(RUNNING, nodes=nodes, control=self.control)


def test_processes_that_end_at_once_keep_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Ending(0.1, monkeypatch)
    ending.stop_processes(job, 45.0, "pause")
    assert job.now == pytest.approx(0.1, abs=0.03)
    assert job.told[:2] == ["pause 1 within 45 s", "waiting for node 0 on h0, node 1 on h1 to end; SIGKILL in 45 s"]


def test_hosts_are_asked_less_often_where_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Ending(11.0, monkeypatch)
    ending.stop_processes(job, 45.0)
    assert (round(job.now), job.looks) == (11, pytest.approx(100, abs=3))


def test_a_generation_that_begins_as_launchers_are_told_to_stop_is_stopped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Etcd had it first, and takes no order to stop the one before."""
    job = Ending(3.0, monkeypatch)
    assert job.control.generation is not None
    job.begun = [replace(job.control.generation, number=2)]
    ending.stop_processes(job, 45.0)
    assert (job.now, [told for told in job.told if told.startswith("stop")]) == (
        pytest.approx(3.0, abs=0.3),
        ["stop 1 within 45 s", "stop 2 within 45 s"],
    )


@pytest.mark.parametrize(("grace", "told", "left"), [(45.0, ["stop 1 within 45 s"], 34.0), (5.0, [], 5.0)])
def test_launchers_stay_until_all_have_saved_if_that_may_take_longer_than_a_lease(
    grace: float, told: list[str], left: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that have ended answer no other one."""
    job = Ending(11.0, monkeypatch)
    assert ending.end_processes(job, grace) == pytest.approx(left, abs=0.3)
    assert [said for said in job.told if said.startswith("stop")] == told


def test_what_has_ended_is_not_told_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Ending(0.0, monkeypatch)
    assert (ending.end_processes(job, 45.0), job.told) == (45.0, [])


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


def test_only_hosts_that_are_locked_are_erased(tmp_path: Path) -> None:
    """One that does not answer is not asked, and on one whose folders are not ours what runs is ended."""
    h0, h1, h2 = (HostJob(Host(f"h{n}"), LocalTransport(f"h{n}"), "demo", "ssh") for n in range(3))
    silent, foreign = (
        HostError("h1", "silent", "it does not answer"),
        HostError("h2", "no-permission", "it is not ours"),
    )
    fleet: Any = SimpleNamespace(job=JobDir(tmp_path / "jobs" / "demo"), plan=None)
    fleet.host_jobs, done = {"h0": h0, "h1": h1, "h2": h2}, list[object]()
    fleet.check_here, fleet.not_locked = lambda: None, lambda: {"h1": silent, "h2": foreign}
    fleet.on_each = lambda hosts, task: fan_out([fleet.host_jobs[host] for host in hosts], task, 1)
    fleet.failures = failures_of

    def erase(host_job: Any, into: Path) -> bool:
        done.append(("erased", host_job))
        return True

    def end_unlocked(host_job: Any, why: DeployError) -> bool:
        done.append(("ended", host_job))
        return ending.leave_alone(host_job, why)

    _, failed = ending.take_down(fleet, lambda: None, erase, lambda: None, end_unlocked)
    assert (done, failed) == ([("erased", h0), ("ended", h2)], {"h1": silent, "h2": foreign})
