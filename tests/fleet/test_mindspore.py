"""Jobs of the real MindSpore in containers of real hosts."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tools.frameworks import python_of
from tests.tools.mindsporescripts import COLLECTIVE

from .fleet import Fleet, fleet
from .jobs import Jobs, eventually
from .machine import IMAGE

SPEC = f"""\
name: learner
framework: mindspore
image: {IMAGE}
pull: never
script: train.py
code: .
nodes: 2
checkpoint: {{checkpoints}}
stop_grace_period: 5s
recovery: {{{{host_timeout: 5s, max_restarts: 9}}}}
volumes: ["PACKAGES:/packages:ro"]
env: {{{{PYTHONPATH: /packages, OMP_NUM_THREADS: "1", STEPS: "100000", DELAY: "0.05"}}}}
resources: {{{{ulimits: {{{{memlock: 65536}}}}}}}}
"""


@pytest.fixture(scope="module")
def hosts(can_have_fleet: None) -> Iterator[Fleet]:
    """Three hosts that can import MindSpore."""
    if sysconfig.get_python_version() != "3.11":
        pytest.skip("the image's Python is 3.11, and cannot import what is installed for another")
    packages = python_of("mindspore").parents[1] / "lib" / "python3.11" / "site-packages"
    with fleet(3, lends={"mindspore": packages}) as made:
        yield made


def test_it_survives_whatever_dies(tmp_path: Path, hosts: Fleet) -> None:
    """A worker's container, the scheduler's, and the first host with both, for which there is a spare."""
    job = Jobs(tmp_path, hosts, SPEC.replace("PACKAGES", str(hosts.lent("mindspore"))))
    (job.code / "train.py").write_text(COLLECTIVE)
    lines = (job.code / "hosts.txt").read_text().splitlines()
    (job.code / "hosts.txt").write_text("\n".join([*lines[:2], f"{lines[2]} spare"]) + "\n")

    def trains(generation: int, step: int) -> dict[str, Any]:
        def there() -> dict[str, Any] | None:
            state = job.status()
            far = all((node["progress"] or 0) >= step for node in state["nodes"] if node["role"] == "trainer")
            return state if far and (state["generation"], state["phase"]) == (generation, "running") else None

        try:
            return eventually(there, 120) or {}
        except AssertionError:
            raise AssertionError(f"{job.status()}\n{job.ok('events')}\n{job.ok('logs', '--tail', '20')}") from None

    try:
        up = job.up()
        assert up.returncode == 0, up.stderr
        state = trains(1, 10)
        assert [(n["name"] or n["node"], n["host"]) for n in state["nodes"]] == [
            (0, "h1"),
            (1, "h2"),
            ("scheduler", "h1"),
        ]
        hosts[1].docker("kill", "jobctl-learner-1")
        trains(2, 30)
        hosts[0].docker("kill", "jobctl-learner-2")
        eventually(lambda: job.status()["nodes"][2]["restarts"] == 2)
        reached = trains(2, 60)["nodes"][0]["progress"]
        hosts[0].power_off()
        state = trains(3, reached + 10)
        assert [(n["name"] or n["node"], n["host"]) for n in state["nodes"]] == [
            (0, "h3"),
            (1, "h2"),
            ("scheduler", "h3"),
        ]
    finally:
        if "sshd" not in hosts[0].processes:
            hosts[0].power_on()
        down = job.run("down", "--hosts", "hosts.txt", "--ssh-config", str(hosts.ssh_config))
        assert (down.returncode, [one for one in job.containers() if one], job.files()) == (0, [], []), down.stderr
