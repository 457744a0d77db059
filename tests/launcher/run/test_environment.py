"""What a process gets: argv and environment byte for byte, slots filled, secrets from their file."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.launcher.order.launch import Slot
from jobctl.jobspec.launcher.records import changed
from jobctl.jobspec.launcher.run.environment import Environment
from jobctl.jobspec.launcher.system import network
from jobctl.jobspec.launcher.system.files import read_secrets
from tests.launcher.conftest import PATIENCE
from tests.tools.launches import launch_of

DUMP = "import json, os, sys\njson.dump([sys.argv[1:], dict(os.environ)], open(sys.argv[1], 'w'))\n"
HOSTILE = [
    "",
    " ",
    "$HOME ${HOME} $(id) `id`",
    "'single' \"double\" \\back",
    "two\nlines\ttab",
    "; rm -rf nothing & | > <",
    "{{ template }} {% x %} %s %(a)s {0}",
    "--leading=dash",
    "-x",
    "ünïcödé 数据 🚀",
    '{"slot": "address"}',
    "\x01\x7f",
    "\udc80\udcff",  # bytes that are no UTF-8
]


def dumped(node: Any, **launch: Any) -> tuple[list[str], dict[str, str]]:
    """Run one process and return the arguments (without the first) and the environment that it got."""
    out = node.root / "dump.json"
    command = [*node.script(DUMP), str(out), *launch.pop("args", [])]
    process = node.start(*launch.pop("options", ()), command=command, environ=launch.pop("environ", None), **launch)
    node.order(1, **({"members": launch["members"]} if "members" in launch else {}))
    assert process.wait(PATIENCE) == 0, process.stdout and process.stdout.read()
    argv, environ = json.loads(out.read_text())
    return argv[1:], environ


@pytest.mark.every_python
def test_arguments_and_variables_arrive_byte_for_byte(node: Any) -> None:
    pairs = [[f"HOSTILE_{number}", value] for number, value in enumerate(HOSTILE)]
    argv, environ = dumped(node, args=HOSTILE, env=pairs)
    assert argv == HOSTILE
    assert {name: environ[name] for name, _ in pairs} == dict(map(tuple, pairs))


def test_a_variable_without_a_name_is_passed_on(node: Any) -> None:
    _, environ = dumped(node, environ={"": "odd"})
    assert environ[""] == "odd"


def test_the_whole_environment(node: Any) -> None:
    slots = ["address", "checkpoint_dir", "generation", "interface", "log_dir", "master_addr", "master_port", "nnodes"]
    slots += ["node_rank", "rdzv_id", "run_id", "world_size"]
    _, environ = dumped(
        node,
        env=[
            *([f"SLOT_{name}", {"slot": name}] for name in slots),
            ["JOBCTL_LIKE", "mine"],
            ["GLOO_SOCKET_IFNAME", "x"],
        ],
        interface_env=["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"],
        environ={"PATH": os.environ["PATH"], "LC_CTYPE": "C.UTF-8", "KEPT": "yes"},
    )
    ours = {
        name: value for name, value in environ.items() if name.startswith(("JOBCTL_", "SLOT_", "RANK", "LOCAL", "W"))
    }
    ours.pop("JOBCTL_TEST_MARK")
    logs = node.dir / "logs" / "1"
    assert ours == {
        "JOBCTL_JOB": "demo",
        "JOBCTL_RUN_ID": "demo-1",
        "JOBCTL_NODE": "0",
        "JOBCTL_NODES": "1",
        "JOBCTL_ROLE": "trainer",
        "JOBCTL_ROLE_RANK": "0",
        "JOBCTL_GENERATION": "1",
        "JOBCTL_CHECKPOINT_DIR": "/ckpt",
        "JOBCTL_PROGRESS_FILE": str(node.dir / "progress" / "1" / "0"),
        "JOBCTL_LIKE": "mine",
        "RANK": "0",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "WORLD_SIZE": "1",
        "SLOT_address": "127.0.0.1",
        "SLOT_checkpoint_dir": "/ckpt",
        "SLOT_generation": "1",
        "SLOT_interface": "lo",
        "SLOT_log_dir": str(logs),
        "SLOT_master_addr": "127.0.0.1",
        "SLOT_master_port": "29999",
        "SLOT_nnodes": "1",
        "SLOT_node_rank": "0",
        "SLOT_rdzv_id": "demo-1",
        "SLOT_run_id": "demo-1",
        "SLOT_world_size": "1",
    }
    assert (environ["NCCL_SOCKET_IFNAME"], environ["GLOO_SOCKET_IFNAME"], environ["KEPT"]) == ("lo", "x", "yes")


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ({"interface": "ib0", "env": [["NCCL_SOCKET_IFNAME", "ib0"]]}, "ib0"),
        ({"interface": "ib0"}, "eth0"),
        ({}, "eth0"),
    ],
    ids=["named", "named-in-0.2.0", "found"],
)
def test_an_interface_that_the_user_named_wins_over_the_image(node: Any, named: Any, told: str) -> None:
    """A plan of 0.2.0 has no variables for it: there what a process inherits may be of the spec's own `env`."""
    environ = {"PATH": os.environ["PATH"], "NCCL_SOCKET_IFNAME": "eth0"}
    _, environ = dumped(node, interface_env=["NCCL_SOCKET_IFNAME"], environ=environ, **named)
    assert environ["NCCL_SOCKET_IFNAME"] == told


def test_names_of_hosts_become_addresses(node: Any) -> None:
    """Libraries that want to find an interface, or Paddle's launcher, can do nothing with a name; one nobody knows stays."""
    slots = ["address", "interface", "master", "trainers", "trainer_addresses"]
    members = [
        {"node": 0, "rank": 0, "roles": ["trainer"], "host": "a", "address": "localhost", "nproc": 1, "ports": [7]},
        {"node": 1, "rank": 1, "roles": ["trainer"], "host": "b", "address": "b.invalid", "nproc": 1, "ports": [7]},
    ]
    script = 'echo "$SLOT_address $SLOT_interface $SLOT_master $SLOT_trainers $SLOT_trainer_addresses $SLOT_endpoint $NO_PROXY"'
    node.start(
        command=["sh", "-c", script],
        env=[["http_proxy", "http://p:1"], *([f"SLOT_{name}", {"slot": name}] for name in slots)],
        process_env=[["SLOT_endpoint", {"slot": "endpoint"}]],
    )
    node.order(1, members=members, rendezvous={"address": "localhost", "port": 29999, "id": "demo-1"})
    node.until("succeeded", 1)
    wanted = "127.0.0.1 lo 127.0.0.1:29999 127.0.0.1:7,b.invalid:7 127.0.0.1,b.invalid 127.0.0.1:7 "
    wanted += "127.0.0.1,b.invalid,localhost"
    assert node.log("workerlog.0").split() == wanted.split()


@pytest.mark.parametrize(
    ("up", "spoken_to"),
    [("abc", "b"), ("ac", "a"), ("c", "c"), ("", "b")],
    ids=["that-of-its-host", "the-first", "the-last", "none"],
)
def test_a_node_speaks_to_a_member_of_etcd_that_answers(
    monkeypatch: pytest.MonkeyPatch, up: str, spoken_to: str
) -> None:
    """That of the host where the node is now, if it can: what is asked first is what a client that says why it ends gets."""
    monkeypatch.setattr(network, "answers", lambda endpoint: endpoint.partition(":")[0] in up)
    asks, launch = [Slot("etcd_master")], launch_of(etcd={"endpoints": ["a:1", "b:1", "c:1"], "prefix": "/"})
    this: Any = SimpleNamespace(launch=changed(launch, start=asks), member=SimpleNamespace(address="b"))
    assert Environment.etcd_member(this, "10.0.0.2") == f"{spoken_to}:1"
    this.launch = launch
    assert Environment.etcd_member(this, "10.0.0.2") == ""  # nobody asks


def test_the_name_of_an_etcd_keeps_its_first_letters() -> None:
    """Up to 3.0 Paddle's launcher cuts all of the letters `etcd` off its beginning."""
    assert network.etcd_master("dgx01.lan:2379") == "etcd://DGX01.LAN:2379"


def test_ranks_follow_the_members(node: Any) -> None:
    others = [{"node": 7, "rank": 0, "roles": ["trainer"], "host": "b", "address": "127.0.0.9", "nproc": 3}]
    mine = {"node": 0, "rank": 1, "roles": ["trainer"], "host": "a", "address": "127.0.0.1", "nproc": 2}
    node.start(nproc=2, command=["sh", "-c", 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE"'])
    node.order(1, members=[mine, *others])
    node.until("succeeded", 1)
    assert [node.log(f"workerlog.{local}") for local in (0, 1)] == ["3 0 5 2\n", "4 1 5 2\n"]


@pytest.mark.parametrize(
    ("env", "inherited", "devices"),
    [
        ([], None, ["0", "1"]),
        ([], "", ["0", "1"]),
        ([["CUDA_VISIBLE_DEVICES", "5,7"]], "0,1", ["5", "7"]),
        ([], "4,5", ["4", "5"]),
        ([], "MIG-a1, MIG-b2", ["MIG-a1", "MIG-b2"]),
        ([], "4", ["4", ""]),
    ],
    ids=["none", "empty", "of-the-plan", "of-slurm", "mig", "too-few"],
)
def test_a_process_sees_its_own_device_alone(
    node: Any, env: list[Any], inherited: str | None, devices: list[str]
) -> None:
    """In a container they are numbered from 0; in Slurm and on this machine the node has a list of its own."""
    told, script = [["CUDA_VISIBLE_DEVICES", {"slot": "device"}]], 'echo "$CUDA_VISIBLE_DEVICES"'
    environ = {"PATH": os.environ["PATH"], **({} if inherited is None else {"CUDA_VISIBLE_DEVICES": inherited})}
    process = node.start(nproc=2, command=["sh", "-c", script], env=env, process_env=told, environ=environ)
    node.order(
        1, members=[{"node": 0, "rank": 0, "roles": ["trainer"], "host": "a", "address": "127.0.0.1", "nproc": 2}]
    )
    assert process.wait(PATIENCE) == 0
    assert [node.log(f"workerlog.{local}").strip() for local in (0, 1)] == devices


def test_a_slot_in_argv_is_filled_and_text_that_looks_like_one_is_not(node: Any) -> None:
    start = ["sh", "-c", 'echo "$@"', "sh", "--rank", {"slot": "node_rank"}, "{slot}", '{"slot": "node_rank"}']
    process = node.start(start=start)
    node.order(1)
    assert process.wait(PATIENCE) == 0
    assert node.log("launch.log").partition("\n\n")[2] == '--rank 0 {slot} {"slot": "node_rank"}\n'


def secrets_file(node: Any, values: dict[str, str]) -> str:
    path = node.root / "secrets.json"
    path.touch(0o600)
    path.write_text(json.dumps(values))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return str(path)


@pytest.mark.every_python
def test_secrets_reach_the_process_and_nothing_else(node: Any) -> None:
    path = secrets_file(node, {"TOKEN": "s3cr3t-value", "OTHER": "not asked for"})
    _, environ = dumped(node, secrets=["TOKEN"], options=("--secrets", path))
    (node.root / "dump.json").unlink()
    assert environ["TOKEN"] == "s3cr3t-value"
    assert "OTHER" not in environ
    holding = [p for p in node.root.rglob("*") if p.is_file() and b"s3cr3t" in p.read_bytes()]
    assert [p.name for p in holding] == ["secrets.json"]


def test_a_secret_in_a_file_of_its_own_is_the_same_to_the_last_byte(tmp_path: Path) -> None:
    """As a Secret of Kubernetes is mounted: below links, and beside folders of its versions."""
    values = {"KEY": "-----BEGIN KEY-----\r\nabc\r\n", "PASSWORD": "a\rb\n", "BYTES": "\udcff"}
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..data").symlink_to("..2026")
    for name, value in values.items():
        (tmp_path / "..2026" / name).write_bytes(os.fsencode(value))
        (tmp_path / name).symlink_to(f"..data/{name}")
    assert read_secrets(str(tmp_path)) == values


@pytest.mark.parametrize("options", [(), ("--secrets", "/no/such/file")])
def test_a_missing_secret_is_a_failure_with_its_name(node: Any, options: tuple[str, ...]) -> None:
    node.start(*options, secrets=["TOKEN"])
    node.order(1)
    report = node.until("failed")
    assert report["reason"].startswith("no value for secret TOKEN in ")
    assert report["failure"]["kind"] == "start"
