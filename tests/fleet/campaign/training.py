"""What the nodes of a campaign do: a job of each framework whose loss depends on its steps alone, and its spec."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from tests.fleet.machine import IMAGE
from tests.tools.frameworks import Name, site_packages

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
# The same without a framework: rank 0 adds up what the others send. It starts in a tenth of a second.
LIGHT = """\
import socket, struct
rank, world = int(os.environ["NODE_RANK"]), int(os.environ["NNODES"])
master = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
def read(link, form):
    data = b""
    while len(data) < struct.calcsize(form):
        more = link.recv(struct.calcsize(form) - len(data))
        if not more:
            sys.exit("a peer has gone")
        data += more
    return struct.unpack(form, data)
generation, links = int(os.environ["JOBCTL_GENERATION"]), []
if rank == 0:
    server = socket.create_server(("", master[1]))
    while len(links) < world - 1:
        link = server.accept()[0]
        try:
            if read(link, "q") == (generation,):
                link.sendall(struct.pack("q", generation))
                links.append(link)
        except (OSError, SystemExit):
            pass  # it did not wait
    server.close()
while rank and not links:
    try:
        link = socket.create_connection(master)
        link.sendall(struct.pack("q", generation))
        read(link, "q")
        links.append(link)
    except (OSError, SystemExit):  # rank 0 has not begun, or still is the one of the generation before
        time.sleep(0.05)
def send(form, *values):
    for link in links:
        link.sendall(struct.pack(form, *values))
def all_reduce(*mine):
    form = "%dd" % len(mine)
    if rank:
        send(form, *mine)
        return read(links[0], form)
    added = [sum(each) for each in zip(mine, *[read(link, form) for link in links])]
    send(form, *added)
    return added
step, loss = load()
step, loss = all_reduce(*([step, loss] if rank == 0 else [0, 0.0]))
step = int(step)
while True:
    wait()
    votes = all_reduce(1.0, float(rank == 0 and ends()))
    assert votes[0] == world
    step, loss = step + 1, math.sin(loss * 1.7 + step)
    report(step, rank)
    if rank == 0 and (step % 5 == 0 or votes[1]):
        save(step, loss)
    if votes[1]:
        break
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
# The same with JAX, which would wait for the other processes after an error, as they wait for this one.
JAX = """\
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.stderr.flush(), os._exit(1))
jax.distributed.initialize(None, *(int(os.environ["JAX_" + name]) for name in ("NUM_PROCESSES", "PROCESS_ID")))
rank, world, mesh = jax.process_index(), jax.process_count(), Mesh(np.array(jax.devices()), ("rank",))
own, same = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("rank",), ()))
add = jax.jit(lambda votes: votes.sum(0), out_shardings=same)
step, loss = load()  # as MindSpore
while True:
    wait()
    mine = np.array([[1.0, rank == 0 and ends()]], np.float32)
    votes = np.asarray(add(jax.make_array_from_process_local_data(own, mine)))
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
    start: str = "script: counter.py\n"
    regroups: bool = False  # whether who takes part is the framework's own matter, in an elastic job with etcd

    def lends(self) -> dict[str, Path]:
        """Return the folders that the hosts have to see."""
        if self.environment is None:
            return {}
        return {self.environment: site_packages(self.environment)}


WORKS = {
    "light": Work(LIGHT, "framework: torch\n", start="command: [python3, counter.py]\nper: node\n"),
    "torch": Work(TORCH, "framework: torch\n"),
    "torch-ps": Work(SERVED, "framework: torch\nmode: ps\nps: {{servers: 2, trainers: 3}}\n", hang=30),
    "mindspore": Work(MINDSPORE, "framework: mindspore\n", "mindspore", 20),
    "jax": Work(JAX, "framework: jax\n", "jax", 20),
    "paddle": Work(PADDLE, "framework: paddle\n", "paddle", 20),
    "paddle-ps": Work(PADDLE_SERVED, "framework: paddle\nmode: ps\nps: {{servers: 2, trainers: 3}}\n", "paddle-ps", 30),
    "paddle-elastic": Work(
        PADDLE, "framework: paddle\npaddle: {{elastic_timeout: 10s}}\n", "paddle", 30, regroups=True
    ),
}
SPEC = f"""\
name: counter
image: {IMAGE}
pull: never
code: .
nodes: NODES
checkpoint: {{checkpoints}}
stop_grace_period: 2s
volumes: ["PACKAGES:/packages:ro"]
env: {{{{PYTHONPATH: /packages, OMP_NUM_THREADS: "1"}}}}
recovery: {{{{host_timeout: TIMEOUTs, hang_timeout: HANGs, max_restarts: 1000}}}}
"""


def undisturbed(steps: int) -> str:
    """What a run that nothing disturbed has after so many steps."""
    loss = 1.0
    for step in range(steps):
        loss = math.sin(loss * 1.7 + step)
    return f"{steps} {loss.hex()}"
