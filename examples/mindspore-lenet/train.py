"""Trains LeNet on scikit-learn's handwritten digits, data parallel in graph mode, and survives being killed.

Every worker keeps checkpoints in a folder of its own, and at the start all agree on the latest step that each of
them has: whichever of them was killed in the middle of saving, there is one. Everything random is a function of the
seed and the step, so the step is the only position to save. The scheduler runs this script too: it does not come
back from `init`.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from mindspore.communication import get_group_size, get_rank, init
from numpy.typing import NDArray

TOO_INACCURATE = 3  # exit code; job.yaml says that trying again does not help

Array = NDArray[Any]


def lenet() -> nn.Cell:
    """LeNet with smaller windows and one pooling: the images have 8x8 pixels."""
    return nn.SequentialCell(
        nn.Conv2d(1, 6, 3, pad_mode="same"),
        nn.ReLU(),
        nn.MaxPool2d(2, 2),
        nn.Conv2d(6, 16, 3, pad_mode="same"),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dense(256, 120),
        nn.ReLU(),
        nn.Dense(120, 84),
        nn.ReLU(),
        nn.Dense(84, 10),
    )


def digits() -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """The training and the test split: 8x8 images in 0..1 and their labels, the same in every process."""
    # Here, not above: the scheduler needs none of it, and is there sooner without.
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    train_x, test_x = ((x / 16).astype(np.float32).reshape(-1, 1, 8, 8) for x in split[:2])
    train_y, test_y = (y.astype(np.int32) for y in split[2:])
    return (train_x, train_y), (test_x, test_y)


def join(device_kind: str) -> tuple[int, int]:
    """Joins the cluster that the launcher describes, or is a job of one process; returns rank and world."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device(device_kind)
    if "MS_ROLE" not in os.environ:
        return 0, 1
    init({"CPU": "mccl", "GPU": "nccl", "Ascend": "hccl"}[device_kind])
    ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True)
    return get_rank(), get_group_size()


class Least(nn.Cell):  # type: ignore[misc]  # MindSpore has no types
    """The least of the numbers that the ranks put in, known to all of them."""

    def __init__(self, world: int) -> None:
        super().__init__()
        self.gather = ops.AllGather() if world > 1 else ops.identity

    def construct(self, number: Any) -> Any:
        return self.gather(number).min()


class Checkpoints:
    """A folder of `step-N.ckpt` for each rank, below the one that all share."""

    def __init__(self, folder: Path | None, keep: int, rank: int, world: int) -> None:
        self.folder = folder and folder / f"rank-{rank}"
        self.keep, self.least = keep, Least(world)

    def path(self, step: int) -> Path:
        assert self.folder is not None
        return self.folder / f"step-{step:08d}.ckpt"

    def steps(self) -> list[int]:
        if self.folder is None or not self.folder.is_dir():
            return []
        found = (re.fullmatch(r"step-(\d+)\.ckpt", path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def save(self, step: int, cell: nn.Cell, loss: float) -> None:
        """Writes aside, flushes to the disk, renames: at no moment is there half a file under the final name."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / "writing.ckpt"
        ms.save_checkpoint(cell, str(temporary), append_dict={"step": step, "loss": loss})
        flush(temporary)
        temporary.replace(self.path(step))
        flush(self.folder)
        # What is newer is of a run that got further, and that others could not follow: it will be written anew.
        for old in [one for one in self.steps() if one <= step][: -self.keep]:
            self.path(old).unlink()

    def load_common(self, cell: nn.Cell) -> tuple[int, float]:
        """Loads the latest step that every rank has, and returns it with its loss; 0 if there is none.

        All ranks save at the same steps and none is a step ahead of the others, so their newest are one save apart at
        most. Each keeps two, so the least of the newest is a step that all have.
        """
        newest = max(self.steps(), default=0)
        step = int(self.least(ms.Tensor([newest], ms.int32)).asnumpy())
        if step == 0:
            return 0, math.nan
        saved = ms.load_checkpoint(str(self.path(step)))
        loss = float(saved.pop("loss").asnumpy())
        saved.pop("step")
        ms.load_param_into_net(cell, saved, strict_load=True)
        return step, loss


def flush(path: Path) -> None:
    """What was written, or renamed in a folder, is on the disk only when this has returned."""
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


def fingerprint(cell: nn.Cell) -> str:
    """A digest of all weights and momenta: equal on all ranks, and after restarts equal to an undisturbed run's."""
    digest = hashlib.sha256()
    for parameter in cell.get_parameters():
        digest.update(parameter.name.encode() + parameter.asnumpy().tobytes())
    return digest.hexdigest()[:16]


def train(options: argparse.Namespace, rank: int, world: int) -> float:
    """Trains from the common checkpoint, or from the start, to the last step; returns the test accuracy."""
    if options.batch_size % world:
        raise SystemExit(f"--batch-size {options.batch_size} cannot be shared by {world} workers")
    batch = options.batch_size // world

    ms.set_seed(options.seed)
    (images, labels), (test_x, test_y) = digits()
    steps_per_epoch = len(images) // options.batch_size
    total = options.epochs * steps_per_epoch

    model = lenet()
    optimizer = nn.Adam(model.trainable_params(), options.learning_rate)
    cell = nn.TrainOneStepCell(nn.WithLossCell(model, nn.CrossEntropyLoss()), optimizer)
    checkpoints = Checkpoints(options.checkpoint_dir, options.checkpoint_keep, rank, world)
    step, loss = checkpoints.load_common(cell)
    print(f"{'resumed' if step else 'started'} step={step} of={total} rank={rank} workers={world}", flush=True)

    cell.set_train()
    while step < total:
        epoch, done = divmod(step, steps_per_epoch)
        order = np.random.default_rng((options.seed, epoch)).permutation(len(images))
        mine = order[: steps_per_epoch * options.batch_size].reshape(steps_per_epoch, world, batch)[:, rank]
        for chosen in mine[done:]:
            loss = float(cell(ms.Tensor(images[chosen]), ms.Tensor(labels[chosen])).asnumpy())
            step += 1
            if step % options.checkpoint_every == 0 or step == total:
                checkpoints.save(step, cell, loss)
            report_progress(step)
            time.sleep(options.step_delay)
        if rank == 0:
            print(f"epoch={epoch} step={step} loss={loss:.4f}", flush=True)

    model.set_train(False)
    # All ranks have the same weights, so all come to the same number, and to the same exit code.
    reached = float((model(ms.Tensor(test_x)).asnumpy().argmax(1) == test_y).mean())
    print(f"final step={step} loss={loss!r} accuracy={reached:.4f} weights={fingerprint(cell)}", flush=True)
    return reached


def arguments() -> argparse.Namespace:
    folder = os.environ.get("JOBCTL_CHECKPOINT_DIR") or None
    keep = os.environ.get("JOBCTL_CHECKPOINT_KEEP") or "2"
    parser = argparse.ArgumentParser(description="Trains LeNet on scikit-learn's digits.")
    add = parser.add_argument
    add("--epochs", type=int, default=8)
    add("--batch-size", type=int, default=64, help="of one step, shared by all workers")
    add("--learning-rate", type=float, default=0.003)
    add("--seed", type=int, default=0)
    add("--device", choices=("CPU", "GPU", "Ascend"), default="CPU")
    add("--checkpoint-dir", type=Path, default=folder, help="JOBCTL_CHECKPOINT_DIR unless given")
    add("--checkpoint-keep", type=int, default=keep, help="JOBCTL_CHECKPOINT_KEEP unless given; at least 2")
    add("--checkpoint-every", type=int, default=20, metavar="STEPS")
    add("--min-accuracy", type=float, default=0.93, help=f"below it: exit code {TOO_INACCURATE}")
    add("--step-delay", type=float, default=0.0, metavar="SECONDS", help="sleep after each step")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    return 0 if train(options, *join(options.device)) >= options.min_accuracy else TOO_INACCURATE


if __name__ == "__main__":
    sys.exit(main())
