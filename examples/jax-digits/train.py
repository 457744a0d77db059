"""Trains a small network on scikit-learn's handwritten digits with JAX, data parallel, and survives being killed.

Everything random is a function of the seed and the step, so the step is the only position to save. A checkpoint appears
under its name only when it is complete, so whatever lies in the folder can be loaded.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import re
import sys
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

TOO_INACCURATE = 3  # exit code; job.yaml says that trying again does not help
LAYERS = (64, 256, 128, 10)
MOMENTUM = 0.9

Array = NDArray[Any]
State = dict[str, Any]  # weights, biases and momenta by their names


def join() -> tuple[int, int]:
    """Joins the processes that the launcher describes, or is a job of one process; returns rank and world."""
    if "JAX_PROCESS_ID" in os.environ:
        # JAX reads JAX_COORDINATOR_ADDRESS and JAX_LOCAL_DEVICE_IDS itself.
        jax.distributed.initialize(
            num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"])
        )
    return jax.process_index(), jax.process_count()


def die_at_once(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Prints an error and ends the process.

    Without this, JAX waits for the other processes as it ends, for up to five minutes, while they wait for this one.
    """
    sys.__excepthook__(kind, error, trace)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def digits() -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """The training and the test split: 64 pixels in 0..1 and their labels, the same in every process."""
    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    train_x, test_x = ((x / 16).astype(np.float32) for x in split[:2])
    train_y, test_y = (y.astype(np.int32) for y in split[2:])
    return (train_x, train_y), (test_x, test_y)


def initial(seed: int) -> State:
    random, state = np.random.default_rng(seed), {}
    for number, (inputs, outputs) in enumerate(pairwise(LAYERS)):
        scale = math.sqrt(2 / inputs)
        state[f"weight{number}"] = (random.standard_normal((inputs, outputs)) * scale).astype(np.float32)
        state[f"bias{number}"] = np.zeros(outputs, np.float32)
    return {**state, **{f"momentum of {name}": np.zeros_like(value) for name, value in state.items()}}


def predict(state: State, images: Any) -> Any:
    last = len(LAYERS) - 2
    for number in range(last):
        images = jax.nn.relu(images @ state[f"weight{number}"] + state[f"bias{number}"])
    return images @ state[f"weight{last}"] + state[f"bias{last}"]


def cross_entropy(weights: State, images: Any, labels: Any) -> Any:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(predict(weights, images)), labels[:, None], axis=1)
    return -chosen.mean()


@partial(jax.jit, donate_argnums=0)
def step_of(state: State, images: Any, labels: Any, rate: Any) -> tuple[State, Any]:
    """One step of SGD. The batch lies on all devices, so JAX sums the gradients over all processes."""
    weights = {name: value for name, value in state.items() if not name.startswith("momentum")}
    loss, gradients = jax.value_and_grad(cross_entropy)(weights, images, labels)
    new = {}
    for name, gradient in gradients.items():
        momentum = MOMENTUM * state[f"momentum of {name}"] + gradient
        new[f"momentum of {name}"], new[name] = momentum, state[name] - rate * momentum
    return new, loss


class Checkpoints:
    """A folder of `step-N.npz`, written by rank 0 and read by every process."""

    def __init__(self, folder: Path | None, keep: int) -> None:
        self.folder, self.keep = folder, keep

    def steps(self) -> list[int]:
        if self.folder is None or not self.folder.is_dir():
            return []
        found = (re.fullmatch(r"step-(\d+)\.npz", path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def save(self, step: int, state: State) -> None:
        """Writes aside, flushes to the disk, renames: at no moment is there half a file under the final name."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / "writing.tmp"
        with temporary.open("wb") as file:
            np.savez(file, **{name: np.asarray(value) for name, value in state.items()})
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.folder / f"step-{step:08d}.npz")
        flush_folder(self.folder)
        for old in self.steps()[: -self.keep]:
            (self.folder / f"step-{old:08d}.npz").unlink()

    def load_latest(self) -> tuple[int, State]:
        """Rank 0 chooses, so that no process starts from another step than the rest; step 0 if there is none."""
        newest = np.int32(max(self.steps(), default=0))
        step = int(multihost_utils.broadcast_one_to_all(newest))
        if step == 0 or self.folder is None:
            return 0, {}
        # Read at once: the file may be deleted as soon as rank 0 has gone on.
        with np.load(io.BytesIO((self.folder / f"step-{step:08d}.npz").read_bytes())) as saved:
            return step, dict(saved)


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


def train(options: argparse.Namespace, rank: int, world: int) -> float:
    """Trains from the latest checkpoint, or from the start, to the last step; returns the test accuracy."""
    mesh = Mesh(np.array(jax.devices()), ("data",))
    if options.batch_size % jax.device_count():
        raise SystemExit(f"--batch-size {options.batch_size} cannot be shared by {jax.device_count()} devices")
    share = options.batch_size // world
    everywhere, shared = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))

    (images, labels), (test_x, test_y) = digits()
    steps_per_epoch = len(images) // options.batch_size
    total = options.epochs * steps_per_epoch

    checkpoints = Checkpoints(options.checkpoint_dir, options.checkpoint_keep)
    step, saved = checkpoints.load_latest()
    loss = float(saved.pop("loss", math.nan))
    host = saved or initial(options.seed)
    state = {name: jax.make_array_from_process_local_data(everywhere, value) for name, value in host.items()}
    if rank == 0:
        print(f"{'resumed' if step else 'started'} step={step} of={total} processes={world}", flush=True)

    while step < total:
        epoch, done = divmod(step, steps_per_epoch)
        order = np.random.default_rng((options.seed, epoch)).permutation(len(images))
        batches = order[: steps_per_epoch * options.batch_size].reshape(steps_per_epoch, world, share)
        for mine in batches[done:, rank]:
            batch = [jax.make_array_from_process_local_data(shared, array[mine]) for array in (images, labels)]
            state, mean = step_of(state, *batch, np.float32(learning_rate(step, total, options.learning_rate)))
            loss = float(mean)
            step += 1
            if rank == 0 and (step % options.checkpoint_every == 0 or step == total):
                checkpoints.save(step, {**state, "loss": np.float64(loss)})
            report_progress(step)
            time.sleep(options.step_delay)
        if rank == 0:
            print(f"epoch={epoch} step={step} loss={loss:.4f}", flush=True)

    local = {name: np.asarray(value) for name, value in state.items()}
    reached = float((np.asarray(predict(local, test_x)).argmax(1) == test_y).mean())
    if rank == 0:
        print(f"final step={step} loss={loss!r} accuracy={reached:.4f}", flush=True)
    return reached


def arguments() -> argparse.Namespace:
    folder = os.environ.get("JOBCTL_CHECKPOINT_DIR") or None
    keep = os.environ.get("JOBCTL_CHECKPOINT_KEEP") or "2"
    parser = argparse.ArgumentParser(description="Trains a small network on scikit-learn's digits.")
    add = parser.add_argument
    add("--epochs", type=int, default=20)
    add("--batch-size", type=int, default=64, help="of one step, shared by all processes")
    add("--learning-rate", type=float, default=0.1, help="at its peak")
    add("--seed", type=int, default=0)
    add("--checkpoint-dir", type=Path, default=folder, help="JOBCTL_CHECKPOINT_DIR unless given")
    add("--checkpoint-keep", type=int, default=keep, help="JOBCTL_CHECKPOINT_KEEP unless given")
    add("--checkpoint-every", type=int, default=20, metavar="STEPS")
    add("--min-accuracy", type=float, default=0.95, help=f"below it: exit code {TOO_INACCURATE}")
    add("--step-delay", type=float, default=0.0, metavar="SECONDS", help="sleep after each step")
    return parser.parse_args()


def main() -> int:
    sys.excepthook = die_at_once
    options = arguments()
    return 0 if train(options, *join()) >= options.min_accuracy else TOO_INACCURATE


if __name__ == "__main__":
    sys.exit(main())
