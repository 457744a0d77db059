"""How long a job takes from a fault to its first step after it, next to the physical bound.

    sudo python benchmarks/recovery.py [--framework torch|jax|paddle|mindspore] [--runs 10] [--only WORD]
    sudo python benchmarks/recovery.py --hot-spares [--framework torch|light]
    sudo python benchmarks/recovery.py --cold [--framework torch|light|mindspore]
    sudo python benchmarks/recovery.py --price [--framework torch]

Needs root: hosts are network namespaces of this machine (tests/fleet), which share its cores. The bound is how long the same
containers take to their first step when they are started by hand, with `docker run` on all hosts at once: the import of
the framework is most of it. The job has two hosts and a spare. A process is killed, a rank hangs, a container is killed,
`restart`, and with torch `scale` of an elastic job from three nodes to two and back, each time with a standby that is
ready. A hang counts from when `hang_timeout` was over after the last step that a launcher has seen. Of a command there are
two figures: for how long training stood still, from the last step of the old generation to the first one of the new, which
is what a user loses and what is asked for; and the first step since the command was typed, its own start included.
`--only scale` measures nothing but what has that word in its name.

With `--hot-spares` three hosts train, a launcher waits on the spare, and hosts are lost. With `--cold` standby is off; with
`--price` it is measured what a standby costs the job beside it (standby_price.py). `light` has no framework, and so no
standby. Prints medians, what was asked for, and why nodes were started cold.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.by_hand import BY_HAND, by_hand
from benchmarks.recovering import Recovering
from benchmarks.standby_price import price
from tests.fleet.campaign.campaign import JobKind
from tests.fleet.campaign.training import WORKS
from tests.fleet.fleet import Fleet, fleet
from tests.fleet.host import Host
from tests.tools.waiting import eventually

QUICK = ("torch", "jax")  # of which most is asked: 0.35 of the bound


@dataclass(frozen=True)
class Row:
    """What happens to a job: it returns since when its time counts; and in how many seconds a step is asked for.

    Training goes on while a command works: then it is asked for how long it stands still.
    """

    name: str
    happen: Callable[[], float]
    asked: float
    by_command: bool = False


@dataclass(frozen=True)
class Took:
    """In seconds: since it happened, until the last node began its processes, and until the first step; and without steps."""

    begun: float
    resumed: float
    still: float


def faults(job: Recovering, kind: JobKind, bound: float) -> list[Row]:
    """Return what happens to a job that has a standby."""
    work = kind.work
    return [
        Row(
            "process killed",
            partial(job.struck, job.process_killed),
            (0.35 if kind.framework in QUICK else 0.5) * bound,
        ),
        Row("rank hangs, from hang_timeout on", partial(job.stands_still, work.hang), 0.35 * bound),
        Row("container killed", partial(job.struck, job.container_killed), bound + 1.0),
        Row("restart", partial(job.commanded, "restart"), 0.5 * bound, by_command=True),
    ]


def scales(job: Recovering, bound: float) -> list[Row]:
    """Return what happens to an elastic job: each is followed by the other."""
    return [
        Row(f"scale to {n} nodes", partial(job.commanded, "scale", "counter", str(n)), 0.5 * bound, by_command=True)
        for n in (2, 3)
    ]


def recover_from_standby(job: Recovering, rows: list[Row], bound: float, runs: int) -> None:
    """Let all of it happen that often, each while there is a standby, and print a line for each."""
    found: dict[str, list[Took]] = {row.name: [] for row in rows}
    cold: dict[str, list[str]] = {row.name: [] for row in rows}
    for row in runs * rows:
        job.wait_for_standby()
        number = job.generation()
        since = row.happen()
        resumed = job.first_step(number + 1)
        found[row.name].append(Took(job.begun() - since, resumed - since, resumed - job.last_step(number)))
        cold[row.name] += job.cold_starts()
        job.trains_on()
    for row in rows:
        print(line_of(row, found[row.name], bound, told_of(cold[row.name])), flush=True)


def line_of(row: Row, found: list[Took], bound: float, cold: str) -> str:
    """Return the line of what has happened that often."""
    begun, resumed, still = (median(getattr(one, name) for one in found) for name in ("begun", "resumed", "still"))
    counts = still if row.by_command else resumed
    times = f"begun after {begun:.2f} s, first step after {resumed:.2f} s"
    times += f", without a step for {still:.2f} s" if row.by_command else ""
    asked = f"(asked: {row.asked:.2f} s, x {row.asked / bound:.2f})"
    return f"{row.name}: {times}: bound x {counts / bound:.2f} {asked}; {cold}"


def told_of(cold: list[str]) -> str:
    """Return how many nodes were started cold, and why."""
    return f"{len(cold)} cold starts of nodes {sorted(set(cold)) or ''}".strip()


def recover_cold(job: Recovering, made: Fleet, bound: float, runs: int) -> None:
    """Let each kind of fault happen that often to a job without standby, and print a line for it."""
    for name, fault, words in (
        ("process killed", job.process_killed, "was killed"),
        ("container killed", job.container_killed, "was killed"),
        ("host lost", lambda host, node: host.power_off(), "is not heard"),
    ):
        found = []
        for _ in range(runs):
            number = job.generation()
            began = job.struck(fault)
            resumed = job.first_step(number + 1)
            found.append((job.told(began, words) - began, resumed - began))
            job.trains_on()
            for host in made.hosts:
                if "sshd" not in host.processes:
                    host.power_on()
                    eventually(lambda: "remove node 1" in job.run("events").stdout)
                    time.sleep(6.0)  # or the next host goes while this one is still seen to
        noticed, resumed = (median(column) for column in zip(*found, strict=True))
        over = resumed - bound
        print(
            f"{name}: noticed after {noticed:.2f} s, first step after {resumed:.1f} s: bound + {over:.1f} s",
            flush=True,
        )


def scheduler_killed(job: Recovering, runs: int) -> None:
    """Kill the scheduler's process that often; print after how long it is started again, and what workers do meanwhile."""
    found = []
    for _ in range(runs):
        host, node = max(job.homes(), key=lambda home: home[1])
        began, step = time.time(), job.step()
        job.process_killed(host, node)
        time.sleep(10.0)
        steps = job.step() - step
        found.append((job.told(began, "started again") - began, steps))
    again, steps = (median(column) for column in zip(*found, strict=True))
    print(
        f"scheduler killed: started again after {again:.2f} s; {steps:.0f} steps in the first ten seconds", flush=True
    )


def supervisor_killed(job: Recovering, runs: int) -> None:
    """Kill the supervisor that often, and print how long the next one takes until it follows all."""
    holder = json.loads((job.directory / "state/jobs/counter/supervisor.lock").read_text())
    adopted = []
    for _ in range(runs):
        os.kill(int(holder["pid"]), 9)
        began = time.time()
        supervisor = job.popen("supervise", "counter")
        adopted.append(job.followed(began) - began)
        holder["pid"] = supervisor.pid
    print(f"supervisor killed, and started again: it follows all again after {median(adopted):.1f} s", flush=True)


def lose(job: Recovering, fault: Callable[[Host], None], boot: float = 0.0) -> tuple[float, float, float]:
    """Let something happen to the host of node 1; return when the next generation was ordered, began and made its first step.

    All in seconds since the fault, and since the host was back if it is one that comes back.
    """
    number, host = job.generation(), job.victim()
    began = time.time()
    fault(host)
    if "sshd" in host.processes:  # it is back
        boot = time.time() - began
    resumed = job.first_step(number + 1) - began
    ordered = max((one["at"] for one in (job.order().get("autonomy") or {}).get("failures", ())), default=0.0)
    starts = [report["started_at"] for report in job.reports()]
    return (ordered or min(starts)) - began - boot, max(starts) - began - boot, resumed - boot


def recover_with_hot_spare(job: Recovering, bound: float, runs: int) -> None:
    """Lose a host that often while a spare waits, watched and not, and power-cycle one without a spare; print a line for each."""
    alone = ("--no-supervise",)
    for name, args, fault, wanted in (
        ("host lost, hot spare", (), Host.power_off, job.timeout + 2.0),
        ("the same, controller off since the start", alone, Host.power_off, job.timeout + 2.5),
        (
            "host power-cycled, controller off; from boot on",
            (*alone, "--set", "recovery.on_host_loss=wait"),
            lambda host: job.power_cycled(host, 1),
            bound + 5.0,
        ),
    ):
        found, cold = [], list[str]()
        for _ in range(runs):
            job.begin(*args)
            eventually(job.is_warm)
            found.append(lose(job, fault))
            cold += job.cold_starts()
            for host in job.fleet.hosts:
                if "sshd" not in host.processes:
                    host.power_on()
            eventually(lambda: job.run("down", *job.where).returncode == 0)
        ordered, begun, resumed = (median(column) for column in zip(*found, strict=True))
        print(
            f"{name}: ordered after {ordered:.2f} s, begun after {begun:.2f} s, first step after {resumed:.2f} s "
            f"(asked: {wanted:.1f} s); {told_of(cold)}",
            flush=True,
        )


def measure(directory: Path, made: Fleet, kind: JobKind, options: argparse.Namespace) -> None:
    """Measure what the options say."""
    runs: int = options.runs
    job = Recovering(directory / "job", made, 1, kind)
    if options.price:
        price(job, kind, runs)
        return
    bound = median(by_hand(job, kind, run) for run in range(runs))
    print(f"by hand: first step after {bound:.2f} s", flush=True)
    if options.hot_spares:
        recover_with_hot_spare(job, bound, runs)
    elif options.cold or kind.framework == "light":
        job.begin("--set", "recovery.standby=off")
        recover_cold(job, made, bound, runs)
        if kind.framework == "mindspore":
            scheduler_killed(job, runs)
        supervisor_killed(job, runs)
        job.ok("down")
    else:
        jobs = [(job, faults(job, kind, bound))]
        if kind.framework == "torch":
            elastic = Recovering(directory / "elastic", made, 1, JobKind("torch", elastic=True))
            jobs.append((elastic, scales(elastic, bound)))
        for one, rows in jobs:
            chosen = [row for row in rows if options.only in row.name]
            if chosen:
                one.begin()
                recover_from_standby(one, chosen, bound, runs)
                one.ok("down")


def main() -> None:
    """Measure, and print a line for each kind of fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--framework", choices=sorted(BY_HAND), default="torch")
    parser.add_argument(
        "--only", default="", metavar="WORD", help="from standby: nothing but what has this in its name"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--hot-spares", action="store_true", help="lose hosts while a launcher waits on a spare")
    what.add_argument("--cold", action="store_true", help="without standby")
    what.add_argument("--price", action="store_true", help="what a standby costs the job beside it")
    options = parser.parse_args()
    kind = JobKind(options.framework, nodes=3 if options.hot_spares else 2)
    with fleet(kind.nodes + 1, lends=WORKS[kind.framework].lends()) as made, TemporaryDirectory() as directory:
        measure(Path(directory), made, kind, options)


if __name__ == "__main__":
    main()
