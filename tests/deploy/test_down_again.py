"""A `down` that reaches the hosts which the one before could not: what both collect is of one run of the job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from jobctl.jobspec.deploy.host.containers import Containers
from jobctl.jobspec.deploy.model.control import Ledger
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.store import archive
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.targets.hosts import Hosts
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.spec.hosts import Host

from .test_executor import TWO

HOSTS = ("h0", "h1")


class Silent(LocalTransport):
    """A host that does not answer."""

    def run(self, *args: object, **how: object) -> NoReturn:
        raise HostError(self.host, "unreachable", "no route to host")


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing runs on the hosts any more, and they have no engine."""
    monkeypatch.setattr(Hosts, "finish", lambda hosts, grace: None)
    monkeypatch.setattr(Containers, "seen", lambda containers: ())


def begin(place: Path, began: float) -> None:
    """Bring the job up on two hosts, each with a folder of its own."""
    hosts = _hosts(place, {name: LocalTransport(name) for name in HOSTS})
    for name, host_job in hosts.host_jobs.items():
        host_job.send([], ["run"])
        log = Path(host_job.work) / f"node-{name[1]}" / "logs" / "launcher.log"
        log.parent.mkdir(parents=True)
        log.write_text(f"{name} began at {began}")
    hosts.fleet.seen = {name: host_job.observe(()) for name, host_job in hosts.host_jobs.items()}
    with hosts.lock("up"):
        assert dict(hosts.begin(replace(first_generation(TWO), began=began), Ledger(began))) == {}


def take_down(place: Path, *silent: str) -> Path | None:
    """Take the job down as far as its hosts answer; return where the logs went."""
    hosts = _hosts(place, {name: (Silent if name in silent else LocalTransport)(name) for name in HOSTS})
    with hosts.lock("down"):
        answer = [host_job for name, host_job in hosts.host_jobs.items() if name not in silent]
        hosts.fleet.seen = {host_job.host.name: host_job.observe(()) for host_job in answer}
        logs, failed = hosts.take_down(0.0)
    assert sorted(failed) == sorted(silent)
    return logs


def _hosts(place: Path, transports: dict[str, LocalTransport]) -> Hosts:
    known = tuple(Host(name, dir=str(place / name)) for name in HOSTS)
    hosts = Hosts(JobDir(place / "jobs" / "job"), "ssh", Inventory(known), TWO)
    hosts.job.create()
    for name, host_job in hosts.host_jobs.items():
        host_job.transport = transports[name]
    return hosts


def collected(folder: Path) -> list[str]:
    return [path.read_text() for path in sorted(folder.glob("node-*/logs/launcher.log"))]


def test_the_logs_of_a_host_that_answers_later_go_to_those_of_the_others(tmp_path: Path) -> None:
    begin(tmp_path, 1.0)
    first = take_down(tmp_path, "h0")
    assert first is not None
    assert (take_down(tmp_path), collected(first)) == (first, ["h0 began at 1.0", "h1 began at 1.0"])


def test_each_run_has_logs_of_its_own(tmp_path: Path) -> None:
    begin(tmp_path, 1.0)
    first = take_down(tmp_path)
    begin(tmp_path, 2.0)
    second = take_down(tmp_path)
    assert first is not None
    assert second is not None
    assert (collected(first), collected(second)) == (
        ["h0 began at 1.0", "h1 began at 1.0"],
        ["h0 began at 2.0", "h1 began at 2.0"],
    )


@pytest.mark.parametrize("folder", ["there", "not there"])
def test_a_run_that_cannot_be_noted_stops_nothing(tmp_path: Path, folder: str) -> None:
    """The disk of this machine may be full by then."""
    history = tmp_path / "history"
    (history / "2026-01-01T00-00-00Z" / archive.RUN).mkdir(parents=True)
    place = history / "2026-01-01T00-00-00Z" if folder == "there" else history / "none"
    archive.note_run(place, 1.0)
    assert archive.folder_of_run(history, 1.0) not in (place, archive.newest_folder(history))
