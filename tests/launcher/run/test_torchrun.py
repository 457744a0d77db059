"""The launcher with the real torchrun: two nodes on this machine meet, fail and begin again."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.launcher.conftest import Node
from tests.plan.made import make
from tests.tools.frameworks import need_packages
from tests.tools.ports import free_ports
from tests.tools.processes import hurry

need_packages("torch")

TRAIN = """\
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group('gloo')
value = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(value)
print('sum', value.item(), 'of', dist.get_world_size(), 'generation', os.environ['JOBCTL_GENERATION'], flush=True)
time.sleep(600)
"""
# Without PyTorch: says when all ranks of a generation are there, which it knows from torchrun, and ends politely.
LIGHT = """\
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(0)))
world, generation = int(os.environ['WORLD_SIZE']), os.environ['JOBCTL_GENERATION']
ranks = ['rank-%s-of-%s-in-%s' % (rank, world, generation) for rank in range(world)]
open(ranks[int(os.environ['RANK'])], 'w').close()
while not all(map(os.path.exists, ranks)):
    time.sleep(0.02)
print('all', world, 'generation', generation, flush=True)
while True:
    time.sleep(0.1)
"""

START: list[Any] = [sys.executable, "-m", "torch.distributed.run", "--log-dir", {"slot": "scratch"}]
START += ["--nnodes", {"slot": "nnodes"}]
START += ["--node-rank", {"slot": "node_rank"}, "--nproc-per-node", "2", "--master-addr", {"slot": "master_addr"}]
START += [
    "--master-port",
    {"slot": "master_port"},
    "--rdzv-id",
    {"slot": "rdzv_id"},
    "--local-addr",
    {"slot": "address"},
]
START += ["--max-restarts", "0", "--no-python", {"slot": "process"}]


@pytest.fixture
def pair(tmp_path: Path) -> Any:
    """Two nodes that share one control file."""
    first, second = Node(tmp_path, sys.executable), Node(tmp_path, sys.executable)
    second.dir = tmp_path / "node-1"
    (tmp_path / "tmp").mkdir()
    first.supervisor.start()
    for number, node in enumerate((first, second)):
        node.start(
            node=number,
            nproc=2,
            start=START,
            command=[sys.executable, "train.py"],
            environ={"OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path / "tmp")},
            stop_grace=60.0,
        )
    yield first, second
    for node in (first, second):
        node.started[0].terminate()
    for node in (first, second):
        node.started[0].wait(90)
        node.started[0].stdout.close()
    assert first.living() == {}
    assert list((tmp_path / "tmp").iterdir()) == []  # torchrun's own folder is where the launcher removes it


def order(node: Any, number: int) -> None:
    members = [
        {"node": n, "rank": n, "roles": ["trainer"], "host": "a", "address": f"127.0.0.{n + 2}", "nproc": 2}
        for n in (0, 1)
    ]
    node.order(
        number, members=members, rendezvous={"address": "127.0.0.2", "port": free_ports(1)[0], "id": f"demo-{number}"}
    )


def met(pair: Any, generation: int) -> bool:
    line = f"all 4 generation {generation}\n"
    return all(line in node.log(f"workerlog.{i}", generation) for node in pair for i in (0, 1))


def wait(look: Any, what: Any, seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


def state(pair: Any) -> str:
    return json.dumps([node.report() for node in pair], indent=1)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.long
def test_nodes_meet_fail_meet_again_and_are_told_to_end(pair: Any) -> None:
    """What ranks of PyTorch do in one, and whole jobs that end well: tests/local."""
    (pair[0].root / "train.py").write_text(LIGHT)
    order(pair[0], 1)
    wait(lambda: met(pair, 1), lambda: state(pair))
    rank_3 = lambda: pair[1].report()["processes"][1]["pid"]  # noqa: E731
    wait(lambda: rank_3() is not None, lambda: state(pair))  # it may meet the others before its launcher sees it
    os.kill(rank_3(), signal.SIGKILL)
    report = pair[1].until("failed", 1, 90)
    assert report["reason"] == "rank 3 was killed by SIGKILL"
    order(pair[0], 2)
    wait(lambda: met(pair, 2), lambda: state(pair))
    for node in pair:
        node.started[0].terminate()
    assert [node.started[0].wait(90) for node in pair] == [143, 143]
    assert all(node.log(f"workerlog.{i}", 2).endswith("\nsaved\n") for node in pair for i in (0, 1))
    assert [[p["exit_code"] for p in node.report()["processes"]] for node in pair] == [[0, 0], [0, 0]]


@pytest.mark.long
def test_a_node_that_moves_to_a_spare_finds_torchrun_and_torch_imported(node: Any) -> None:
    """One node, which has been on another host; what torchrun gives its processes was found out without any."""
    (node.root / "train.py").write_text(TRAIN)
    node.dir = node.root / "spare"
    (node.root / "node-0").mkdir()
    start = [value if value != "2" else "1" for value in START]
    standby = make("recovery: {standby: {import: []}}").nodes[0].launch.standby
    assert standby is not None
    wanted = asdict(standby)
    node.launch.update(node=-1, host="b", spare=1, nproc=1, start=start, standby=wanted)
    node.start(command=[sys.executable, "-u", "train.py"], environ={"OMP_NUM_THREADS": "1"}, stop_grace=60.0)
    member = {"node": 0, "rank": 0, "roles": ["trainer"], "address": "127.0.0.2", "nproc": 1}
    node.order(1, members=[{**member, "host": "a"}])
    waits_as = lambda: node.report().get("standby", {}).get("state")  # noqa: E731
    wait(lambda: hurry(node.living()) or waits_as() in ("ready", "off"), lambda: state([node]))
    assert node.report()["standby"] == {"state": "ready", "reason": None}
    at = {"address": "127.0.0.2", "port": free_ports(1)[0], "id": "demo-2"}
    node.order(2, members=[{**member, "host": "b"}], rendezvous=at)
    node.dir = node.root / "node-0"
    wait(lambda: "sum 1.0 of 1 generation 2\n" in node.log("workerlog.0", 2), lambda: state([node]))
    start_of = lambda: node.report().get("start")  # noqa: E731
    wait(lambda: start_of() is not None, lambda: state([node]))
    assert start_of() == {"standby": True, "cold_because": None}
