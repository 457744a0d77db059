"""Trains data parallel with jit over all processes, and goes on from the last checkpoint after a restart."""

import os
import sys
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

STEPS, SAVE_EVERY = 2000, 100
FOLDER, KEEP = Path(os.environ["JOBCTL_CHECKPOINT_DIR"]), int(os.environ["JOBCTL_CHECKPOINT_KEEP"])


def saved_steps():
    return sorted(int(path.stem[len("step-") :]) for path in FOLDER.glob("step-*.npz"))


def save(step, state):
    temporary = FOLDER / "writing.tmp"
    with temporary.open("wb") as file:
        np.savez(file, **{name: np.asarray(value) for name, value in state.items()})
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(FOLDER / f"step-{step}.npz")  # a kill leaves only whole checkpoints
    for old in saved_steps()[:-KEEP]:
        (FOLDER / f"step-{old}.npz").unlink()


@jax.jit
def train_step(state, inputs):
    gradient = jax.grad(lambda weight: ((inputs @ weight - inputs.sum(1)) ** 2).mean())  # over all processes
    momentum = 0.9 * state["momentum"] + gradient(state["weight"])
    return {"weight": state["weight"] - 0.01 * momentum, "momentum": momentum}


# Otherwise JAX waits for the other processes after an error, and they wait for this one.
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.stderr.flush(), os._exit(1))
FOLDER.mkdir(parents=True, exist_ok=True)
numbers = (int(os.environ[name]) for name in ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID"))
jax.distributed.initialize(None, *numbers)  # JAX reads the coordinator's address itself
rank = jax.process_index()
mesh = Mesh(np.array(jax.devices()), ("batch",))
copied, shared = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("batch"))
step = int(multihost_utils.broadcast_one_to_all(np.int32(max(saved_steps(), default=0))))  # rank 0 chooses
saved = np.load(FOLDER / f"step-{step}.npz") if step else dict.fromkeys(("weight", "momentum"), np.zeros(16, "f"))
state = {name: jax.make_array_from_process_local_data(copied, saved[name]) for name in ("weight", "momentum")}
print(f"rank {rank} begins at step {step}", flush=True)
while step < STEPS:
    inputs = np.random.default_rng((step, rank)).standard_normal((32, 16), dtype=np.float32)  # of step and rank alone
    state = jax.block_until_ready(train_step(state, jax.make_array_from_process_local_data(shared, inputs)))
    step += 1
    if rank == 0 and step % SAVE_EVERY == 0:
        save(step, state)
    Path(os.environ["JOBCTL_PROGRESS_FILE"]).write_text(str(step))
print(f"rank {rank} has trained {step} steps", flush=True)
