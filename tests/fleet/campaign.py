"""A job of real nodes that one thing after another happens to, and the page of what it survived.

    python -m tests.fleet.campaign --seed 1 --faults 100 [--elastic] [--etcd] [--framework NAME]

After each fault the job has to train on by itself; at the end its loss must be, bit for bit, that of a run which nothing
disturbed, no node may ever have trained twice at a time, and `down` must leave nothing behind.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.tools.frameworks import Name, python_of

from .fleet import Fleet, fleet
from .host import Host
from .jobs import Jobs, eventually
from .machine import ETCD_IMAGE, IMAGE

TIMEOUT, ETCD_TIMEOUT = 5, 10  # host_timeout, in seconds; with etcd a leader must have been elected by then
NODES = 3

# Said by any process of a node that is not the only one.
ALONE = """\
import fcntl, math, os, sys, time
kept, node = os.environ["JOBCTL_CHECKPOINT_DIR"], os.environ["JOBCTL_NODE"]
mine = open(os.path.join(kept, "lock-" + node), "w")
try:
    fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    open(os.path.join(kept, "TWICE"), "a").write("node %s in generation %s\\n" % (node, os.environ["JOBCTL_GENERATION"]))
    sys.exit("another one trains this node")
path, first = os.path.join(kept, "checkpoint"), True
def save(step, loss):
    with open(path + ".new", "w") as file:
        file.write("%d %s" % (step, loss.hex()))
    os.replace(path + ".new", path)
def load():
    if not os.path.exists(path):
        return 0, 1.0
    step, loss = open(path).read().split()
    return int(step), float.fromhex(loss)
def wait():
    while os.path.exists(os.path.join(kept, "stop-" + node)):
        time.sleep(0.05)
    time.sleep(0.02)
def ends():
    return os.path.exists(os.path.join(kept, "end"))
def report(step, rank):
    global first
    with open(os.environ["JOBCTL_PROGRESS_FILE"], "w") as file:
        file.write(str(step))
    if rank == 0 and first:
        with open(os.path.join(kept, "first-" + os.environ["JOBCTL_GENERATION"]), "w") as file:
            file.write(repr(time.time()))
        first = False
"""
# Every step all ranks must agree on how many they are; the loss depends on the step alone. Rank 0 saves.
TORCH = """\
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
state = list(load())
dist.broadcast_object_list(state)
step, loss = state
while True:
    wait()
    votes = torch.tensor([1.0, float(rank == 0 and ends())])
    dist.all_reduce(votes)
    assert votes[0] == world
    step, loss = step + 1, math.sin(loss * 1.7 + step)
    report(step, rank)
    if rank == 0 and (step % 5 == 0 or votes[1]):
        save(step, loss)
    if votes[1]:
        break
dist.destroy_process_group()
"""
# The same with MindSpore; the scheduler does not come back from `init`.
MINDSPORE = """\
import mindspore as ms, numpy as np
from mindspore.communication import get_group_size, get_rank, init
ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
init("mccl")
rank, world, add = get_rank(), get_group_size(), ms.ops.AllReduce()
step, loss = load()  # all read before the first step, and nobody writes before all have made it
while True:
    wait()
    votes = add(ms.Tensor(np.array([1.0, rank == 0 and ends()], np.float32))).asnumpy()
    assert votes[0] == world
    step, loss = step + 1, math.sin(loss * 1.7 + step)
    report(step, rank)
    if rank == 0 and (step % 5 == 0 or votes[1]):
        save(step, loss)
    if votes[1]:
        break
"""
# The same with Paddle, fixed or elastic; a world of one has no group.
PADDLE = """\
import paddle, paddle.distributed as dist
dist.init_parallel_env()
rank, world = dist.get_rank(), dist.get_world_size()
step, loss = load()
while True:
    wait()
    votes = paddle.to_tensor([1.0, float(rank == 0 and ends())])
    if world > 1:
        dist.all_reduce(votes)
    assert float(votes[0]) == world
    step, loss = step + 1, math.sin(loss * 1.7 + step)
    report(step, rank)
    if rank == 0 and (step % 5 == 0 or votes[1] > 0):
        save(step, loss)
    if votes[1] > 0:
        break
"""
# Servers of Paddle hold weights alone. Trainer 0 keeps the loss, and makes a step when each of the others has made one.
PADDLE_SERVED = """\
import numpy as np, paddle
import paddle.distributed.fleet as fleet
paddle.enable_static()
fleet.init()
x, y = paddle.static.data("x", [None, 4], "float32"), paddle.static.data("y", [None, 1], "float32")
cost = paddle.mean(paddle.nn.functional.square_error_cost(paddle.static.nn.fc(x, 1), y))
strategy = fleet.DistributedStrategy()
strategy.a_sync = True
fleet.distributed_optimizer(paddle.optimizer.SGD(0.01), strategy).minimize(cost)
if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
    sys.exit()
exe = paddle.static.Executor(paddle.CPUPlace())
exe.run(paddle.static.default_startup_program())
fleet.init_worker()
rank, world, numbers = fleet.worker_index(), fleet.worker_num(), np.ones((4, 4), "float32")
def seen(of):
    try:
        return open(os.path.join(kept, "seen-%d" % of)).read()
    except FileNotFoundError:
        return ""
(step, loss), ended, before = load(), False, [""] * world
while not ended:
    wait()
    exe.run(feed={"x": numbers, "y": numbers.sum(1, keepdims=True)}, fetch_list=[cost])
    ended = ends()
    step, loss = step + 1, math.sin(loss * 1.7 + step)
    report(step, rank)
    if rank:
        with open(os.path.join(kept, "seen-%d" % rank), "w") as file:
            file.write(repr(time.time()))
        continue
    while not ends() and any(seen(of) in ("", before[of]) for of in range(1, world)):
        time.sleep(0.01)
    before = [seen(of) for of in range(world)]
    if step % 5 == 0 or ended:
        save(step, loss)
fleet.stop_worker()
"""
# Trainers that do not look at each other have server 0 make the steps, which saves.
SERVED = """\
import threading
import torch.distributed.rpc as rpc
role, number, held, lock = os.environ["JOBCTL_ROLE"], int(os.environ["JOBCTL_ROLE_RANK"]), [], threading.Lock()
def advance():
    with lock:
        if len(held) < 3:
            step, loss = held
            held[:] = step + 1, math.sin(loss * 1.7 + step)
            if ends():
                held.append("the last")
            if held[0] % 5 == 0 or held[2:]:
                save(*held[:2])
        return held[0], len(held) > 2
if role == "server":
    held[:] = load()
# The shared memory that it would use on one machine is polled: each process would keep a core busy.
options = rpc.TensorPipeRpcBackendOptions(_transports=["uv"], _channels=["basic"])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
rpc.init_rpc("%s%d" % (role, number), rank=rank, world_size=size, rpc_backend_options=options)
ended = role == "server"
while not ended:
    wait()
    step, ended = rpc.rpc_sync("server0", advance)
    report(step, number)
rpc.shutdown()
"""


@dataclass(frozen=True)
class Work:
    """What the nodes do, and with which packages: the tests' own, or those of an environment."""

    train: str
    spec: str
    environment: Name | None = None
    hang: int = 8  # seconds; on a busy machine as many interpreters as torch ps has take longer than that to end
    patience: int = 300  # seconds to the tenth step after a fault
    regroups: bool = False  # whether who takes part is the framework's own matter, in an elastic job with etcd

    def lends(self) -> dict[str, Path]:
        """Return the folders that the hosts have to see."""
        if self.environment is None:
            return {}
        return {self.environment: python_of(self.environment).parents[1] / "lib" / "python3.11" / "site-packages"}


WORKS = {
    "torch": Work(TORCH, "framework: torch\n"),
    "torch-ps": Work(SERVED, "framework: torch\nmode: ps\nps: {{servers: 2, trainers: 3}}\n", hang=30),
    "mindspore": Work(MINDSPORE, "framework: mindspore\n", "mindspore", 20),
    "paddle": Work(PADDLE, "framework: paddle\n", "paddle", 20),
    "paddle-ps": Work(PADDLE_SERVED, "framework: paddle\nmode: ps\nps: {{servers: 2, trainers: 3}}\n", "paddle-ps", 30),
    "paddle-elastic": Work(
        PADDLE, "framework: paddle\npaddle: {{elastic_timeout: 10s}}\n", "paddle", 30, 300, regroups=True
    ),
}
SPEC = f"""\
name: counter
image: {IMAGE}
pull: never
script: counter.py
code: .
nodes: NODES
checkpoint: {{checkpoints}}
stop_grace_period: 2s
volumes: ["PACKAGES:/packages:ro"]
env: {{{{PYTHONPATH: /packages, OMP_NUM_THREADS: "1"}}}}
recovery: {{{{host_timeout: TIMEOUTs, hang_timeout: HANGs, max_restarts: 1000}}}}
resources: {{{{ulimits: {{{{memlock: 65536}}}}}}}}
"""


def undisturbed(steps: int) -> str:
    """What a run that nothing disturbed has after so many steps."""
    loss = 1.0
    for step in range(steps):
        loss = math.sin(loss * 1.7 + step)
    return f"{steps} {loss.hex()}"


class Campaign(Jobs):
    """The job, and what can happen to it. `faults` counts what did."""

    def __init__(
        self,
        directory: Path,
        made: Fleet,
        seed: int,
        *,
        elastic: bool,
        etcd: bool = False,
        work: Work = WORKS["torch"],
    ) -> None:
        self.timeout, self.patience = ETCD_TIMEOUT if etcd else TIMEOUT, work.patience
        # No framework is in the image: the environment that this runs in, or another, is mounted into the containers.
        spec = (work.spec + SPEC).replace("PACKAGES", str(made.lent(work.environment or "packages")))
        spec = spec.replace("TIMEOUT", str(self.timeout)).replace("HANG", str(work.hang))
        if etcd:
            spec += f"etcd: {{{{managed: {{{{replicas: 3, image: {ETCD_IMAGE}}}}}}}}}\n"
        self.etcd = etcd
        super().__init__(directory, made, spec.replace("NODES", f'"1:{NODES}"' if elastic else str(NODES)))
        (self.code / "counter.py").write_text(ALONE + work.train)
        lines = (self.code / "hosts.txt").read_text().splitlines()
        spares = [] if elastic else [lines[NODES] + " spare"]
        (self.code / "hosts.txt").write_text("\n".join([*lines[:NODES], *spares]) + "\n")
        self.chance = random.Random(seed)
        self.faults: collections.Counter[str] = collections.Counter()
        self.seconds: list[float] = []
        self.supervisor: subprocess.Popen[str] | None = None

    def run_all(self, count: int) -> None:
        """Let `count` faults happen, one after the other."""
        up = self.up("--skip-check")
        assert up.returncode == 0, up.stderr
        self.trains_on()
        kinds: list[Callable[[Host, int], None]] = [
            self.process_killed,
            self.launcher_killed,
            self.container_killed,
            self.engine_killed,
            self.power_cycled,
            self.host_lost,
            self.cable_out_for_a_moment,
            self.cable_out,
            self.supervisor_killed,
            self.controller_cut_off,
            self.rank_stands_still,
            *(
                [self.etcd_member_killed, self.etcd_quorum_lost, self.process_killed_without_controller]
                if self.etcd
                else []
            ),
        ]
        for _ in range(count):
            kind = self.chance.choice(kinds)
            host, node = self.chance.choice(self.homes(trainers=kind == self.rank_stands_still))
            began = time.monotonic()
            kind(host, node)
            self.trains_on()
            self.faults[kind.__name__.replace("_", " ")] += 1
            self.seconds.append(time.monotonic() - began)
            assert not (self.checkpoints / "TWICE").exists(), (self.checkpoints / "TWICE").read_text()
        self.finish()

    def finish(self) -> None:
        """Let it end, and see that it ends well and leaves nothing."""
        self.end()
        done = self.run("wait", "--timeout", "300s", timeout=330)
        assert done.returncode == 0, f"{done.stderr}\n{self.run('events').stdout}"
        kept = (self.checkpoints / "checkpoint").read_text()
        assert kept == undisturbed(int(kept.split()[0]))
        assert not (self.checkpoints / "TWICE").exists()
        down = self.run("down")
        assert (down.returncode, [c for c in self.containers() if c], self.files()) == (0, [], []), down.stderr

    def step(self) -> int:
        """The newest checkpoint."""
        path = self.checkpoints / "checkpoint"
        return int(path.read_text().split()[0]) if path.exists() else 0

    def trains_on(self) -> None:
        """Wait until it has made ten more steps."""
        step = self.step()
        try:
            eventually(lambda: self.step() >= step + 10, self.patience)
        except AssertionError:
            raise AssertionError(f"stuck at step {step}:\n{self.run('events').stdout}") from None

    def homes(self, *, trainers: bool = False) -> list[tuple[Host, int]]:
        """Where the nodes of the newest generation are, or only those that train."""
        generations = [
            json.loads(path.read_text())
            for host in self.fleet.hosts
            for path in (host.home / ".jobctl").glob("*/counter/run/control.json")
        ]
        newest = max(generations, key=lambda generation: generation["number"])
        hosts = {host.name: host for host in self.fleet.hosts}
        every = [m for m in newest["members"] if not trainers or "trainer" in m["roles"]]
        return [(hosts[member["host"]], member["node"]) for member in every]

    def moved_on(self, since: int) -> bool:
        """Say whether a generation after `since` has begun."""
        events = self.directory / "state/jobs/counter/events.jsonl"
        begun = [json.loads(line) for line in events.read_text().splitlines() if '"generation"' in line]
        return any(event.get("event") == "generation" and event["generation"] > since for event in begun)

    def failures(self) -> int:
        """How many failures were told of."""
        events = self.directory / "state/jobs/counter/events.jsonl"
        return sum(json.loads(line)["event"] == "failure" for line in events.read_text().splitlines())

    def generation(self) -> int:
        """The number of the newest generation."""
        return max(
            int(json.loads(path.read_text())["number"])
            for host in self.fleet.hosts
            for path in (host.home / ".jobctl").glob("*/counter/run/control.json")
        )

    # What happens.

    def process_killed(self, host: Host, node: int) -> None:
        inside = host.docker("top", f"jobctl-counter-{node}", "-eo", "pid,args", check=False).splitlines()
        pids = [int(line.split()[0]) for line in inside if line.split()[1:2] != [] and "counter.py" in line]
        if pids:
            os.kill(pids[-1], signal.SIGKILL)

    def launcher_killed(self, host: Host, node: int) -> None:
        kill = "import os; os.kill(next(int(p) for p in os.listdir('/proc') if p.isdigit() and int(p) > 1), 9)"
        host.docker("exec", f"jobctl-counter-{node}", "python3", "-c", kill, check=False)

    def container_killed(self, host: Host, node: int) -> None:
        host.docker("kill", f"jobctl-counter-{node}", check=False)

    def engine_killed(self, host: Host, node: int) -> None:
        host.kill_engine()
        host.start_engine()
        host.wait_for_engine()

    def power_cycled(self, host: Host, node: int) -> None:
        host.power_off()
        host.power_on()

    def host_lost(self, host: Host, node: int) -> None:
        number = self.generation()
        host.power_off()
        eventually(lambda: self.moved_on(number))
        self.trains_on()
        host.power_on()

    def cable_out_for_a_moment(self, host: Host, node: int) -> None:
        host.pull_cable()
        time.sleep(self.chance.uniform(0.5, self.timeout - 2))
        host.plug_cable()

    def cable_out(self, host: Host, node: int) -> None:
        number = self.generation()
        host.pull_cable()
        eventually(lambda: self.moved_on(number))
        host.plug_cable()

    def supervisor_killed(self, host: Host, node: int) -> None:
        eventually(self.is_supervised)  # the one that was killed the last time may have no successor yet
        holder = json.loads((self.directory / "state/jobs/counter/supervisor.lock").read_text())
        os.kill(int(holder["pid"]), signal.SIGKILL)
        time.sleep(self.chance.uniform(0.0, 2.0 * self.timeout))
        quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.supervisor = self.popen("supervise", **quiet)

    def is_supervised(self) -> bool:
        """Say whether a supervisor runs."""
        return bool(json.loads(self.run("status", "-o", "json").stdout)["supervised"])

    def controller_cut_off(self, host: Host, node: int) -> None:
        with self.without_controller():
            time.sleep(self.chance.uniform(1.0, 3.0 * self.timeout))

    @contextlib.contextmanager
    def without_controller(self) -> Iterator[None]:
        """Take this machine off the hosts' network."""
        address = f"10.{self.fleet.network}.0.254/24"
        subprocess.run(["ip", "addr", "del", address, "dev", self.fleet.bridge], check=True)
        try:
            yield
        finally:
            subprocess.run(["ip", "addr", "add", address, "dev", self.fleet.bridge], check=True)

    def process_killed_without_controller(self, host: Host, node: int) -> None:
        with self.without_controller():
            time.sleep(5.0)
            self.process_killed(host, node)
            self.trains_on()

    def etcd_member_killed(self, host: Host, node: int) -> None:
        where, name = self.chance.choice(self.members())
        os.kill(int(where.docker("inspect", "--format", "{{.State.Pid}}", name)), signal.SIGKILL)

    def etcd_quorum_lost(self, host: Host, node: int) -> None:
        chosen = self.chance.sample(self.members(), 2)
        for where, name in chosen:
            where.docker("pause", name)
        time.sleep(self.chance.uniform(0.5, self.timeout - 4))
        for where, name in chosen:
            where.docker("unpause", name)

    def members(self) -> list[tuple[Host, str]]:
        """Where members of etcd run, and what their containers are called."""
        every = [(host, name) for host in self.fleet.hosts for name in host.containers() if "etcd" in name]
        return [
            (h, name) for h, name in every if h.docker("inspect", "--format", "{{.State.Pid}}", name).strip() != "0"
        ]

    def has_made_a_step(self, node: int) -> bool:
        """Whether a node trains in this generation, and not only others."""
        return any(one["node"] == node and one["progress"] is not None for one in self.status()["nodes"])

    def rank_stands_still(self, host: Host, node: int) -> None:
        eventually(lambda: self.has_made_a_step(node))  # `hang_timeout` counts from there on
        before = self.failures()
        (self.checkpoints / f"stop-{node}").touch()
        try:
            eventually(lambda: self.failures() > before)
        except AssertionError:
            raise AssertionError(f"node {node} stands still:\n{self.run('events').stdout}") from None
        (self.checkpoints / f"stop-{node}").unlink()


def campaign(seed: int, count: int, *, elastic: bool = False, etcd: bool = False, framework: str = "torch") -> Campaign:
    """Run a campaign on a fleet of its own, and return it."""
    work = WORKS[framework]
    elastic, etcd = elastic or work.regroups, etcd or work.regroups
    size = NODES + (0 if elastic else 1)
    with fleet(size, lends=work.lends()) as made, tempfile.TemporaryDirectory() as directory:
        one = Campaign(Path(directory), made, seed, elastic=elastic, etcd=etcd, work=work)
        try:
            one.run_all(count)
        finally:
            if one.supervisor is not None and one.supervisor.poll() is None:
                one.supervisor.terminate()
        return one


def main() -> None:
    """Run a campaign, and print what it survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=10)
    parser.add_argument("--elastic", action="store_true", help="a job of 1 to 3 nodes without a spare")
    parser.add_argument("--etcd", action="store_true", help="with an etcd of three members on the same hosts")
    parser.add_argument(
        "--framework", choices=sorted(WORKS), default="torch", help="what trains; alone torch can be elastic"
    )
    options = parser.parse_args()
    how = {"elastic": options.elastic, "etcd": options.etcd, "framework": options.framework}
    one = campaign(options.seed, options.faults, **how)
    for kind, times in sorted(one.faults.items()):
        print(f"{times:4}  {kind}")
    middle = sorted(one.seconds)[len(one.seconds) // 2]
    print(f"{sum(one.faults.values()):4}  survived; ten steps further after {middle:.1f} s (median)", file=sys.stdout)


if __name__ == "__main__":
    main()
