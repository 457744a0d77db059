"""`localhost` in the hosts files of machines that share a home: each has an engine, and the job's files are the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from jobctl.jobspec.deploy.apply.deployer import AllUnreachable
from jobctl.jobspec.deploy.host import directories, host_job
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.lock import hold_on
from jobctl.jobspec.deploy.model.errors import OnAnotherMachine
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.store import machine
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.targets.hosts import Hosts
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.spec.hosts import Host

A, B = {"name": "login1", "boot": "b001"}, {"name": "login2", "boot": "b002"}


class Machines:
    """Machines with one home, of which the test is on one at a time."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._tmp_path, self._monkeypatch = tmp_path, monkeypatch
        self.work = tmp_path / "home" / "localhost" / "job"
        self.host = Host("localhost", dir=str(tmp_path / "home"))

    def on(self, here: dict[str, str], *, shared: bool = True) -> HostJob:
        """Return the job as a command on a machine sees it."""
        own = self._tmp_path / here["name"] if shared else self.work
        for module in (machine, directories):
            self._monkeypatch.setattr(module, "this_machine", lambda: here)
        found = PurePosixPath(self.work), PurePosixPath(own)
        self._monkeypatch.setattr(host_job, "find_directories", lambda *_: found)
        made = HostJob(self.host, LocalTransport(), "job", "ssh")
        made.containers.seen = lambda: ()  # type: ignore[method-assign]
        return made


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    return Machines(tmp_path, monkeypatch)


def lock(job: HostJob) -> None:
    with hold_on([job], "lock", "up", wait=0.0):
        pass


@pytest.mark.parametrize(
    "act",
    [
        lambda job: job.observe(),
        lambda job: job.control(),
        lambda job: job.send([], ["run"]),
        lambda job: job.hand_over(b"{}", b""),
        lambda job: job.start(0),
        lambda job: job.erase(),
        lock,
    ],
    ids=["observe", "control", "send", "hand-over", "start", "erase", "lock"],
)
def test_a_job_of_another_machine_with_the_same_home_is_left_alone(
    machines: Machines, act: Callable[[HostJob], object]
) -> None:
    machines.on(A).send([], ["run", "node-0"])
    before = sorted(machines.work.rglob("*"))
    with pytest.raises(OnAnotherMachine) as refused:
        act(machines.on(B))
    file = machines.work / "machine.json"
    assert (refused.value.message, refused.value.hint) == (
        "localhost: the job's containers are on machine `login1`, which has the same work directory",
        f"run the command there; if that machine no longer exists, `rm {file}`",
    )
    assert sorted(machines.work.rglob("*")) == before
    assert machines.on(A).observe().there


@pytest.mark.parametrize("here", [{**A, "name": "renamed"}, {**A, "boot": "b003"}], ids=["renamed", "booted again"])
def test_a_machine_that_was_renamed_or_booted_again_has_its_job(machines: Machines, here: dict[str, str]) -> None:
    machines.on(A).send([], ["run"])
    assert machines.on(here).observe().there


def test_once_it_is_down_the_job_may_be_on_any_of_them(machines: Machines) -> None:
    first = machines.on(A)
    first.send([], ["run"])
    first.erase()
    machines.on(B).send([], ["run"])
    assert machines.on(B).observe().there


def test_a_home_of_its_own_says_nothing_of_machines(machines: Machines) -> None:
    """A controller in a container may have another name each time, and its host may have been booted again."""
    machines.on(A, shared=False).send([], ["run"])
    assert not (machines.work / "machine.json").exists()
    assert machines.on(B, shared=False).observe().there


def test_down_on_another_machine_fails_and_erases_nothing(machines: Machines, tmp_path: Path) -> None:
    machines.on(A).send([], ["run", "node-0"])
    before = sorted(machines.work.rglob("*"))
    machines.on(B)
    hosts = Hosts(JobDir(tmp_path / "jobs" / "job"), "ssh", Inventory((machines.host,)))
    hosts.job.create()
    hosts.host_jobs["localhost"].containers.seen = lambda: ()  # type: ignore[method-assign]
    with pytest.raises(AllUnreachable):
        hosts.observe()
    with pytest.raises(OnAnotherMachine), hosts.lock("down"):
        pass
    into, failed = hosts.take_down(0.0)
    assert (into, {host: error.code for host, error in failed.items()}) == (None, {"localhost": "on-another-machine"})
    assert sorted(machines.work.rglob("*")) == before
