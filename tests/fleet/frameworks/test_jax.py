"""Jobs of the real JAX in containers of real hosts: the example, one of whose processes is killed."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fleet.fleet import EXAMPLES, Fleet
from tests.fleet.jobs import Jobs
from tests.fleet.machine import IMAGE
from tests.tools.frameworks import need_image_python, python_of
from tests.tools.pace import keep_pace, limit

SPEC = f"""\
name: digits
framework: jax
image: {IMAGE}
pull: never
script: train.py
args: [--epochs=2, --checkpoint-every=10, --min-accuracy=0.8]
code: .
nodes: 2
checkpoint: {{checkpoints}}
stop_grace_period: 5s
recovery: {{{{standby: "off"}}}}
volumes: ["PACKAGES:/packages:ro", "STANDINS:/standins:ro"]
env: {{{{PYTHONPATH: "/standins:/packages", OMP_NUM_THREADS: "1"}}}}
"""


@pytest.fixture(scope="module")
def hosts(hosts_of: Callable[[int], Fleet]) -> Fleet:
    need_image_python()
    python_of("jax")
    return hosts_of(2)


def test_digits_go_on_after_the_coordinator_is_killed(tmp_path: Path, hosts: Fleet) -> None:
    """Rank 0 dies, at which all meet; rank 1, on another host, hangs, and begins again with it."""
    spec = SPEC.replace("PACKAGES", str(hosts.lent("jax"))).replace("STANDINS", str(hosts.lent("standins")))
    job = Jobs(tmp_path, hosts, spec)
    keep_pace(EXAMPLES / "jax-digits", job.code)
    limit(job.checkpoints, 25)

    try:
        up = job.up()
        assert up.returncode == 0, up.stderr
        pids = [node["processes"][0]["pid"] for node in job.trains(25)["nodes"]]
        # Its peer fails a moment later. Clocks say which was first, and on a busy machine they may name the peer.
        job.signal(1, pids[1], signal.SIGSTOP)
        job.signal(0, pids[0], signal.SIGKILL)
        limit(job.checkpoints, None)
        done = job.run("wait", "--timeout", "400s", timeout=420.0)
        assert done.returncode == 0, f"{done.stderr}\n{job.run('events').stdout}"
        assert job.status()["generation"] == 2
        job.ok("events")  # which collects those of launchers, should these have been quicker than the supervisor
        (failure,) = job.happened("failure")
        assert failure["message"].startswith("node 0: rank 0 was killed by SIGKILL")
        assert (failure["node"], failure["rank"], failure["progress"]) == (0, 0, 25)
        out = job.ok("logs")
        assert re.findall(r"(?:started|resumed) step=(\d+) of=44 processes=2", out) == ["0", "20"]
        assert len(re.findall(r"final step=44 loss=\S+ accuracy=0\.[89]\d+", out)) == 1
    finally:
        down = job.run("down", *job.where)
        assert (down.returncode, [one for one in job.containers() if one], job.files()) == (0, [], []), down.stderr
