"""Which hosts get what a node needs that may move there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from jobctl.jobspec.deploy.control import NOTHING
from jobctl.jobspec.deploy.hosts import Hosts
from jobctl.jobspec.deploy.jobdir import JobDir
from jobctl.jobspec.deploy.reach import Reach
from jobctl.jobspec.deploy.seen import Seen
from jobctl.jobspec.plan.types import HostRef, Plan, Service
from jobctl.jobspec.spec.hosts import Host

from .test_carry_out import RUNNING, TWO

HOSTS = (Host("h0"), Host("h1"), Host("left"), Host("etcd"), Host("spare", spare=True), Host("idle"))


def deployer(tmp_path: Path, plan: Plan = TWO) -> Hosts:
    return Hosts(JobDir(tmp_path / "jobs" / "job"), "compose", Reach(HOSTS), plan)


def test_hosts_that_a_node_may_move_to_have_what_it_needs(tmp_path: Path) -> None:
    made = deployer(tmp_path)
    assert list(made.spares(TWO)) == ["spare"]
    made._seen = {"left": Seen((), NOTHING, {}, there=True), "idle": Seen((), NOTHING, {}, there=False)}
    assert list(made.spares(TWO)) == ["left", "spare"]  # node 0 or 1 has left it for a spare


def test_so_has_a_host_that_only_etcd_runs_on(tmp_path: Path) -> None:
    member = Service("etcd-0", "etcd", HostRef("etcd", "10.0.0.9"), TWO.nodes[0].container, ("etcd",), "/d", "D", 2379)
    served = replace(TWO, services=(member,))
    assert list(deployer(tmp_path, served).spares(served)) == ["etcd", "spare"]


def test_no_node_moves_to_a_host_that_is_not_prepared_for_it(tmp_path: Path) -> None:
    made = deployer(tmp_path)
    made._seen = {host.name: Seen((), NOTHING, {}, there=host.name != "idle") for host in HOSTS}
    assert set(made.homes(RUNNING)) <= set(made.spares(TWO))
