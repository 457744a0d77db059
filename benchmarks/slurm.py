"""What `jobctl up` costs in Slurm: from the command to the first line of training code, beside `sbatch` by hand.

    sudo python benchmarks/slurm.py [--runs 5]

A real Slurm (Debian's packages) runs in namespaces on this machine. The job is one process on each of two nodes, without a
framework: it writes down when it began. The time ends at the slower one. By hand, a batch script starts the same with
`srun`. The two alternate; figures are medians.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.slurm.cluster import Slurm, slurm

SCRIPT = """\
import os, sys, time
path = os.path.join(sys.argv[1], "began-" + os.uname().nodename)
with open(path + ".new", "w") as file: file.write(str(time.time()))
os.replace(path + ".new", path)
time.sleep(600)
"""
SPEC = """\
name: startup
framework: torch
command: ["{python}", train.py, "{out}"]
per: node
nodes: 2
stop_grace_period: 1s
slurm: {{exclusive: false}}
"""
BATCH = """\
#!/bin/sh
#SBATCH --nodes=2 --ntasks-per-node=1 --output=/dev/null
exec srun {python} {out}/train.py {out}
"""
JOBCTL = str(Path(sys.executable).parent / "jobctl")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="runs of each")
    runs = parser.parse_args().runs
    with TemporaryDirectory(prefix="jobctl-slurm-") as scratch, slurm(Path(scratch) / "cluster") as cluster:
        out = Path(scratch) / "job"
        out.mkdir()
        (out / "train.py").write_text(SCRIPT)
        (out / "job.yaml").write_text(SPEC.format(python=sys.executable, out=out))
        (out / "run.sbatch").write_text(BATCH.format(python=sys.executable, out=out))
        os.environ.update(JOBCTL_STATE_DIR=f"{scratch}/state", PATH=f"{cluster.bin}:{os.environ['PATH']}")
        ours, by_hand, returned = [], [], []
        for _ in range(runs + 1):  # the first of each is left out
            by_hand.append(sbatch(cluster, out))
            began, back = up(cluster, out)
            ours.append(began)
            returned.append(back)
    print(f"up to first line  {median(ours[1:]):5.2f} s   sbatch by hand {median(by_hand[1:]):.2f} s")
    print(f"up returns after  {median(returned[1:]):5.2f} s")
    return 0


def began(out: Path, since: float) -> float:
    """Return how long after `since` the slower of both processes has begun."""
    while True:
        times = [float(file.read_text()) for file in out.glob("began-??")]
        if len([at for at in times if at > since]) == 2:
            return max(times) - since
        time.sleep(0.005)


def up(cluster: Slurm, out: Path) -> tuple[float, float]:
    """Return how long `jobctl up` takes to the first line, and until it returns."""
    since = time.time()
    subprocess.run([JOBCTL, "up", "job.yaml", "--target", "slurm"], cwd=out, stderr=subprocess.DEVNULL, check=True)
    back = time.time() - since
    found = began(out, since)
    subprocess.run([JOBCTL, "down", "startup"], cwd=out, stderr=subprocess.DEVNULL, check=True)
    cluster.clear()
    return found, back


def sbatch(cluster: Slurm, out: Path) -> float:
    """Return how long a batch script takes to the first line."""
    since = time.time()
    cluster.run("sbatch", str(out / "run.sbatch"))
    found = began(out, since)
    cluster.clear()
    return found


if __name__ == "__main__":
    sys.exit(main())
