"""Trains a small ResNet on scikit-learn's handwritten digits as a static graph, and survives being killed.

A static graph is a program that is built once and then run for every batch: forward, backward, the sum of
the gradients over all processes, the optimizer. What happens between two runs is Python: the order of the
data, the learning rate, checkpoints, all of them functions of the seed and the step.
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
from numpy.typing import NDArray
from paddle import nn, static
from paddle.distributed import fleet
from paddle.nn.functional import cross_entropy, relu
from paddle.optimizer.lr import LambdaDecay, LRScheduler
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

TOO_INACCURATE = 3  # exit code; job.yaml says that trying again does not help

Array = NDArray[Any]


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

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
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


def digits() -> tuple[Array, Array, Array, Array]:
    """Training and test images (8x8, in 0..1), then their labels: the same in every process."""
    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    train_x, test_x = ((x / 16).astype("float32").reshape(-1, 1, 8, 8) for x in split[:2])
    return train_x, test_x, *split[2:]


@dataclass(frozen=True)
class Training:
    """The program that trains, and what it tells."""

    program: static.Program
    loss: Any


def training_program(rate: LRScheduler, world: int) -> Training:
    """Writes down what is done with one batch; nothing is computed yet, not even the first weights."""
    images = static.data("images", [None, 1, 8, 8], "float32")
    labels = static.data("labels", [None], "int64")
    loss = cross_entropy(resnet()(images), labels)
    optimizer = paddle.optimizer.Momentum(rate, use_nesterov=True, weight_decay=1e-4)
    gradients = optimizer.backward(loss)
    optimizer.apply_gradients(averaged(gradients, world) if world > 1 else gradients)
    return Training(static.default_main_program(), loss)


def test_program() -> tuple[static.Program, Any]:
    """A program that judges the weights of the one that trains, and its output.

    They are the same weights because they have the same names: those are counted from 0 again.
    """
    program = static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(program, static.Program()):
        model = resnet()
        model.eval()
        return program, model(static.data("images", [None, 1, 8, 8], "float32"))


def averaged(gradients: list[tuple[Any, Any]], world: int) -> list[tuple[Any, Any]]:
    """The gradients' mean over all processes, by one sum over all of them laid end to end.

    One sum for each would be wrong: the executor runs what does not depend on each other in any order, so two
    processes could add different gradients together.
    """
    flat = paddle.concat([gradient.flatten() for _, gradient in gradients])
    dist.all_reduce(flat)
    parts = paddle.split(flat / world, [math.prod(parameter.shape) for parameter, _ in gradients])
    return [(parameter, part.reshape(parameter.shape)) for (parameter, _), part in zip(gradients, parts, strict=True)]


def from_rank_0(value: float) -> float:
    """Rank 0's value, in every process. Only while the dynamic graph is on."""
    shared = paddle.to_tensor([value], dtype="float64")
    if fleet.worker_num() > 1:  # a single process has no group that could broadcast
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
        path = self.folder / f"step-{choice:08d}.pdparams"
        state: dict[str, Any] = paddle.load(str(path), return_numpy=True)
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


def batches(size: int, seed: int, epoch: int, batch: int, rank: int, world: int) -> Iterator[Array]:
    """This process's indices in each step of an epoch, whose order depends on seed and epoch alone."""
    order = np.random.RandomState(seed + epoch).permutation(size)
    for first in range(0, size - batch * world + 1, batch * world):
        yield order[first + rank * batch : first + (rank + 1) * batch]


def train(options: argparse.Namespace) -> float:
    """Trains from the latest checkpoint, or from the start, to the last step; returns this process's accuracy."""
    rank, world = fleet.worker_index(), fleet.worker_num()
    if options.batch_size % world:
        raise SystemExit(f"--batch-size {options.batch_size} cannot be shared by {world} processes")
    batch = options.batch_size // world
    checkpoints = Checkpoints(options.checkpoint_dir, options.checkpoint_keep)
    saved = checkpoints.load_latest()

    paddle.enable_static()
    paddle.seed(options.seed)
    train_x, test_x, train_y, test_y = digits()
    steps_per_epoch = len(train_x) // options.batch_size
    total = options.epochs * steps_per_epoch

    rate = LambdaDecay(1.0, lambda step: learning_rate(step, total, options.learning_rate))
    training = training_program(rate, world)
    executor = static.Executor()
    executor.run(static.default_startup_program())  # the first weights
    step, loss = 0, math.nan
    if saved:
        static.set_program_state(training.program, saved["state"])
        step, loss = saved["step"], saved["loss"]
    if rank == 0:
        begin = "resumed" if step else "started"
        print(f"{begin} step={step} of={total} processes={world} batch={batch}x{world}={batch * world}", flush=True)

    while step < total:
        epoch, done = divmod(step, steps_per_epoch)
        for indices in list(batches(len(train_x), options.seed, epoch, batch, rank, world))[done:]:
            rate.step(step)  # the program reads it when it runs
            feed = {"images": train_x[indices], "labels": train_y[indices]}
            (error,) = executor.run(training.program, feed=feed, fetch_list=[training.loss])
            step, loss = step + 1, float(error)
            if rank == 0 and (step % options.checkpoint_every == 0 or step == total):
                state = {name: np.array(value) for name, value in training.program.state_dict().items()}
                checkpoints.save({"step": step, "loss": loss, "state": state})
            report_progress(step)
            time.sleep(options.step_delay)
        if rank == 0:
            print(f"epoch={epoch} step={step} loss={loss:.4f}", flush=True)

    test, output = test_program()
    (scores,) = executor.run(test, feed={"images": test_x}, fetch_list=[output])
    paddle.disable_static()
    # Rank 0 judges for all: the running means of BatchNorm are rank 0's.
    reached = from_rank_0(float((scores.argmax(1) == test_y).mean()))
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
    fleet.init(is_collective=True)  # before enable_static: only then it makes the group that the graph's sum uses
    return 0 if train(options) >= options.min_accuracy else TOO_INACCURATE


if __name__ == "__main__":
    sys.exit(main())
