"""A `down` that has lost its lock while it fetched logs, as after Ctrl-Z, removes nothing of what is there by then."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobctl.jobspec.deploy.host.containers import Containers
from jobctl.jobspec.deploy.model.container import SeenContainer
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import LockLost, break_lock, read_holder
from jobctl.jobspec.deploy.targets import hosts as target
from jobctl.jobspec.deploy.targets.hosts import Hosts
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.spec.hosts import Host
from tests.deploy.apply.test_executor import TWO
from tests.deploy.transport.test_fanout import interrupted
from tests.tools.waiting import promptly


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    """Two hosts with files of a job; its nodes have ended."""
    monkeypatch.setattr(Hosts, "finish", lambda hosts, grace: None)
    monkeypatch.setattr(Containers, "seen", lambda containers: ())
    made = hosts_of(tmp_path, "h0", "h1")
    for host_job in made.host_jobs.values():
        host_job.send([], ["run"])
    return made


def hosts_of(tmp_path: Path, *names: str) -> Hosts:
    """Return hosts that this machine plays, of a job with a node on h0 and one on h1."""
    known = tuple(Host(name, dir=str(tmp_path / "hosts" / name)) for name in names)
    made = Hosts(JobDir(tmp_path / "jobs" / "job"), "ssh", Inventory(known), TWO)
    made.job.create()
    for name, host_job in made.host_jobs.items():
        host_job.transport = LocalTransport(name)
    return made


def left(hosts: Hosts) -> list[str]:
    """Return the hosts that have the job's files still."""
    return [name for name, host_job in hosts.host_jobs.items() if Path(host_job.work).exists()]


def lose(hosts: Hosts, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the lock lost on a host, or on this machine, as soon as something was fetched there."""
    collect = target.collect

    def fetch(host_job: Any, *how: Any) -> int:
        count = collect(host_job, *how)
        if name == "here":
            break_lock(hosts.job.lock)
        elif name == host_job.host.name:
            assert hosts.fleet._held is not None
            hosts.fleet._held.lost[name] = "the host heard nothing of this command for 15 s"
        return count

    monkeypatch.setattr(target, "collect", fetch)


def test_who_loses_the_lock_on_this_machine_while_logs_are_fetched_removes_nothing(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(hosts, "here", monkeypatch)
    with hosts.lock("down"), pytest.raises(LockLost):
        hosts.take_down(0.0)
    assert left(hosts) == ["h0", "h1"]


def test_who_loses_the_lock_on_a_host_while_logs_are_fetched_removes_nothing_there(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(hosts, "h1", monkeypatch)
    with hosts.lock("down"):
        _, failed = hosts.take_down(0.0)
    said = {name: str(error) for name, error in failed.items()}
    assert said == {"h1": "the lock on h1 was lost: the host heard nothing of this command for 15 s"}
    assert left(hosts) == ["h1"]


def test_a_host_where_the_jobs_folder_is_not_ours_is_named_and_left_alone(hosts: Hosts, tmp_path: Path) -> None:
    """Its lock may be elsewhere, as in /var/tmp. By a link, its logs would be those of other files of the user, too."""
    home, work = tmp_path / "home", Path(hosts.host_jobs["h1"].work)
    (home / "outputs").mkdir(parents=True)
    (home / "outputs" / "thesis").write_text("years of work")
    shutil.rmtree(work)
    work.symlink_to(home)
    with hosts.lock("down"):
        logs, failed = hosts.take_down(0.0)
    assert {name: error.code for name, error in failed.items()} == {"h1": "no-permission"}
    assert (logs, left(hosts), (home / "outputs" / "thesis").read_text()) == (None, ["h1"], "years of work")


def running(name: str) -> SeenContainer:
    return SeenContainer(1, "trainer", name, running=True, artefact=None, owner="me")


def play(hosts: Hosts, name: str, *seen: SeenContainer) -> list[str]:
    """Have a host's engine tell of these containers; return what is asked of it, which grows."""
    asked: list[str] = []
    hosts.host_jobs[name].containers = cast(
        Containers,
        SimpleNamespace(
            seen=lambda: seen,
            stop=lambda found, grace: asked.extend(f"stop {one.id} within {grace:g} s" for one in found),
            remove=lambda found: asked.extend(f"remove {one.id}" for one in found),
        ),
    )
    return asked


def test_what_runs_on_a_host_that_cannot_be_locked_is_ended_all_the_same(hosts: Hosts, tmp_path: Path) -> None:
    """Its disk may be read-only by now: training would go on there until somebody has mended that."""
    work = Path(hosts.host_jobs["h1"].work)
    shutil.rmtree(work)
    work.symlink_to(tmp_path)
    asked = play(hosts, "h1", running("c1"))
    with hosts.lock("down"):
        _, failed = hosts.take_down(3.0)
    assert asked == ["stop c1 within 3 s", "remove c1"]
    assert ({name: error.code for name, error in failed.items()}, left(hosts)) == ({"h1": "no-permission"}, ["h1"])


@pytest.mark.parametrize(("count", "files", "named"), [(0, False, []), (1, False, ["h2"]), (0, True, ["h2"])])
def test_a_host_that_cannot_be_locked_is_named_unless_it_has_nothing_of_the_job(
    hosts: Hosts, tmp_path: Path, *, count: int, files: bool, named: list[str]
) -> None:
    """No node was ever there, as on most hosts of a large hosts file. Where one runs, files are on a disk that has gone."""
    hosts = hosts_of(tmp_path, "h0", "h1", "h2")
    asked = play(hosts, "h2", *[running("c2")] * count)
    folder = Path(hosts.host_jobs["h2"].work).parent
    folder.parent.mkdir()
    if files:
        folder.symlink_to(tmp_path)
        Path(hosts.host_jobs["h2"].work).mkdir()
    else:
        folder.touch()  # no folder can be made there
    with hosts.lock("down"):
        _, failed = hosts.take_down(0.0)
    assert (list(failed), len(asked)) == (named, 2 * count)


def test_a_host_that_is_locked_is_taken_down_though_it_was_silent_for_a_moment(hosts: Hosts) -> None:
    with hosts.lock("down"):
        assert hosts.fleet._held is not None
        hosts.fleet._held.failed["h1"] = HostError("h1", "silent", "it did not answer")
        assert hosts.take_down(0.0) == (None, {})
    assert left(hosts) == []


def test_nobody_gets_the_lock_while_a_task_of_an_interrupted_command_goes_on(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    with interrupted(monkeypatch, 0.0, hosts.lock("up")):
        for lock in (hosts.job.lock, *(Path(one.own) / "lock" for one in hosts.host_jobs.values())):
            assert read_holder(lock)
    promptly(lambda: not read_holder(hosts.job.lock))
