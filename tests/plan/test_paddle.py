"""What a job of PaddlePaddle is compiled to: argv, environment, roles and ports."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from jobctl.jobspec.launcher.order.control import etcd_name
from jobctl.jobspec.plan.generation import first_generation, next_generation
from jobctl.jobspec.plan.recovery import Recovery
from jobctl.jobspec.plan.types import Plan, Slot
from jobctl.jobspec.planner import job as planner
from jobctl.jobspec.planner.context import Context, PlanError
from jobctl.jobspec.spec.load import load_text
from jobctl.jobspec.supervise.decisions import GiveUp, Restart
from jobctl.jobspec.supervise.failures import judge
from tests.plan import made
from tests.tools.failures import failed

BASE = "name: job\nframework: paddle\nscript: train.py\nimage: img\n"
PS = "mode: ps\nps: {servers: 2, trainers: 4}\nnodes: 3\n"
STORE = ("FLAGS_tcp_store_using_libuv", "0")
make = partial(made.make, base=BASE)


def launcher(*devices: str) -> tuple[object, ...]:
    return (
        *("python3", "-m", "paddle.distributed.launch"),
        *("--master", Slot("master"), "--nnodes", Slot("nnodes"), "--rank", Slot("node_rank")),
        *("--job_id", Slot("rdzv_id"), "--host", Slot("address")),
        *devices,
        *("--log_dir", Slot("scratch"), Slot("process_script")),
    )


@pytest.mark.parametrize(
    ("text", "hosts", "devices"),
    [
        ("", "", ("--nproc_per_node", "1")),
        ("devices: cpu:3\n", "a\n", ("--nproc_per_node", "3")),
        ("devices: gpu:2\n", "a slots=8\n", ("--devices", "0,1")),
        # What a container has is numbered from 0 on, whatever it is on the host.
        ("devices: {kind: npu, ids: '4-6'}\n", "a slots=8\n", ("--devices", "0,1,2")),
        ("devices: {kind: xpu, ids: '2,3'}\n", "", ("--devices", "2,3")),
        ("devices: dcu\n", "a slots=2\n", ("--devices", "0,1")),
    ],
)
def test_the_launchers_command_line(text: str, hosts: str, devices: tuple[str, ...]) -> None:
    (node,) = make(text, hosts).nodes
    assert node.launch.start == launcher(*devices)
    assert node.launch.command == ("python3", "-u", "train.py")
    assert node.launch.rank_env == ("PADDLE_TRAINER_ID", "PADDLE_RANK_IN_NODE")
    assert node.launch.apart


def test_on_this_machine_processes_are_shown_their_share_of_the_devices() -> None:
    one, other = make("nodes: 2\ndevices: npu:2\n", devices={"localhost": 4}).nodes
    assert one.launch.env == (
        ("PORT_RANGE", Slot("port_range")),
        STORE,
        ("ASCEND_RT_VISIBLE_DEVICES", "0,1"),
        ("NPU_VISIBLE_DEVICES", "0,1"),
    )
    assert other.launch.start == launcher("--devices", "2,3")


def test_variables_that_jobctl_decides_are_not_passed_on_and_the_users_own_are() -> None:
    (node,) = make("env: {PADDLE_NNODES: '7', PADDLE_HOME: /models, POD_IP: 10.0.0.9}\n").nodes
    assert node.launch.env == (("PORT_RANGE", Slot("port_range")), STORE, ("PADDLE_HOME", "/models"))
    (node,) = make("env: {FLAGS_tcp_store_using_libuv: '1'}\n").nodes
    assert node.launch.env == (("PORT_RANGE", Slot("port_range")),)
    assert {"PADDLE_*", "POD_IP", "MASTER_ADDR", "MASTER_PORT", "TRAINING_ROLE"} <= set(node.launch.scrub)


def test_once_per_node_there_is_no_launcher() -> None:
    text = BASE.replace("script: train.py", "command: [bash, run.sh]\nper: node")
    loaded = load_text(Path("/specs/job.yaml"), text, environ={})
    assert loaded.spec is not None
    (node,) = planner.plan(loaded.spec, (), Context("local", "/specs", "me@here", "1.0")).nodes
    assert (node.launch.start, node.launch.nproc, node.launch.command) == ((), 1, ("bash", "run.sh"))


def summary(plan: Plan) -> list[tuple[int, str, str, int]]:
    return [(node.index, node.role, node.host.name, node.launch.nproc) for node in plan.nodes]


def test_servers_and_trainers_are_dealt_round_robin() -> None:
    assert summary(make(PS, "a\nb\nc\nd\n")) == [
        (0, "trainer", "a", 2),
        (1, "trainer", "b", 1),
        (2, "trainer", "c", 1),
        (3, "server", "a", 1),
        (4, "server", "b", 1),
    ]


def test_hosts_take_the_roles_that_their_lines_name() -> None:
    hosts = "a roles=server\nb\nc roles=trainer\nd roles=etcd\n"
    assert summary(make(PS, hosts)) == [
        (0, "trainer", "b", 2),
        (1, "trainer", "c", 2),
        (2, "server", "a", 1),
        (3, "server", "b", 1),
    ]


def test_no_host_for_a_role() -> None:
    with pytest.raises(PlanError) as error:
        make(PS, "a roles=trainer\nb roles=trainer\nc roles=trainer\n")
    assert (error.value.code, error.value.message) == (
        "no-host-for-role",
        "the job needs 2 servers, and no host of the first 3 takes any",
    )


def test_a_lost_hosts_nodes_move_to_one_spare() -> None:
    hosts = "a\nb\nc\nd spare\n"
    moved = make(PS, hosts, {0: "a", 1: "d", 2: "c", 3: "a", 4: "d"})
    assert summary(moved) == [
        (0, "trainer", "a", 2),
        (1, "trainer", "d", 1),
        (2, "trainer", "c", 1),
        (3, "server", "a", 1),
        (4, "server", "d", 1),
    ]


def test_a_trainer_takes_a_device_and_a_server_none() -> None:
    plan = make("devices: gpu\n" + PS, "a slots=8\nb slots=8\nc slots=8\n")
    assert [node.container.devices.ids for node in plan.nodes] == [(0, 1), (0,), (0,), (), ()]
    assert [node.launch.devices for node in plan.nodes] == [
        ("gpu:0", "gpu:1"),
        ("gpu:0",),
        ("gpu:0",),
        ("cpu:0",),
        ("cpu:0",),
    ]
    told = (("CUDA_VISIBLE_DEVICES", Slot("device")), ("FLAGS_selected_gpus", "0"))
    assert [node.launch.process_env[3:] for node in plan.nodes] == [told, told, told, (), ()]


def test_more_trainers_than_devices() -> None:
    with pytest.raises(PlanError) as error:
        make("devices: gpu\n" + PS, "a slots=1\nb slots=1\nc slots=1\n")
    assert error.value.code == "too-many-trainers"


def test_what_a_role_gets() -> None:
    trainer, *_, server = make(PS, "a\nb\nc\n").nodes
    assert dict(trainer.launch.env) == {
        "PADDLE_PSERVERS_IP_PORT_LIST": Slot("servers"),
        "PADDLE_TRAINER_ENDPOINTS": Slot("trainers"),
        "PADDLE_TRAINERS_NUM": Slot("trainer_count"),
        "POD_IP": Slot("address"),
        "PADDLE_WITH_GLOO": "0",
        "PADDLE_TRAINERS": Slot("trainer_count"),
        "PADDLE_PSERVER_IPS": Slot("server_addresses"),
        "PADDLE_CURRENT_IP": Slot("address"),
        "TRAINING_ROLE": "TRAINER",
        "PADDLE_TRAINING_ROLE": "TRAINER",
        "PADDLE_ROLE": "TRAINER",
        "FLAGS_enable_pir_api": "0",
    }
    assert dict(server.launch.env)["TRAINING_ROLE"] == "PSERVER"
    assert dict(server.launch.process_env) == {
        "PADDLE_PORT": Slot("port"),
        "PADDLE_CURRENT_ENDPOINT": Slot("endpoint"),
        "PADDLE_PSERVER_PORT": Slot("server_port"),
    }
    assert [(n.launch.after, n.launch.until, n.launch.rejoin, n.launch.log_name) for n in (trainer, server)] == [
        ("server", "", 3, "workerlog"),
        ("", "trainer", None, "serverlog"),
    ]


def test_synchronous_trainers_do_not_go_on_without_each_other() -> None:
    plan = make(PS.replace("trainers: 4", "trainers: 4, sync: true"), "a\nb\nc\n")
    assert {node.launch.rejoin for node in plan.nodes} == {None}


def test_every_role_process_has_a_port_and_servers_the_same_on_all_hosts() -> None:
    plan = make("rendezvous: {port: 36000}\n" + PS, "a\nb\nc\n")
    assert [member.ports for member in first_generation(plan).members] == [
        (36002, 36003),
        (36002,),
        (36001,),
        (36001,),
        (36001,),
    ]


def test_ports_that_are_taken_on_a_host_are_passed_over_there() -> None:
    plan = make(PS, "a\nb\nc\n")
    first = first_generation(plan)
    taken = {("b", port) for port in range(20_000, 30_000)} - {("b", 29_000), ("b", 29_001)}
    second = next_generation(first, plan.nodes, grace=0.0, free=lambda host, port: (host, port) not in taken)
    assert [second.members[1].ports, second.members[4].ports] == [(29_001,), (29_000,)]


OLD_PS = PS + "paddle: {launcher: legacy}\n"


def test_servers_of_old_programs_have_one_port_on_all_hosts() -> None:
    """Such a program knows but one; on this machine servers are at different addresses."""
    hosts = "a\nb\nc\n"
    plan, first = make(OLD_PS, hosts), first_generation(make(OLD_PS, hosts))
    taken = {("b", port) for port in range(20_000, 29_000)} | {("a", 29_000)}
    second = next_generation(first, plan.nodes, grace=0.0, free=lambda host, port: (host, port) not in taken)
    assert [second.members[node].ports for node in (3, 4)] == [(29_001,), (29_001,)]
    (one,), (other,) = (member.ports for member in first_generation(make(OLD_PS)).members if "server" in member.roles)
    assert one == other


@pytest.mark.parametrize("hosts", ["", "a\nb roles=trainer\nc roles=trainer\n"])
def test_two_servers_of_old_programs_on_one_host(hosts: str) -> None:
    with pytest.raises(PlanError) as error:
        make(OLD_PS.replace("servers: 2", "servers: 4") if not hosts else OLD_PS, hosts)
    assert error.value.code == "too-many-servers"


def test_nodes_of_other_frameworks_have_no_ports() -> None:
    assert {member.ports for member in first_generation(make("nodes: 2\n")).members} == {()}


def elastic(nodes: str, *, timeout: str = "30") -> tuple[object, ...]:
    return (
        *("python3", "-m", "paddle.distributed.launch"),
        *("--master", Slot("etcd_master"), "--nnodes", nodes),
        *("--elastic_level", "1", "--max_restart", "2147483647", "--elastic_timeout", timeout),
        *("--sort_ip", "1", "--job_id", Slot("etcd_job"), "--host", Slot("address")),
        *("--nproc_per_node", "1", "--log_dir", Slot("scratch"), Slot("process_script")),
    )


def test_with_etcd_its_launchers_regroup_by_themselves() -> None:
    plan = make('nodes: "2:3"\netcd: {endpoints: ["10.0.0.9:2379", "10.0.0.8:2379"]}\n', "a\nb\n")
    node = plan.nodes[0]
    assert node.launch.start == elastic("2:3")
    assert dict(node.launch.env)["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] == "python"
    assert (node.launch.regroups, node.launch.rejoin, node.container.restart) == (True, 3, "unless-stopped")
    assert not node.launch.apart  # it takes its key out of etcd as it ends
    assert (node.launch.lost, node.launch.stall) == (
        "requested lease not found",
        ("Waiting peer start", "Run Pod", 40.0),
    )
    assert (len(plan.nodes), plan.min_nodes, plan.max_nodes) == (2, 2, 3)


def test_a_fixed_number_of_nodes_with_etcd_is_fault_tolerant() -> None:
    text = "nodes: 2\netcd: {managed: {}}\nrecovery: {max_restarts: 7}\npaddle: {elastic_timeout: 11.2s}\n"
    one, other = make(text, "a addr=10.0.0.1\nb addr=10.0.0.2\n").nodes
    assert one.launch.start == other.launch.start == elastic("2", timeout="12")
    assert one.launch.rejoin == 7  # its launcher would count each node that comes or leaves, too


def test_which_member_of_etcd_a_node_speaks_to_is_seen_as_it_starts() -> None:
    text = "nodes: 4\netcd: {managed: {replicas: 3}}\n"
    hosts = "".join(f"h{n} addr=10.0.0.{n}\n" for n in range(1, 5))
    launches = [node.launch for node in make(text, hosts).nodes]
    assert {launch.start[4] for launch in launches} == {Slot("etcd_master")}
    assert all(launch.etcd and len(launch.etcd.endpoints) == 3 for launch in launches)


@pytest.mark.parametrize(("one", "other"), [("p1", "p10"), ("a", "a-b")])
def test_no_etcd_id_is_the_beginning_of_anothers(one: str, other: str) -> None:
    """A launcher of Paddle removes whatever begins with its job's id; names hold no dots."""
    names = [etcd_name(job, 7.5) for job in (one, other)]
    assert names == [f"{one}.7.", f"{other}.7."]
    assert not names[1].startswith(names[0])


@pytest.mark.parametrize(("gloo", "after"), [(1, "server"), (2, "")])
def test_trainers_meet_through_files_of_the_checkpoint_directory(gloo: int, after: str) -> None:
    """Servers that take part wait for trainers, which cannot wait for them; who has met cannot meet again alone."""
    text = PS.replace("trainers: 4", f"trainers: 4, gloo: {gloo}")
    trainer, *_ = make(text + "checkpoint: /shared\n", "a\nb\nc\n").nodes
    env = {name: value for name, value in trainer.launch.env if "GLOO" in name}
    assert (trainer.launch.after, trainer.launch.rejoin) == (after, None)
    assert env == {
        "PADDLE_WITH_GLOO": str(gloo),
        "PADDLE_GLOO_RENDEZVOUS": "2",
        "PADDLE_GLOO_FS_PATH": Slot("shared_scratch"),
    }
    for checkpoint in ("", "checkpoint: {dir: /own, shared: false}\n"):
        with pytest.raises(PlanError) as error:
            make(text + checkpoint, "a\nb\nc\n")
        assert error.value.code == "no-shared-folder"
    here = {name: value for name, value in make(text).nodes[0].launch.env if "GLOO" in name}
    assert here["PADDLE_GLOO_FS_PATH"] == Slot("shared_scratch")  # on this machine all see the same files


@pytest.mark.parametrize(
    ("more", "codes"),
    [
        ("", []),
        ("etcd: {managed: {}}\n", ["etcd-client-missing"]),
        ("etcd: {managed: {}}\nsetup: pip install etcd3\n", []),
        (PS, ["ps-core-missing"]),
        (OLD_PS, []),
        (PS.replace("trainers: 4", "trainers: 4, gloo: 2") + "checkpoint: /shared\n", ["ps-core-missing", "gloo-race"]),
    ],
)
def test_what_is_looked_for_in_the_image(more: str, codes: list[str]) -> None:
    needs = make(more, "a\nb\nc\n").needs
    assert [(need.code, need.deep) for need in needs] == [
        *((code, False) for code in codes),
        ("framework-broken", True),
    ]


def test_a_process_that_grpc_did_not_let_begin_is_started_again() -> None:
    """What Paddle 3.3.1 with grpcio 1.85.3 prints, as it starts a process anew in a job that trains."""
    said = (
        "I1128 20:09:54.184494   12415 fork_posix.cc:71] Other threads are currently calling into gRPC, skipping fork() handlers",
        "E1128 20:09:54.287279 15887 ev_epoll1_linux.cc:373] Epoll1Poller:0x3c5b9880 encountered epoll_wait error: Bad file descriptor",
        "LAUNCH INFO 2026-11-28 20:09:55,534 Exit code -6",
    )
    failure = failed(kind="start", exit_code=250, tail=said)
    policy = Recovery(3, None, "wait", 30.0, None, None, ())
    assert isinstance(judge(failure, [], policy, 20.0), Restart)
    assert isinstance(judge(replace(failure, tail=said[:1]), [], policy, 20.0), GiveUp)
