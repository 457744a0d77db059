"""What jobs of PaddlePaddle train in tests, on this machine and on hosts."""

# Agrees with all ranks at each step how many they are (a world of one has no group); the loss depends on the step alone.
# Rank 0 saves. At the step HOLD all wait until there is a file `go`. The last line is one write, as others write too.
COLLECTIVE = """\
import math, os, time
import paddle, paddle.distributed as dist
dist.init_parallel_env()
rank, world, path = dist.get_rank(), dist.get_world_size(), os.environ["JOBCTL_CHECKPOINT_DIR"] + "/state"
step, loss = 0, 1.0
if os.path.exists(path):
    words = open(path).read().split()
    step, loss = int(words[0]), float.fromhex(words[1])
while step < int(os.environ["STEPS"]):
    time.sleep(float(os.environ["DELAY"]))
    while step == int(os.environ.get("HOLD", "-1")) and not os.path.exists(os.environ["JOBCTL_CHECKPOINT_DIR"] + "/go"):
        open(os.environ["JOBCTL_PROGRESS_FILE"], "w").write(str(step))  # also of one that begins there
        time.sleep(0.05)
    votes = paddle.ones([1])
    if world > 1:
        dist.all_reduce(votes)
    assert int(votes[0]) == world, votes
    step, loss = step + 1, math.sin(loss * 1.7 + step)
    if rank == 0:
        with open(path + ".new", "w") as file:
            file.write("%d %s" % (step, loss.hex()))
        os.replace(path + ".new", path)
    if world > 1:
        dist.barrier()
    open(os.environ["JOBCTL_PROGRESS_FILE"], "w").write(str(step))
os.write(1, ("final %d %d %d %s %s\\n" % (rank, world, step, loss.hex(), os.environ["JOBCTL_ROLE_RANK"])).encode())
"""
# Rank 1 ends while rank 0 does: what C runs at the very end of rank 0, behind all of Paddle's own, removes the file `here`,
# for which rank 1 waits, and reads until rank 1's end of a pipe is closed. That end has the last number, so it is closed last. (What is registered first runs last.)
ENDING = """\
import ctypes, os, time
rank, folder = int(os.environ["PADDLE_TRAINER_ID"]), os.environ["JOBCTL_CHECKPOINT_DIR"]
pipe, here = (os.path.join(folder, name) for name in ("pipe", "here"))
if rank == 0:
    c = ctypes.CDLL(None)
    c.fopen.restype = c.strdup.restype = ctypes.c_void_p
    c.__cxa_atexit(c.usleep, 1000000, None)  # time for what serves rank 1 to see that it has gone
    c.__cxa_atexit(c.fgetc, ctypes.c_void_p(c.fopen(pipe.encode(), b"r")), None)
    c.__cxa_atexit(c.unlink, ctypes.c_void_p(c.strdup(here.encode())), None)
else:
    os.dup2(os.open(pipe, os.O_WRONLY), 1000, inheritable=False)
import paddle, paddle.distributed as dist
dist.init_parallel_env()
dist.barrier()
while rank == 1 and os.path.exists(here):
    time.sleep(0.01)
"""
# y = the sum of x, learned by servers that hold the weights.
SERVED = """\
import os, sys, time
import numpy as np, paddle
import paddle.distributed.fleet as fleet
paddle.enable_static()
fleet.init()
x, y = paddle.static.data("x", [None, 4], "float32"), paddle.static.data("y", [None, 1], "float32")
loss = paddle.mean(paddle.nn.functional.square_error_cost(paddle.static.nn.fc(x, 1), y))
strategy = fleet.DistributedStrategy()
strategy.a_sync = True
fleet.distributed_optimizer(paddle.optimizer.SGD(0.05), strategy).minimize(loss)
if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
    sys.exit()
exe = paddle.static.Executor(paddle.CPUPlace())
exe.run(paddle.static.default_startup_program())
fleet.init_worker()
chance = np.random.default_rng(fleet.worker_index())
for step in range(1, int(os.environ["STEPS"]) + 1):
    numbers = chance.random((16, 4), dtype="float32")
    (found,) = exe.run(feed={"x": numbers, "y": numbers.sum(1, keepdims=True)}, fetch_list=[loss])
    open(os.environ["JOBCTL_PROGRESS_FILE"], "w").write(str(step))
    time.sleep(float(os.environ["DELAY"]))
    if os.path.exists(os.path.join(os.environ.get("JOBCTL_CHECKPOINT_DIR", "."), "end")):
        break
os.write(1, ("final %d %d %s\\n" % (fleet.worker_index(), fleet.worker_num(), float(found))).encode())
fleet.stop_worker()
"""
