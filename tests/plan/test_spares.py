"""Hot spares: on which spare hosts a launcher waits, and what it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobctl.jobspec.plan.types import HostRef, Plan
from jobctl.jobspec.planner import job as planner
from jobctl.jobspec.planner.context import Context, Placement
from jobctl.jobspec.render.artefact import ids, spare_ids
from jobctl.jobspec.spec.hosts import parse_hosts
from jobctl.jobspec.spec.targets import TargetName
from tests.plan.made import spec_of

HOSTS = "a\nb\ns addr=10.0.0.9 spare\n"


def make(
    text: str = "", hosts: str = HOSTS, target: TargetName = "compose", placement: dict[int, str] | None = None
) -> Plan:
    known = parse_hosts(hosts, "hosts.txt").hosts
    spec = spec_of(f"nodes: 2\n{text}")
    return planner.plan(spec, known, Context(target, "/specs", "me@here", "1.0"), Placement(placement or {}))


def hot(text: str = "", hosts: str = HOSTS, target: TargetName = "compose") -> list[str]:
    return [spare.host.name for spare in make(text, hosts, target).spares]


def test_a_spare_waits_as_a_node_would_run_there() -> None:
    there = make(placement={0: "s", 1: "b"})
    (spare,), (node, _) = there.spares, there.nodes
    assert spare.host == node.host == HostRef("s", "10.0.0.9")
    assert spare.launch == replace(node.launch, node=-1, spare=2)
    inputs = dict(spare.container.labels)["jobctl.inputs"]
    assert inputs != dict(node.container.labels)["jobctl.inputs"]
    own = {"jobctl.node": "spare", "jobctl.role": "spare", "jobctl.inputs": inputs}
    labels = tuple((name, own.get(name, value)) for name, value in node.container.labels)
    hostname = spare.container.hostname
    assert spare.container == replace(node.container, name="jobctl-job-spare", hostname=hostname, labels=labels)


def test_two_spares_have_host_names_of_their_own() -> None:
    names = [spare.container.hostname for spare in make(hosts=f"{HOSTS}t spare\n").spares]
    assert len({*names}) == 2
    assert all(name.startswith("job-spare-") for name in names)


@pytest.mark.parametrize("target", ["compose", "ssh"])
def test_what_a_spare_runs_is_the_same_wherever_nodes_are(target: TargetName) -> None:
    """Else a node in a spare's container would look as if its spec had changed."""
    before, after = make(target=target), make(target=target, placement={0: "a", 1: "s"})
    assert spare_ids(before) == spare_ids(after)
    assert spare_ids(after)["s"] not in ids(after).values()


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("recovery: {on_host_loss: wait}", HOSTS),
        ("recovery: {standby: off}", HOSTS),
        ("checkpoint: {dir: /c, shared: false}", HOSTS),
        ("mode: ps\nps: {servers: 1, trainers: 2}\ntorch: {rejoin: true}", HOSTS),
        ("mode: ps\nps: {servers: 1, trainers: 2}", HOSTS),
        ("devices: gpu", "a slots=2\nb slots=2\ns slots=1 spare\n"),
        ("devices: gpu:2", "a slots=2\nb slots=2\ns slots=1 spare\n"),
        ("", "a nodes=2\ns spare\n"),
        ("", "a\nb\ns nodes=2 spare\n"),
        ("", "a\nb\ns spare roles=server\n"),
        ("", "a\nb\nc\n"),
    ],
)
def test_these_spares_stay_cold(text: str, hosts: str) -> None:
    assert hot(text, hosts) == []


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("recovery: {on_host_loss: replace}", HOSTS),
        ("recovery: {standby: {import: [numpy]}}", HOSTS),
        ("checkpoint: /c", HOSTS),
        ("etcd: {managed: {}}", HOSTS),
        ("devices: gpu:2", "a slots=2\nb slots=4\ns slots=8 spare\n"),
        ("", "a\nb\nc nodes=2\ns spare\n"),
    ],
)
def test_these_are_hot(text: str, hosts: str) -> None:
    assert hot(text, hosts) == hot(text, hosts, "ssh") == ["s"]
