"""What a job of MindSpore is compiled to: a scheduler and workers, and their variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.plan.context import Context, PlanError
from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.plan.types import Plan, Slot
from jobctl.jobspec.planner import planner
from jobctl.jobspec.spec.hosts import parse_hosts
from jobctl.jobspec.spec.load import load_text

BASE = "name: job\nframework: mindspore\nscript: train.py\nimage: img\n"


def make(text: str = "", hosts: str = "", placement: Any = None) -> Plan:
    loaded = load_text(Path("/specs/job.yaml"), BASE + text, environ={})
    assert loaded.spec is not None, loaded.diagnostics
    target: Any = "compose" if hosts else "local"
    known = parse_hosts(hosts, "hosts.txt").hosts if hosts else ()
    return planner(loaded.spec, known, placement, Context(target, "/specs", "me@here", "1.0"))


def summary(plan: Plan) -> list[tuple[int, str, str, int]]:
    return [(node.index, node.role, node.host.name, node.launch.nproc) for node in plan.nodes]


def test_a_scheduler_stands_beside_the_first_node() -> None:
    plan = make("nodes: 2\ndevices: npu:2\n", "a slots=2\nb slots=2\n")
    assert summary(plan) == [(0, "trainer", "a", 2), (1, "trainer", "b", 2), (2, "scheduler", "a", 1)]
    assert [node.container.devices.ids for node in plan.nodes] == [(0, 1), (0, 1), ()]
    ports = [member.ports for member in first_generation(plan).members]
    assert (ports[:2], len(ports[2])) == ([(), ()], 1)


def test_a_host_can_be_kept_for_the_scheduler() -> None:
    plan = make("nodes: 2\n", "a roles=trainer\nb roles=trainer,scheduler\n")
    assert summary(plan)[2] == (2, "scheduler", "b", 1)


def test_the_scheduler_moves_with_its_host() -> None:
    plan = make("nodes: 2\n", "a\nb\nc spare\n", {0: "c", 1: "b", 2: "c"})
    assert summary(plan) == [(0, "trainer", "c", 1), (1, "trainer", "b", 1), (2, "scheduler", "c", 1)]


CLUSTER = {
    "MS_WORKER_NUM": Slot("trainer_count"),
    "MS_SCHED_HOST": Slot("scheduler_address"),
    "MS_SCHED_PORT": Slot("scheduler_port"),
    "MS_TOPO_TIMEOUT": "600",
    "MS_HEARTBEAT_RETRY_TIMEOUT": "60",
}


def test_what_the_roles_get() -> None:
    worker, scheduler = make("devices: npu:1\nmindspore: {node_timeout: 10s}\n", "a slots=1\n").nodes
    assert dict(worker.launch.env) == {
        **CLUSTER,
        "MS_ROLE": "MS_WORKER",
        "MS_NODE_TIMEOUT": "10",
        "MS_WORKER_IP": Slot("address"),
        "HCCL_IF_IP": Slot("address"),
    }
    assert dict(worker.launch.process_env) == {
        "MS_NODE_ID": Slot("rank"),
        "RANK_ID": Slot("rank"),
        "RANK_SIZE": Slot("trainer_count"),
        "DEVICE_ID": Slot("local_rank"),
    }
    assert dict(scheduler.launch.env) == {**CLUSTER, "MS_ROLE": "MS_SCHED", "MS_NODE_TIMEOUT": "10"}
    assert scheduler.launch.process_env == (("MS_NODE_ID", "sched"),)
    assert (scheduler.launch.until, scheduler.launch.rejoin, scheduler.launch.log_name) == (
        "trainer",
        3,
        "scheduler.log",
    )
    assert (worker.launch.until, worker.launch.rejoin, worker.launch.interface_env) == (
        "",
        None,
        ("HCCL_SOCKET_IFNAME",),
    )
    assert {"MS_ROLE", "RANK_ID", "RANK_TABLE_FILE", "MS_ENABLE_RECOVERY"} <= set(worker.launch.scrub)


@pytest.mark.parametrize("options", ["{launcher: msrun}", "{recovery: native}"])
def test_what_is_not_run_yet(options: str) -> None:
    with pytest.raises(PlanError) as error:
        make(f"devices: gpu:1\nmindspore: {options}\n", "a slots=1\n")
    assert error.value.code == "not-yet"
