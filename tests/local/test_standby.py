"""A job of the real PyTorch that starts again from processes that have imported it already."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.tools.frameworks import need_packages
from tests.tools.processes import hurry

need_packages("torch")

# Saves a checkpoint at step 5, and the loss of each step. The first generation stands still after step 8.
TRAIN = """\
import json, os, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, generation = dist.get_rank(), os.environ["JOBCTL_GENERATION"]
folder = os.environ["JOBCTL_CHECKPOINT_DIR"]
torch.manual_seed(7)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
path, step, losses = os.path.join(folder, "step-5"), 0, {}
if os.path.exists(path):
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["random"][rank])
    step = 5
while step < 10:
    step += 1
    loss = (model(torch.randn(8, 16)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses[step] = loss.item().hex()
    if step == 5 and generation == "1":
        states = [None, None]
        dist.all_gather_object(states, torch.get_rng_state())
        if rank == 0:
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": states}
            torch.save(saved, path)
    with open(os.path.join(folder, f"losses-{generation}-{rank}"), "w") as file:
        json.dump(losses, file)
    if step == 8 and generation == "1":
        with open(os.environ["JOBCTL_PROGRESS_FILE"], "w") as file:
            file.write("8")
        time.sleep(600)
dist.destroy_process_group()
os._exit(0)  # PyTorch may abort where Python ends: docs/torch.md
"""

SPEC = """\
name: learner
framework: torch
script: train.py
devices: cpu:2
checkpoint: {directory}/checkpoints
env: {{OMP_NUM_THREADS: "1"}}
"""


@pytest.mark.long
def test_it_starts_from_standby_and_goes_on_from_its_checkpoint_bit_for_bit(jobs: Any, eventually: Any) -> None:
    (jobs.directory / "checkpoints").mkdir()
    (jobs.directory / "train.py").write_text(TRAIN)
    (jobs.directory / "job.yaml").write_text(SPEC.format(directory=jobs.directory))
    jobs.ok("up")

    def ready() -> dict[str, Any] | None:
        hurry(jobs.processes())
        state: dict[str, Any] = jobs.status()
        return state if state["nodes"][0]["standby"]["state"] != "warming" else None

    state = eventually(ready)
    assert state["nodes"][0]["standby"] == {"state": "ready", "reason": None}
    os.kill(state["nodes"][0]["processes"][1]["pid"], signal.SIGKILL)
    done = jobs.run("wait", "--timeout", "200s")
    assert done.returncode == 0, done.stderr

    ways = [
        (e["generation"], e["standby"], e["cold_because"]) for e in jobs.events() if e["event"] == "generation-begun"
    ]
    assert ways == [(1, False, "it is the first start of this launcher"), (2, True, None)]
    for rank in (0, 1):
        first, second = (json.loads((jobs.directory / f"checkpoints/losses-{g}-{rank}").read_text()) for g in (1, 2))
        assert list(second) == ["6", "7", "8", "9", "10"]
        assert {step: second[step] for step in ("6", "7", "8")} == {step: first[step] for step in ("6", "7", "8")}
