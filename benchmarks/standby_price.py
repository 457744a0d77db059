"""What a standby costs the job beside it: steps per second of ranks that keep the cores busy, and memory.

Each host gets a core of its own, as cores of this machine that hosts share would be dealt to containers and not to
processes. Jobs with and without standby take turns. A window of the first kind lies where the standby imports, another one where it
waits; one of the second kind where nothing happens beside the ranks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.recovering import Recovering
from tests.fleet.campaign.campaign import JobKind
from tests.fleet.campaign.training import ALONE
from tests.tools.waiting import eventually

WINDOW = 30.0  # seconds
LONG = 600.0  # seconds of training over which the price of an import is told, too
SETTLES = 5.0  # seconds after the first step before a job without standby is looked at
SYS_RESOURCE = 24  # the capability with which engines raise limits
SYS_NICE = ("--set", "container.cap_add=[SYS_NICE]")  # as good as the limit `nice`, which jobctl has engines raise
NO_SPARE = ("--set", "recovery.on_host_loss=wait")  # its standby would import on the cores of the nodes
ASKED = 1.01  # times as long as without, at most

# What the ranks do in place of their pause, some 20 ms long; rank 0 writes down when it has made each step.
BUSY = """\
import numpy
numbers, made, told = numpy.random.default_rng(0).random((256, 256)), None, report
def wait():
    for _ in range(8):
        numbers @ numbers
def report(step, rank):
    global made
    told(step, rank)
    if rank == 0:
        made = made or open(os.path.join(kept, "steps-" + os.environ["JOBCTL_GENERATION"]), "a", buffering=1)
        made.write(repr(time.time()) + "\\n")
"""


class WithStandby(NamedTuple):
    """A job with standby: for how long that imported, how many seconds a step took meanwhile and later, and its memory on each node."""

    imported: float
    loading: float
    waiting: float
    memory: list[tuple[float, float]]


class Busy:
    """A job whose ranks keep the cores busy."""

    def __init__(self, job: Recovering, kind: JobKind) -> None:
        self.job, self.more = job, () if raises_limits() else SYS_NICE
        (job.code / "counter.py").write_text(ALONE + BUSY + kind.work.train)

    def begin(self, *args: str) -> None:
        """Bring it up, beside no other."""
        for path in self.job.checkpoints.glob("steps-*"):
            path.unlink()
        self.job.begin(*NO_SPARE, *self.more, *args)
        cores = sorted(os.sched_getaffinity(0))
        for host, node in self.job.homes():
            host.docker("update", f"--cpuset-cpus={cores[node % len(cores)]}", self.job.container(host, node))

    def seconds(self, begin: float, end: float) -> float:
        """Return how many seconds a step took in a window."""
        path = self.job.checkpoints / f"steps-{self.job.generation()}"
        return seconds_per_step([float(line) for line in path.read_text().splitlines()], begin, end)

    def imports(self) -> bool:
        """Say whether a standby imports."""
        return any(
            one["state"] == "ready" or (one["state"] == "warming" and one["reason"] is None)
            for one in (report["standby"] for report in self.job.reports())
        )

    def with_standby(self) -> WithStandby:
        """Look at a job whose standby imports, and waits."""
        self.begin()
        begun = eventually(lambda: time.time() if self.imports() else 0.0)
        ready = self.job.wait_for_standby()
        time.sleep(WINDOW)
        loading, waiting = self.seconds(begun, ready), self.seconds(ready, ready + WINDOW)
        memory = [memory_of(self.waiting(node)) for _, node in self.job.homes()]
        self.job.ok("down")
        return WithStandby(ready - begun, loading, waiting, memory)

    def without(self) -> float:
        """Return the same of a job without standby."""
        self.begin("--set", "recovery.standby=off")
        time.sleep(SETTLES + WINDOW)
        found = self.seconds(time.time() - WINDOW, time.time())
        self.job.ok("down")
        return found

    def waiting(self, node: int) -> list[Path]:
        """Return the processes of a node, in /proc, that wait: none of this job, which is on its first start, began as they do."""
        host = next(host for host, number in self.job.homes() if number == node)
        pids = host.docker("top", self.job.container(host, node), "-eo", "pid").split()[1:]
        folders = [Path("/proc", pid) for pid in pids]
        return [one for one in folders if b"JOBCTL_STANDBY=" in (one / "environ").read_bytes()]


def raises_limits() -> bool:
    """Say whether engines of this machine may raise limits of their containers."""
    lines = Path("/proc/self/status").read_text().splitlines()
    capable = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    return bool(capable >> SYS_RESOURCE & 1)


def seconds_per_step(times: Sequence[float], begin: float, end: float) -> float:
    """Return how many seconds a step took in a window, by the times at which each was made."""
    inside = [at for at in times if begin <= at <= end]
    assert len(inside) > 1, f"no steps within {end - begin:.1f} s"
    return (inside[-1] - inside[0]) / (len(inside) - 1)


def memory_of(processes: Sequence[Path]) -> tuple[float, float]:
    """Return how much memory processes take, in MB: their part of what they share counted, and what nobody shares alone."""
    lines = [line.split() for one in processes for line in (one / "smaps_rollup").read_text().splitlines()]
    share = sum(int(line[1]) for line in lines if line[0] == "Pss:")
    own = sum(int(line[1]) for line in lines if line[0] in ("Private_Clean:", "Private_Dirty:"))
    return share / 1024, own / 1024


def price(job: Recovering, kind: JobKind, runs: int) -> None:
    """Have jobs with and without standby take turns that often, and print medians."""
    busy = Busy(job, kind)
    if busy.more:
        print(f"engines may not raise limits on this machine: `{busy.more[1]}`")
    found, without = list[WithStandby](), list[float]()

    def measure_with() -> None:
        found.append(busy.with_standby())

    def measure_without() -> None:
        without.append(busy.without())

    for run in range(runs):
        turns = (measure_with, measure_without)
        for turn in turns if run % 2 else turns[::-1]:
            turn()
    print(f"a step without standby: {1000 * median(without):.2f} ms", flush=True)
    columns = ("while it imports", [one.loading for one in found]), ("while it waits", [one.waiting for one in found])
    for name, steps in columns:
        ratios = [one / other for one, other in zip(steps, without, strict=True)]
        print(
            f"{name}: {1000 * median(steps):.2f} ms, x {median(ratios):.4f} (asked: x {ASKED}); "
            f"the {runs} pairs: {' '.join(f'{ratio:.3f}' for ratio in sorted(ratios))}",
            flush=True,
        )
    imported = median(one.imported for one in found)
    lost = median(one.imported * (1 - other / one.loading) for one, other in zip(found, without, strict=True))
    print(
        f"it imports for {imported:.1f} s, once in a generation; that takes {lost:.1f} s of training: "
        f"x {LONG / (LONG - lost):.4f} over {LONG / 60:.0f} minutes (asked: x {ASKED})",
        flush=True,
    )
    share, own = (median(column) for column in zip(*(node for one in found for node in one.memory), strict=True))
    print(f"memory of a node's standby: {share:.0f} MB, of which it shares {share - own:.0f} MB with others")
