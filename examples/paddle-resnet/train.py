"""Trains a small ResNet on scikit-learn's handwritten digits, and survives being killed at any moment.

Dynamic graph, data parallel. Two decisions make a restart exact. Everything random is a function of the seed
and the step, never of what ran before, so the step is the only position to save. And a checkpoint appears
under its name only when it is complete, so whatever lies in the folder can be loaded.
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

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when paddle is imported: one thread adds in one order

import paddle
import paddle.distributed as dist
from paddle import Tensor, nn
from paddle.io import DataLoader, DistributedBatchSampler, TensorDataset
from paddle.nn.functional import cross_entropy, relu
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

TOO_INACCURATE = 3  # exit code; job.yaml says that trying again does not help


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
    """A folder of `step-N.pdparams`, written by rank 0 and read by every process."""

    def __init__(self, folder: Path | None, keep: int) -> None:
        self.folder, self.keep = folder, keep

    def steps(self) -> list[int]:
        if self.folder is None or not self.folder.is_dir():
            return []
        found = (re.fullmatch(r"step-(\d+)\.pdparams", path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def save(self, state: dict[str, Any]) -> None:
        """Writes aside, flushes to the disk, renames: at no moment is there half a file under the final name."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / "writing.tmp"
        paddle.save(state, str(temporary))
        flush(temporary)
        temporary.replace(self.folder / f"step-{state['step']:08d}.pdparams")
        flush(self.folder)
        for old in self.steps()[: -self.keep]:
            (self.folder / f"step-{old:08d}.pdparams").unlink()

    def load_latest(self) -> dict[str, Any] | None:
        """Rank 0 chooses, so that no process starts from another step than the rest."""
        choice = int(from_rank_0(max(self.steps(), default=-1)))
        if choice < 0 or self.folder is None:
            return None
        state: dict[str, Any] = paddle.load(str(self.folder / f"step-{choice:08d}.pdparams"))
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


def learning_rate(step: int, total: int, peak: float) -> float:
    """A linear warm-up over a tenth of the run, then half a cosine: of the step alone, so nothing to save."""
    warm_up = max(1, total // 10)
    if step < warm_up:
        return peak * (step + 1) / warm_up
    return peak * (1 + math.cos(math.pi * (step - warm_up) / (total - warm_up))) / 2


def accuracy(model: nn.Layer, test: tuple[Tensor, Tensor]) -> float:
    """Judged by rank 0 (the running means of BatchNorm are rank 0's) and told to all."""
    model.eval()
    with paddle.no_grad():
        images, labels = test
        share = (model(images).argmax(1) == labels).astype("float64").mean()
    return from_rank_0(float(share))


def train(options: argparse.Namespace) -> float:
    """Trains from the latest checkpoint, or from the start, to the last step; returns the test accuracy."""
    rank, world = dist.get_rank(), dist.get_world_size()
    if options.batch_size % world:
        raise SystemExit(f"--batch-size {options.batch_size} cannot be shared by {world} processes")
    batch = options.batch_size // world

    paddle.seed(options.seed)
    training, test = digits()
    sampler = DistributedBatchSampler(training, batch, world, rank, shuffle=True)
    steps_per_epoch = len(training) // options.batch_size
    total = options.epochs * steps_per_epoch

    network = resnet()
    model = paddle.DataParallel(network) if world > 1 else network
    optimizer = paddle.optimizer.Momentum(parameters=network.parameters(), use_nesterov=True, weight_decay=1e-4)
    checkpoints = Checkpoints(options.checkpoint_dir, options.checkpoint_keep)
    step, loss = 0, math.nan
    if saved := checkpoints.load_latest():
        network.set_state_dict(saved["model"])
        optimizer.set_state_dict(saved["optimizer"])
        step, loss = saved["step"], saved["loss"]
    if rank == 0:
        begin = "resumed" if step else "started"
        print(f"{begin} step={step} of={total} processes={world} batch={batch}x{world}={batch * world}", flush=True)

    while step < total:
        epoch, done = divmod(step, steps_per_epoch)
        sampler.set_epoch(options.seed + epoch)  # the order depends on this number alone
        rest = list(sampler)[done:steps_per_epoch]
        for images, labels in DataLoader(training, batch_sampler=rest):
            optimizer.set_lr(learning_rate(step, total, options.learning_rate))
            error = cross_entropy(model(images), labels)
            error.backward()
            optimizer.step()
            optimizer.clear_grad()
            step, loss = step + 1, float(error)
            if rank == 0 and (step % options.checkpoint_every == 0 or step == total):
                weights, momentum = network.state_dict(), optimizer.state_dict()
                checkpoints.save({"step": step, "loss": loss, "model": weights, "optimizer": momentum})
            report_progress(step)
            time.sleep(options.step_delay)
        if rank == 0:
            print(f"epoch={epoch} step={step} loss={loss:.4f}", flush=True)

    reached = accuracy(network, test)
    if rank == 0:
        print(f"final step={step} loss={loss!r} accuracy={reached:.4f}", flush=True)
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
