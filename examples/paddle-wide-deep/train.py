"""Trains a wide & deep model with parameter servers: one script, started as a server or as a trainer.

Servers hold the tables of the model and add up what trainers send; they never end by themselves. Trainers read
the tables, compute, send. How closely trainers keep together is `--ps-mode`: at every step (sync), at checkpoints
only (async), or each on a copy of its own that is brought up to date every few steps (geo).
"""

from __future__ import annotations

import argparse
import faulthandler
import math
import os
import re
import shutil
import socket
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Both are read when paddle is imported: the programs below are of the kind before PIR, the only one for servers.
os.environ.setdefault("FLAGS_enable_pir_api", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import paddle
from numpy.typing import NDArray
from paddle import static
from paddle.distributed import QueueDataset, fleet
from paddle.nn.functional import binary_cross_entropy_with_logits
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

TOO_INACCURATE = 3  # exit code; job.yaml says that trying again does not help
FEATURES, BINS = 30, 10
PATIENCE = 600  # seconds that trainers wait for each other

Array = NDArray[Any]


@dataclass(frozen=True)
class Samples:
    """For the wide part, which of ten bins each feature falls into; for the deep part, its value as well."""

    ids: Array
    values: Array
    labels: Array

    def feed(self) -> dict[str, Array]:
        return {"ids": self.ids, "values": self.values}


def tumours() -> tuple[Samples, Samples]:
    """The training and the test split of scikit-learn's breast cancer data, the same in every process."""
    features, labels = load_breast_cancer(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        features, labels, test_size=0.2, random_state=0, stratify=labels
    )
    edges = np.quantile(train_x, np.linspace(0, 1, BINS + 1)[1:-1], axis=0)
    mean, deviation = train_x.mean(0), train_x.std(0)

    def samples(x: Array, y: Array) -> Samples:
        bins = (x[None] > edges[:, None]).sum(0)
        ids = bins + BINS * np.arange(FEATURES)
        return Samples(ids.astype("int64"), ((x - mean) / deviation).astype("float32"), y.astype("float32"))

    return samples(train_x, train_y), samples(test_x, test_y)


@dataclass(frozen=True)
class Model:
    """The program that trains, what goes into it, and what the model makes of it."""

    program: static.Program
    inputs: list[Any]
    output: Any


def build(options: argparse.Namespace) -> Model:
    """Writes the program and has fleet make one for this process's role of it."""
    ids = static.data("ids", [None, FEATURES], "int64")
    values = static.data("values", [None, FEATURES], "float32")
    labels = static.data("labels", [None, 1], "float32")
    wide = static.nn.embedding(
        ids,
        [FEATURES * BINS, 1],
        is_sparse=True,
        param_attr=paddle.ParamAttr("wide", paddle.nn.initializer.Constant(0.0)),
    )
    deep = static.nn.embedding(
        ids,
        [FEATURES * BINS, 8],
        is_sparse=True,
        param_attr=paddle.ParamAttr("deep", paddle.nn.initializer.Uniform(-0.05, 0.05)),
    )
    hidden = static.nn.fc(paddle.concat([paddle.flatten(deep, 1), values], 1), 32, activation="relu")
    output = static.nn.fc(hidden, 1) + paddle.sum(wide, axis=1)
    loss = binary_cross_entropy_with_logits(output, labels)

    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True  # False ends in a segmentation fault with Paddle 3.0.0, see the README
    if options.ps_mode == "geo":
        strategy.a_sync_configs = {"k_steps": options.geo_steps}
    strategy.sparse_table_configs = {name: table(name) for name in ("wide", "deep")}
    optimizer = fleet.distributed_optimizer(paddle.optimizer.SGD(options.learning_rate), strategy)
    optimizer.minimize(loss)
    return Model(static.default_main_program(), [ids, values, labels], output)


def table(name: str) -> dict[str, Any]:
    """How servers keep a table of embeddings: in few files, and with the rule that the optimizer says.

    Left alone, Paddle 3.0.0 makes a thousand files of a table, and uses Adam, whatever the optimizer.
    """
    start = f"table_parameters.{name}."
    return {
        start + "shard_num": 8,
        start + "accessor.embed_sgd_param.name": "SparseNaiveSGDRule",
        start + "accessor.embedx_sgd_param.name": "SparseNaiveSGDRule",
    }


class Meeting:
    """Where trainers wait for each other, and hear what trainer 0 says: a connection from each to trainer 0."""

    def __init__(self, rank: int, endpoints: list[str]) -> None:
        host, _, port = endpoints[0].rpartition(":")
        if rank:
            self.leader: socket.socket | None = connect(host, int(port))
            self.others = []
            return
        self.leader = None
        with socket.create_server((host, int(port))) as listener:
            listener.settimeout(PATIENCE)
            self.others = [listener.accept()[0] for _ in endpoints[1:]]
        for other in self.others:
            other.settimeout(PATIENCE)

    def meet(self, value: float = 0.0) -> float:
        """Returns trainer 0's value once all trainers are here; raises OSError when one is gone."""
        if self.leader is not None:
            self.leader.sendall(b"h")
            (heard,) = struct.unpack("d", receive(self.leader, 8))
            return float(heard)
        for other in self.others:
            receive(other, 1)
        for other in self.others:
            other.sendall(struct.pack("d", value))
        return value


def connect(host: str, port: int) -> socket.socket:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            connection = socket.create_connection((host, port), timeout=PATIENCE)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return connection


def receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("another trainer is gone")
        data += more
    return data


class Checkpoints:
    """Folders `tables-N` (what servers wrote) or `copy-N` (mode geo: trainer 0's copy), N being the step."""

    def __init__(self, folder: Path | None, kind: str, keep: int) -> None:
        self.folder, self.kind, self.keep = folder, kind, keep

    def steps(self) -> list[int]:
        if self.folder is None or not self.folder.is_dir():
            return []
        found = (re.fullmatch(rf"{self.kind}-(\d+)", path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def path(self, step: int) -> Path:
        assert self.folder is not None
        return self.folder / f"{self.kind}-{step:08d}"

    def save(self, step: int, write: Callable[[Path], None]) -> None:
        """Has a new folder written and renames it: at no moment is there half a checkpoint under the final name."""
        if self.folder is None:
            return
        temporary = self.folder / "writing.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        write(temporary)
        for path in [*temporary.rglob("*"), temporary]:
            flush(path)
        temporary.rename(self.path(step))
        flush(self.folder)
        for old in self.steps()[: -self.keep]:
            shutil.rmtree(self.path(old))


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


class Trainer:
    """What a trainer does with the servers, and the few things in it that differ in mode geo."""

    def __init__(self, model: Model, rank: int, options: argparse.Namespace) -> None:
        self.model, self.rank = model, rank
        self.geo, self.start_timeout = options.ps_mode == "geo", options.start_timeout
        self.executor, self.scope = static.Executor(paddle.CPUPlace()), static.global_scope()
        self.test = static.normalize_program(model.program, model.inputs[:2], [model.output])
        # With a scope of its own: `train_from_dataset` leaves one in which nothing else can be run.
        self.judge, self.test_scope = static.Executor(paddle.CPUPlace()), static.Scope()

    def start(self, meeting: Meeting, saved: Path | None) -> None:
        """Fills the servers, from a checkpoint if there is one, before anyone reads what they hold."""
        self.executor.run(static.default_startup_program())
        if self.geo:
            if saved:
                with np.load(saved / "copy.npz") as copy:
                    set_weights(self.scope, copy)
            # In this mode the trainers wait for each other in there, now and then for ever: see the README.
            faulthandler.dump_traceback_later(self.start_timeout, exit=True)
            fleet.init_worker()
            faulthandler.cancel_dump_traceback_later()
            return
        if self.rank == 0:
            fleet.init_worker()
            if saved:
                fleet.load_model(str(saved), 0)
        meeting.meet()
        if self.rank:
            fleet.init_worker()

    def train(self, file: Path, batch: int) -> None:
        """Trains on the samples of a file. (The other way, `executor.run`, reads the dense tables only once.)"""
        dataset = QueueDataset()
        dataset.init(batch_size=batch, thread_num=1, pipe_command="cat", use_var=self.model.inputs)
        dataset.set_filelist([str(file)])
        self.executor.train_from_dataset(self.model.program, dataset)

    def weights(self) -> dict[str, Array]:
        """Trainer 0's copy of the model: all of it in mode geo, otherwise with empty tables of embeddings."""
        if not self.geo:
            with tempfile.TemporaryDirectory() as folder:  # the one call that reads the dense tables also saves them
                fleet.save_dense_params(self.executor, f"{folder}/dense", self.scope, self.model.program)
        found = {}
        for variable in self.test.list_vars():
            if variable.persistable and variable.name not in ("feed", "fetch"):
                tensor = self.scope.find_var(variable.name).get_tensor()
                there = tensor._is_initialized()
                found[variable.name] = np.array(tensor) if there else np.zeros(variable.shape, "float32")
        return found

    def write(self, folder: Path) -> None:
        """Writes a checkpoint. In mode geo servers write nothing of the tables of embeddings."""
        if self.geo:
            np.savez(folder / "copy.npz", **self.weights())
        else:
            fleet.save_persistables(self.executor, str(folder), self.model.program)

    def loss_and_accuracy(self, samples: Samples) -> tuple[float, float]:
        """Judged with trainer 0's copy and, where it has none, the servers' embeddings."""
        set_weights(self.test_scope, self.weights())
        with static.scope_guard(self.test_scope):
            (output,) = self.judge.run(self.test, feed=samples.feed(), fetch_list=[self.model.output])
        signs = 2 * samples.labels - 1
        loss = np.logaddexp(0, -output[:, 0] * signs).mean()
        return float(loss), float((output[:, 0] * signs > 0).mean())


def set_weights(scope: Any, weights: Mapping[str, Array]) -> None:
    for name, value in weights.items():
        scope.var(name).get_tensor().set(value, paddle.CPUPlace())


def write_samples(file: Path, samples: Samples, chosen: Array) -> None:
    """One line a sample, each input preceded by its length: the format of Paddle's data feed."""
    with file.open("w") as lines:
        for ids, values, label in zip(samples.ids[chosen], samples.values[chosen], samples.labels[chosen], strict=True):
            parts = [FEATURES, *ids, FEATURES, *(f"{value:.7g}" for value in values), 1, int(label)]
            print(*parts, file=lines)


def train(options: argparse.Namespace, model: Model) -> float:
    """Trains from the latest checkpoint, or from the start, to the last step; returns the test accuracy."""
    rank, world, batch = fleet.worker_index(), fleet.worker_num(), options.batch_size
    meeting = Meeting(rank, os.environ["PADDLE_TRAINER_ENDPOINTS"].split(","))
    training, test = tumours()
    steps_per_epoch = len(training.labels) // (batch * world)
    total = options.epochs * steps_per_epoch

    kind = "copy" if options.ps_mode == "geo" else "tables"
    folder = options.checkpoint_dir.absolute() if options.checkpoint_dir else None
    checkpoints = Checkpoints(folder, kind, options.checkpoint_keep)
    step = int(meeting.meet(max(checkpoints.steps(), default=0)))  # trainer 0 chooses for all
    trainer = Trainer(model, rank, options)
    trainer.start(meeting, checkpoints.path(step) if step else None)
    if rank == 0:
        effective = f"batch={batch}x{world}={batch * world}"
        begin = "resumed" if step else "started"
        print(f"{begin} step={step} of={total} trainers={world} {effective} mode={options.ps_mode}", flush=True)

    # Each stretch of training leaves a `…_train_desc.prototxt` in the current folder: in one that goes away.
    with tempfile.TemporaryDirectory() as scratch, chdir(scratch):
        while step < total:
            epoch, done = divmod(step, steps_per_epoch)
            every = 1 if options.ps_mode == "sync" else options.checkpoint_every
            steps = min(every - step % every, steps_per_epoch - done)
            order = np.random.RandomState(options.seed + epoch).permutation(len(training.labels))
            first = done * batch * world + rank * steps * batch
            write_samples(Path(scratch, "samples"), training, order[first : first + steps * batch])
            trainer.train(Path(scratch, "samples"), batch)
            step += steps
            if step % every == 0 or step == total:
                meeting.meet()
            if step % options.checkpoint_every == 0 or step == total:
                if rank == 0:
                    checkpoints.save(step, trainer.write)
                meeting.meet()  # nobody sends anything while it is written
            if rank == 0 and step % steps_per_epoch == 0:
                print(f"epoch={epoch} step={step} loss={trainer.loss_and_accuracy(training)[0]:.4f}", flush=True)
            report_progress(step)
            time.sleep(options.step_delay * steps)

    loss, reached = trainer.loss_and_accuracy(test) if rank == 0 else (math.nan, math.nan)
    reached = meeting.meet(reached)
    if rank == 0:
        print(f"final step={step} loss={loss!r} accuracy={reached:.4f}", flush=True)
    fleet.stop_worker()
    return reached


def arguments() -> argparse.Namespace:
    folder = os.environ.get("JOBCTL_CHECKPOINT_DIR") or None
    keep = os.environ.get("JOBCTL_CHECKPOINT_KEEP") or "2"
    parser = argparse.ArgumentParser(description="Trains a wide & deep model with parameter servers.")
    add = parser.add_argument
    add("--ps-mode", choices=("sync", "async", "geo"), default="async")
    add("--geo-steps", type=int, default=5, help="mode geo: steps on its own copy after which a trainer sends")
    add("--start-timeout", type=float, default=60.0, metavar="SECONDS", help="mode geo: for the first barrier")
    add("--epochs", type=int, default=20)
    add("--batch-size", type=int, default=16, help="of one trainer in one step")
    add("--learning-rate", type=float, default=0.05)
    add("--seed", type=int, default=0)
    add("--checkpoint-dir", type=Path, default=folder, help="JOBCTL_CHECKPOINT_DIR unless given")
    add("--checkpoint-keep", type=int, default=keep, help="JOBCTL_CHECKPOINT_KEEP unless given")
    add("--checkpoint-every", type=int, default=28, metavar="STEPS")
    add("--min-accuracy", type=float, default=0.9, help=f"below it: exit code {TOO_INACCURATE}")
    add("--step-delay", type=float, default=0.0, metavar="SECONDS", help="sleep after each step")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if not hasattr(paddle.base.core, "DistFleetWrapper"):
        raise SystemExit(f"Paddle {paddle.__version__} has no parameter servers in it; 3.0.0 has")
    if "TRAINING_ROLE" not in os.environ:
        raise SystemExit("started neither as a server nor as a trainer: TRAINING_ROLE is not set")
    paddle.disable_signal_handler()  # SIGTERM is how servers end, and nothing to print a stack for
    paddle.enable_static()
    paddle.seed(options.seed)
    fleet.init(is_collective=False)
    model = build(options)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return 0
    try:
        reached = train(options, model)
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # Paddle's client, still connected, would crash while the interpreter ends
    return 0 if reached >= options.min_accuracy else TOO_INACCURATE


if __name__ == "__main__":
    sys.exit(main())
