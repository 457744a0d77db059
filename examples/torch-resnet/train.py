"""Trains a small ResNet on scikit-learn's handwritten digits, and survives being killed at any moment.

Two decisions make a restart exact. Everything random is a function of the seed and the step, never of what
ran before, so the step is the only position to save. And a checkpoint appears under its name only when it
is complete, so whatever lies in the folder can be loaded.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

TOO_INACCURATE = 3  # exit code; job.yaml says that trying again does not help


class Block(nn.Module):
    """Two 3x3 convolutions around a short cut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        same = inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, 1, 1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        Block(32, 32, 1),
        Block(32, 64, 2),
        Block(64, 128, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def digits() -> tuple[TensorDataset, TensorDataset]:
    """The training and the test split: 8x8 images in 0..1 and their labels, the same in every process."""
    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    train_x, test_x = (torch.tensor(x / 16, dtype=torch.float32).reshape(-1, 1, 8, 8) for x in split[:2])
    train_y, test_y = (torch.tensor(y, dtype=torch.long) for y in split[2:])
    return TensorDataset(train_x, train_y), TensorDataset(test_x, test_y)


def join(device_kind: str) -> torch.device:
    """Joins the process group that the launcher describes, or makes one of a single process."""
    backend = "nccl" if device_kind == "cuda" else "gloo"
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    if device_kind == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


class Checkpoints:
    """A folder of `step-N.pt`, written by rank 0 and read by every process."""

    def __init__(self, folder: Path | None, keep: int) -> None:
        self.folder, self.keep = folder, keep

    def steps(self) -> list[int]:
        if self.folder is None or not self.folder.is_dir():
            return []
        found = (re.fullmatch(r"step-(\d+)\.pt", path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Writes aside, flushes to the disk, renames: at no moment is there half a file under the final name."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / "writing.tmp"
        with temporary.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.folder / f"step-{step:08d}.pt")
        flush_folder(self.folder)
        for old in self.steps()[: -self.keep]:
            (self.folder / f"step-{old:08d}.pt").unlink()

    def load_latest(self, device: torch.device) -> dict[str, Any] | None:
        """Rank 0 chooses, so that no process starts from another step than the rest."""
        choice = [max(self.steps(), default=None)]
        dist.broadcast_object_list(choice, device=device)
        if choice[0] is None or self.folder is None:
            return None
        path = self.folder / f"step-{choice[0]:08d}.pt"
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        return state


def flush_folder(folder: Path) -> None:
    """A rename is on the disk only when the folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def report_progress(step: int) -> None:
    """Tells jobctl the step: it appears in `jobctl status`, and a step that never ends can be noticed."""
    if name := os.environ.get("JOBCTL_PROGRESS_FILE"):
        Path(name + ".tmp").write_text(str(step))
        os.replace(name + ".tmp", name)


def learning_rate(step: int, total: int, peak: float) -> float:
    """A linear warm-up over a tenth of the run, then half a cosine: of the step alone, so nothing to save."""
    warm_up = max(1, total // 10)
    if step < warm_up:
        return peak * (step + 1) / warm_up
    return peak * (1 + math.cos(math.pi * (step - warm_up) / (total - warm_up))) / 2


def accuracy(model: nn.Module, test: TensorDataset, device: torch.device) -> float:
    """Judged by rank 0 (the running means of BatchNorm are rank 0's) and told to all."""
    model.eval()
    with torch.no_grad():
        images, labels = (tensor.to(device) for tensor in test.tensors)
        share = (model(images).argmax(1) == labels).double().mean()
    dist.broadcast(share, src=0)
    return float(share)


def train(options: argparse.Namespace, device: torch.device) -> float:
    """Trains from the latest checkpoint, or from the start, to the last step; returns the test accuracy."""
    rank, world = dist.get_rank(), dist.get_world_size()
    if options.batch_size % world:
        raise SystemExit(f"--batch-size {options.batch_size} cannot be shared by {world} processes")
    batch = options.batch_size // world

    torch.manual_seed(options.seed)
    training, test = digits()
    sampler: DistributedSampler[Any] = DistributedSampler(training, seed=options.seed)
    steps_per_epoch = len(training) // options.batch_size
    total = options.epochs * steps_per_epoch

    model = DistributedDataParallel(resnet().to(device))
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9, nesterov=True, weight_decay=1e-4)
    checkpoints = Checkpoints(options.checkpoint_dir, options.checkpoint_keep)
    step, loss = 0, torch.tensor(math.nan)
    if saved := checkpoints.load_latest(device):
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step, loss = saved["step"], torch.tensor(saved["loss"])
    if rank == 0:
        print(f"{'resumed' if step else 'started'} step={step} of={total} processes={world}", flush=True)

    while step < total:
        epoch, done = divmod(step, steps_per_epoch)
        sampler.set_epoch(epoch)
        rest = Subset(training, list(sampler)[done * batch :])
        for images, labels in DataLoader(rest, batch, drop_last=True):
            optimizer.param_groups[0]["lr"] = learning_rate(step, total, options.learning_rate)
            loss = cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if rank == 0 and (step % options.checkpoint_every == 0 or step == total):
                weights, momentum = model.module.state_dict(), optimizer.state_dict()
                checkpoints.save(step, {"step": step, "loss": loss.item(), "model": weights, "optimizer": momentum})
            report_progress(step)
            time.sleep(options.step_delay)
        if rank == 0:
            print(f"epoch={epoch} step={step} loss={loss.item():.4f}", flush=True)

    reached = accuracy(model.module, test, device)
    if rank == 0:
        print(f"final step={step} loss={loss.item()!r} accuracy={reached:.4f}", flush=True)
    return reached


def arguments() -> argparse.Namespace:
    folder = os.environ.get("JOBCTL_CHECKPOINT_DIR") or None
    keep = os.environ.get("JOBCTL_CHECKPOINT_KEEP") or "2"
    parser = argparse.ArgumentParser(description="Trains a small ResNet on scikit-learn's digits.")
    add = parser.add_argument
    add("--epochs", type=int, default=20)
    add("--batch-size", type=int, default=64, help="of one step, shared by all processes")
    add("--learning-rate", type=float, default=0.1, help="at its peak")
    add("--seed", type=int, default=0)
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--checkpoint-dir", type=Path, default=folder, help="JOBCTL_CHECKPOINT_DIR unless given")
    add("--checkpoint-keep", type=int, default=keep, help="JOBCTL_CHECKPOINT_KEEP unless given")
    add("--checkpoint-every", type=int, default=20, metavar="STEPS")
    add("--min-accuracy", type=float, default=0.95, help=f"below it: exit code {TOO_INACCURATE}")
    add("--step-delay", type=float, default=0.0, metavar="SECONDS", help="sleep after each step")
    return parser.parse_args()


def main() -> int:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only with this
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    options = arguments()
    reached = train(options, join(options.device))
    # Only now that `train` has let go of the model: a process group that dies with its
    # DistributedDataParallel can wait for ever for a thread of its own (see the README).
    dist.destroy_process_group()
    return 0 if reached >= options.min_accuracy else TOO_INACCURATE


if __name__ == "__main__":
    sys.exit(main())
