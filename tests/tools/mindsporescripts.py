"""What jobs of MindSpore train in tests, on this machine and on hosts."""

import math

# Agrees with all ranks at each step how many they are; the loss depends on the step alone. Rank 0 saves.
# At the step HOLD all wait until there is a file `go`.
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
print("final", rank, world, step, loss.hex(), os.environ["JOBCTL_ROLE_RANK"], flush=True)
"""


def undisturbed(steps: int) -> str:
    """Return what a run of COLLECTIVE that nothing disturbed has after so many steps, and how many those are."""
    loss = 1.0
    for step in range(steps):
        loss = math.sin(loss * 1.7 + step)
    return f"{steps} {loss.hex()}"
