"""Parameter servers of PyTorch: torch.distributed.rpc in processes with roles."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.tools.frameworks import need_packages

need_packages("torch")

# Trainers add to a number that server 0 holds; it is saved at every step, and read by whoever starts next.
SCRIPT = """\
import os, threading, time
import torch.distributed.rpc as rpc
role, number = os.environ["JOBCTL_ROLE"], int(os.environ["JOBCTL_ROLE_RANK"])
path, held = os.path.join(os.environ["JOBCTL_CHECKPOINT_DIR"], "sum"), [0]
lock = threading.Lock()  # calls of several trainers come in threads of their own
def add(value):
    with lock:
        held[0] += value
        with open(path + ".new", "w") as file:
            file.write(str(held[0]))
        os.replace(path + ".new", path)
        return held[0]
if role == "server" and os.path.exists(path):
    held[0] = int(open(path).read())
servers = os.environ["JOBCTL_SERVERS"].split(",")
assert len(servers) == 2 and len(os.environ["JOBCTL_TRAINERS"].split(",")) == 3
# The shared memory that it would use on one machine is polled: each process would keep a core busy.
options = rpc.TensorPipeRpcBackendOptions(_transports=["uv"], _channels=["basic"])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
rpc.init_rpc("%s%d" % (role, number), rank=rank, world_size=size, rpc_backend_options=options)
found = 0
while role == "trainer" and os.path.exists("hold"):
    time.sleep(0.02)
    found = rpc.rpc_sync("server0", add, args=(1,))
    open(os.environ["JOBCTL_PROGRESS_FILE"], "w").write(str(found))
print("final", role, number, os.environ["RANK"], os.environ["WORLD_SIZE"], flush=True)
rpc.shutdown()
"""
SPEC = """\
name: learner
framework: torch
mode: ps
ps: {{servers: 2, trainers: 3}}
script: train.py
nodes: 2
devices: cpu:2
checkpoint: {directory}/checkpoints
env: {{OMP_NUM_THREADS: "1"}}
"""


@pytest.mark.long
def test_a_server_takes_all_along_and_the_job_ends_with_its_trainers(jobs: Any, eventually: Any) -> None:
    directory: Path = jobs.directory
    (directory / "checkpoints").mkdir()
    (directory / "train.py").write_text(SCRIPT)
    (directory / "hold").touch()  # it keeps the trainers from ending before there was something to kill
    (directory / "job.yaml").write_text(SPEC.format(directory=directory))
    jobs.ok("up")

    def there(generation: int, step: int) -> dict[str, Any] | None:
        state: dict[str, Any] = jobs.status()
        far = all((node["progress"] or 0) >= step for node in state["nodes"] if node["role"] == "trainer")
        return state if far and (state["generation"], state["phase"]) == (generation, "running") else None

    state = eventually(lambda: there(1, 20), 240)
    assert [(n["role"], len(n["processes"])) for n in state["nodes"]] == [
        *(("trainer", 2), ("trainer", 1)),
        *(("server", 1), ("server", 1)),
    ]
    os.kill(state["nodes"][2]["processes"][0]["pid"], signal.SIGKILL)
    eventually(lambda: there(2, 40), 240)
    (directory / "hold").unlink()
    assert jobs.run("wait", "--timeout", "120s", timeout=150).returncode == 0, jobs.ok("events")
    assert int((directory / "checkpoints" / "sum").read_text()) >= 40
    last = str(jobs.status()["generation"])
    out = jobs.ok("logs", "--generation", last).splitlines()
    lines = [line.partition("final ")[2].split() for line in out if "| final " in line]
    trainers = sorted(words for words in lines if words[0] == "trainer")
    assert trainers == [["trainer", str(rank), str(rank), "5"] for rank in range(3)], jobs.ok("events")


# Server 0 answers each number with the one after it; trainers ask it, and anew where they are new.
SOCKETS = """\
import os, socket, time
role, number = os.environ["JOBCTL_ROLE"], int(os.environ["JOBCTL_ROLE_RANK"])
servers = [one.rsplit(":", 1) for one in os.environ["JOBCTL_SERVERS"].split(",")]
if role == "server":
    time.sleep(1.0)  # trainers would be refused, did they not wait
    listening = socket.create_server((servers[number][0], int(servers[number][1])))
    while True:
        listening.accept()
for address, port in servers:
    socket.create_connection((address, int(port))).close()
step = 0
while os.path.exists("hold"):
    time.sleep(0.02)
    step += 1
    open(os.environ["JOBCTL_PROGRESS_FILE"], "w").write(str(step))
"""


@pytest.mark.long
def test_a_trainer_that_can_joins_again_alone(jobs: Any, eventually: Any) -> None:
    directory: Path = jobs.directory
    (directory / "checkpoints").mkdir()
    (directory / "train.py").write_text(SOCKETS)
    (directory / "hold").touch()
    (directory / "job.yaml").write_text(f"{SPEC.format(directory=directory)}torch: {{rejoin: true}}\n")
    jobs.ok("up")

    def trains() -> dict[str, Any] | None:
        state: dict[str, Any] = jobs.status()
        return state if state["phase"] == "running" and all(n["progress"] for n in state["nodes"][:2]) else None

    def pids(state: dict[str, Any]) -> list[int]:
        return [process["pid"] for node in state["nodes"] for process in node["processes"]]

    eventually(trains)
    before = pids(jobs.running())
    os.kill(before[1], signal.SIGKILL)
    state = eventually(lambda: (now := trains()) and now["nodes"][0]["restarts"] and now)
    after = pids(jobs.running())
    assert (state["generation"], [one == other for one, other in zip(before, after, strict=True)]) == (
        1,
        [True, False, True, True, True],
    )
    (directory / "hold").unlink()
    assert jobs.run("wait", "--timeout", "60s").returncode == 0, jobs.ok("events")
