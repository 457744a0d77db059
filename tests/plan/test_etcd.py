"""The etcd of a plan: one that exists, and one whose members are services of the job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.plan.serial import dump_plan, load_plan
from jobctl.jobspec.plan.types import Etcd, HostRef, Mount, Plan, Tls
from jobctl.jobspec.planner import job as planner
from jobctl.jobspec.planner.context import Context, Placement, PlanError
from jobctl.jobspec.spec.checks.targets import check_target
from jobctl.jobspec.spec.hosts import parse_hosts
from jobctl.jobspec.spec.load import load_text

BASE = "name: job\nframework: torch\nscript: train.py\nimage: img\n"
HOSTS = "a\nb addr=10.0.0.2\nc\nd spare\n"
EXTERNAL = """\
secrets: [PASS]
etcd:
  endpoints: ["10.1.0.1:2379", "10.1.0.2:2379"]
  tls: {ca: /etc/etcd/ca.pem, cert: /etc/etcd/me.pem, key: /etc/etcd/me.key}
  user: me
  password: PASS
"""


def make(text: str, hosts: str = HOSTS, services: Any = None, nodes: int = 2) -> Plan:
    loaded = load_text(Path("/specs/job.yaml"), f"{BASE}nodes: {nodes}\n{text}", environ={})
    assert loaded.spec is not None, loaded.diagnostics
    target: Any = "compose" if hosts else "local"
    known = parse_hosts(hosts, "hosts.txt").hosts
    return planner.plan(
        loaded.spec, known, Context(target, "/specs", "me@here", "1.0"), placement=Placement(services=services or {})
    )


def test_one_that_exists() -> None:
    plan = make(EXTERNAL)
    node = plan.nodes[0]
    assert plan.services == ()
    assert node.launch.etcd == Etcd(
        endpoints=("10.1.0.1:2379", "10.1.0.2:2379"),
        prefix="/jobctl/me@here/job",
        tls=Tls("/jobctl/etcd/ca", "/jobctl/etcd/cert", "/jobctl/etcd/key"),
        user="me",
        password="PASS",
    )
    assert node.container.restart == "unless-stopped"
    assert node.container.mounts == (
        Mount("bind", "/etc/etcd/ca.pem", "/jobctl/etcd/ca", read_only=True),
        Mount("bind", "/etc/etcd/me.pem", "/jobctl/etcd/cert", read_only=True),
        Mount("bind", "/etc/etcd/me.key", "/jobctl/etcd/key", read_only=True),
    )
    assert load_plan(dump_plan(plan)) == plan


def test_on_this_machine_certificates_are_where_they_are() -> None:
    node = make(EXTERNAL.replace("/etc/etcd/ca.pem", "certs/ca.pem"), hosts="").nodes[0]
    assert node.launch.etcd is not None
    assert node.launch.etcd.tls == Tls("/specs/certs/ca.pem", "/etc/etcd/me.pem", "/etc/etcd/me.key")
    assert (node.container.mounts, node.container.restart) == ((), "no")


def test_without_etcd_engines_start_containers_again_unless_nodes_join_alone() -> None:
    plan = make("")
    assert (plan.nodes[0].launch.etcd, plan.nodes[0].container.restart, plan.services) == (None, "unless-stopped", ())
    assert make("", hosts="").nodes[0].container.restart == "no"


def test_members_are_on_distinct_hosts() -> None:
    plan = make("etcd: {managed: {replicas: 3, port: 4000, image: my/etcd}}")
    assert [(s.name, s.role, s.host, s.port) for s in plan.services] == [
        ("etcd-0", "etcd", HostRef("a", "a"), 4000),
        ("etcd-1", "etcd", HostRef("b", "10.0.0.2"), 4000),
        ("etcd-2", "etcd", HostRef("c", "c"), 4000),
    ]
    assert all(
        node.launch.etcd and node.launch.etcd.endpoints == ("a:4000", "10.0.0.2:4000", "c:4000") for node in plan.nodes
    )
    member = plan.services[1].container
    env = dict(member.env)
    assert (member.name, member.image, member.restart) == ("jobctl-job-etcd-1", "my/etcd", "unless-stopped")
    assert env["ETCD_INITIAL_CLUSTER"] == "etcd-0=http://a:4001,etcd-1=http://10.0.0.2:4001,etcd-2=http://c:4001"
    assert env["NO_PROXY"] == "*"
    assert (env["ETCD_LISTEN_CLIENT_URLS"], env["ETCD_ADVERTISE_CLIENT_URLS"]) == ("http://10.0.0.2:4000",) * 2
    # A name is nothing to listen at.
    assert dict(plan.services[0].container.env)["ETCD_LISTEN_PEER_URLS"] == "http://0.0.0.0:4001"
    assert ("jobctl.node", "etcd-1") in member.labels
    assert load_plan(dump_plan(plan)) == plan


def test_hosts_with_the_role_go_first_and_take_no_nodes() -> None:
    plan = make("etcd: {managed: {}}", hosts="a\nb\nc roles=etcd\n")
    assert [s.host.name for s in plan.services] == ["c"]
    assert [node.host.name for node in plan.nodes] == ["a", "b"]
    with pytest.raises(PlanError, match="needs 3 nodes and the hosts file has room for 2"):
        make("", hosts="a\nb\nc roles=etcd\n", nodes=3)


def test_members_stay_where_they_are() -> None:
    text = "etcd: {managed: {replicas: 3}}"
    hosts = "a\nb\nc\nd\n"
    assert [s.host.name for s in make(text, hosts, {"etcd-0": "d", "etcd-2": "b"}).services] == ["d", "a", "b"]
    assert [s.host.name for s in make(text, hosts, {"etcd-0": "gone"}).services] == ["a", "b", "c"]


def test_too_few_hosts() -> None:
    with pytest.raises(PlanError, match="a managed etcd of 3 members needs as many hosts, and the hosts file has 2"):
        make("etcd: {managed: {replicas: 3}}", hosts="a\nb\nc spare\n")


def test_on_this_machine_each_has_an_address() -> None:
    plan = make("etcd: {managed: {replicas: 3}}", hosts="")
    assert [s.host.address for s in plan.services] == ["127.0.0.2", "127.0.0.3", "127.0.0.4"]


def test_other_members_are_another_cluster() -> None:
    """A member that found the data of another cluster would be a member of that."""
    one, three = make("etcd: {managed: {}}"), make("etcd: {managed: {replicas: 3}}")
    directories = [dict(plan.services[0].container.env)["ETCD_DATA_DIR"] for plan in (one, three)]
    assert len(set(directories)) == 2
    assert replace(one, nodes=()) != replace(three, nodes=())


@pytest.mark.parametrize(
    ("target", "more"),
    [
        ("slurm", "slurm: {container: podman}\n"),
        ("kubernetes", ""),
        ("kubernetes", 'nodes: "2:4"\nkubernetes: {operator: kubeflow}\n'),
    ],
)
def test_one_that_is_not_used_needs_no_certificates(target: Any, more: str) -> None:
    loaded = load_text(Path("/specs/job.yaml"), BASE + EXTERNAL.replace("/etc/etcd/ca", "ca") + more, environ={})
    assert loaded.spec is not None, loaded.diagnostics
    assert not [one for one in check_target(loaded, target) if one.severity == "error"]
    node = planner.plan(loaded.spec, (), Context(target, "/specs", "me@here", "1.0")).nodes[0]
    assert (node.launch.etcd, node.container.mounts) == (None, ())
