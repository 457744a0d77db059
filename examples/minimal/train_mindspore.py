"""Trains data parallel in graph mode, and goes on from the last common checkpoint after a restart."""

import os
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from mindspore.communication import get_group_size, get_rank, init

STEPS, SAVE_EVERY, KEEP = 2000, 100, 2  # two, because a kill may leave one rank a checkpoint ahead


def saved_steps():
    return sorted(int(path.stem[len("step-") :]) for path in folder.glob("step-*.ckpt"))


def save(step, cell):
    temporary = folder / "writing.ckpt"
    ms.save_checkpoint(cell, str(temporary))
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.rename(folder / f"step-{step}.ckpt")  # a kill leaves only whole checkpoints
    for old in [one for one in saved_steps() if one <= step][:-KEEP]:
        (folder / f"step-{old}.ckpt").unlink()


ms.set_context(mode=ms.GRAPH_MODE)
ms.set_device("CPU")  # or GPU, Ascend
init("mccl")  # or nccl, hccl. The scheduler runs this script too, and does not come back from here
ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True)
rank, world = get_rank(), get_group_size()
folder = Path(os.environ["JOBCTL_CHECKPOINT_DIR"]) / f"rank-{rank}"  # every rank keeps its own
folder.mkdir(parents=True, exist_ok=True)
ms.set_seed(0)
model = nn.Dense(16, 1)
optimizer = nn.Momentum(model.trainable_params(), learning_rate=0.01, momentum=0.9)
cell = nn.TrainOneStepCell(nn.WithLossCell(model, nn.MSELoss()), optimizer)
newest = ms.Tensor([max(saved_steps(), default=0)], ms.int32)
step = int(ops.AllGather()(newest).min().asnumpy())  # the newest step that every rank has
if step:
    ms.load_param_into_net(cell, ms.load_checkpoint(str(folder / f"step-{step}.ckpt")), strict_load=True)
print(f"rank {rank} begins at step {step}", flush=True)
cell.set_train()
while step < STEPS:
    inputs = np.random.default_rng((step, rank)).standard_normal((32, 16), dtype=np.float32)  # of step and rank alone
    cell(ms.Tensor(inputs), ms.Tensor(inputs.sum(1, keepdims=True)))
    step += 1
    if step % SAVE_EVERY == 0:
        save(step, cell)
    Path(os.environ["JOBCTL_PROGRESS_FILE"]).write_text(str(step))
print(f"rank {rank} has trained {step} steps", flush=True)
