"""The bound of a recovery: how long the containers of a job take to their first step when somebody starts them by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.fleet.campaign.campaign import Campaign, JobKind
from tests.fleet.host import Host
from tests.fleet.machine import IMAGE
from tests.tools.waiting import eventually

ALL_TO_STDOUT = ("sh", "-c", 'exec "$@" 2>&1', "sh")


@dataclass(frozen=True)
class Started:
    """A container: where it runs, its variables, and what its Python runs."""

    host: Host
    env: dict[str, str]
    argv: Sequence[str] = ("counter.py",)


def torch(hosts: Sequence[Host], port: int) -> list[Started]:
    """Return a torchrun for each node."""
    meets = ("--nnodes", str(len(hosts)), "--master-addr", hosts[0].address, "--master-port", str(port))
    argv = ("-m", "torch.distributed.run", *meets, "--nproc-per-node", "1", "--node-rank")
    env = {"GLOO_SOCKET_IFNAME": "eth0"}
    return [Started(host, env, (*argv, str(rank), "counter.py")) for rank, host in enumerate(hosts)]


def paddle(hosts: Sequence[Host], port: int) -> list[Started]:
    """Return Paddle's launcher for each node."""
    meets = ("--nnodes", str(len(hosts)), "--master", f"{hosts[0].address}:{port}", "--log_dir", "/tmp/log")
    argv = ("-m", "paddle.distributed.launch", *meets, "--nproc_per_node", "1")
    env = {"GLOO_SOCKET_IFNAME": "eth0"}
    return [
        Started(host, env, (*argv, "--host", host.address, "--rank", str(rank), "counter.py"))
        for rank, host in enumerate(hosts)
    ]


def jax(hosts: Sequence[Host], port: int) -> list[Started]:
    """Return a process for each node."""
    meets = {"JAX_COORDINATOR_ADDRESS": f"{hosts[0].address}:{port}", "JAX_NUM_PROCESSES": str(len(hosts))}
    common = {**meets, "JAX_LOCAL_DEVICE_IDS": "0", "JAX_PLATFORMS": "cpu"}
    return [Started(host, {**common, "JAX_PROCESS_ID": str(rank)}) for rank, host in enumerate(hosts)]


def mindspore(hosts: Sequence[Host], port: int) -> list[Started]:
    """Return a worker for each node, and the scheduler beside the first."""
    common = {"MS_WORKER_NUM": str(len(hosts)), "MS_SCHED_HOST": hosts[0].address, "MS_SCHED_PORT": str(port)}
    workers = [
        Started(host, {**common, "MS_ROLE": "MS_WORKER", "MS_NODE_ID": str(rank), "MS_WORKER_IP": host.address})
        for rank, host in enumerate(hosts)
    ]
    return [*workers, Started(hosts[0], {**common, "MS_ROLE": "MS_SCHED", "MS_NODE_ID": "sched"})]


def light(hosts: Sequence[Host], port: int) -> list[Started]:
    """Return a process for each node."""
    common = {"MASTER_ADDR": hosts[0].address, "MASTER_PORT": str(port), "NNODES": str(len(hosts))}
    return [Started(host, {**common, "NODE_RANK": str(rank)}) for rank, host in enumerate(hosts)]


BY_HAND: dict[str, Callable[[Sequence[Host], int], list[Started]]] = {
    "torch": torch,
    "jax": jax,
    "paddle": paddle,
    "mindspore": mindspore,
    "light": light,
}


def by_hand(job: Campaign, kind: JobKind, run: int) -> float:
    """Start the containers of all nodes, all at once; return how many seconds they take to their first step."""
    folder, hosts = job.checkpoints / f"hand-{run}", job.fleet.hosts[: kind.nodes]
    folder.mkdir()
    mounts = ["-v", f"{folder}:{folder}", "-v", f"{job.code}:/code", "-w", "/code"]
    mounts += ["-v", f"{job.fleet.lent(kind.work.environment or 'packages')}:/packages:ro"]

    def start(number: int, one: Started) -> None:
        env = {"JOBCTL_CHECKPOINT_DIR": str(folder), "JOBCTL_NODE": str(number), "JOBCTL_GENERATION": "0"}
        env |= {"JOBCTL_PROGRESS_FILE": "/tmp/progress", "OMP_NUM_THREADS": "1", "PYTHONPATH": "/packages", **one.env}
        values = [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
        name = ["-d", "--network", "host", "--init", "--name", f"hand-{number}"]
        name += ["--add-host", f"{one.host.name}:{one.host.address}"]  # or it would mean 127.0.1.1 there
        one.host.docker("run", *name, *mounts, *values, IMAGE, *ALL_TO_STDOUT, "python3", *one.argv)

    began, containers = time.time(), BY_HAND[kind.framework](hosts, 29000 + run)
    with ThreadPoolExecutor() as pool:
        list(pool.map(start, range(len(containers)), containers))
    first = folder / "first-0"
    try:
        eventually(lambda: first.exists() and first.read_text())
    except AssertionError:
        said = [one.host.docker("logs", f"hand-{number}") for number, one in enumerate(containers)]
        raise AssertionError("\n".join(["no first step by hand", *said])) from None
    for number, one in enumerate(containers):
        one.host.docker("rm", "-f", f"hand-{number}")
    return float(first.read_text()) - began
