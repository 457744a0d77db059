"""What starting costs: the command itself, a job until its first line of training code, and a restart.

    python benchmarks/startup.py [--runs 5]

Each figure is the median of runs that alternate with what they are compared with: a bare interpreter for the
command, torchrun by hand for jobs. The job is two nodes of one process on this machine (target `local`); its script
imports torch and writes down the time. A restart is counted from the SIGKILL of a process to the first line of the
new one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

SCRIPT = """\
import os, sys, time
begin = time.time()
import torch
with open(os.path.join(sys.argv[1], "began-" + os.environ["RANK"] + ".new"), "w") as file:
    file.write("%d %f %f" % (os.getpid(), begin, time.time()))
os.replace(file.name, file.name[:-4])
while True:
    time.sleep(1)
"""
SPEC = """\
name: startup
framework: torch
script: train.py
args: ["{out}"]
nodes: 2
checkpoint: {out}
recovery: {{max_restarts: 1000}}
stop_grace_period: 1s
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="runs of each")
    runs = parser.parse_args().runs
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed jobctl has its bytecode
    commands(runs)
    with TemporaryDirectory(prefix="jobctl-startup-") as scratch:
        jobs(Path(scratch), runs)
    return 0


def commands(runs: int) -> None:
    """Print the wall time of commands that start nothing."""
    bare = [sys.executable, "-c", "pass"]
    for argv in (["--version"], ["--help"], ["list"]):
        ours, alone = alternate(runs, partial(wall, [*JOBCTL, *argv]), lambda: wall(bare))
        print(f"jobctl {' '.join(argv):12} {ours * 1000:6.0f} ms   bare interpreter {alone * 1000:.0f} ms")


def jobs(scratch: Path, runs: int) -> None:
    """Print how long a job takes to its first line, and again after a kill, beside torchrun by hand."""
    (scratch / "train.py").write_text(SCRIPT)
    (scratch / "job.yaml").write_text(SPEC.format(out=scratch))
    os.environ.update(JOBCTL_STATE_DIR=str(scratch / "state"), OMP_NUM_THREADS="1")
    first, by_hand, again = [], [], []
    for _ in range(runs):
        by_hand.append(torchrun(scratch))
        started, restarted = jobctl(scratch)
        first.append(started)
        again.append(restarted)
    print(f"up to first line    {median(first):6.2f} s    torchrun by hand {median(by_hand):.2f} s")
    print(f"kill to first line  {median(again):6.2f} s    {median(again) / median(by_hand):.2f} x torchrun by hand")


JOBCTL = [shutil.which("jobctl", path=str(Path(sys.executable).parent)) or "jobctl"]


def alternate(runs: int, one: Callable[[], float], other: Callable[[], float]) -> tuple[float, float]:
    one(), other()  # caches of the system and of bytecode are warm for both
    pairs = [(one(), other()) for _ in range(runs)]
    return median(a for a, _ in pairs), median(b for _, b in pairs)


def wall(argv: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def began(out: Path, since: float) -> list[tuple[int, float]]:
    """Wait until both ranks have begun after `since`: their pids, and when they ran their first line."""
    while True:
        lines = [file.read_text().split() for file in out.glob("began-?")]
        found = [(int(pid), float(at)) for pid, at, _ in lines if float(at) > since]
        if len(found) == 2:
            return found
        time.sleep(0.005)


def torchrun(out: Path) -> float:
    """Return the seconds that two torchruns, started by hand on this machine, take to the last first line."""
    since = time.time()
    argv = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    argv += ["--master-addr", "127.0.0.1", "--master-port", "19500"]
    nodes = [
        subprocess.Popen([*argv, "--node-rank", str(rank), str(out / "train.py"), str(out)], stderr=subprocess.DEVNULL)
        for rank in (0, 1)
    ]
    processes = began(out, since)
    for node in nodes:
        node.send_signal(signal.SIGTERM)
    for node in nodes:
        node.wait()
    return max(at for _, at in processes) - since


def jobctl(out: Path) -> tuple[float, float]:
    """Return the seconds that `jobctl up` takes to the last first line, and a restart after a kill."""
    since = time.time()
    subprocess.run([*JOBCTL, "up", str(out / "job.yaml")], stderr=subprocess.DEVNULL, check=True)
    processes = began(out, since)
    time.sleep(1.0)  # so that the kill hits a job at rest
    killed = time.time()
    os.kill(processes[0][0], signal.SIGKILL)
    restarted = began(out, killed)
    subprocess.run([*JOBCTL, "down", "startup", "--timeout", "1s"], stderr=subprocess.DEVNULL, check=True)
    return max(at for _, at in processes) - since, max(at for _, at in restarted) - killed


if __name__ == "__main__":
    sys.exit(main())
