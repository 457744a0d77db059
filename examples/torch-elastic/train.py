"""Trains on as many processes as there are, also when their number changes from one restart to the next.

The position in the run is counted in samples, never in steps: a step is 32 samples on one process and 96 on
three. What depends on the number of processes (who takes which samples, the learning rate) is computed anew
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

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Sampler, TensorDataset

TOO_INACCURATE = 3  # exit code; job.yaml says that trying again does not help


@dataclass(frozen=True)
class Stream(Sampler[list[int]]):
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
        epoch, order = -1, torch.empty(0)
        for first in range(self.start, self.stop, self.batch * self.world):
            mine = []
            for position in range(first + self.rank * self.batch, first + (self.rank + 1) * self.batch):
                if position // self.size != epoch:
                    epoch = position // self.size
                    generator = torch.Generator().manual_seed(self.seed + epoch)
                    order = torch.randperm(self.size, generator=generator)
                mine.append(int(order[position % self.size]))
            yield mine


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 10),
    )


def digits() -> tuple[TensorDataset, TensorDataset]:
    """The training and the test split: 8x8 images in 0..1 and their labels, the same in every process."""
    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    train_x, test_x = (torch.tensor(x / 16, dtype=torch.float32).reshape(-1, 1, 8, 8) for x in split[:2])
    train_y, test_y = (torch.tensor(y, dtype=torch.long) for y in split[2:])
    return TensorDataset(train_x, train_y), TensorDataset(test_x, test_y)


def learning_rate(seen: int, total: int, peak: float) -> float:
    """A linear warm-up over a tenth of the samples, then half a cosine."""
    warm_up = total / 10
    if seen < warm_up:
        return peak * seen / warm_up
    return peak * (1 + math.cos(math.pi * (seen - warm_up) / (total - warm_up))) / 2


def saved_at(folder: Path | None) -> list[int]:
    """How many samples had been seen at each checkpoint in the folder, in ascending order."""
    if folder is None or not folder.is_dir():
        return []
    found = (re.fullmatch(r"samples-(\d+)\.pt", path.name) for path in folder.iterdir())
    return sorted(int(match[1]) for match in found if match)


def save(folder: Path, keep: int, state: dict[str, Any]) -> None:
    """Writes aside, flushes to the disk, renames: at no moment is there half a file under the final name."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "writing.tmp").open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    (folder / "writing.tmp").replace(folder / f"samples-{state['seen']:09d}.pt")
    for old in saved_at(folder)[:-keep]:
        (folder / f"samples-{old:09d}.pt").unlink()


def load_latest(folder: Path | None) -> dict[str, Any] | None:
    """Rank 0 chooses, so that no process starts from another place than the rest."""
    choice = [max(saved_at(folder), default=None)]
    dist.broadcast_object_list(choice)
    if choice[0] is None or folder is None:
        return None
    state: dict[str, Any] = torch.load(folder / f"samples-{choice[0]:09d}.pt", weights_only=True)
    return state


def report_progress(step: int) -> None:
    """Tells jobctl the step: it appears in `jobctl status`, and a step that never ends can be noticed."""
    if name := os.environ.get("JOBCTL_PROGRESS_FILE"):
        Path(name + ".tmp").write_text(str(step))
        os.replace(name + ".tmp", name)


def accuracy(model: nn.Module, test: TensorDataset) -> float:
    """The weights are the same everywhere, so every process finds the same."""
    with torch.no_grad():
        images, labels = test.tensors
        return float((model(images).argmax(1) == labels).double().mean())


def train(options: argparse.Namespace) -> float:
    """Trains from the latest checkpoint, or from the start, to the last sample; returns the test accuracy."""
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(options.seed)
    training, test = digits()
    total = options.epochs * len(training)
    peak = options.learning_rate * world  # a batch that is n times as large gets n times the rate

    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9, weight_decay=1e-4)
    step, seen, loss = 0, 0, torch.tensor(math.nan)
    if saved := load_latest(options.checkpoint_dir):
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step, seen = saved["step"], saved["seen"]
    if rank == 0:
        print(
            f"{'resumed' if step else 'started'} step={step} samples={seen} of={total} processes={world}",
            flush=True,
        )

    stream = Stream(len(training), options.seed, options.batch_size, seen, total, rank, world)
    for images, labels in DataLoader(training, batch_sampler=stream):
        optimizer.param_groups[0]["lr"] = learning_rate(seen, total, peak)
        loss = cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step, seen = step + 1, seen + options.batch_size * world
        if rank == 0 and options.checkpoint_dir and (step % options.checkpoint_every == 0 or seen >= total):
            weights, momentum = model.module.state_dict(), optimizer.state_dict()
            state = {"step": step, "seen": seen, "model": weights, "optimizer": momentum}
            save(options.checkpoint_dir, options.checkpoint_keep, state)
        if rank == 0 and step % 50 == 0:
            print(f"step={step} samples={seen} loss={loss.item():.4f}", flush=True)
        report_progress(step)
        time.sleep(options.step_delay)

    reached = accuracy(model.module, test)
    if rank == 0:
        print(f"final step={step} samples={seen} accuracy={reached:.4f}", flush=True)
    return reached


def arguments() -> argparse.Namespace:
    folder = os.environ.get("JOBCTL_CHECKPOINT_DIR") or None
    keep = os.environ.get("JOBCTL_CHECKPOINT_KEEP") or "2"
    parser = argparse.ArgumentParser(description="Trains on as many processes as there are.")
    add = parser.add_argument
    add("--epochs", type=int, default=30)
    add("--batch-size", type=int, default=32, help="of one process in one step")
    add("--learning-rate", type=float, default=0.05, help="at its peak, for one process")
    add("--seed", type=int, default=0)
    add("--checkpoint-dir", type=Path, default=folder, help="JOBCTL_CHECKPOINT_DIR unless given")
    add("--checkpoint-keep", type=int, default=keep, help="JOBCTL_CHECKPOINT_KEEP unless given")
    add("--checkpoint-every", type=int, default=20, metavar="STEPS")
    add("--min-accuracy", type=float, default=0.95, help=f"below it: exit code {TOO_INACCURATE}")
    add("--step-delay", type=float, default=0.0, metavar="SECONDS", help="sleep after each step")
    return parser.parse_args()


def main() -> int:
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    options = arguments()
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    reached = train(options)
    # Only now that `train` has let go of the model: a process group that dies with its
    # DistributedDataParallel can wait for ever for a thread of its own.
    dist.destroy_process_group()
    return 0 if reached >= options.min_accuracy else TOO_INACCURATE


if __name__ == "__main__":
    sys.exit(main())
