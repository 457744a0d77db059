"""What it costs to supervise many hosts: processor time and memory of `jobctl supervise` while nothing happens.

    sudo python benchmarks/supervise.py [--hosts 64] [--seconds 60]

Needs root: the hosts are addresses of one sshd (tests/fleet/light.py) with a stub for docker. SSH and the scripts that follow a job
are real; the launchers are played here: each writes its tick once a second, and is answered.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil

from benchmarks.hosts import Bench
from tests.fleet.light import light_fleet


class Launchers(threading.Thread):
    """All launchers of the job: one line each a second into whatever pipe a supervisor has made on its host."""

    def __init__(self, works: list[Path]) -> None:
        super().__init__(daemon=True)
        self.works, self.over = works, threading.Event()
        self.answered: set[str] = set()

    def run(self) -> None:
        step = 0
        while not self.over.wait(1.0):
            step += 1
            for work in self.works:
                self.tick(work, step)

    def tick(self, work: Path, step: int) -> None:
        node = next(path.name[5:] for path in work.glob("node-*") if path.is_dir())
        answer = work / f"node-{node}" / "answer"
        if answer.exists():
            self.answered.add(node)
        order = json.loads((work / "run" / "control.json").read_text())
        line: dict[str, Any] = {"node": int(node), "tick": os.urandom(8).hex(), "generation": order["rendezvous"]["id"]}
        line |= {"report": "1.1", "progress": step, "echo": None, "unheard": {}}
        for feed in (work / "run" / "feeds").glob("*"):
            with contextlib.suppress(OSError):
                handle = os.open(feed, os.O_WRONLY | os.O_NONBLOCK)
                os.write(handle, json.dumps(line).encode() + b"\n")
                os.close(handle)


@contextlib.contextmanager
def playing(works: list[Path]) -> Iterator[Launchers]:
    """Play the launchers for the length of the block."""
    launchers = Launchers(works)
    launchers.start()
    try:
        yield launchers
    finally:
        launchers.over.set()
        launchers.join()


def main() -> int:
    """Measure, and print one line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="jobctl-bench-") as scratch, light_fleet(options.hosts) as light:
        light.hosts_file(Path(scratch) / "hosts.txt")
        names = [f"l{n}" for n in range(1, options.hosts + 1)]
        bench = Bench(Path(scratch), light.ssh_config, names, "stub:1")
        bench.up()
        works = [path.parents[1] for path in sorted(light.home.glob(".jobctl/*/bench/run/control.json"))]
        argv = [sys.executable, "-m", "jobctl", "supervise"]
        quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        supervisor = subprocess.Popen(argv, cwd=bench.directory, env=bench.environ, **quiet)
        with playing(works) as launchers:
            time.sleep(20.0)
            process = psutil.Process(supervisor.pid)
            before, began = process.cpu_times(), time.monotonic()
            time.sleep(options.seconds)
            after, seconds = process.cpu_times(), time.monotonic() - began
            busy = (after.user + after.system - before.user - before.system) / seconds
            memory = process.memory_info().rss / 2**20
            print(
                f"supervising {options.hosts} hosts, {len(launchers.answered)} launchers answered:"
                f" {100 * busy:.1f} % of a core, {memory:.0f} MB"
            )
        supervisor.terminate()
        supervisor.wait()
        bench.clean()
    return 0


if __name__ == "__main__":
    sys.exit(main())
