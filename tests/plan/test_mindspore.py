"""What a job of MindSpore is compiled to: a scheduler and workers, and their variables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.plan.generation import first_generation, next_generation, port_of
from jobctl.jobspec.plan.types import Plan, Slot
from jobctl.jobspec.planner import job as planner
from jobctl.jobspec.planner.context import Context, Placement, PlanError
from jobctl.jobspec.spec.hosts import parse_hosts
from jobctl.jobspec.spec.load import load_text

BASE = "name: job\nframework: mindspore\nscript: train.py\nimage: img\n"


def make(text: str = "", hosts: str = "", placement: Any = None) -> Plan:
    loaded = load_text(Path("/specs/job.yaml"), BASE + text, environ={})
    assert loaded.spec is not None, loaded.diagnostics
    target: Any = "compose" if hosts else "local"
    known = parse_hosts(hosts, "hosts.txt").hosts if hosts else ()
    return planner.plan(loaded.spec, known, Context(target, "/specs", "me@here", "1.0"), Placement(placement or {}))


def summary(plan: Plan) -> list[tuple[int, str, str, int]]:
    return [(node.index, node.role, node.host.name, node.launch.nproc) for node in plan.nodes]


def test_a_scheduler_stands_beside_the_first_node() -> None:
    plan = make("nodes: 2\ndevices: npu:2\n", "a slots=2\nb slots=2\n")
    assert summary(plan) == [(0, "trainer", "a", 2), (1, "trainer", "b", 2), (2, "scheduler", "a", 1)]
    assert [node.container.devices.ids for node in plan.nodes] == [(0, 1), (0, 1), ()]
    ports = [member.ports for member in first_generation(plan).members]
    assert (ports[:2], len(ports[2])) == ([(), ()], 1)


def test_the_scheduler_has_the_port_of_the_rendezvous() -> None:
    generation = first_generation(make("rendezvous: {port: 18118}\n"))
    wished = port_of(generation.run_id, 2)
    assert [member.ports for member in generation.members] == [(), (18118,)]
    assert next_generation(generation, make().nodes, grace=1.0, free=lambda host, port: port % 2 == 0).members[
        1
    ].ports == (wished + wished % 2,)


def test_a_host_can_be_kept_for_the_scheduler() -> None:
    for hosts, host in (("a\nb roles=trainer,scheduler\n", "b"), ("a\nb\nc roles=scheduler\n", "c")):
        plan = make("nodes: 2\n", hosts)
        assert summary(plan) == [(0, "trainer", "a", 1), (1, "trainer", "b", 1), (2, "scheduler", host, 1)]


def test_a_scheduler_stays_where_it_is_though_no_host_names_it() -> None:
    hosts = "a roles=trainer\nb roles=trainer\n"
    assert make("nodes: 2\n", hosts, {0: "a", 1: "b", 2: "a"}) == make("nodes: 2\n", hosts)


def test_the_scheduler_moves_with_its_host() -> None:
    plan = make("nodes: 2\n", "a\nb\nc spare\n", {0: "c", 1: "b", 2: "c"})
    assert summary(plan) == [(0, "trainer", "c", 1), (1, "trainer", "b", 1), (2, "scheduler", "c", 1)]


CLUSTER = {
    "MS_WORKER_NUM": Slot("trainer_count"),
    "MS_SCHED_HOST": Slot("scheduler_address"),
    "MS_SCHED_PORT": Slot("scheduler_port"),
    "MS_TOPO_TIMEOUT": "600",
    "MS_HEARTBEAT_RETRY_TIMEOUT": "600",
}


def test_what_the_roles_get() -> None:
    worker, scheduler = make("devices: npu:1\nmindspore: {node_timeout: 10s}\n", "a slots=1\n").nodes
    assert dict(worker.launch.env) == {
        **CLUSTER,
        "MS_ROLE": "MS_WORKER",
        "MS_NODE_TIMEOUT": "10",
        "MS_RETRY_INTERVAL_LOWER": "1",
        "MS_RETRY_INTERVAL_UPPER": "1",
        "MS_WORKER_IP": Slot("address"),
        "HCCL_IF_IP": Slot("address"),
    }
    assert dict(worker.launch.process_env) == {
        "MS_NODE_ID": Slot("rank"),
        "RANK_ID": Slot("rank"),
        "RANK_SIZE": Slot("trainer_count"),
        "DEVICE_ID": Slot("local_rank"),
    }
    assert dict(scheduler.launch.env) == {
        **CLUSTER,
        "MS_ROLE": "MS_SCHED",
        "MS_NODE_TIMEOUT": "10",
        "MS_TOPO_TIMEOUT": "31536000",  # those who have ended, or did not miss it, never come
    }
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


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("network: {interface: ib0}\n", "a slots=1\n"),
        ("", "a slots=1 interface=ib0\n"),
        ("env: {HCCL_SOCKET_IFNAME: ib0}\n", "a slots=1\n"),
    ],
)
def test_huaweis_collectives_use_the_interface_that_is_named(text: str, hosts: str) -> None:
    """They would take an address before it, also one that is inherited."""
    worker, _ = make(f"devices: npu:1\n{text}", hosts).nodes
    assert "HCCL_IF_IP" not in dict(worker.launch.env)
    assert "HCCL_IF_IP" in worker.launch.scrub


YEAR = "31536000"


@pytest.mark.parametrize(
    ("text", "silent", "patient"),
    [
        ("", YEAR, "600"),
        ("rendezvous: {timeout: 90s}\n", YEAR, "90"),
        ("mindspore: {launcher: msrun}\n", YEAR, "600"),
        ("mindspore: {node_timeout: 10s}\n", "10", "600"),
        ("devices: gpu:1\nmindspore: {recovery: native}\ncheckpoint: /c\n", None, "600"),
        ('env: {MS_HEARTBEAT_RETRY_TIMEOUT: "5"}\n', YEAR, "5"),
    ],
)
def test_heartbeats_end_nobody_unless_somebody_asks_for_it(text: str, silent: str | None, patient: str) -> None:
    """Launchers see who lives. Without any, workers of 2.10 end in SIGSEGV as they start."""
    for node in make(text, "a slots=1\n").nodes:
        env = {**dict(node.container.env), **dict(node.launch.env)}
        assert (env.get("MS_NODE_TIMEOUT"), env["MS_HEARTBEAT_RETRY_TIMEOUT"]) == (silent, patient), node.role
        assert "MS_DISABLE_HEARTBEAT" not in env


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("nodes: 32\ndevices: npu:8\n", ("1", "1")),
        ("nodes: 33\ndevices: npu:8\n", (None, None)),
        ("mindspore: {launcher: msrun}\n", ("1", "1")),
        ('env: {MS_RETRY_INTERVAL_UPPER: "9"}\n', (None, "9")),
        ("devices: gpu:1\nmindspore: {recovery: native}\ncheckpoint: /c\n", (None, None)),
    ],
    ids=["small", "large", "msrun", "env", "native"],
)
def test_workers_of_small_jobs_learn_within_a_second_that_all_have_come(
    text: str, seconds: tuple[str | None, str | None]
) -> None:
    """By default a heartbeat follows another one after 3 to 5 s; the second one tells it to all workers but the last."""
    for node in make(text, "".join(f"h{number} slots=8\n" for number in range(40))).nodes:
        env = {**dict(node.container.env), **dict(node.launch.env)}
        told = env.get("MS_RETRY_INTERVAL_LOWER"), env.get("MS_RETRY_INTERVAL_UPPER")
        assert told == (seconds if node.role == "trainer" else (None, seconds[1] if text.startswith("env") else None))


def test_the_schedulers_restarts_count_for_as_long_as_all_others_do() -> None:
    worker, scheduler = make("recovery: {max_restarts: 2, window: 1h}\n").nodes
    assert [(one.launch.rejoin, one.launch.rejoin_within) for one in (worker, scheduler)] == [(None, None), (2, 3600.0)]


def test_msrun_starts_the_workers_and_nothing_else() -> None:
    """Its own scheduler is left out: ours has a node, a port and restarts of its own."""
    plan = make("nodes: 2\ndevices: npu:2\nmindspore: {launcher: msrun}\n", "a slots=2\nb slots=2\n")
    first, second, scheduler = (node.launch for node in plan.nodes)
    assert first.start == (
        *("python3", "-m", "mindspore.parallel.cluster.run", "--worker_num", Slot("trainer_count")),
        *("--local_worker_num", "2", "--node_rank", Slot("node_rank"), "--master_addr", Slot("scheduler_address")),
        *("--master_port", Slot("scheduler_port"), "--cluster_time_out", "600", "--join", "True"),
        *("--log_dir", Slot("scratch"), "python3", Slot("process_script")),
    )
    assert second.start == first.start
    assert (first.rank_env, first.apart, first.elsewhere) == (("RANK_ID", "DEVICE_ID"), True, ("MS_ROLE", "MS_SCHED"))
    assert (scheduler.start, scheduler.apart, scheduler.elsewhere, scheduler.rejoin) == ((), False, (), 3)


def test_msrun_gives_every_node_as_many_workers() -> None:
    with pytest.raises(PlanError) as error:
        make("nodes: 2\ndevices: gpu\nmindspore: {launcher: msrun}\n", "a slots=2\nb slots=4\n")
    assert (error.value.code, error.value.message) == (
        "unequal-nodes",
        "the framework's launcher counts on as many processes on every node: a has 2, b 4",
    )


def test_a_command_once_per_node_starts_the_cluster_itself() -> None:
    """So there is no scheduler beside it, at whose port its own could not listen, and nobody is told a role."""
    text = BASE.replace("script: train.py", "command: [msrun, train.py]\nper: node")
    loaded = load_text(
        Path("/specs/job.yaml"), f"{text}nodes: 2\ndevices: cpu:2\nmindspore: {{node_timeout: 20s}}\n", environ={}
    )
    assert loaded.spec is not None, loaded.diagnostics
    plan = planner.plan(loaded.spec, (), Context("local", "/specs", "me@here", "1.0"))
    assert summary(plan) == [(0, "trainer", "localhost", 1), (1, "trainer", "localhost", 1)]
    first = plan.nodes[0].launch
    assert dict(first.env) == {
        "MS_NODE_TIMEOUT": "20",
        "MASTER_ADDR": Slot("master_addr"),
        "MASTER_PORT": Slot("master_port"),
        "NODE_RANK": Slot("node_rank"),
        "NNODES": Slot("nnodes"),
        "NPROC_PER_NODE": "2",
    }
    assert (first.process_env, first.start, "MS_ROLE" in first.scrub) == ((), (), True)


def test_no_timeout_becomes_none_by_rounding() -> None:
    env = dict(make("rendezvous: {timeout: 300ms}\nmindspore: {node_timeout: 400ms}\n").nodes[0].launch.env)
    assert (env["MS_TOPO_TIMEOUT"], env["MS_NODE_TIMEOUT"]) == ("1", "1")


NATIVE = "devices: gpu:1\nmindspore: {recovery: native}\n"


def test_native_recovery() -> None:
    """Each process may come back alone, half a minute after it was lost, and finds the cluster in a folder that all see."""
    worker, scheduler = (n.launch for n in make(f"{NATIVE}checkpoint: /mnt/c\n", "a slots=1\n").nodes)
    switched_on = {"MS_ENABLE_RECOVERY": "1", "MS_RECOVERY_PATH": Slot("shared_scratch")}
    keep = {"JOBCTL_CHECKPOINT_KEEP": "2"}
    assert dict(worker.env) == {
        **CLUSTER,
        **switched_on,
        **keep,
        "MS_ROLE": "MS_WORKER",
        "MS_WORKER_IP": Slot("address"),
    }
    assert dict(scheduler.env) == {**CLUSTER, **switched_on, **keep, "MS_ROLE": "MS_SCHED"}
    assert [(one.rejoin, one.rejoin_after, one.until) for one in (worker, scheduler)] == [
        (3, 30.0, ""),
        (3, 30.0, "trainer"),
    ]


def test_engines_start_containers_again_unless_these_have_to_stay_away() -> None:
    """The scheduler comes back alone; in MindSpore's own recovery so does any process, and a supervisor knows when."""
    native, cluster = f"{NATIVE}checkpoint: /mnt/c\n", "etcd: {managed: {}}\n"
    policies = {"": "unless-stopped", native: "no", cluster: "unless-stopped", native + cluster: "unless-stopped"}
    for text, restart in policies.items():
        plan = make(text, "a slots=1\n")
        assert [(node.role, node.container.restart) for node in plan.nodes] == [
            ("trainer", restart),
            ("scheduler", restart),
        ]


@pytest.mark.parametrize(
    ("name", "version", "code"),
    [
        ("mindspore", "2.10.0", 1),
        ("mindspore", "2.6.0rc1", 1),
        ("mindspore_gpu", "2.4.10", 0),
        ("mindspore", "2.5.0", 0),
    ],
)
def test_native_recovery_needs_an_old_version(tmp_path: Path, name: str, version: str, code: int) -> None:
    """Which is read without an import: that takes ten seconds, and fails where there is no GPU."""
    assert [need for need in make().needs if not need.deep] == []
    (need,) = [need for need in make(f"{NATIVE}checkpoint: /mnt/c\n").needs if not need.deep]
    (tmp_path / f"{name}-{version}.dist-info").mkdir()
    (tmp_path / f"{name}-{version}.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    environ = {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-S", "-c", need.test], env=environ, capture_output=True, text=True)
    assert (done.returncode, version in done.stderr) == (code, bool(code)), done.stderr


@pytest.mark.parametrize("checkpoint", ["", "checkpoint: {dir: /c, shared: false}\n"])
def test_native_recovery_needs_a_folder_that_all_see(checkpoint: str) -> None:
    with pytest.raises(PlanError) as error:
        make(NATIVE + checkpoint, "a slots=1\n")
    assert (error.value.code, error.value.message) == (
        "no-shared-folder",
        "`MS_RECOVERY_PATH` has to name a folder that all hosts see, and none is known",
    )
