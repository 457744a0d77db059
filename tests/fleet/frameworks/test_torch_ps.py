"""Parameter servers of PyTorch on real hosts: trainers and servers find each other through the network.

What is saved when one dies: tests/local, with the example torch-wide-deep. What the job does when a host with a trainer and a
server dies: test_paddle.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.jobs import Jobs
from tests.fleet.machine import IMAGE
from tests.tools.frameworks import need_image_python, need_packages

SPEC = f"""\
name: wide
framework: torch
mode: ps
ps: {{{{servers: 2, trainers: 2}}}}
image: {IMAGE}
pull: never
script: train.py
code: .
nodes: 2
checkpoint: {{checkpoints}}
stop_grace_period: 2s
recovery: {{{{standby: "off"}}}}
volumes: ["PACKAGES:/packages:ro"]
env: {{{{PYTHONPATH: /packages, OMP_NUM_THREADS: "1"}}}}
"""
# Each trainer has each server say who it is, and who has asked.
TRAIN = """\
import os
import torch.distributed.rpc as rpc
role, number = os.environ["JOBCTL_ROLE"], os.environ["JOBCTL_ROLE_RANK"]
def who(asked):
    return "server %s, asked by trainer %s" % (number, asked)
# The shared memory that it would use on one machine is polled: each process would keep a core busy.
options = rpc.TensorPipeRpcBackendOptions(_transports=["uv"], _channels=["basic"])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
rpc.init_rpc(role + number, rank=rank, world_size=size, rpc_backend_options=options)
if role == "trainer":
    for server in range(2):
        print(rpc.rpc_sync("server%d" % server, who, (number,)), flush=True)
rpc.shutdown()
"""


@pytest.fixture(scope="module")
def hosts(hosts_of: Callable[[int], Fleet]) -> Fleet:
    need_packages("torch")
    need_image_python()
    return hosts_of(2)


@pytest.mark.release(
    "tests/local/test_examples.py::test_wide_deep_reaches_its_loss_though_a_server_dies",
    "tests/cluster/test_examples.py::test_trainers_of_all_pods_find_their_servers",
)
def test_trainers_and_servers_of_two_hosts_meet(tmp_path: Path, hosts: Fleet) -> None:
    job = Jobs(tmp_path, hosts, SPEC.replace("PACKAGES", str(hosts.lent("packages"))))
    (job.code / "train.py").write_text(TRAIN)
    try:
        up = job.up()
        assert up.returncode == 0, up.stderr
        done = job.run("wait", "--timeout", "800s", timeout=820.0)
        assert done.returncode == 0, f"{done.stderr}\n{job.run('events').stdout}\n{job.run('logs').stdout}"
        state = job.status()
        assert [(n["role"], n["host"]) for n in state["nodes"]] == [
            *(("trainer", "h1"), ("trainer", "h2")),
            *(("server", "h1"), ("server", "h2")),
        ]
        said = sorted(line.partition(" | ")[2] for line in job.ok("logs").splitlines() if "asked by" in line)
        assert said == [f"server {server}, asked by trainer {trainer}" for server in (0, 1) for trainer in (0, 1)]
    finally:
        down = job.run("down", *job.where)
        assert (down.returncode, [one for one in job.containers() if one], job.files()) == (0, [], []), down.stderr
