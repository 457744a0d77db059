"""Trains on as many processes as there are, also when their number changes from one restart to the next.

The position in the run is counted in samples, never in steps: a step is 64 samples on two processes and 128
on four. What depends on the number of processes (who takes which samples, the learning rate) is computed anew
at every start; what is saved (weights, momentum, samples seen) means the same for any number of them.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when paddle is imported: one thread adds in one order

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import Tensor, nn
from paddle.io import DataLoader, TensorDataset
from paddle.nn.functional import cross_entropy, relu
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

TOO_INACCURATE = 3  # exit code; job.yaml says that trying again does not help


@dataclass(frozen=True)
class Stream:
    """This process's batches out of one endless stream of samples, epoch after epoch in a new order.

    Step by step the processes take neighbouring pieces of it, `batch` samples each. Whoever takes part, the
    stream is the same, so samples up to `start` are exactly those that were used before: none is used twice
    in an epoch and none is left out.
    """

    size: int
    seed: int
    batch: int
    start: int
    stop: int
    rank: int
    world: int

    def __iter__(self) -> Iterator[list[int]]:
        epoch, order = -1, np.empty(0)
        for first in range(self.start, self.stop, self.batch * self.world):
            mine = []
            for position in range(first + self.rank * self.batch, first + (self.rank + 1) * self.batch):
                if position // self.size != epoch:
                    epoch = position // self.size
                    order = np.random.RandomState(self.seed + epoch).permutation(self.size)
                mine.append(int(order[position % self.size]))
            yield mine


class Block(nn.Layer):
    """Two 3x3 convolutions around a short cut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2D(inputs, outputs, 3, stride, 1, bias_attr=False),
            nn.BatchNorm2D(outputs),
            nn.ReLU(),
            nn.Conv2D(outputs, outputs, 3, 1, 1, bias_attr=False),
            nn.BatchNorm2D(outputs),
        )
        same = inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Conv2D(inputs, outputs, 1, stride, bias_attr=False)

    def forward(self, x: Tensor) -> Tensor:
        return relu(self.body(x) + self.shortcut(x))


def resnet() -> nn.Layer:
    return nn.Sequential(
        nn.Conv2D(1, 32, 3, 1, 1, bias_attr=False),
        nn.BatchNorm2D(32),
        nn.ReLU(),
        Block(32, 32, 1),
        Block(32, 64, 2),
        Block(64, 128, 2),
        nn.AdaptiveAvgPool2D(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def digits() -> tuple[TensorDataset, tuple[Tensor, Tensor]]:
    """The training and the test split: 8x8 images in 0..1 and their labels, the same in every process."""
    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    train_x, test_x = (paddle.to_tensor(x / 16, dtype="float32").reshape([-1, 1, 8, 8]) for x in split[:2])
    train_y, test_y = (paddle.to_tensor(y, dtype="int64") for y in split[2:])
    return TensorDataset([train_x, train_y]), (test_x, test_y)


def from_rank_0(value: float) -> float:
    """Rank 0's value, in every process."""
    shared = paddle.to_tensor([value], dtype="float64")
    if dist.get_world_size() > 1:  # a single process has no group that could broadcast
        dist.broadcast(shared, src=0)
    return float(shared.item())


class Checkpoints:
    """A folder of `samples-N.pdparams`, written by global rank 0 and read by every process."""

    def __init__(self, folder: Path | None, keep: int) -> None:
        self.folder, self.keep = folder, keep

    def saved(self) -> list[int]:
        """How many samples had been seen at each checkpoint, in ascending order."""
        if self.folder is None or not self.folder.is_dir():
            return []
        found = (re.fullmatch(r"samples-(\d+)\.pdparams", path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def save(self, state: dict[str, Any]) -> None:
        """Writes aside, flushes to the disk, renames: at no moment is there half a file under the final name."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / "writing.tmp"
        paddle.save(state, str(temporary))
        flush(temporary)
        temporary.replace(self.folder / f"samples-{state['seen']:09d}.pdparams")
        flush(self.folder)
        for old in self.saved()[: -self.keep]:
            (self.folder / f"samples-{old:09d}.pdparams").unlink()

    def load_latest(self) -> dict[str, Any] | None:
        """Rank 0 chooses, so that no process starts from another place than the rest."""
        choice = int(from_rank_0(max(self.saved(), default=-1)))
        if choice < 0 or self.folder is None:
            return None
        state: dict[str, Any] = paddle.load(str(self.folder / f"samples-{choice:09d}.pdparams"))
        return state


def flush(path: Path) -> None:
    """A file is on the disk only after this, and a rename only when its folder is."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def report_progress(step: int) -> None:
    """Tells jobctl the step: it appears in `jobctl status`, and a step that never ends can be noticed."""
    if name := os.environ.get("JOBCTL_PROGRESS_FILE"):
        Path(name + ".tmp").write_text(str(step))
        os.replace(name + ".tmp", name)


def learning_rate(seen: int, total: int, peak: float) -> float:
    """A linear warm-up over a tenth of the samples, then half a cosine."""
    warm_up = total / 10
    if seen < warm_up:
        return peak * seen / warm_up
    return peak * (1 + math.cos(math.pi * (seen - warm_up) / (total - warm_up))) / 2


def accuracy(model: nn.Layer, test: tuple[Tensor, Tensor]) -> float:
    """Judged by rank 0 (the running means of BatchNorm are rank 0's) and told to all."""
    model.eval()
    with paddle.no_grad():
        images, labels = test
        share = (model(images).argmax(1) == labels).astype("float64").mean()
    return from_rank_0(float(share))


def train(options: argparse.Namespace) -> float:
    """Trains from the latest checkpoint, or from the start, to the last sample; returns the test accuracy."""
    rank, world, batch = dist.get_rank(), dist.get_world_size(), options.batch_size
    paddle.seed(options.seed)
    training, test = digits()
    total = options.epochs * len(training)
    peak = options.learning_rate * world  # a batch that is n times as large gets n times the rate

    network = resnet()
    model = paddle.DataParallel(network) if world > 1 else network
    optimizer = paddle.optimizer.Momentum(parameters=network.parameters(), use_nesterov=True, weight_decay=1e-4)
    checkpoints = Checkpoints(options.checkpoint_dir, options.checkpoint_keep)
    step, seen = 0, 0
    if saved := checkpoints.load_latest():
        network.set_state_dict(saved["model"])
        optimizer.set_state_dict(saved["optimizer"])
        step, seen = saved["step"], saved["seen"]
    if rank == 0:
        begin = "resumed" if step else "started"
        effective = f"batch={batch}x{world}={batch * world}"
        print(f"{begin} step={step} samples={seen} of={total} processes={world} {effective}", flush=True)

    stream = Stream(len(training), options.seed, batch, seen, total, rank, world)
    for images, labels in DataLoader(training, batch_sampler=stream):
        optimizer.set_lr(learning_rate(seen, total, peak))
        error = cross_entropy(model(images), labels)
        error.backward()
        optimizer.step()
        optimizer.clear_grad()
        step, seen = step + 1, seen + batch * world
        if rank == 0 and (step % options.checkpoint_every == 0 or seen >= total):
            weights, momentum = network.state_dict(), optimizer.state_dict()
            checkpoints.save({"step": step, "seen": seen, "model": weights, "optimizer": momentum})
        if rank == 0 and step % 10 == 0:
            print(f"step={step} samples={seen} loss={float(error):.4f}", flush=True)
        report_progress(step)
        time.sleep(options.step_delay)

    reached = accuracy(network, test)
    if rank == 0:
        print(f"final step={step} samples={seen} accuracy={reached:.4f}", flush=True)
    return reached


def arguments() -> argparse.Namespace:
    folder = os.environ.get("JOBCTL_CHECKPOINT_DIR") or None
    keep = os.environ.get("JOBCTL_CHECKPOINT_KEEP") or "2"
    parser = argparse.ArgumentParser(description="Trains on as many processes as there are.")
    add = parser.add_argument
    add("--epochs", type=int, default=20)
    add("--batch-size", type=int, default=32, help="of one process in one step")
    add("--learning-rate", type=float, default=0.05, help="at its peak, for one process")
    add("--seed", type=int, default=0)
    add("--device", choices=("cpu", "gpu"), default="cpu")
    add("--checkpoint-dir", type=Path, default=folder, help="JOBCTL_CHECKPOINT_DIR unless given")
    add("--checkpoint-keep", type=int, default=keep, help="JOBCTL_CHECKPOINT_KEEP unless given")
    add("--checkpoint-every", type=int, default=20, metavar="STEPS")
    add("--min-accuracy", type=float, default=0.95, help=f"below it: exit code {TOO_INACCURATE}")
    add("--step-delay", type=float, default=0.0, metavar="SECONDS", help="sleep after each step")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    paddle.set_device(options.device)
    if options.device == "gpu":
        paddle.set_flags({"FLAGS_cudnn_deterministic": True})
    dist.init_parallel_env()  # makes the group that the launcher describes; for a single process there is none
    return 0 if train(options) >= options.min_accuracy else TOO_INACCURATE


if __name__ == "__main__":
    sys.exit(main())
