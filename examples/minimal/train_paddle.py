"""Trains with paddle.DataParallel, and goes on from the last checkpoint after a restart."""

import os
from pathlib import Path

import paddle
import paddle.distributed as dist

STEPS, SAVE_EVERY = 2000, 100
FOLDER, KEEP = Path(os.environ["JOBCTL_CHECKPOINT_DIR"]), int(os.environ["JOBCTL_CHECKPOINT_KEEP"])


def saved_steps():
    return sorted(int(path.stem[len("step-") :]) for path in FOLDER.glob("step-*.pdparams"))


def save(step, network, optimizer):
    temporary = FOLDER / "writing.tmp"
    paddle.save({"model": network.state_dict(), "optimizer": optimizer.state_dict()}, str(temporary))
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.rename(FOLDER / f"step-{step}.pdparams")  # a kill leaves only whole checkpoints
    for old in saved_steps()[:-KEEP]:
        (FOLDER / f"step-{old}.pdparams").unlink()


FOLDER.mkdir(parents=True, exist_ok=True)
paddle.set_device("gpu" if paddle.is_compiled_with_cuda() else "cpu")
dist.init_parallel_env()
rank, world = dist.get_rank(), dist.get_world_size()
paddle.seed(0)
network = paddle.nn.Linear(16, 1)
model = paddle.DataParallel(network) if world > 1 else network
optimizer = paddle.optimizer.Momentum(learning_rate=0.01, parameters=network.parameters())
latest = paddle.to_tensor([max(saved_steps(), default=0)])
if world > 1:
    dist.broadcast(latest, src=0)  # rank 0 chooses, so that all begin at one step
step = int(latest.item())
if step:
    state = paddle.load(str(FOLDER / f"step-{step}.pdparams"))
    network.set_state_dict(state["model"])
    optimizer.set_state_dict(state["optimizer"])
print(f"rank {rank} begins at step {step}", flush=True)
while step < STEPS:
    paddle.seed(step * world + rank)
    inputs = paddle.randn([32, 16])  # depends on step and rank alone
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    step += 1
    if rank == 0 and step % SAVE_EVERY == 0:
        save(step, network, optimizer)
    Path(os.environ["JOBCTL_PROGRESS_FILE"]).write_text(str(step))
print(f"rank {rank} has trained {step} steps", flush=True)
