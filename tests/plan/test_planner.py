"""The planner and generations: whole plans as text, and what they have in common."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.slurm.sent_files import stable
from jobctl.jobspec.plan.generation import (
    FIRST_PORT,
    PORTS,
    Member,
    RendezvousPoint,
    first_generation,
    next_generation,
    next_port,
    port_of,
)
from jobctl.jobspec.plan.serial import dump_plan, load_plan
from jobctl.jobspec.plan.types import HostRef, Slot, Standby
from jobctl.jobspec.planner import job as planner
from jobctl.jobspec.planner.context import Context, PlanError
from jobctl.jobspec.planner.placement import local_hosts
from jobctl.jobspec.render.slurm import machines, slots, slurm_files
from jobctl.jobspec.spec.hosts import parse_hosts
from jobctl.jobspec.spec.load import load_text

from .made import BASE, make, spec_of


def test_the_same_input_gives_the_same_plan() -> None:
    assert dump_plan(make("nodes: 3")) == dump_plan(make("nodes: 3"))


def test_two_runs_of_one_name_do_not_meet() -> None:
    """Who runs it, and in which folder, tells two apart that begin at the same moment; in a cluster the spec is all there is."""

    def run_id(owner: str, folder: str, target: Any) -> str:
        at = Context(target, folder, owner, "1.0")
        return planner.plan(spec_of(""), (), at).run_id

    local = {run_id(owner, folder, "local") for owner in ("me@here", "you@here") for folder in ("/specs", "/other")}
    assert len(local) == len({port_of(one, 1) for one in local}) == 4
    cluster = {run_id(owner, folder, "kubernetes") for owner in ("me@here", "you@there") for folder in ("/a", "/b")}
    assert len(cluster) == 1


def test_a_plan_survives_serialisation() -> None:
    plan = make(
        "nodes: '1:3'\ncheckpoint: /c\nsecrets: [A]\nrecovery: {rules: [{exit: 3, do: fail}]}",
        "a\nb slots=2\n",
    )
    assert load_plan(dump_plan(plan)) == plan


def test_what_torch_is_started_with() -> None:
    launch = make("nodes: 2\ndevices: cpu:4\nargs: [--lr, 0.10]\ncheckpoint: {dir: /c, keep: 3}").nodes[1].launch
    assert launch.start == (
        *(
            "python3",
            "-m",
            "torch.distributed.run",
            "--log-dir",
            Slot("scratch"),
            "--nnodes",
            Slot("nnodes"),
            "--node-rank",
            Slot("node_rank"),
        ),
        *(
            "--nproc-per-node",
            "4",
            "--master-addr",
            Slot("master_addr"),
            "--master-port",
            Slot("master_port"),
        ),
        *(
            "--rdzv-id",
            Slot("rdzv_id"),
            "--local-addr",
            Slot("address"),
            "--max-restarts",
            "0",
            "--no-python",
        ),
        Slot("process"),
    )
    assert launch.command == ("python3", "-u", "train.py", "--lr", "0.10")
    assert launch.env == (("JOBCTL_CHECKPOINT_KEEP", "3"),)
    assert (launch.nproc, launch.devices) == (4, ("cpu:0", "cpu:1", "cpu:2", "cpu:3"))


TORCH, DYNAMO = ("torch", "torch.distributed"), ("torch._dynamo",)


@pytest.mark.parametrize(
    ("text", "standby"),
    [
        ("", Standby((TORCH, DYNAMO), "torch.distributed.run")),
        ("recovery: {standby: {import: [a, b.c]}}", Standby((TORCH, ("a",), ("b.c",)), "torch.distributed.run")),
        ("recovery: {standby: {import: []}}", Standby((TORCH,), "torch.distributed.run")),
        ("recovery: {standby: off}", Standby((), "", "`recovery.standby` is off")),
        ("mode: ps\nps: {servers: 1, trainers: 1}", Standby((TORCH, DYNAMO), "")),
    ],
)
def test_what_waits_for_the_next_generation(text: str, standby: Standby | None) -> None:
    found = {node.launch.standby for node in make(text, "a\n").nodes}
    assert {without_variables(one) for one in found} == {standby}


def without_variables(standby: Standby | None) -> Standby | None:
    return standby and replace(standby, changing=())


PADDLE, MINDSPORE = (("paddle",),), (("mindspore",),)
STORE = ("PADDLE_MASTER", "PADDLE_TRAINER_ID")
NOT_TRIED = Standby((), "", "a process that Paddle's launcher does not start has not been tried from standby")


@pytest.mark.parametrize(
    ("text", "standby"),
    [
        ("framework: jax", Standby((("jax",),), "")),
        ("framework: paddle", Standby(PADDLE, "paddle.distributed.launch.main:launch", meets=STORE)),
        ("framework: paddle\npaddle: {launcher: legacy}", NOT_TRIED),
        ("framework: paddle\nmode: ps\nps: {servers: 1, trainers: 1}", NOT_TRIED),
        ("framework: mindspore", Standby(MINDSPORE, "")),
        (
            "framework: mindspore\nmindspore: {launcher: msrun}",
            Standby((), "", "msrun starts its processes in a way of its own"),
        ),
        (
            "framework: mindspore\nmindspore: {launcher: msrun}\nrecovery: {standby: off}",
            Standby((), "", "`recovery.standby` is off"),
        ),
    ],
)
def test_what_waits_with_each_framework(text: str, standby: Standby) -> None:
    assert without_variables(standby_of(f"script: t.py\n{text}")) == standby


def standby_of(text: str) -> Standby | None:
    """Return what waits on a job's first node."""
    spec = load_text(Path("/specs/job.yaml"), f"name: job\nimage: img\n{text}\n", environ={}).spec
    assert spec is not None
    return planner.plan(spec, (), Context("local", "/specs", "me@here", "1.0")).nodes[0].launch.standby


@pytest.mark.parametrize(
    ("framework", "variable"),
    [
        ("torch", "TORCHELASTIC_RUN_ID"),
        ("paddle", "PADDLE_TRAINER_ENDPOINTS"),
        ("mindspore", "MS_SCHED_PORT"),
        ("jax", "JAX_COORDINATOR_ADDRESS"),
    ],
)
def test_a_framework_names_the_variables_that_each_generation_changes(framework: str, variable: str) -> None:
    standby = standby_of(f"framework: {framework}\nscript: t.py")
    assert standby is not None
    assert variable in standby.changing


def test_what_a_command_starts_nobody_knows() -> None:
    assert standby_of("framework: torch\ncommand: [accelerate, t.py]") is None


def test_a_command_once_per_node_gets_what_torchrun_would_be_told() -> None:
    text = "name: job\nframework: torch\ncommand: [deepspeed, t.py]\nper: node\nnodes: 2\ndevices: gpu:8\n"
    loaded = load_text(Path("/specs/job.yaml"), text, environ={})
    assert loaded.spec is not None
    launch = (
        planner.plan(loaded.spec, (), Context("local", "/specs", "me@here", "1.0"), devices={"localhost": 16})
        .nodes[1]
        .launch
    )
    assert (launch.start, launch.command, launch.nproc) == ((), ("deepspeed", "t.py"), 1)
    assert launch.env == (
        ("MASTER_ADDR", Slot("master_addr")),
        ("MASTER_PORT", Slot("master_port")),
        ("NODE_RANK", Slot("node_rank")),
        ("NNODES", Slot("nnodes")),
        ("NPROC_PER_NODE", "8"),
        ("CUDA_VISIBLE_DEVICES", "8,9,10,11,12,13,14,15"),
    )


def test_nodes_of_this_machine_have_addresses_of_their_own() -> None:
    assert [host.address for host in local_hosts(300)][:2] == ["127.0.0.2", "127.0.0.3"]
    assert local_hosts(300)[-1] == HostRef("localhost", "127.0.1.45")


def test_the_first_hosts_of_the_file_are_used_and_spares_are_not() -> None:
    plan = make("nodes: 2", "a spare\nb\nc addr=10.0.0.3\nd\n")
    assert [(node.index, node.host) for node in plan.nodes] == [
        (0, HostRef("b", "b")),
        (1, HostRef("c", "10.0.0.3")),
    ]
    assert plan.recovery.on_host_loss == "replace"


def test_a_node_stays_where_its_checkpoints_are() -> None:
    """A spare does not have them."""
    plan = make("nodes: 2\ncheckpoint: {dir: /c, shared: false}", "a\nb\nc spare\n")
    assert plan.recovery.on_host_loss == "wait"


def test_what_jobctl_tells_torchrun_stands_behind_the_users_options() -> None:
    """Of two it goes by the last, and who the members are is not the user's to say."""
    start = make("torch: {torchrun: [--nnodes=9, --max-restarts=9]}").nodes[0].launch.start
    ours = min(start.index("--nnodes"), start.index("--max-restarts"))
    assert max(start.index("--nnodes=9"), start.index("--max-restarts=9")) < ours


@pytest.mark.parametrize(("nodes", "count"), [("'2:4'", 3), ("'1:2'", 2)])
def test_a_range_takes_as_many_as_the_hosts_allow(nodes: str, count: int) -> None:
    plan = make(f"nodes: {nodes}", "h[1-3]\n")
    assert (len(plan.nodes), plan.elastic, plan.recovery.on_host_loss) == (count, True, "shrink")


def test_a_placement_is_kept() -> None:
    plan = make("nodes: 2", "a\nb\nc spare\n", {0: "c", 1: "b"})
    assert [(node.index, node.host.name) for node in plan.nodes] == [(0, "c"), (1, "b")]


@pytest.mark.parametrize(
    ("devices", "hosts", "ids"),
    [
        ("gpu", "a slots=4\n", [(0, 1, 2, 3)]),
        ("gpu:2", "a slots=4\n", [(0, 1)]),
        ("gpu:2", "a devices=4-7\n", [(4, 5)]),
        ("{kind: gpu, ids: '1,3'}", "a slots=4\n", [(1, 3)]),
        ("gpu", "a slots=4 nodes=2\n", [(0, 1), (2, 3)]),
        ("gpu:8", "a\n", [tuple(range(8))]),
        ("gpu:2", "a nodes=2\n", [(0, 1), (2, 3)]),  # nobody knows how many there are, and no two nodes share one
        ("gpu:2", "", [(0, 1), (2, 3)]),  # on this machine too
    ],
)
def test_devices_are_dealt(devices: str, hosts: str, ids: list[tuple[int, ...]]) -> None:
    plan = make(f"nodes: {len(ids)}\ndevices: {devices}", hosts)
    assert [node.container.devices.ids for node in plan.nodes] == ids
    assert [node.launch.nproc for node in plan.nodes] == [len(own) for own in ids]


@pytest.mark.parametrize(
    ("hosts", "counted", "ids"),
    [
        ("a\nb\n", {"a": 2, "b": 3}, [(0, 1), (0, 1, 2)]),
        ("a slots=1\nb\n", {"a": 2, "b": 3}, [(0,), (0, 1, 2)]),  # what somebody says holds
        ("a devices=4,6\nb\n", {"b": 1}, [(4, 6), (0,)]),
        ("a nodes=2\n", {"a": 4}, [(0, 1), (2, 3)]),
        ("a\nb\nc\n", {"b": 3, "c": 2}, [(0, 1), (0, 1, 2)]),  # a does not answer: like the smallest
        ("a slots=2\nb\n", {"b": 5}, [(0, 1), tuple(range(5))]),
    ],
)
def test_devices_that_were_counted_are_dealt(hosts: str, counted: Any, ids: list[tuple[int, ...]]) -> None:
    text = "name: job\nframework: torch\nimage: img\ncommand: [t]\nper: node\nnodes: 2\ndevices: gpu\n"
    spec = load_text(Path("/specs/job.yaml"), text, environ={}).spec
    assert spec is not None
    known = parse_hosts(hosts, "hosts.txt").hosts
    plan = planner.plan(spec, known, Context("ssh", "/specs", "me@here", "1.0"), devices=counted)
    assert [node.container.devices.ids for node in plan.nodes] == ids
    assert dict(plan.counted) == counted  # and kept, so that a move is planned with the same


@pytest.mark.parametrize(
    ("text", "hosts", "code"),
    [
        ("devices: gpu", "a\n", "devices-unknown"),
        ("devices: gpu:8", "a slots=4\n", "too-few-devices"),
        ("nodes: 2", "a\n", "too-few-hosts"),
    ],
)
def test_what_cannot_be_planned(text: str, hosts: str, code: str) -> None:
    with pytest.raises(PlanError) as error:
        make(text, hosts)
    assert error.value.code == code


@pytest.mark.parametrize(
    ("options", "ours"), [("[]", True), ("[--rdzv-conf=x=1]", True), ("[--tee, '3']", False), ("[-t3]", False)]
)
def test_torchrun_leaves_nothing_in_tmp(options: str, ours: bool) -> None:
    (node,) = make(f"torch: {{torchrun: {options}}}\n", "a\n").nodes
    assert (Slot("scratch") in node.launch.start, "--log-dir" in node.launch.start) == (ours, ours)


def test_generations() -> None:
    plan = make("nodes: 2\nrendezvous: {port: 29500}\ncheckpoint: /c", "a addr=10.0.0.1\nb addr=10.0.0.2\n")
    first = first_generation(plan)
    assert first.rendezvous == RendezvousPoint("10.0.0.1", 29500, "job-1")
    assert first.members == (
        Member(0, 0, ("trainer",), "a", "10.0.0.1", 1),
        Member(1, 1, ("trainer",), "b", "10.0.0.2", 1),
    )
    taken = port_of(plan.run_id, 2)
    second = next_generation(first, plan.nodes[1:], grace=0.0, free=lambda address, port: port != taken)
    assert (second.number, second.run_id, second.checkpoint_dir) == (2, first.run_id, "/c")
    assert second.members == (Member(1, 0, ("trainer",), "b", "10.0.0.2", 1),)
    assert second.rendezvous == RendezvousPoint("10.0.0.2", taken + 1, "job-2")


def test_ports_stay_clear_of_the_ephemeral_range() -> None:
    ports = {port_of(f"job-{i}", generation) for i in range(200) for generation in range(1, 6)}
    assert min(ports) >= FIRST_PORT
    assert max(ports) < FIRST_PORT + PORTS <= 32768
    assert len(ports) > 900  # jobs side by side rarely try the same one first
    with pytest.raises(LookupError):
        next_port("job", 1, lambda port: False)


def test_the_explained_plan_is_plain_data() -> None:
    from jobctl.jobspec.plan.serial import plan_data

    assert json.loads(json.dumps(plan_data(make())))["job"] == "job"


def test_torch_with_parameter_servers() -> None:
    """Trainers come first, and their ranks are those of all processes; none starts or comes back alone."""
    plan = make("mode: ps\nps: {servers: 2, trainers: 3}\nnodes: 2\n", "a\nb\n")
    assert [(n.role, n.host.name, n.launch.nproc) for n in plan.nodes] == [
        *(("trainer", "a", 2), ("trainer", "b", 1)),
        *(("server", "a", 1), ("server", "b", 1)),
    ]
    trainer, server = plan.nodes[0].launch, plan.nodes[2].launch
    assert trainer.env == (
        *(("MASTER_ADDR", Slot("master_addr")), ("MASTER_PORT", Slot("master_port"))),
        *(("JOBCTL_SERVERS", Slot("servers")), ("JOBCTL_TRAINERS", Slot("trainers"))),
    )
    assert trainer.process_env == (("RANK", Slot("job_rank")), ("WORLD_SIZE", Slot("job_size")))
    assert [(n.until, n.after, n.rejoin, n.listens) for n in (trainer, server)] == [
        ("", "", None, True),
        ("trainer", "", None, True),
    ]
    first = first_generation(plan)
    assert first.rendezvous.port not in {port for member in first.members for port in member.ports}


def test_trainers_of_torch_that_can_join_again() -> None:
    """They wait for the servers' ports; where they depend on each other, none is started again alone."""
    for sync, rejoin in (("false", 4), ("true", None)):
        text = f"mode: ps\nps: {{servers: 1, trainers: 1, sync: {sync}}}\ntorch: {{rejoin: true}}\nrecovery: {{max_restarts: 4}}\n"
        loaded = load_text(Path("/specs/job.yaml"), BASE + text, environ={})
        assert loaded.spec is not None, loaded.diagnostics
        trainer, server = planner.plan(loaded.spec, (), Context("local", "/specs", "me@here", "1.0")).nodes
        assert (trainer.launch.after, trainer.launch.until, trainer.launch.rejoin) == ("server", "", rejoin)
        assert (server.launch.after, server.launch.until, server.launch.rejoin) == ("", "trainer", None)


def test_in_an_allocation_each_role_has_nodes_of_its_own() -> None:
    text = BASE.replace("torch", "mindspore") + "nodes: 2\ndevices: npu:8\n"
    loaded = load_text(Path("/specs/job.yaml"), text, environ={})
    assert loaded.spec is not None, loaded.diagnostics
    plan = planner.plan(loaded.spec, (), Context("slurm", "/specs", "me@here", "1.0"))
    assert [(node.launch.role, node.host.name, node.launch.nproc) for node in plan.nodes] == [
        ("trainer", "node-0", 8),
        ("trainer", "node-1", 8),
        ("scheduler", "node-2", 1),
    ]
    assert (slots(plan), machines(plan)) == ([0, 0, 1], (2, 2))


def test_in_an_allocation_an_elastic_job_takes_a_range_of_machines() -> None:
    loaded = load_text(Path("/specs/job.yaml"), BASE + 'nodes: "2:4"\n', environ={})
    assert loaded.spec is not None, loaded.diagnostics
    plan = planner.plan(loaded.spec, (), Context("slurm", "/specs", "me@here", "1.0"))
    assert (slots(plan), machines(plan)) == ([0, 0, 0, 0], (2, 4))
    batch = next(file.content for file in slurm_files(plan, first_generation(plan)) if file.path == "job.sbatch")
    assert b"#SBATCH --nodes=2-4\n" in batch
    assert b"--ntasks" not in batch


def test_an_allocation_is_not_changed_by_what_an_earlier_version_calls_otherwise() -> None:
    plan = planner.plan(spec_of("nodes: 2"), (), Context("slurm", "/specs", "me@here", "1.0"))
    now = next(file for file in slurm_files(plan, first_generation(plan)) if file.path == "control.json")
    control = json.loads(now.content)
    before = {name: value for name, value in control.items() if name != "autonomy"}
    assert control["alone"] == control["autonomy"]
    assert stable(now) == stable(replace(now, content=json.dumps(before).encode()))


@pytest.mark.parametrize(("port", "has_room"), [(65532, True), (65533, False)])
def test_a_rendezvous_port_leaves_room_for_those_after_it(port: int, has_room: bool) -> None:
    text = BASE + f"mode: ps\nps: {{servers: 1, trainers: 2}}\nrendezvous: {{port: {port}}}\n"
    loaded = load_text(Path("/specs/job.yaml"), text, environ={})
    assert loaded.spec is not None, loaded.diagnostics
    where = Context("local", "/specs", "me@here", "1.0")
    if has_room:
        ports = [
            port for member in first_generation(planner.plan(loaded.spec, (), where)).members for port in member.ports
        ]
        assert max(ports) == 65535
        return
    with pytest.raises(PlanError, match="listen at ports after 65533, and there are too few before 65535"):
        planner.plan(loaded.spec, (), where)
