"""What a job of JAX is compiled to: processes that are all alike, and their variables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from jobctl.jobspec.frameworks.base import framework
from jobctl.jobspec.frameworks.failure_patterns import DEFAULT_RULES
from jobctl.jobspec.launcher.order.order import Rendezvous
from jobctl.jobspec.plan.recovery import Recovery
from jobctl.jobspec.plan.types import Launch, Plan, Slot
from jobctl.jobspec.planner import job as planner
from jobctl.jobspec.planner.context import Context
from jobctl.jobspec.spec.frameworks import FRAMEWORKS, FrameworkName
from jobctl.jobspec.spec.hosts import parse_hosts
from jobctl.jobspec.spec.load import load_text
from jobctl.jobspec.supervise.decisions import GiveUp, Restart
from jobctl.jobspec.supervise.failures import judge, matching_rule
from tests.tools.failures import failed

BASE = "name: job\nframework: jax\nimage: img\n"


def make(text: str = "script: train.py\n", hosts: str = "") -> Plan:
    loaded = load_text(Path("/specs/job.yaml"), BASE + text, environ={})
    assert loaded.spec is not None, loaded.diagnostics
    target: Any = "compose" if hosts else "local"
    known = parse_hosts(hosts, "hosts.txt").hosts if hosts else ()
    return planner.plan(loaded.spec, known, Context(target, "/specs", "me@here", "1.0"))


def launch(text: str, hosts: str = "a slots=2\n") -> Launch:
    return make(f"script: train.py\n{text}", hosts).nodes[0].launch


def test_processes_are_started_by_the_launcher_and_meet_at_rank_0() -> None:
    given = launch("devices: gpu:2\n")
    assert (given.start, given.nproc, given.command) == ((), 2, ("python3", "-u", "train.py"))
    assert dict(given.env) == {
        "JAX_COORDINATOR_ADDRESS": Slot("master"),
        "JAX_NUM_PROCESSES": Slot("world_size"),
        "WORLD_SIZE": Slot("world_size"),
        "LOCAL_WORLD_SIZE": "2",
        "JAX_PLATFORMS": "cuda,cpu",
        "JAX_ENABLE_PREEMPTION_SERVICE": "false",
    }
    assert dict(given.process_env) == {"JAX_PROCESS_ID": Slot("rank"), "JAX_LOCAL_DEVICE_IDS": Slot("local_rank")}
    assert (given.rank_env, given.interface_env) == (("RANK", "LOCAL_RANK"), ("NCCL_SOCKET_IFNAME",))


@pytest.mark.parametrize(("address", "place"), [("10.0.0.1", "10.0.0.1:7"), ("fd00::1", "[fd00::1]:7")])
def test_where_they_meet_may_be_an_ipv6_address(address: str, place: str) -> None:
    """JAX waits in vain for one without brackets."""
    assert Rendezvous(address, 7, "demo-1").place == place


def test_a_process_per_node_takes_all_its_devices() -> None:
    """They are counted anew from 0 among those that it sees, whatever their numbers on the host."""
    text = 'command: [python3, train.py]\nper: node\ndevices: {kind: gpu, ids: "2,3"}\n'
    for hosts in ("a slots=4\n", ""):
        given = make(text, hosts).nodes[0].launch
        assert (given.nproc, dict(given.process_env)["JAX_LOCAL_DEVICE_IDS"]) == (1, "0,1")
    assert dict(given.env)["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_a_user_may_choose_the_platform_and_keep_the_preemption_service() -> None:
    given = launch("env: {JAX_PLATFORMS: cuda, JAX_ENABLE_PREEMPTION_SERVICE: 'true'}\n")
    assert not {"JAX_PLATFORMS", "JAX_ENABLE_PREEMPTION_SERVICE"} & dict(given.env).keys()
    assert dict(launch("").env)["JAX_PLATFORMS"] == "cpu"  # a GPU that is seen by chance is left alone


def test_a_range_needs_nothing_else() -> None:
    plan = make('script: train.py\nnodes: "1:3"\n', "a\nb\n")
    assert (plan.elastic, len(plan.nodes), plan.nodes[0].launch.regroups) == (True, 2, False)


def test_a_port_that_somebody_took_is_not_a_bug() -> None:
    """What jax 0.10.2 prints; it comes again, on the same rank, before any step."""
    taken = "jax.errors.JaxRuntimeError: UNKNOWN: Failed to start RPC server"
    earlier = failed(rank=0, progress=None, ran=1.0, tail=(taken,))
    failure = replace(earlier, generation=2, at=20.0)
    policy = Recovery(3, None, "wait", 30.0, None, None, ())
    assert matching_rule(failure, DEFAULT_RULES) in framework("jax").rules
    assert isinstance(judge(failure, [earlier], policy, 20.0), Restart)


def test_a_bug_on_one_rank_ends_the_job() -> None:
    earlier = failed(progress=None, ran=1.0)
    failure = replace(earlier, generation=2, at=20.0, tail=("ValueError: bad shape",))
    assert isinstance(judge(failure, [earlier], Recovery(3, None, "wait", 30.0, None, None, ()), 20.0), GiveUp)


@pytest.mark.parametrize("name", get_args(FrameworkName))
def test_each_framework_has_an_entry_and_a_module(name: FrameworkName) -> None:
    assert (list(FRAMEWORKS), framework(name).module) == (list(get_args(FrameworkName)), name)
