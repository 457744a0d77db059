"""How long `check --fitness=quick` takes for 2, 4 and 8 hosts, beside a `check` without it, and for hosts that are played.

    sudo python benchmarks/fitness.py [--runs 3]

Needs root: hosts are network namespaces of this machine (tests/fleet), with sshd and a Docker Engine each. They share its
cores, so they are measured in turn; hosts of their own are measured side by side. Each figure is the median of the runs.
Played hosts (8 and 64 of them) wait as long as real ones measure, each as a machine of its own: rounds, and not hosts,
take the time.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.fleet.fleet import Fleet, fleet
from tests.fleet.jobs import SPEC, Jobs
from tests.tools.playedhosts import PlayedCheck


def seconds(jobs: Jobs, *more: str) -> float:
    """Return how long a check takes; whatever it finds."""
    begin = time.monotonic()
    done = jobs.run("check", *jobs.where, "--target", "ssh", *more)
    if done.returncode not in (0, 3):
        sys.exit(done.stderr)
    return time.monotonic() - begin


def measure(made: Fleet, count: int, runs: int) -> None:
    """Print the times for a fleet of so many hosts."""
    with TemporaryDirectory() as directory:
        jobs = Jobs(Path(directory), made, SPEC.replace("nodes: 2", f"nodes: {count}"))
        plain, fit = [], []
        for _ in range(runs):
            plain.append(seconds(jobs))
            fit.append(seconds(jobs, "--fitness"))
    load = os.getloadavg()[0]
    print(
        f"{count} hosts: check {median(plain):.1f} s, with --fitness {median(fit):.1f} s (load {load:.0f})", flush=True
    )


def play(count: int) -> None:
    """Print the times for so many hosts that are played; one of them has a slow link, so that there is a second round."""
    with TemporaryDirectory() as directory:
        check = PlayedCheck(count, Path(directory), cores={}, links={"p2": 0.5})
        begin, cpu = time.monotonic(), time.process_time()
        bad = {f"{one.host}: {one.code}" for one in check.run() if one.verdict == "error"}
    took, used = time.monotonic() - begin, time.process_time() - cpu
    sent = sorted(check.asked[host, "send"] for host in check.seats)
    print(f"{count} hosts that are played: {took:.1f} s ({used:.1f} s of CPU): {', '.join(bad)}", flush=True)
    print(f"  hosts sent {median(sent):g} times each (median), and at most {sent[-1]} times", flush=True)


def main() -> None:
    """Measure all sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    for count in (8, 64):
        play(count)
    for count in (2, 4, 8):
        with fleet(count) as made:
            measure(made, count, runs)


if __name__ == "__main__":
    main()
