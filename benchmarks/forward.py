"""How soon a port that `jobctl forward` brings here answers: through a jump host, and after its node has moved.

    sudo python benchmarks/forward.py [--runs 10]

Needs root: three hosts (tests/fleet), of which only the first can be reached from here. Node 1 runs on the second host, and moves to
the third one when its process fails. The time after that counts from when the launchers of all nodes say that they run again.
"""

from __future__ import annotations

import argparse
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.fleet.access.moving_port import PORT, behind_a_jump_host, said_at, serving_job
from tests.fleet.fleet import Fleet
from tests.fleet.jobs import Jobs
from tests.tools.waiting import eventually


def measured(jobs: Jobs, hosts: Fleet) -> tuple[float, float]:
    """Bring the job up; return the seconds to the first byte, and those after a move."""
    assert jobs.up().returncode == 0
    before, after = (host.address for host in hosts.hosts[1:])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with jobs.popen("forward", f"{port}:1:{PORT}", stderr=subprocess.DEVNULL) as forward:
        eventually(lambda: said_at(port) == before)
        begun = time.monotonic()
        assert said_at(port) == before
        first = time.monotonic() - begun
        generation = int(jobs.order()["number"])
        (jobs.checkpoints / "fail-1").touch()
        eventually(lambda: jobs.all_train(after=generation))
        begun = time.monotonic()
        eventually(lambda: said_at(port) == after)
        moved = time.monotonic() - begun
        forward.send_signal(signal.SIGINT)
    assert jobs.run("down", *jobs.where).returncode == 0
    return first, moved


def main() -> int:
    """Measure, and print two lines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="jobctl-bench-") as scratch, behind_a_jump_host() as hosts:
        jobs = serving_job(Path(scratch) / "job", hosts)
        runs = [measured(jobs, hosts) for _ in range(options.runs)]
    for words, seconds in zip(("first byte through a jump host", "after a move"), zip(*runs, strict=True), strict=True):
        print(f"{words}: median {statistics.median(seconds):.2f} s, max {max(seconds):.2f} s ({options.runs} runs)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
