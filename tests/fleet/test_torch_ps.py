"""Parameter servers of PyTorch on real hosts: the example torch-wide-deep, and everything that can die dying in the middle."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tools.frameworks import need_image_python, need_packages
from tests.tools.pace import keep_pace, limit

from .fleet import EXAMPLES, Fleet, fleet
from .host import Host
from .jobs import Jobs, eventually
from .machine import IMAGE

SPEC = f"""\
name: wide
framework: torch
mode: ps
ps: {{{{servers: 2, trainers: 4}}}}
image: {IMAGE}
pull: never
script: train.py
args: [--epochs=10, --checkpoint-every=14, --step-delay=0.1]
code: .
nodes: 3
devices: cpu:2
checkpoint: {{checkpoints}}
stop_grace_period: 2s
recovery: {{{{host_timeout: 20s, max_restarts: 9}}}}
volumes: ["PACKAGES:/packages:ro"]
env: {{{{PYTHONPATH: /packages, OMP_NUM_THREADS: "1"}}}}
"""


@pytest.fixture(scope="module")
def hosts(can_have_fleet: None) -> Iterator[Fleet]:
    need_packages("torch")
    need_image_python()
    with fleet(3) as made:
        yield made


def kill_process(host: Host, container: str) -> None:
    """SIGKILL the first process of the script in a container."""
    top = host.docker("top", container, "-eo", "pid,args").splitlines()
    os.kill(next(int(line.split()[0]) for line in top if "train.py" in line), signal.SIGKILL)


def test_it_reaches_its_loss_whatever_dies(tmp_path: Path, hosts: Fleet) -> None:
    """A trainer, a server's container, and a host with both, which comes back: 280 batches, none left out.

    With JOBCTL_TEST_DEATHS=all a server's process and a trainer's container, too.
    """
    deaths: list[Callable[[], object]] = [
        lambda: kill_process(hosts[0], "jobctl-wide-0"),
        lambda: hosts[1].docker("kill", "jobctl-wide-4"),
    ]
    if os.environ.get("JOBCTL_TEST_DEATHS") == "all":
        deaths += [
            lambda: kill_process(hosts[0], "jobctl-wide-3"),
            lambda: hosts[2].docker("kill", "jobctl-wide-2"),
        ]
    job = Jobs(tmp_path, hosts, SPEC.replace("PACKAGES", str(hosts.lent("packages"))))
    keep_pace(EXAMPLES / "torch-wide-deep", job.code, counter="done")
    limit(job.checkpoints, 200)

    def trains(generation: int) -> dict[str, Any]:
        """Wait until a generation has done a batch beyond what the one before had saved."""

        def there() -> dict[str, Any] | None:
            state = job.status()
            steps = [node["progress"] or 0 for node in state["nodes"]]
            return state if (state["generation"], state["phase"]) == (generation, "running") and max(steps) else None

        try:
            return eventually(there, 400) or {}
        except AssertionError:
            raise AssertionError(f"{job.status()}\n{job.ok('events')}\n{job.ok('logs', '--tail', '20')}") from None

    try:
        up = job.up()
        assert up.returncode == 0, up.stderr
        state = trains(1)
        assert [(n["role"], n["host"], len(n["processes"])) for n in state["nodes"]] == [
            *(("trainer", "h1", 2), ("trainer", "h2", 1), ("trainer", "h3", 1)),
            *(("server", "h1", 1), ("server", "h2", 1)),
        ]
        for generation, die in enumerate(deaths, 2):
            die()
            trains(generation)
        eventually(lambda: list(job.checkpoints.glob("step-*")))  # a generation that has just begun may not have saved
        hosts[1].power_off()
        eventually(lambda: job.phase() != "running")
        hosts[1].power_on()
        limit(job.checkpoints, None)
        done = job.run("wait", "--timeout", "400s", timeout=420.0)
        assert done.returncode == 0, f"{done.stderr}\n{job.run('events').stdout}"
        found = re.findall(r"final step=(\d+) loss=(\S+) accuracy=(\S+)", job.ok("logs"))
        assert len(found) == 1
        assert int(found[0][0]) == 280
        assert float(found[0][1]) <= 0.15
        assert float(found[0][2]) >= 0.93
        began = [int(step) for step in re.findall(r"(?:started|resumed) step=(\d+) of=280", job.ok("logs"))]
        assert (began, len(began)) == (sorted(began), len(deaths) + 2)  # from zero where nothing was saved yet
        assert began[-1] > 0
    finally:
        if "sshd" not in hosts[1].processes:
            hosts[1].power_on()
        down = job.run("down", *job.where)
        assert (down.returncode, [one for one in job.containers() if one], job.files()) == (0, [], []), down.stderr
