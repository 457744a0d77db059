"""The logs of a node that has moved, fetched from all of its homes; this machine plays the hosts."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.host.containers import Containers
from jobctl.jobspec.deploy.logs.files import Folder
from jobctl.jobspec.deploy.logs.reader import Logs
from jobctl.jobspec.deploy.model.control import Control, Ledger
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.model.log_lines import LineSelection
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.targets import ending
from jobctl.jobspec.deploy.targets.hosts import Hosts
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.spec.hosts import Host
from tests.deploy.apply.test_executor import TWO

FIRST = first_generation(TWO)
MOVED = replace(FIRST, number=2, members=(replace(FIRST.members[0], host="7"), FIRST.members[1]))
# What each host has, in the order of time: node 0 has moved from h0 to a spare, whose name is a number.
HAVE = {
    "h0": ("node-0/logs/setup.log", "node-0/logs/1/launch.log"),
    "h1": ("node-1/logs/setup.log",),
    "7": ("node-0/logs/setup.log", "node-0/logs/2/launch.log", "node-0/logs/standby.log"),
}
HOME = {
    "node-0/logs/1/launch.log": "h0",
    "node-0/logs/2/launch.log": "7",
    "node-0/logs/standby.log": "7",
    "node-1/logs/setup.log": "h1",
}


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    """Two hosts and a spare, with the logs of a job that was taken to its end."""
    monkeypatch.setattr(ending, "end_processes", lambda hosts, grace: grace)
    monkeypatch.setattr(Hosts, "finish", lambda hosts, grace: None)
    monkeypatch.setattr(Hosts, "observe", look)
    monkeypatch.setattr(Containers, "seen", lambda containers: ())
    known = tuple(Host(name, dir=str(tmp_path / "hosts" / name), spare=name == "7") for name in HAVE)
    made = Hosts(JobDir(tmp_path / "jobs" / "job"), "ssh", Inventory(known), TWO)
    made.job.create()
    for name, host_job in made.host_jobs.items():
        host_job.transport = LocalTransport(name)
        host_job.send([], ["run"])
        for moment, path in enumerate(HAVE[name], 1000 * list(HAVE).index(name)):
            file = Path(host_job.work) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(name)
            os.utime(file, (moment, moment))
    look(made)
    return made


def look(hosts: Hosts) -> None:
    hosts.fleet.seen = {name: host_job.observe(()) for name, host_job in hosts.host_jobs.items()}


def moves(hosts: Hosts) -> None:
    """Tell all hosts that node 0 has moved."""
    with hosts.lock("supervise"):
        assert hosts.begin(MOVED, Ledger(1.0)) == {}


def fetched(into: Path) -> dict[str, str]:
    """Return what each log has: the name of the host that it is from."""
    return {str(path.relative_to(into)): path.read_text() for path in into.rglob("*.log")}


def test_down_keeps_the_logs_of_all_homes_of_a_node(hosts: Hosts) -> None:
    moves(hosts)
    logs, failed = hosts.take_down(0.0)
    assert logs is not None
    assert failed == {}
    assert fetched(logs) == HOME | {"node-0/logs/setup.log": "7", "node-0/logs/from-h0/setup.log": "h0"}
    lines = Logs(Folder(logs), LineSelection(node=0)).lines(final=True)
    shown = [(line.text, line.log, line.generation) for line in lines]
    assert shown == [(b"h0", "setup.log", 0), (b"7", "setup.log", 0), (b"7", "standby.log", 0)]


def test_what_a_node_has_written_stays_on_the_host_that_it_leaves(hosts: Hosts) -> None:
    """Not so if the job has no such node any more."""
    leaves = Step("remove", "node 0 on h0", "it runs on 7", 0, host="h0")
    logs = Path(hosts.host_jobs["h0"].work) / "node-0/logs"
    with hosts.lock("up"):
        assert hosts.apply([leaves]) == {}
        assert logs.exists()
        hosts.fleet.plan = replace(TWO, nodes=TWO.nodes[1:])
        assert hosts.apply([leaves]) == {}
    assert not logs.exists()


def test_pull_again_changes_nothing(hosts: Hosts, tmp_path: Path) -> None:
    moves(hosts)
    assert hosts.fetch(tmp_path / "into") == {"files": 6, "hosts": 3}
    once = fetched(tmp_path / "into")
    assert hosts.fetch(tmp_path / "into") == {"files": 6, "hosts": 3}
    assert fetched(tmp_path / "into") == once
    assert list(once.values()).count("h0") == 2


@pytest.mark.parametrize(("planned", "home", "other"), [(True, "7", "h0"), (False, "h0", "7")])
def test_without_a_generation_the_home_of_a_node_is_that_of_the_plan(
    hosts: Hosts, tmp_path: Path, planned: bool, home: str, other: str
) -> None:
    """And without a plan, as on another machine, the first that has something of it."""
    moved = replace(TWO.nodes[0], host=replace(TWO.nodes[0].host, name="7"))
    hosts.fleet.plan = replace(TWO, nodes=(moved, TWO.nodes[1])) if planned else None
    hosts.fetch(tmp_path / "into")
    found = fetched(tmp_path / "into")
    assert (found["node-0/logs/setup.log"], found[f"node-0/logs/from-{other}/setup.log"]) == (home, other)


def test_a_home_that_does_not_answer_keeps_its_name(hosts: Hosts, tmp_path: Path) -> None:
    """The next `pull` has its log too, and no other one twice."""
    moves(hosts)

    def silent(hosts: Hosts) -> None:
        look(hosts)
        del hosts.fleet.seen["7"]  # type: ignore[attr-defined]
        hosts.fleet.down = {"7": HostError("7", "unreachable", "no route")}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Hosts, "observe", silent)
        hosts.fetch(tmp_path / "into")
    assert fetched(tmp_path / "into").get("node-0/logs/setup.log") is None
    hosts.fetch(tmp_path / "into")
    assert list(fetched(tmp_path / "into").values()).count("h0") == 2


def test_a_home_that_only_this_machine_knows_of_is_the_nodes(hosts: Hosts) -> None:
    """`down` is run again, by another process, once a host is back that has not heard of the move."""
    moves(hosts)
    again = Hosts(hosts.job, "ssh", hosts.inventory, TWO)
    again.fleet.known = Control(FIRST, Ledger(0.0))  # what the host that is back has
    assert [again.fleet.moved_from(name) for name in ("h0", "7")] == [{0, 1}, {1}]
