"""Launchers that wait on spare hosts: started, found, and out of the way of a node that is started there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.model.container import SeenContainer
from jobctl.jobspec.deploy.model.control import NOTHING, Control, Ledger
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.host_state import HostState
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.targets import provision, spare_launchers
from jobctl.jobspec.deploy.targets.hosts import Hosts
from jobctl.jobspec.deploy.targets.provision import artefacts
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.generation import HotSpare, first_generation
from jobctl.jobspec.plan.types import HostRef
from jobctl.jobspec.render.artefact import spare_ids
from jobctl.jobspec.spec.hosts import Host
from tests.deploy.apply.test_executor import TWO
from tests.deploy.targets.test_hot_spares import BOX, WAITS

NODE = TWO.nodes[0]
SPARE = replace(NODE, index=-1, host=HostRef("s0", "10.0.0.9"), launch=replace(NODE.launch, node=-1, spare=2))
PLAN = replace(TWO, target="ssh", spares=(SPARE,))
HASH = spare_ids(PLAN)["s0"]
IDLE = replace(BOX, artefact=HASH)
START = Step("start", "spare s0", "", host="s0", spare=True)


class Engine:
    """The containers on the spare's host. A container that is started has a launcher that says `said`."""

    def __init__(self, host_job: HostJob, *found: SeenContainer) -> None:
        self.host_job, self.found, self.said = host_job, found, WAITS
        self.done: list[str] = []
        host_job.starter.start = self.start  # type: ignore[method-assign]
        for name in ("seen", "stop", "remove", "kill", "last_words"):
            setattr(host_job.containers, name, getattr(self, name))

    def seen(self) -> tuple[SeenContainer, ...]:
        return self.found

    def stop(self, containers: Any, grace: float) -> None:
        self.done += [f"stop {one.id}" for one in containers]

    def remove(self, containers: Any) -> None:
        self.done += [f"remove {one.id}" for one in containers]
        gone = {one.id for one in containers}
        self.found = tuple(one for one in self.found if one.id not in gone)

    def kill(self, containers: Any) -> None:
        self.done += [f"kill {one.id}" for one in containers]

    def last_words(self, container: SeenContainer) -> tuple[int, str]:
        return 127, "no such file\npython3: not found"

    def start(self, work: Path, name: str, report: Path, image: str | None = None) -> Any:
        self.done.append(f"start {name}, report {'there' if Path(report).exists() else 'not there'}")
        if name == "spare":
            Path(report).parent.mkdir(exist_ok=True)
            Path(report).write_text(json.dumps(self.said))
            self.found = (replace(IDLE, running=self.said is WAITS),)
        else:
            Path(report).write_text(json.dumps({"node": 1, "state": "waiting", "port": 5}))
            self.found = (*self.found, SeenContainer(1, "trainer", name, True, "hash", "me@here"))
        return Result(0, b"", b"")


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    known = tuple(Host(name, addr=f"10.0.0.{i}", dir=str(tmp_path / name)) for i, name in ((0, "h0"), (1, "h1")))
    spare = Host("s0", addr="10.0.0.9", dir=str(tmp_path / "s0"), spare=True)
    made = Hosts(JobDir(tmp_path / "jobs" / "job"), "ssh", Inventory((*known, spare)), PLAN)
    made.job.create()
    for name, host_job in made.host_jobs.items():
        host_job.transport = LocalTransport(name)
        host_job.send([], provision._directories(PLAN, host_job))
    return made


def work(hosts: Hosts) -> Path:
    return Path(hosts.host_jobs["s0"].work)


def look(hosts: Hosts, *containers: SeenContainer) -> Engine:
    """See what is on the hosts; return the engine of the spare's, which has `containers`."""
    engine = Engine(hosts.host_jobs["s0"], *containers)
    hosts.fleet.seen = {n: job.observe(containers if n == "s0" else ()) for n, job in hosts.host_jobs.items()}
    return engine


def test_a_spares_host_has_its_script_and_a_folder_for_each_node(hosts: Hosts) -> None:
    assert sorted(one.path for one in artefacts(hosts.fleet, PLAN)["s0"]) == ["launcher.py", "spare.sh"]
    assert sorted(path.name for path in work(hosts).iterdir()) == ["node-0", "node-1", "run", "spare"]
    look(hosts)
    assert hosts.fleet.hosts_with_nodes() == ["h0", "h1"]
    assert hosts.fleet.hosts_with_launchers() == ["h0", "h1", "s0"]


@pytest.mark.parametrize("before", [(), (replace(IDLE, running=False),)])
def test_a_spares_launcher_is_started_and_found(hosts: Hosts, before: tuple[SeenContainer, ...]) -> None:
    """A file that an earlier container has left would make it the node that this one was, or give its port."""
    (work(hosts) / "spare" / "report.json").write_text(json.dumps({**WAITS, "node": -1 if before else 1, "port": 9}))
    engine = look(hosts, *before)
    with hosts.lock("up"):
        assert dict(hosts.apply([START])) == {}
    assert (engine.done, hosts.spare_launcher_failures) == (["start spare, report not there"], {})
    assert hosts.idle_spares({"s0": HASH}, {"h0", "h1"}) == (HotSpare("s0", "10.0.0.9", 4000),)
    assert hosts.idle_spares({"s0": HASH}, {"h0", "s0"}) == hosts.idle_spares({"s0": ArtefactId("other")}, {"h0"}) == ()
    assert hosts.free_hosts(hosts.fleet.merge(hosts.fleet.seen, {}))[0] == "s0"


def test_it_is_given_the_generation_that_runs(hosts: Hosts) -> None:
    look(hosts)
    first, ledger = first_generation(PLAN), Ledger(1.0, "code")
    for command, given in (("finish", NOTHING), ("run", Control(first, ledger))):
        hosts.fleet.known = Control(replace(first, command=command), ledger)  # type: ignore[arg-type]
        with hosts.lock("up"):
            hosts.apply([START])
        assert hosts.host_jobs["s0"].control() == given


def test_a_spare_that_does_not_start_is_no_failure(hosts: Hosts) -> None:
    engine = look(hosts)
    engine.said = {}
    with hosts.lock("up"):
        assert dict(hosts.apply([START])) == {}
    words = "s0: the container of the spare ended with code 127 before its launcher began: python3: not found"
    assert [str(error) for error in hosts.spare_launcher_failures.values()] == [words]
    assert engine.done[1:] == ["kill box"]
    with hosts.lock("up"):
        hosts.apply([])
    assert hosts.spare_launcher_failures == {}


def test_a_spare_that_is_replaced_begins_again_from_nothing(hosts: Hosts) -> None:
    engine = look(hosts, replace(IDLE, artefact=ArtefactId("old")))
    with hosts.lock("up"):
        hosts.apply([replace(START, kind="replace")])
    assert engine.done == ["stop box", "remove box", "start spare, report not there"]
    with hosts.lock("up"):
        hosts.apply([replace(START, kind="remove")])
    assert engine.done[3:] == ["stop box", "remove box"]
    assert not (work(hosts) / "spare").exists()


@pytest.mark.parametrize("became", [-1, 1])
def test_a_node_that_is_started_on_a_spares_host_removes_the_spares_container(hosts: Hosts, became: int) -> None:
    """Else two launchers would act for one node. Its artefact is sent too: nobody did before."""
    (work(hosts) / "spare" / "report.json").write_text(json.dumps({**WAITS, "node": became}))
    engine = look(hosts, IDLE)
    hosts.plan = replace(PLAN, nodes=(PLAN.nodes[0], replace(PLAN.nodes[1], host=SPARE.host)))
    with hosts.lock("supervisor"):
        assert dict(hosts.apply([Step("start", "node 1 on s0", "not running", 1, host="s0")])) == {}
    assert engine.done == ["stop box", "remove box", "start node-1, report not there"]
    assert (work(hosts) / "node-1.sh").is_file()


def test_what_ends_a_node_ends_the_spares_container_that_has_become_it(hosts: Hosts) -> None:
    (work(hosts) / "spare" / "report.json").write_text(json.dumps({**WAITS, "node": 1}))
    engine = look(hosts, IDLE)
    hosts.host_jobs["s0"].end(0, 0.0)
    assert engine.done == []
    hosts.host_jobs["s0"].end(1, 0.0)
    assert engine.done == ["stop box", "remove box"]
    assert not (work(hosts) / "spare").exists()


def test_generations_are_handed_to_spares_and_meet_them_at_their_port(hosts: Hosts) -> None:
    (work(hosts) / "spare" / "report.json").write_text(json.dumps(WAITS))
    look(hosts, IDLE)
    moved = replace(PLAN, nodes=(PLAN.nodes[0], replace(PLAN.nodes[1], host=SPARE.host)))
    assert spare_launchers.ports(hosts.fleet, moved.nodes) == {1: 4000}
    second = hosts.next_generation(moved, first_generation(PLAN), 0.0, moved.nodes)
    assert [(member.host, member.port) for member in second.members] == [("h0", None), ("s0", 4000)]
    with hosts.lock("up"):
        hosts.begin(first_generation(PLAN), Ledger(1.0))
    assert hosts.host_jobs["s0"].control().generation is not None


def test_a_spare_that_nobody_could_see_is_not_idle(hosts: Hosts) -> None:
    hosts.fleet.seen = {"s0": HostState((), NOTHING, {}, spare={})}
    assert hosts.idle_spares({"s0": HASH}, set()) == ()
    hosts.fleet.seen = {}
    hosts.fleet.down = {"s0": HostError("s0", "no-route", "no route to it")}
    assert hosts.idle_spares({"s0": HASH}, set()) == ()
