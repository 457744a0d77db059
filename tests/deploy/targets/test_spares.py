"""Which hosts a node may move to, and which of them have what it needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.apply.deployer import RuntimeInputs
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.images import images
from jobctl.jobspec.deploy.model.control import NOTHING
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.host_state import HostState
from jobctl.jobspec.deploy.model.inventory import Inventory, dump_inventory, load_inventory
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.targets.hosts import Hosts
from jobctl.jobspec.deploy.targets.provision import idle_hosts
from jobctl.jobspec.plan.types import HostRef, Plan, Service
from jobctl.jobspec.spec.hosts import Host
from tests.deploy.apply.test_executor import RUNNING, TWO

HOSTS = tuple(Host(name) for name in ("h0", "h1", "freed", "etcd", "idle"))
MOVES = replace(TWO, recovery=replace(TWO.recovery, on_host_loss="replace"), checkpoint=None)
MEMBER = Service("etcd-0", "etcd", HostRef("etcd", "10.0.0.9"), TWO.nodes[0].container, ("etcd",), "/d", "D", 2379)


def deployer(tmp_path: Path, plan: Plan = MOVES, gone: tuple[str, ...] = ()) -> Hosts:
    """The deployer of a job that `freed` has a work directory of; hosts `gone` are in the hosts file no more."""
    file = Inventory((*(host for host in HOSTS if host.name not in gone), Host("spare", spare=True)))
    made = Hosts(JobDir(tmp_path / "jobs" / "job"), "compose", file.with_hosts(HOSTS), plan)
    there = {"h0", "h1", "freed", "spare"}
    made.fleet.seen = {host.name: HostState((), NOTHING, {}, there=host.name in there) for host in made.inventory.hosts}
    return made


def test_a_host_that_a_node_has_left_gets_what_a_node_needs(tmp_path: Path) -> None:
    made = deployer(tmp_path)
    assert (list(made.spares(MOVES)), idle_hosts(made.fleet, MOVES)) == (["spare"], {"freed"})


def test_so_does_a_host_that_runs_only_etcd(tmp_path: Path) -> None:
    served = replace(MOVES, services=(MEMBER,))
    assert idle_hosts(deployer(tmp_path, served).fleet, served) == {"freed", "etcd"}


def test_where_no_node_moves_other_hosts_get_nothing(tmp_path: Path) -> None:
    waits = replace(MOVES, recovery=replace(TWO.recovery, on_host_loss="wait"), services=(MEMBER,))
    assert idle_hosts(deployer(tmp_path, waits).fleet, waits) == set()


def test_no_node_moves_to_a_host_that_is_in_the_hosts_file_no_more(tmp_path: Path) -> None:
    assert deployer(tmp_path).free_hosts(RUNNING) == ("spare", "freed")
    made = deployer(tmp_path, gone=("freed",))
    assert (made.inventory.left, idle_hosts(made.fleet, MOVES), made.free_hosts(RUNNING)) == (
        ("freed",),
        set(),
        ("spare",),
    )


def test_what_a_host_cannot_take_counts_only_where_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = deployer(tmp_path)
    asked: list[str] = []

    def ensure(host_job: HostJob, *how: object) -> None:
        asked.append(host_job.host.name)
        raise HostError(host_job.host.name, "image-missing", "no such image")

    monkeypatch.setattr(images, "ensure", ensure)
    for name in ("send", "send_secrets", "give", "note_prepared"):
        monkeypatch.setattr(HostJob, name, lambda self, *args, **how: None)
    assert sorted(made.prepare(MOVES, RuntimeInputs({}, {}))) == ["h0", "h1", "spare"]
    assert sorted(asked) == ["freed", "h0", "h1", "spare"]


def test_what_has_left_is_kept_with_the_job() -> None:
    inventory = Inventory((Host("h0"),)).with_hosts((Host("h0"), Host("h1")))
    assert load_inventory(dump_inventory(inventory)) == inventory
    assert inventory.with_hosts((Host("h2"),)).left == ("h1", "h2")
    old = {key: value for key, value in dump_inventory(inventory).items() if key != "left"}
    assert load_inventory(old).left == ()
