"""Trains with DistributedDataParallel, and goes on from the last checkpoint after a restart."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, SAVE_EVERY = 2000, 100
FOLDER, KEEP = Path(os.environ["JOBCTL_CHECKPOINT_DIR"]), int(os.environ["JOBCTL_CHECKPOINT_KEEP"])


def saved_steps():
    return sorted(int(path.stem[len("step-") :]) for path in FOLDER.glob("step-*.pt"))


def save(step, model, optimizer):
    temporary = FOLDER / "writing.tmp"
    with temporary.open("wb") as file:
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(FOLDER / f"step-{step}.pt")  # a kill leaves only whole checkpoints
    for old in saved_steps()[:-KEEP]:
        (FOLDER / f"step-{old}.pt").unlink()


def train(device):
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(16, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    latest = [max(saved_steps(), default=0)]
    dist.broadcast_object_list(latest, device=device)  # rank 0 chooses, so that all begin at one step
    step = latest[0]
    if step:
        state = torch.load(FOLDER / f"step-{step}.pt", map_location=device, weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    print(f"rank {dist.get_rank()} begins at step {step}", flush=True)
    while step < STEPS:
        data = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
        inputs = torch.randn(32, 16, generator=data).to(device)  # depends on step and rank alone
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if dist.get_rank() == 0 and step % SAVE_EVERY == 0:
            save(step, model, optimizer)
        Path(os.environ["JOBCTL_PROGRESS_FILE"]).write_text(str(step))
    print(f"rank {dist.get_rank()} has trained {step} steps", flush=True)


FOLDER.mkdir(parents=True, exist_ok=True)
cuda = torch.cuda.is_available()
dist.init_process_group("nccl" if cuda else "gloo")
train(torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu"))
dist.destroy_process_group()
os._exit(0)  # flushes nothing, and skips Python's shutdown, in which gloo may abort: see docs/torch.md
