"""Parameter servers of PyTorch without PyTorch: what its own do is in test_examples.py, with the example torch-wide-deep."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.tools.frameworks import need_packages

need_packages("torch")  # for the preflight

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
recovery: {{standby: "off"}}
"""


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
