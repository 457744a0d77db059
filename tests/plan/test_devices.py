"""Devices of nodes that share a host, or this machine, with fewer devices than nodes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from jobctl.jobspec.planner.context import PlanError

from .made import make

SPEC = "nodes: 2\ndevices: gpu\n"


@pytest.mark.parametrize(
    ("hosts", "counted"),
    [
        ("a slots=1 nodes=2\n", None),
        ("a devices=3 nodes=2\n", None),
        ("a nodes=2\n", {"a": 1}),
        ("", {"localhost": 1}),
    ],
)
def test_no_node_begins_without_a_device(hosts: str, counted: Mapping[str, int] | None) -> None:
    """It would have no process, and its container all devices of the host."""
    with pytest.raises(PlanError) as error:
        make(SPEC, hosts, devices=counted)
    assert error.value.code == "too-few-devices"


def test_a_host_that_cannot_be_counted_ends_no_plan() -> None:
    plan = make(SPEC, "a\nb nodes=2\n", devices={"a": 1})
    assert [(node.host.name, node.container.devices.ids) for node in plan.nodes] == [("a", (0,)), ("b", (0,))]


@pytest.mark.parametrize(("kind", "told"), [("npu", True), ("gpu", False)])
def test_huaweis_collectives_are_told_the_interface(kind: str, told: bool) -> None:
    """HCCL takes the first one by name otherwise, which need not lead to the other nodes."""
    (node,) = make(f"devices: {kind}:1", "a\n").nodes
    assert ("HCCL_SOCKET_IFNAME" in node.launch.interface_env) == told


@pytest.mark.parametrize(("text", "hosts"), [("network: {interface: ib0}\n", "a\n"), ("", "a interface=ib0\n")])
def test_a_variable_of_the_spec_wins_over_the_interface(text: str, hosts: str) -> None:
    """One of the image does not: what the plan says, the launcher sets whatever processes inherit."""
    (node,) = make(f"devices: gpu:1\nenv: {{GLOO_SOCKET_IFNAME: eth1}}\n{text}", hosts).nodes
    assert (node.launch.interface, node.launch.interface_env) == ("ib0", ("NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"))
    told = [pair for pair in node.launch.env if str(pair[0]).endswith("_IFNAME")]
    assert told == [("NCCL_SOCKET_IFNAME", "ib0"), ("TP_SOCKET_IFNAME", "ib0")]
    assert dict(node.container.env)["GLOO_SOCKET_IFNAME"] == "eth1"
