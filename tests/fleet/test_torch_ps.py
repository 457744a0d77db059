"""Parameter servers of PyTorch on real hosts: the example torch-wide-deep, one of whose hosts dies in the middle."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tools.frameworks import need_image_python, need_packages
from tests.tools.pace import keep_pace, limit

from .fleet import EXAMPLES, Fleet
from .jobs import Jobs, eventually
from .machine import IMAGE

SPEC = f"""\
name: wide
framework: torch
mode: ps
ps: {{{{servers: 2, trainers: 2}}}}
image: {IMAGE}
pull: never
script: train.py
args: [--epochs=10, --checkpoint-every=14]
code: .
nodes: 2
checkpoint: {{checkpoints}}
stop_grace_period: 2s
recovery: {{{{host_timeout: 20s, standby: "off"}}}}
volumes: ["PACKAGES:/packages:ro", "STANDINS:/standins:ro"]
env: {{{{PYTHONPATH: "/standins:/packages", OMP_NUM_THREADS: "1"}}}}
"""


@pytest.fixture(scope="module")
def hosts(hosts_of: Callable[[int], Fleet]) -> Fleet:
    need_packages("torch")
    need_image_python()
    return hosts_of(2)


def test_it_reaches_its_loss_though_a_host_dies(tmp_path: Path, hosts: Fleet) -> None:
    """A host with a trainer and a server, which comes back: 280 batches, none left out. The death of one process: tests/local."""
    spec = SPEC.replace("PACKAGES", str(hosts.lent("packages"))).replace("STANDINS", str(hosts.lent("standins")))
    job = Jobs(tmp_path, hosts, spec)
    keep_pace(EXAMPLES / "torch-wide-deep", job.code, counter="done")
    limit(job.checkpoints, 100)

    try:
        up = job.up()
        assert up.returncode == 0, up.stderr
        state = job.trains(1)
        # Once something was saved, and more was done.
        eventually(lambda: list(job.checkpoints.glob("step-*")) and max(r["progress"] or 0 for r in job.reports()) > 28)
        assert [(n["role"], n["host"], len(n["processes"])) for n in state["nodes"]] == [
            *(("trainer", "h1", 1), ("trainer", "h2", 1)),
            *(("server", "h1", 1), ("server", "h2", 1)),
        ]
        hosts[1].power_off()
        eventually(lambda: job.phase() != "running")
        limit(job.checkpoints, None)
        hosts[1].power_on()
        done = job.run("wait", "--timeout", "400s", timeout=420.0)
        assert done.returncode == 0, f"{done.stderr}\n{job.run('events').stdout}"
        found = re.findall(r"final step=(\d+) loss=(\S+) accuracy=(\S+)", job.ok("logs"))
        assert len(found) == 1
        assert int(found[0][0]) == 280
        assert float(found[0][1]) <= 0.15
        assert float(found[0][2]) >= 0.93
        first, last = (int(step) for step in re.findall(r"(?:started|resumed) step=(\d+) of=280", job.ok("logs")))
        assert first == 0
        assert last >= 14
    finally:
        if "sshd" not in hosts[1].processes:
            hosts[1].power_on()
        down = job.run("down", *job.where)
        assert (down.returncode, [one for one in job.containers() if one], job.files()) == (0, [], []), down.stderr
