"""What `jobctl up` costs in Slurm: from the command to the first line of training code, beside `sbatch` by hand.

    sudo python benchmarks/slurm.py [--runs 5] [--newer]

A real Slurm (Debian's packages) runs in namespaces on this machine; with `--newer` it is 24.11 of Debian 13. The job is one
process on each of two nodes, without a framework: it writes down when it began. The time ends at the slower one. By hand, a
batch script starts the same with `srun`. The two alternate, and figures are medians: of seconds, of CPU seconds of the
command with all that it starts, and of Slurm's commands that it calls.

Both ways have the same stages: `sbatch` is called, returns, the batch script runs, processes run on all nodes of its step,
the training code runs. What both do is Slurm's own; the rest of `up` is jobctl's.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import resource
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.slurm.cluster import COMMANDS, Slurm, slurm, wait_for
from tests.slurm.newer import newer_root

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
date +%s.%N > {out}/batch
exec srun sh -c 'date +%s.%N > {out}/step-$(hostname); exec {python} {out}/train.py {out}'
"""
# Beside the real commands: each call leaves a line, and how long it took until it returned.
COUNTED = """\
#!/bin/sh
began=$(date +%s.%N)
{real} "$@"; code=$?
echo "{name} $began $(date +%s.%N) $*" >> {out}/calls
exit $code
"""
JOBCTL = str(Path(sys.executable).parent / "jobctl")
STAGES = ("sbatch is called", "sbatch returns", "batch script runs", "step runs on all nodes", "training code runs")


@dataclass(frozen=True)
class Start:
    """One start of the job: when each stage was reached, in seconds since the command, and what that cost."""

    stages: tuple[float, ...]
    returned: float
    cpu: float
    calls: collections.Counter[str]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="runs of each")
    parser.add_argument("--newer", action="store_true", help="Slurm 24.11 of Debian 13, and not this machine's")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="jobctl-slurm-", dir="/tmp") as name, ExitStack() as ending:
        scratch, root = Path(name), newer_root() if options.newer else None
        cluster = ending.enter_context(slurm(scratch / "cluster", root=root))
        out = prepare(cluster, scratch)
        ours, by_hand = [], []
        for _ in range(options.runs + 1):  # the first of each is left out
            by_hand.append(sbatch(cluster, out))
            ours.append(up(cluster, out))
        print(cluster.run("sinfo", "--version").strip())
        tell(ours[1:], by_hand[1:])
    return 0


def prepare(cluster: Slurm, scratch: Path) -> Path:
    """Write the job for both ways, and commands of Slurm's that are counted; return the folder."""
    out, counted = scratch / "job", scratch / "counted"
    for folder in (out, counted):
        folder.mkdir()
    python = "python3" if cluster.root else sys.executable  # another root file system has a Python of its own
    (out / "train.py").write_text(SCRIPT)
    (out / "job.yaml").write_text(SPEC.format(python=python, out=out))
    (out / "run.sbatch").write_text(BATCH.format(python=python, out=out))
    for name in COMMANDS:
        program = counted / name
        program.write_text(COUNTED.format(real=cluster.bin / name, name=name, out=out))
        program.chmod(0o755)
    os.environ.update(JOBCTL_STATE_DIR=f"{scratch}/state", PATH=f"{counted}:{cluster.bin}:{os.environ['PATH']}")
    return out


def tell(ours: list[Start], by_hand: list[Start]) -> None:
    """Print the medians of both."""
    print(f"{'seconds until':24} {'jobctl up':>9} {'by hand':>9}")
    for number, stage in enumerate(STAGES):
        print(f"{stage:24} {_of(ours, number):9.2f} {_of(by_hand, number):9.2f}")
    print(
        f"{'the command returns':24} {median(s.returned for s in ours):9.2f} {median(s.returned for s in by_hand):9.2f}"
    )
    print(f"{'CPU seconds':24} {median(s.cpu for s in ours):9.2f} {median(s.cpu for s in by_hand):9.2f}")
    print(f"commands of Slurm: {', '.join(f'{name} {n}' for name, n in ours[-1].calls.most_common())}")
    slurms = sum(_of(by_hand, number) - _of(by_hand, number - 1) for number in (1, 2, 3))
    print(f"of both, Slurm's own: {slurms:.2f} s; up beyond sbatch by hand: {_of(ours, 4) - _of(by_hand, 4):.2f} s")


def _of(starts: list[Start], stage: int) -> float:
    return median(start.stages[stage] for start in starts)


def up(cluster: Slurm, out: Path) -> Start:
    """Have `jobctl up` start the job."""
    start = started(out, [JOBCTL, "up", "job.yaml", "--target", "slurm"])
    subprocess.run([JOBCTL, "down", "startup"], cwd=out, stderr=subprocess.DEVNULL, check=True)
    cluster.clear()
    return start


def sbatch(cluster: Slurm, out: Path) -> Start:
    """Have a batch script start the job."""
    start = started(out, ["sbatch", str(out / "run.sbatch")])
    cluster.clear()
    return start


def started(out: Path, argv: list[str]) -> Start:
    """Run a command that starts the job, and return when and how it did."""
    for old in (*out.glob("began-*"), *out.glob("step-*"), out / "batch", out / "calls"):
        old.unlink(missing_ok=True)
    since, before = time.time(), _cpu()
    subprocess.run(argv, cwd=out, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    returned, cpu = time.time() - since, _cpu() - before
    wait_for(lambda: len(list(out.glob("began-??"))) == 2, "processes")
    calls = [line.split(maxsplit=3) for line in (out / "calls").read_text().splitlines()]
    at = next(call for call in calls if call[0] == "sbatch" and "--test-only" not in call)
    ran, step = in_allocation(out)
    times = (float(at[1]), float(at[2]), ran, step, max(float(file.read_text()) for file in out.glob("began-??")))
    upon = collections.Counter(call[0] for call in calls if float(call[1]) < since + returned)
    return Start(tuple(moment - since for moment in times), returned, cpu, upon)


def in_allocation(out: Path) -> tuple[float, float]:
    """Return when the batch script ran, and when its step did on all nodes."""
    if (out / "batch").exists():
        return float((out / "batch").read_text()), max(float(file.read_text()) for file in out.glob("step-*"))
    lines = (out / ".jobctl" / "startup" / "run" / "events.jsonl").read_text().splitlines()
    told = {event["event"]: event["time"] for event in map(json.loads, lines)}
    return told["allocation"], told["placed"]


def _cpu() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


if __name__ == "__main__":
    sys.exit(main())
