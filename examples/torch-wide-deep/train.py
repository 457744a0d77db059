"""Trains a wide & deep model with parameter servers over torch.distributed.rpc: one script, a server or a trainer.

Servers hold the model in shards and apply gradients as they come; trainers ask for what they need, compute, and send,
without looking at each other. Server 0 deals out batches and counts which are done, so a trainer that is slow does less,
and after a restart exactly those are dealt out again that no checkpoint has.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.rpc as rpc
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, linear, relu

TOO_INACCURATE = 3  # exit code; job.yaml says that trying again does not help
FEATURES, BINS, WIDTH, HIDDEN = 30, 10, 4, 32
TABLES = ("table.wide", "table.deep")  # have a row for each id; all else is dense
PATIENCE = 120.0  # seconds that an answer may take; a server that is gone is noticed at once

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Samples:
    """For the wide part, which of ten bins each feature falls into; for the deep part, its value as well."""

    ids: Tensor
    values: Tensor
    labels: Tensor

    def __getitem__(self, chosen: Any) -> Samples:
        return Samples(self.ids[chosen], self.values[chosen], self.labels[chosen])

    def __len__(self) -> int:
        return len(self.labels)


def tumours() -> tuple[Samples, Samples]:
    """The training and the test split of scikit-learn's breast cancer data, the same in every process."""
    features, labels = load_breast_cancer(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        features, labels, test_size=0.2, random_state=0, stratify=labels
    )
    edges = np.quantile(train_x, np.linspace(0, 1, BINS + 1)[1:-1], axis=0)
    mean, deviation = train_x.mean(0), train_x.std(0)

    def samples(x: Any, y: Any) -> Samples:
        ids = (x[None] > edges[:, None]).sum(0) + BINS * np.arange(FEATURES)
        values = torch.tensor((x - mean) / deviation, dtype=torch.float32)
        return Samples(torch.tensor(ids), values, torch.tensor(y, dtype=torch.float32))

    return samples(train_x, train_y), samples(test_x, test_y)


# --- The model ---------------------------------------------------------------------------------------------------


def first_weights(seed: int) -> Tensors:
    """The model before the first step."""
    chance = torch.Generator().manual_seed(seed)
    inputs = FEATURES * (WIDTH + 1)
    return {
        "table.wide": torch.zeros(FEATURES * BINS, 1),
        "table.deep": torch.randn(FEATURES * BINS, WIDTH, generator=chance) * 0.1,
        "dense.0.weight": torch.randn(HIDDEN, inputs, generator=chance) * (2 / inputs) ** 0.5,
        "dense.0.bias": torch.zeros(HIDDEN),
        "dense.1.weight": torch.randn(1, HIDDEN, generator=chance) * HIDDEN**-0.5,
        "dense.1.bias": torch.zeros(1),
    }


def logits(weights: Tensors, places: Tensor, values: Tensor) -> Tensor:
    """What the model makes of samples; `places` says which rows of the tables at hand belong to each."""
    wide = weights["table.wide"][places].sum((1, 2))
    deep = torch.cat([weights["table.deep"][places].flatten(1), values], 1)
    hidden = relu(linear(deep, weights["dense.0.weight"], weights["dense.0.bias"]))
    return wide + linear(hidden, weights["dense.1.weight"], weights["dense.1.bias"])[:, 0]


# --- What servers do ---------------------------------------------------------------------------------------------


class Shard:
    """One server's part of the model: of the tables every n-th row, of the dense tensors every n-th; with Adagrad's sums."""

    def __init__(self, weights: Tensors, sums: Tensors, index: int, servers: int, rate: float) -> None:
        self.index, self.servers, self.rate = index, servers, rate
        self.lock = threading.Lock()  # each call of a trainer comes in a thread of its own
        self.weights, self.sums = self.mine(weights), self.mine(sums)

    def mine(self, whole: Tensors) -> Tensors:
        dense = sorted(name for name in whole if name.startswith("dense"))[self.index :: self.servers]
        rows = {name: whole[name][self.index :: self.servers].clone() for name in whole if name.startswith("table")}
        return {**rows, **{name: whole[name].clone() for name in dense}}

    def pull(self, rows: Tensor) -> Tensors:
        """The rows asked for (as this shard counts them) and all dense tensors of this shard."""
        with self.lock:
            return {n: w[rows] if n.startswith("table") else w.clone() for n, w in self.weights.items()}

    def push(self, rows: Tensor, gradients: Tensors) -> None:
        """Applies gradients at once: asynchronous, whatever others have applied since they were computed."""
        with self.lock:
            for name, gradient in gradients.items():
                where: Any = rows if name.startswith("table") else slice(None)
                self.sums[name][where] += gradient**2
                self.weights[name][where] -= self.rate * gradient / (self.sums[name][where].sqrt() + 1e-8)

    def state(self) -> dict[str, Tensors]:
        with self.lock:
            return {
                "weights": {name: value.clone() for name, value in self.weights.items()},
                "sums": {name: value.clone() for name, value in self.sums.items()},
            }


class Work:
    """Server 0's list of the batches: which are dealt out, which are done, and when that is written down."""

    def __init__(self, total: int, done: set[int], every: int) -> None:
        self.total, self.done, self.every, self.restored = total, done, every, len(done)
        self.open = [number for number in reversed(range(total)) if number not in done]
        self.lock = threading.Lock()

    def next(self) -> int | None:
        """The next batch that nobody has, None if there is none."""
        with self.lock:
            return self.open.pop() if self.open else None

    def finish(self, number: int) -> tuple[int, bool]:
        """Takes note of a batch that all servers have; returns how many are done, and whether to write it down."""
        with self.lock:
            self.done.add(number)
            count = len(self.done)
            return count, count % self.every == 0 or count == self.total


class Checkpoints:
    """A folder of `step-N`, each with a part from every server; server 0 says when, and which batches are in it."""

    def __init__(self, folder: Path | None, keep: int) -> None:
        self.folder, self.keep = folder, keep
        self.lock = threading.Lock()

    def steps(self) -> list[int]:
        if self.folder is None or not self.folder.is_dir():
            return []
        found = (re.fullmatch(r"step-(\d+)", path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def load(self) -> tuple[Tensors, Tensors, set[int]] | None:
        """The latest: weights and sums of all servers put together, for however many there are now, and what is done."""
        if self.folder is None or not self.steps():
            return None
        folder = self.folder / f"step-{max(self.steps()):08d}"
        parts = [torch.load(path, weights_only=True) for path in sorted(folder.glob("part-*.pt"))]
        done = set(torch.load(folder / "done.pt", weights_only=True).tolist())
        return merged([part["weights"] for part in parts]), merged([part["sums"] for part in parts]), done

    def save(self, done: set[int], servers: int) -> None:
        """Has every server write its part, then gives the folder its name: at no moment is there half a one under it.

        What is done is looked at first, so whatever is counted as done is in all parts. Some part may have more, of a batch
        that was on its way to the others: after a restart it is trained on again.
        """
        if self.folder is None:
            return
        with self.lock:
            writing, final = self.folder / "writing", self.folder / f"step-{len(done):08d}"
            if final.exists():
                return
            shutil.rmtree(writing, ignore_errors=True)
            writing.mkdir(parents=True)
            write(writing / "done.pt", torch.tensor(sorted(done)))
            for wait in [rpc.rpc_async(f"server{i}", write_part, (str(writing),)) for i in range(servers)]:
                wait.wait()
            flush(writing)
            writing.rename(final)
            flush(self.folder)
            for old in self.steps()[: -self.keep]:
                shutil.rmtree(self.folder / f"step-{old:08d}")


def merged(parts: list[Tensors]) -> Tensors:
    """The whole of what was dealt out over shards."""
    whole: Tensors = {}
    for part in parts:
        whole.update({name: value for name, value in part.items() if name.startswith("dense")})
    for name in TABLES:
        whole[name] = torch.empty(sum(len(part[name]) for part in parts), *parts[0][name].shape[1:])
        for index, part in enumerate(parts):
            whole[name][index :: len(parts)] = part[name]
    return whole


def write(path: Path, value: Any) -> None:
    torch.save(value, path)
    flush(path)


def flush(path: Path) -> None:
    """What was written, or renamed in a folder, is on the disk only when this has returned."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Server:
    """What this process serves, if it is a server."""

    shard: Shard
    work: Work
    checkpoints: Checkpoints


HERE: list[Server] = []  # at most one; calls from other processes find it here


# These are called from other processes.


def pull(rows: Tensor) -> Tensors:
    return HERE[0].shard.pull(rows)


def push(rows: Tensor, gradients: Tensors) -> None:
    HERE[0].shard.push(rows, gradients)


def next_batch() -> int | None:
    return HERE[0].work.next()


def finish_batch(number: int, servers: int) -> int:
    here = HERE[0]
    count, write_down = here.work.finish(number)
    if write_down:
        with here.work.lock:
            done = set(here.work.done)
        here.checkpoints.save(done, servers)
    return count


def count_restored() -> int:
    return HERE[0].work.restored


def count_done() -> int:
    work = HERE[0].work
    with work.lock:
        return len(work.done)


def write_part(folder: str) -> None:
    shard = HERE[0].shard
    write(Path(folder) / f"part-{shard.index:04d}.pt", shard.state())


def serve(options: argparse.Namespace, index: int, servers: int) -> None:
    """Makes this process a server: from the latest checkpoint, if there is one."""
    weights, done = first_weights(options.seed), set[int]()
    sums = {name: torch.full_like(value, 0.1) for name, value in weights.items()}
    checkpoints = Checkpoints(options.checkpoint_dir, options.checkpoint_keep)
    if saved := checkpoints.load():
        weights, sums, done = saved
    shard = Shard(weights, sums, index, servers, options.learning_rate)
    HERE.append(Server(shard, Work(batches(options)[0], done, options.checkpoint_every), checkpoints))


# --- What trainers do --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pulled:
    """What some samples need of the model: from each server rows of its tables, and its dense tensors."""

    rows: list[Tensor]
    parts: list[Tensors]
    places: Tensor  # where each of the samples' ids is in the parts' rows, laid end to end

    def weights(self) -> Tensors:
        """The parts as one; gradients flow back into them."""
        dense = {name: value for part in self.parts for name, value in part.items() if name.startswith("dense")}
        return {**dense, **{name: torch.cat([part[name] for part in self.parts]) for name in TABLES}}


class Servers:
    """The whole model, as a trainer sees it."""

    def __init__(self, count: int) -> None:
        self.count = count

    def pull(self, ids: Tensor) -> Pulled:
        """Asks every server for what samples with these ids need of it."""
        most = FEATURES * BINS
        wanted, places = torch.unique(ids % self.count * most + ids // self.count, return_inverse=True)
        rows = [wanted[wanted // most == index] % most for index in range(self.count)]
        answers = [rpc.rpc_async(f"server{i}", pull, (rows[i],)) for i in range(self.count)]
        return Pulled(rows, [answer.wait() for answer in answers], places)

    def push(self, pulled: Pulled) -> None:
        """Sends every server the gradients of what it gave, and waits until all have applied them."""
        sent = []
        for index, (rows, part) in enumerate(zip(pulled.rows, pulled.parts, strict=True)):
            gradients = {name: value.grad for name, value in part.items()}
            sent.append(rpc.rpc_async(f"server{index}", push, (rows, gradients)))
        for answer in sent:
            answer.wait()


def batches(options: argparse.Namespace) -> tuple[int, int]:
    """How many there are in all, and in an epoch."""
    of_epoch = len(tumours()[0]) // options.batch_size
    return options.epochs * of_epoch, of_epoch


def samples_of(number: int, options: argparse.Namespace, training: Samples) -> Samples:
    """A batch by its number: the order of an epoch depends on seed and epoch alone."""
    epoch, place = divmod(number, len(training) // options.batch_size)
    order = torch.tensor(np.random.default_rng((options.seed, epoch)).permutation(len(training)))
    return training[order[place * options.batch_size :][: options.batch_size]]


def report_progress(step: int) -> None:
    """Tells jobctl the step: it appears in `jobctl status`, and a step that never ends can be noticed."""
    if name := os.environ.get("JOBCTL_PROGRESS_FILE"):
        Path(name + ".tmp").write_text(str(step))
        os.replace(name + ".tmp", name)


def train(options: argparse.Namespace, index: int, trainers: int, count: int) -> float:
    """Trains on batches until there are no more; trainer 0 then judges, others return 1."""
    servers, (training, test) = Servers(count), tumours()
    total, of_epoch = batches(options)
    restored = rpc.rpc_sync("server0", count_restored)  # others may have trained on a batch since
    if index == 0:
        word = "resumed" if restored else "started"
        print(f"{word} step={restored} of={total} servers={count} trainers={trainers}", flush=True)
    while (number := rpc.rpc_sync("server0", next_batch)) is not None:
        batch = samples_of(number, options, training)
        pulled = servers.pull(batch.ids)
        for part in pulled.parts:
            for value in part.values():
                value.requires_grad_()
        found = logits(pulled.weights(), pulled.places, batch.values)
        loss = binary_cross_entropy_with_logits(found, batch.labels)
        loss.backward()
        servers.push(pulled)
        done = rpc.rpc_sync("server0", finish_batch, (number, count))
        report_progress(done)
        if number % of_epoch == of_epoch - 1:
            print(f"epoch={number // of_epoch} step={done} loss={loss.item():.4f}", flush=True)
        time.sleep(options.step_delay)
    return judge(servers, test, total) if index == 0 else 1.0


def judge(servers: Servers, test: Samples, total: int) -> float:
    """Waits for the batches that others still have, and returns the accuracy on the test split."""
    while (done := rpc.rpc_sync("server0", count_done)) < total:
        report_progress(done)
        time.sleep(0.05)
    pulled = servers.pull(test.ids)
    with torch.no_grad():
        found = logits(pulled.weights(), pulled.places, test.values)
        loss = binary_cross_entropy_with_logits(found, test.labels).item()
    accuracy = float(((found > 0) == (test.labels > 0.5)).float().mean())
    print(f"final step={done} loss={loss:.4f} accuracy={accuracy:.4f}", flush=True)
    return accuracy


# --- Both --------------------------------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    folder = os.environ.get("JOBCTL_CHECKPOINT_DIR") or None
    keep = os.environ.get("JOBCTL_CHECKPOINT_KEEP") or "2"
    parser = argparse.ArgumentParser(description="Trains a wide & deep model with parameter servers.")
    add = parser.add_argument
    add("--epochs", type=int, default=10)
    add("--batch-size", type=int, default=16, help="of one trainer")
    add("--learning-rate", type=float, default=0.05, help="of Adagrad")
    add("--seed", type=int, default=0)
    add("--checkpoint-dir", type=Path, default=folder, help="JOBCTL_CHECKPOINT_DIR unless given")
    add("--checkpoint-keep", type=int, default=keep, help="JOBCTL_CHECKPOINT_KEEP unless given")
    add("--checkpoint-every", type=int, default=28, metavar="BATCHES")
    add("--min-accuracy", type=float, default=0.9, help=f"below it: exit code {TOO_INACCURATE}")
    add("--step-delay", type=float, default=0.0, metavar="SECONDS", help="sleep after each batch")
    return parser.parse_args()


def main() -> int:
    torch.set_num_threads(1)
    options = arguments()
    role, index = os.environ["JOBCTL_ROLE"], int(os.environ["JOBCTL_ROLE_RANK"])
    counts = [len(os.environ[name].split(",")) for name in ("JOBCTL_TRAINERS", "JOBCTL_SERVERS")]
    if role == "server":
        serve(options, index, counts[1])  # first: who is in the world may be called at once
    # The shared memory that it would use on one machine is polled, which keeps a core of each process busy.
    sockets = {"_transports": ["uv"], "_channels": ["basic"]}
    rpc.init_rpc(
        f"{role}{index}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        rpc_backend_options=rpc.TensorPipeRpcBackendOptions(rpc_timeout=PATIENCE, **sockets),
    )
    reached = train(options, index, *counts) if role == "trainer" else 1.0
    rpc.shutdown()  # waits until all trainers are here: until then servers serve
    return 0 if reached >= options.min_accuracy else TOO_INACCURATE


if __name__ == "__main__":
    sys.exit(main())
