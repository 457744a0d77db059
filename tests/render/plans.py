"""Plans made by hand: what rendering gets, without the spec and the planner in between."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from jobctl.jobspec.plan.recovery import Recovery
from jobctl.jobspec.plan.sent import Code
from jobctl.jobspec.plan.types import (
    Checkpoint,
    Container,
    Devices,
    Etcd,
    HostRef,
    Launch,
    Mount,
    Node,
    Plan,
    Rendezvous,
    Service,
    Slot,
    Ulimit,
    Value,
)
from jobctl.jobspec.planner import job as planner
from jobctl.jobspec.planner.context import Context
from jobctl.jobspec.spec.hosts import parse_hosts
from jobctl.jobspec.spec.load import load_text
from jobctl.jobspec.spec.targets import TargetName

HOME = HostRef("localhost", "127.0.0.2")
TORCHRUN: tuple[Value, ...] = (
    *("python3", "-m", "torch.distributed.run"),
    *("--nnodes", Slot("nnodes"), "--node-rank", Slot("node_rank")),
    *("--nproc-per-node", "2"),
    *("--master-addr", Slot("master_addr"), "--master-port", Slot("master_port")),
    "--no-python",
    Slot("process"),
)


def launch(index: int = 0, host: str = "gpu01") -> Launch:
    """A node of two processes of torch on the CPU."""
    return Launch(
        node=index,
        host=host,
        role="trainer",
        nproc=2,
        start=TORCHRUN,
        command=("python3", "-u", "train.py", "--epochs", "3"),
        env=(("JOBCTL_CHECKPOINT_KEEP", "2"), ("OMP_NUM_THREADS", "1")),
        log_name="workerlog",
        devices=("cpu:0", "cpu:1"),
        setup=(),
        secrets=(),
        workdir=None,
        interface=None,
        interface_env=("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"),
        stop_grace=45.0,
        hang_timeout=None,
    )


def container(index: int = 0) -> Container:
    """A container with nothing but what every job has."""
    return Container(
        name=f"jobctl-resnet-{index}",
        image="pytorch/pytorch:2.13.0",
        pull="missing",
        hostname=f"resnet-{index}",
        python="python3",
        user=None,
        runtime=None,
        env=(("LR", "0.1"), ("MODE", "no")),
        labels=(
            ("jobctl.job", "resnet"),
            ("jobctl.node", str(index)),
            ("jobctl.role", "trainer"),
            ("jobctl.owner", "ada@desk"),
            ("jobctl.version", "0.1.0"),
        ),
        mounts=(),
        devices=Devices("cpu", ()),
        extra_devices=(),
        cap_add=(),
        shm_size=None,
        memory=None,
        cpus=None,
        ulimits=(),
        options=(),
        stop_grace=45.0,
        restart="unless-stopped",
    )


def node(index: int = 0, host: str = "gpu01", address: str = "10.0.0.1") -> Node:
    return Node(index, "trainer", HostRef(host, address), container(index), launch(index, host))


def plan(*nodes: Node, target: str = "compose") -> Plan:
    """A job of `nodes`, by default one."""
    nodes = nodes or (node(),)
    return Plan(
        job="resnet",
        framework="torch",
        mode="collective",
        target=target,  # type: ignore[arg-type]  # tests also ask for targets that do not exist
        owner="ada@desk",
        run_id="resnet-0a1b2c3d",
        min_nodes=len(nodes),
        max_nodes=len(nodes),
        elastic=False,
        nodes=nodes,
        code=None,
        script=None,
        outputs=(),
        checkpoint=None,
        rendezvous=Rendezvous(None, 600.0),
        recovery=Recovery(3, None, "wait", 30.0, None, None, ()),
        stop_grace=45.0,
        spec_hash="0" * 64,
    )


def with_container(base: Node, **changes: Any) -> Node:
    return replace(base, container=replace(base.container, **changes))


def with_launch(base: Node, **changes: Any) -> Node:
    return replace(base, launch=replace(base.launch, **changes))


def everything() -> Node:
    """A node that uses each field there is."""
    full = with_container(
        node(),
        pull="always",
        python="/opt/conda/bin/python",
        user="1000:1000",
        runtime="nvidia",
        env=(("EMPTY", ""), ("LR", "0.1"), ("MODE", "0755")),
        mounts=(
            Mount("bind", "/data/sets", "/data", read_only=True),
            Mount("volume", "cache", "/root/.cache"),
            Mount("volume", "", "/anonymous"),
            Mount("tmpfs", "", "/scratch"),
            Mount("bind", "/checkpoints/resnet", "/checkpoints/resnet"),
        ),
        devices=Devices("gpu", (0, 3)),
        extra_devices=("/dev/infiniband", "/dev/fuse:/dev/fuse:rwm"),
        cap_add=("SYS_PTRACE", "IPC_LOCK"),
        shm_size=16 * 2**30,
        memory=64 * 2**30,
        cpus=7.5,
        ulimits=(Ulimit("memlock", -1, -1, optional=True), Ulimit("nofile", 1024, 65536)),
        options=("--ipc=host", "--security-opt", "seccomp=unconfined", "--group-add=video", "--privileged"),
        stop_grace=90.5,
    )
    return with_launch(full, secrets=("WANDB_API_KEY",), setup=("pip install -e .",), workdir="/workspace")


def full_plan(target: str) -> Plan:
    return replace(
        plan(everything(), target=target),
        code=Code("/home/ada/resnet", "/workspace", ("*.pt",)),
        checkpoint=Checkpoint("/checkpoints/resnet", True, 2),
    )


def _with_devices(kind: Any, ids: tuple[int, ...] | None, target: str, **more: Any) -> Plan:
    return plan(with_container(node(), devices=Devices(kind, ids), **more), target=target)


# What jobctl adds for dcu by itself, and an option that is given twice.
_OPTIONS = ("--group-add=video", "--dns=10.0.0.1", "--dns", "10.0.0.1", "--memory-swap=-1")
_ADDED_AGAIN = {"extra_devices": ("/dev/kfd", "/dev/fuse"), "options": _OPTIONS}


def _crowded(target: str) -> Plan:
    """Two nodes on one host, one on another whose address is a name, one whose address is IPv6."""
    places = (
        ("gpu01", "10.0.0.1"),
        ("gpu02", "gpu02.example"),
        ("gpu01", "10.0.0.1"),
        ("fe80::7", "fe80::7"),
    )
    return plan(*(node(i, *place) for i, place in enumerate(places)), target=target)


def cases() -> dict[str, Plan]:
    """Return the plans of the golden files by name."""
    local = plan(node(0, "localhost", "127.0.0.2"), node(1, "localhost", "127.0.0.3"), target="local")
    found = {"local": local, "local-secrets": replace(full_plan("local"), nodes=(replace(everything(), host=HOME),))}
    for target in ("compose", "ssh"):
        found |= {
            target: plan(target=target),
            f"{target}-crowded": _crowded(target),
            f"{target}-full": full_plan(target),
            f"{target}-gpu-all": _with_devices("gpu", None, target),
            f"{target}-dcu": _with_devices("dcu", (0, 1), target),
            f"{target}-dcu-named": _with_devices("dcu", (0, 1), target, **_ADDED_AGAIN),
            f"{target}-npu": _with_devices("npu", (4, 5), target),
            f"{target}-npu-ascend": _with_devices("npu", (4, 5), target, runtime="ascend"),
            f"{target}-xpu": _with_devices("xpu", (0, 2), target),
            f"{target}-self": plan(with_container(node(), user="self"), target=target),
            f"{target}-root": plan(with_container(node(), user="root"), target=target),
        }
        found[f"{target}-etcd"] = _with_etcd(target)
    found["compose-mindspore-native"] = _mindspore("gpu", "mindspore: {recovery: native, node_timeout: 60s}\n")
    found["ssh-mindspore-npu"] = _mindspore("npu", "mindspore: {launcher: msrun}\n", "ssh")
    found |= {f"{target}-{name}": planned(text, target) for target, name, text in FLUID}
    found |= {f"{target}-spare": planned(_SPARED, target, _SPARE_HOSTS) for target in ("compose", "ssh")}
    found |= {name: planned(text, "slurm") for name, text in SLURM}
    found["local-etcd"] = replace(_with_etcd("local"), nodes=(replace(_with_etcd("local").nodes[0], host=HOME),))
    return found


# Programs of Paddle 1, whose Python is too old for the launcher: it has one of its own, and they the image's.
_FLUID = """\
name: fluid
framework: paddle
paddle: {launcher: legacy}
image: paddlepaddle/paddle:1.8.5
command: [python, -u, train.py]
code: .
container: {python: /opt/python3.11/bin/python3}
volumes: ["/opt/python3.11:/opt/python3.11:ro"]
network: {interface: eth0}
checkpoint: /mnt/fluid
nodes: 2
"""
_PSERVER = f"{_FLUID}devices: cpu:2\nmode: ps\nps: {{servers: 2, trainers: 4, sync: true}}\n"
_NCCL2 = f"{_FLUID}devices: gpu:2\n"
FLUID: tuple[tuple[TargetName, str, str], ...] = (
    ("compose", "fluid-pserver", _PSERVER),
    ("ssh", "fluid-pserver", _PSERVER),
    ("compose", "fluid-nccl2", _NCCL2),
    ("ssh", "fluid-nccl2", _NCCL2),
)

_SLURM = """\
name: resnet
framework: torch
script: train.py
nodes: 2
"""
_CONTAINER = """\
code: .
devices: gpu:2
env: {GREETING: "it's"}
secrets: [TOKEN]
checkpoint: /shared/checkpoints
slurm: {directory: /shared/jobs, container: ENGINE}
"""
SLURM = (
    ("slurm", _SLURM),
    (
        "slurm-full",
        _SLURM
        + """\
code: .
devices: gpu:8
args: ["it's", "$HOME"]
env: {GREETING: "it's"}
secrets: [TOKEN]
checkpoint: /mnt/it's here
rendezvous: {port: 29500}
resources: {cpus: 3.5, memory: 100g}
stop_grace_period: 2m
slurm:
  login: ada@login.cluster
  directory: /shared/50% "of" it
  spares: 1
  partition: gpu
  account: vision
  qos: high
  time: 36h
  constraint: a100&ib
  reservation: tuesday
  gres: gpu:a100:8
  exclusive: false
  mail: ada@example.com
  python: /opt/python/bin/python3
  requeue: chain
  options: [--nice=100, "--licenses=a b"]
""",
    ),
    *(
        (f"slurm-{engine}", f"{_SLURM}{_CONTAINER.replace('ENGINE', engine)}{more}")
        for engine, more in {
            "podman": "image: quay.io/lab/torch:2.9\nvolumes: ['/data/a,b:/data:ro', {type: tmpfs, target: /scratch}]\n",
            "docker": "image: torch:2.9\nresources: {memory: 8g, cpus: 2, ulimits: {nofile: 1024}}\npull: always\n",
            "apptainer": "image: torch:2.9\nvolumes: ['/data/a,b:/data:ro']\n",
            "enroot": "image: quay.io/lab/torch:2.9\nvolumes: [/data:/data:ro]\n",
        }.items()
    ),
    ("slurm-sif", f"{_SLURM}{_CONTAINER.replace('ENGINE', 'apptainer')}image: /shared/images/torch.sif\n"),
)

_MINDSPORE = """\
name: lenet
framework: mindspore
image: ms:1
script: train.py
code: .
network: {interface: eth0}
checkpoint: /mnt/lenet
nodes: 2
"""
_TORCH_PS = """\
name: wide
framework: torch
mode: ps
ps: {servers: 2, trainers: 3}
image: torch:1
script: train.py
code: .
network: {interface: eth0}
checkpoint: /mnt/wide
nodes: 2
devices: gpu:2
"""
_JAX = """\
name: digits
framework: jax
image: jax:1
network: {interface: eth0}
checkpoint: /mnt/digits
nodes: 2
devices: gpu:2
"""
_SPARED = """\
name: resnet
framework: torch
image: torch:1
script: train.py
code: .
secrets: [TOKEN]
container: {user: self}
checkpoint: /mnt/resnet
nodes: 2
devices: gpu:2
"""
_SPARE_HOSTS = "gpu03 addr=10.0.0.3 slots=2 spare\ngpu04 addr=10.0.0.4 slots=1 spare\n"  # the last has too few devices
# Of these the whole environment of each process is recorded.
TOLD: tuple[tuple[TargetName, str, str], ...] = (
    *FLUID,
    (
        "compose",
        "mindspore-native",
        f"{_MINDSPORE}devices: gpu:2\nmindspore: {{recovery: native, node_timeout: 60s}}\n",
    ),
    ("compose", "mindspore-npu", f"{_MINDSPORE}devices: npu:2\n"),
    ("compose", "torch-ps", _TORCH_PS),
    ("compose", "jax", f"{_JAX}script: train.py\ncode: .\n"),
    ("compose", "jax-per-node", f"{_JAX}command: [python3, train.py]\nper: node\n"),
)


def _mindspore(kind: str, options: str, target: TargetName = "compose") -> Plan:
    """A scheduler and workers."""
    text = f"name: lenet\nframework: mindspore\nimage: ms:1\nscript: train.py\ncode: .\nnodes: 2\ndevices: {kind}:2\n"
    return planned(f"{text}checkpoint: /mnt/lenet\n{options}", target)


def planned(text: str, target: TargetName, more: str = "") -> Plan:
    """What the planner makes of a spec on two hosts of two devices, and `more` hosts."""
    loaded = load_text(Path("/specs/job.yaml"), text, environ={})
    assert loaded.spec is not None, loaded.diagnostics
    hosts = parse_hosts(f"gpu01 addr=10.0.0.1 slots=2\ngpu02 addr=10.0.0.2 slots=2\n{more}", "hosts.txt").hosts
    return planner.plan(loaded.spec, hosts, Context(target, "/specs", "ada@desk", "1.0"))


def _with_etcd(target: str) -> Plan:
    """A node that keeps its lease in a member of etcd on the same host, and in one elsewhere."""
    etcd = Etcd(("10.0.0.1:2379", "10.0.0.2:2379"), "/jobctl/ada@desk/resnet", None, "ada", "PASS")
    one = with_launch(with_container(node(), restart="unless-stopped"), etcd=etcd, secrets=("PASS",))
    places = (HostRef("gpu01", "10.0.0.1"), HostRef("gpu02", "10.0.0.2"))
    if target == "local":
        places = (HostRef("localhost", "127.0.0.2"), HostRef("localhost", "127.0.0.3"))
    services = tuple(_member(i, place) for i, place in enumerate(places))
    return replace(plan(one, target=target), services=services)


def _member(number: int, host: HostRef) -> Service:
    name = f"etcd-{number}"
    given = replace(
        container(),
        name=f"jobctl-resnet-{name}",
        image="quay.io/coreos/etcd:v3.5.21",
        hostname=f"resnet-{name}",
        env=(("ETCD_DATA_DIR", "/etcd/0a1b2c3d"), ("ETCD_NAME", name)),
        labels=(("jobctl.job", "resnet"), ("jobctl.node", name), ("jobctl.role", "etcd"), ("jobctl.version", "0.1.0")),
        ulimits=(),
        restart="unless-stopped",
        stop_grace=5.0,
    )
    return Service(name, "etcd", host, given, ("etcd",), "/etcd", "ETCD_DATA_DIR", 2379)
