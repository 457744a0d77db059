"""What trainers of an old PaddlePaddle are started with: not by its launcher."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from jobctl.jobspec.plan.generation import first_generation, next_generation
from jobctl.jobspec.plan.types import Slot
from tests.plan import made

BASE = "name: job\nframework: paddle\nscript: train.py\nimage: img\npaddle: {launcher: legacy}\n"
make = partial(made.make, base=BASE)


def old(*more: tuple[str, object]) -> tuple[tuple[str, object], ...]:
    return (
        ("PADDLE_TRAINER_ENDPOINTS", Slot("trainers")),
        ("PADDLE_TRAINERS_NUM", Slot("trainer_count")),
        ("POD_IP", Slot("address")),
        ("TRAINING_ROLE", "TRAINER"),
        ("PADDLE_TRAINING_ROLE", "TRAINER"),
        ("PADDLE_TRAINERS", Slot("trainer_count")),
        ("PADDLE_TRAINER_IPS", Slot("trainer_addresses")),
        ("PADDLE_CURRENT_IP", Slot("address")),
        *more,
        ("FLAGS_tcp_store_using_libuv", "0"),
    )


def test_trainers_of_an_old_paddle_start_without_its_launcher() -> None:
    """Its options are others in each version; the variables, NCCL2's of the Fluid time too, are the same in all."""
    (node,) = make("devices: gpu:2\n", "a slots=2\n").nodes
    launch = node.launch
    assert (launch.start, launch.nproc, launch.listens, launch.rejoin, launch.regroups) == ((), 2, True, None, False)
    assert launch.env == old()
    assert (launch.rank_env, launch.process_env) == (
        ("PADDLE_TRAINER_ID", "PADDLE_RANK_IN_NODE"),
        (
            ("PADDLE_PORT", Slot("port")),
            ("PADDLE_CURRENT_ENDPOINT", Slot("endpoint")),
            ("PADDLE_PSERVER_PORT", Slot("port")),
            ("FLAGS_selected_gpus", Slot("local_rank")),
        ),
    )


@pytest.mark.parametrize(("kind", "name"), [("gpu", "gpu"), ("dcu", "gpu"), ("xpu", "xpu"), ("npu", "npu")])
def test_a_trainer_without_paddles_launcher_is_told_its_device(kind: str, name: str) -> None:
    """A Paddle for DCUs looks for GPUs."""
    (node,) = make(f"devices: {kind}:2\n", "a slots=2\n").nodes
    assert node.launch.process_env[3:] == ((f"FLAGS_selected_{name}s", Slot("local_rank")),)


@pytest.mark.parametrize(
    ("hosts", "devices", "alike"),
    [
        ("a\nb\n", "cpu", True),
        ("", "cpu", True),  # on this machine each node has an address of its own
        ("a nodes=2\n", "cpu", False),
        ("a\nb\n", "cpu:2", False),
    ],
)
def test_trainers_of_old_programs_have_one_port_where_each_has_a_host(hosts: str, devices: str, alike: bool) -> None:
    """Programs of the Fluid time know one port for all of them (`PADDLE_PSERVER_PORT`, with `PADDLE_TRAINER_IPS`)."""
    plan = make(f"nodes: 2\ndevices: {devices}\n", hosts)
    first = first_generation(plan)
    taken = {(first.members[0].host, first.members[0].ports[0])}
    free: Any = lambda host, port: (host, port) not in taken  # noqa: E731
    for generation in (first, next_generation(first, plan.nodes, grace=1.0, free=free)):
        ports = [port for member in generation.members for port in member.ports]
        assert (len({*ports}) == 1, len(ports)) == (alike, 2 * (1 + (devices == "cpu:2")))


@pytest.mark.parametrize(("nodes", "level"), [("2", "1"), ("2:4", "2")])
def test_who_takes_part_of_an_old_paddle_is_decided_here(nodes: str, level: str) -> None:
    text = f'nodes: "{nodes}"\netcd: {{endpoints: ["10.0.0.9:2379"]}}\n'
    plan = make(text, "a\nb\n")
    assert plan.nodes[0].launch.env == old(
        ("PADDLE_DISTRI_BACKEND", "gloo"),
        ("PADDLE_ELASTIC_SERVER", Slot("etcd_member")),
        ("PADDLE_ELASTIC_JOB_ID", Slot("etcd_job")),
        ("PADDLE_ELASTIC_NP", nodes),
        ("PADDLE_ELASTIC_FAULT_TOLERANC_LEVEL", level),
    )
    assert [need.code for need in plan.needs] == ["framework-broken"]
