"""What jobs of MindSpore train in tests, on this machine and on hosts."""

import math

# Agrees with all ranks at each step how many they are; the loss depends on the step alone. Rank 0 saves.
# At the step HOLD all wait until there is a file `go`. The last line is one write: MindSpore's own threads write between two.
COLLECTIVE = """\
import math, os, time
import mindspore as ms, numpy as np
from mindspore import Tensor, ops
from mindspore.communication import get_group_size, get_rank, init
ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
init("mccl")
rank, world, path = get_rank(), get_group_size(), os.environ["JOBCTL_CHECKPOINT_DIR"] + "/state"
step, loss, add = 0, 1.0, ops.AllReduce()
if os.path.exists(path):
    words = open(path).read().split()
    step, loss = int(words[0]), float.fromhex(words[1])
while step < int(os.environ["STEPS"]):
    time.sleep(float(os.environ["DELAY"]))
    while step == int(os.environ.get("HOLD", "-1")) and not os.path.exists(os.environ["JOBCTL_CHECKPOINT_DIR"] + "/go"):
        open(os.environ["JOBCTL_PROGRESS_FILE"], "w").write(str(step))  # also of one that begins there
        time.sleep(0.05)
    assert float(add(Tensor(np.ones(1, np.float32))).asnumpy()[0]) == world
    step, loss = step + 1, math.sin(loss * 1.7 + step)
    if rank == 0:
        with open(path + ".new", "w") as file:
            file.write("%d %s" % (step, loss.hex()))
        os.replace(path + ".new", path)
    add(Tensor(np.ones(1, np.float32))).asnumpy()
    open(os.environ["JOBCTL_PROGRESS_FILE"], "w").write(str(step))
os.write(1, ("final %d %d %d %s %s\\n" % (rank, world, step, loss.hex(), os.environ["JOBCTL_ROLE_RANK"])).encode())
"""
# Does what MindSpore's scheduler and workers do with the variables that they go by: a worker makes no step without an answer
# of the scheduler, and looks for it again when it has gone.
LIGHT = """\
import os, socket, socketserver, time
kept, where = os.environ["JOBCTL_CHECKPOINT_DIR"], (os.environ["MS_SCHED_HOST"], int(os.environ["MS_SCHED_PORT"]))
class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line)
class Scheduler(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
if os.environ["MS_ROLE"] == "MS_SCHED":
    Scheduler(where, Answer).serve_forever()
link, rank = None, os.environ["RANK_ID"]
def ask():
    global link
    while True:
        try:
            link = link or socket.create_connection(where, 2)
            link.sendall(b"\\n")
            if link.recv(1):
                return
        except OSError:
            pass
        link = None
        time.sleep(0.05)
path = os.path.join(kept, "step-" + rank)
step = int(open(path).read()) if os.path.exists(path) else 0
print("from step", step, "rank", rank, "of", os.environ["MS_WORKER_NUM"], flush=True)
while not os.path.exists(os.path.join(kept, "end")):
    ask()
    step += 1
    with open(path + ".new", "w") as file:
        file.write(str(step))
    os.replace(path + ".new", path)
    with open(os.environ["JOBCTL_PROGRESS_FILE"], "w") as file:
        file.write(str(step))
    time.sleep(0.05)
print("final", rank, os.environ["MS_WORKER_NUM"], flush=True)
"""


def undisturbed(steps: int) -> str:
    """Return what a run of COLLECTIVE that nothing disturbed has after so many steps, and how many those are."""
    loss = 1.0
    for step in range(steps):
        loss = math.sin(loss * 1.7 + step)
    return f"{steps} {loss.hex()}"
