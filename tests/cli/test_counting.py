"""Devices that neither the spec nor the hosts file counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobctl.jobspec.deploy.apply.changes import with_value
from jobctl.jobspec.deploy.host.devices import devices_on
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import Inventory
from jobctl.jobspec.deploy.transport.base import Result
from jobctl.jobspec.operations.errors import HostsFailed
from jobctl.jobspec.operations.resolve.devices import devices_of, devices_to_check
from jobctl.jobspec.operations.resolve.drift import _Effects
from jobctl.jobspec.operations.resolve.job import Compiled
from jobctl.jobspec.operations.resolve.planning import plan_of
from jobctl.jobspec.plan.serial import dump_plan, load_plan
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.planner import job as planner
from jobctl.jobspec.planner.context import Context
from jobctl.jobspec.render.artefact import ids
from jobctl.jobspec.spec.hosts import Host, parse_hosts
from jobctl.jobspec.spec.load import load_text
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.supervise.replan import with_moves, with_possible_moves

AT = Context("ssh", "/specs", "me@here", "1.0")


class There:
    """Hosts with so many devices, None for one that does not answer; notes who was asked."""

    def __init__(self, **has: int | None) -> None:
        self.has, self.asked = has, list[str]()

    def count_devices(self, kind: str, hosts: Iterable[str]) -> tuple[Mapping[str, int], Mapping[str, HostError]]:
        self.asked += sorted(hosts)
        found = {host: self.has[host] for host in self.asked}
        silent = {host: HostError(host, "lost", "no answer") for host, count in found.items() if count is None}
        return {host: count for host, count in found.items() if count}, silent


def spec_of(devices: str, nodes: int = 2) -> Spec:
    text = f"name: job\nframework: torch\nimage: i\ncommand: [t]\nper: node\nnodes: {nodes}\ndevices: {devices}\n"
    spec = load_text(Path("/specs/job.yaml"), text, environ={}).spec
    assert spec is not None
    return spec


def hosts_of(text: str) -> tuple[Host, ...]:
    return parse_hosts(text, "hosts.txt").hosts


def job(devices: str, hosts: str, target: str = "ssh") -> Any:
    return SimpleNamespace(spec=spec_of(devices), target=target, hosts=hosts_of(hosts))


def before(devices: str, hosts: str, counted: Mapping[str, int]) -> Plan:
    plan = planner.plan(spec_of(devices), hosts_of(hosts), AT, devices=counted)
    return load_plan(dump_plan(plan))  # as it is kept


@pytest.mark.parametrize(
    ("given", "old", "asked", "counted"),
    [
        (job("gpu", "a\nb\nc spare\n"), None, ["a", "b", "c"], {"a": 4, "b": 8, "c": 4}),
        (job("gpu", "a slots=4\nb\nc devices=0,1\n"), None, ["b"], {"b": 8}),
        (job("gpu", "a\nb\nd\n"), None, ["a", "b", "d"], {"a": 4, "b": 8}),  # d has none: its driver is not loaded
        (job("gpu", "a\nb\ne\n"), None, ["a", "b", "e"], {"a": 4, "b": 8}),  # e does not answer
        # What was counted at the first `up` holds, whatever is there by now; a host that is new is asked.
        (job("gpu", "a\nb\n"), before("gpu", "a\nb\n", {"a": 2, "b": 2}), [], {"a": 2, "b": 2}),
        (job("gpu", "a\nb\nc\n"), before("gpu", "a\nb\n", {"a": 2, "b": 2}), ["c"], {"a": 2, "b": 2, "c": 4}),
        (job("gpu", "a\nb\n"), before("npu", "a\nb\n", {"a": 2, "b": 2}), ["a", "b"], {"a": 4, "b": 8}),
        # Nobody has to know.
        (job("gpu:2", "a\nb\n"), None, [], None),
        (job("{kind: gpu, ids: '0,1'}", "a\nb\n"), None, [], None),
        (job("cpu", "a\nb\n"), None, [], None),
        (job("gpu", "a slots=1\nb slots=1\n"), None, [], None),
        (job("gpu", "a\nb\n", "kubernetes"), None, [], None),
    ],
)
def test_hosts_are_asked_where_nobody_says(given: Any, old: Plan | None, asked: list[str], counted: Any) -> None:
    there = There(a=4, b=8, c=4, d=0, e=None)
    assert devices_of(given, cast(Any, there), old) == counted
    assert there.asked == asked


@pytest.mark.parametrize(
    ("there", "why"),
    [
        (There(a=0, b=0), "no host has a device of kind `gpu`"),
        (There(a=None, b=0), "no host answers that could be asked for its devices"),
    ],
)
def test_where_no_device_is_seen_nothing_is_planned_and_check_says_why(there: There, why: str) -> None:
    given = job("gpu", "a\nb nodes=2\n")
    with pytest.raises(HostsFailed) as end:
        devices_of(given, cast(Any, there), None)
    assert (str(end.value), end.value.exit_code) == (why, 3)
    assert devices_to_check(given, cast(Any, there), None) == {"a": 1, "b": 2}


def test_a_node_that_moves_gets_what_was_counted_on_its_new_host() -> None:
    hosts, counted = "a\nb\nc spare\n", {"a": 4, "b": 4, "c": 2}
    plan = before("gpu", hosts, counted)
    source = {"spec": spec_of("gpu").model_dump(mode="json"), "context": asdict(AT), "count": None}
    moved = with_moves(plan, source, Inventory(hosts_of(hosts)), {1: "c"})
    assert [(node.host.name, node.container.devices.ids) for node in moved.nodes] == [
        ("a", (0, 1, 2, 3)),
        ("c", (0, 1)),
    ]
    assert dict(moved.counted) == counted


def test_nodes_move_where_they_can_be_planned_and_stay_where_not() -> None:
    hosts, counted = "a\nb\nc spare\nd spare\n", {"a": 4, "b": 4, "c": 2, "d": 4}
    plan = before("gpu:4", hosts, counted)
    source = {"spec": spec_of("gpu:4").model_dump(mode="json"), "context": asdict(AT), "count": None}
    moved, failed = with_possible_moves(plan, source, Inventory(hosts_of(hosts)), {0: "c", 1: "d"})
    assert [node.host.name for node in moved.nodes] == ["a", "d"]
    assert [str(why) for why in failed.values()] == ["c: a node needs 4 devices of kind `gpu` and c has 2 for it"]


@pytest.mark.parametrize(
    ("listing", "found"),
    [
        ("null nvidia0 nvidia1 nvidiactl nvidia-uvm dri/card0 dri/renderD128", {"gpu": 2}),
        ("null 0000:65:00.0 0000:CA:00.0", {"gpu": 2}),  # no device nodes yet: nobody has used it since it booted
        ("nvidia0 0000:65:00.0 0000:ca:00.0", {"gpu": 1}),  # only one was given to this machine
        ("kfd dri/renderD128 dri/renderD129", {"dcu": 2}),
        ("davinci0 davinci1 davinci_manager", {"npu": 2}),
        ("xpu0 xpuctrl", {"xpu": 1}),
        ("null", {}),
    ],
)
def test_what_a_host_has(listing: str, found: Mapping[str, int]) -> None:
    class Transport:
        host = "a"

        def run(self, argv: object, stdin: bytes, *, timeout: float) -> Result:
            return Result(0, listing.replace(" ", "\n").encode(), b"")

    assert devices_on(cast(Any, SimpleNamespace(transport=Transport()))) == found


def test_what_a_change_makes_necessary_is_known_where_devices_were_counted(tmp_path: Path) -> None:
    """A job whose devices nobody counts but its hosts is planned with the old value as it was with the new one."""
    spec = spec_of("gpu")
    new = spec.model_dump(mode="json")
    old = with_value(new, ("recovery", "max_restarts"), 7)
    compiled = Compiled(spec, tmp_path, tmp_path / "job.yaml", "ssh", hosts_of("a\nb\n"), None, None, None, ())
    plan = plan_of(compiled, devices={"a": 2, "b": 2})
    deployer = SimpleNamespace(ids=ids)
    effect = _Effects(compiled, plan, cast(Any, deployer)).of(("recovery", "max_restarts"), old, new)
    assert effect == {"nodes": (), "generation": False, "later": False}
