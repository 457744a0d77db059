"""How long a job takes from a fault to its first step after it, next to the physical bound.

    sudo python benchmarks/recovery.py [--runs 10] [--framework torch|mindspore]
    sudo python benchmarks/recovery.py --hot-spares [--runs 10] [--framework torch|light]

Needs root: hosts are network namespaces of this machine (tests/fleet), which share its cores. The bound is how long the same
containers take to their first step when they are started by hand, with `docker run` on all hosts at once: the import of
the framework is most of it. The job has two hosts, and faults are recovered from by cold starts; with torch a killed
process also from standby. With `--hot-spares` it has three, and a spare where a launcher waits, with its standby.
`light` has no framework. Prints medians.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.fleet import campaign
from tests.fleet.fleet import Fleet, fleet
from tests.fleet.host import Host
from tests.fleet.machine import IMAGE
from tests.fleet.training import NODES, WORKS
from tests.tools.waiting import eventually


class Recovering(campaign.Campaign):
    """A job on two hosts or three, with one to spare."""

    def first_step(self, generation: int) -> float:
        """Wait for the first step of a generation, or of one that soon replaces it, and return when it was made."""
        paths = [self.checkpoints / f"first-{number}" for number in range(generation, generation + 3)]
        return float(eventually(lambda: next((path.read_text() for path in paths if path.exists()), "")))

    def events(self) -> list[dict[str, object]]:
        """Return the events."""
        return [json.loads(line) for line in self.run("events", "-o", "json").stdout.splitlines()]

    def told(self, since: float, words: str) -> float:
        """Return when an event after `since` said so."""

        def look() -> float:
            for event in self.events():
                at = datetime.fromisoformat(str(event["time"])).timestamp()
                if at >= since and words in str(event["message"]):
                    return at
            return 0.0

        return eventually(look)

    def followed(self, since: float) -> float:
        """Return when a supervisor that began after `since` knew for the first time how far all nodes are."""
        path = self.directory / "state/jobs/counter/progress.jsonl"

        def look() -> float:
            times = (float(json.loads(line)["at"]) for line in path.read_text().splitlines())
            return next((at for at in times if at >= since), 0.0)

        return eventually(look)

    def begin(self, *args: str) -> None:
        """Bring the job up; generations are counted anew."""
        for path in self.checkpoints.glob("first-*"):
            path.unlink()
        up = self.up("--skip-check", *args)
        if up.returncode:
            sys.exit(up.stderr)
        self.trains_on()

    def has_standby(self) -> bool:
        """Say whether all nodes have a standby that is ready. Exits where one is off."""
        found = [node["standby"] for node in json.loads(self.run("status", "-o", "json").stdout)["nodes"]]
        if any(one["state"] == "off" for one in found):
            sys.exit(f"standby is off: {found}")
        return all(one["state"] == "ready" for one in found)

    def is_warm(self) -> bool:
        """Say whether the spare is ready, and all nodes are as far as they can be."""
        state = json.loads(self.run("status", "-o", "json").stdout)
        return all(
            one["state"] != "warming" for one in (*state.get("spares", ()), *(n["standby"] for n in state["nodes"]))
        )

    def lose(self, fault: Callable[[Host], None], boot: float = 0.0) -> tuple[float, float, float]:
        """Let something happen to the host of node 1; return when the next generation was ordered, began and made its first step.

        All in seconds since the fault, and since the host was back if it is one that comes back.
        """
        number = self.generation()
        host = next(host for host, node in self.homes() if node == 1)
        began = time.time()
        fault(host)
        if "sshd" in host.processes:  # it is back
            boot = time.time() - began
        resumed = self.first_step(number + 1) - began
        ordered = max((one["at"] for one in (self.order().get("autonomy") or {}).get("failures", ())), default=0.0)
        starts = [report["started_at"] for report in self.reports()]
        return (ordered or min(starts)) - began - boot, max(starts) - began - boot, resumed - boot

    def measure(self, fault: Callable[[Host, int], None], words: str) -> tuple[float, float]:
        """Let something happen to node 1; return after how long it was noticed, and the first step made."""
        number = self.generation()
        host = next(host for host, node in self.homes() if node == 1)
        began = time.time()
        fault(host, 1)
        resumed = self.first_step(number + 1) - began
        return self.told(began, words) - began, resumed


def torchrun(made: Fleet, port: int) -> list[tuple[Host, dict[str, str], list[str]]]:
    """Return what is started where by hand: a torchrun for each node."""
    started = []
    for rank, host in enumerate(made.hosts[:NODES]):
        argv = [
            "-m",
            "torch.distributed.run",
            "--nnodes",
            str(NODES),
            "--node-rank",
            str(rank),
            "--nproc-per-node",
            "1",
        ]
        argv += ["--master-addr", made[0].address, "--master-port", str(port), "counter.py"]
        started.append((host, {"GLOO_SOCKET_IFNAME": "eth0"}, argv))
    return started


def cluster(made: Fleet, port: int) -> list[tuple[Host, dict[str, str], list[str]]]:
    """Return the same of MindSpore: the workers, and the scheduler beside the first."""
    common = {"MS_WORKER_NUM": "2", "MS_SCHED_HOST": made[0].address, "MS_SCHED_PORT": str(port)}
    workers = [
        (host, {**common, "MS_ROLE": "MS_WORKER", "MS_NODE_ID": str(rank), "MS_WORKER_IP": host.address})
        for rank, host in enumerate(made.hosts[:2])
    ]
    scheduler = (made[0], {**common, "MS_ROLE": "MS_SCHED", "MS_NODE_ID": "sched"})
    return [(host, env, ["counter.py"]) for host, env in (*workers, scheduler)]


def processes(made: Fleet, port: int) -> list[tuple[Host, dict[str, str], list[str]]]:
    """Return the same of processes that have no framework."""
    common = {"MASTER_ADDR": made[0].address, "MASTER_PORT": str(port), "NNODES": str(NODES)}
    hosts = enumerate(made.hosts[:NODES])
    return [(host, {**common, "NODE_RANK": str(rank)}, ["counter.py"]) for rank, host in hosts]


BY_HAND = {"torch": torchrun, "mindspore": cluster, "light": processes}


def by_hand(job: Recovering, made: Fleet, run: int, framework: str) -> float:
    """Start the containers of all nodes by hand, all at once; return how long they take to their first step."""
    folder = job.checkpoints / f"hand-{run}"
    folder.mkdir()
    mounts = ["-v", f"{folder}:{folder}", "-v", f"{job.code}:/code", "-w", "/code"]
    mounts += ["-v", f"{made.lent(WORKS[framework].environment or 'packages')}:/packages:ro"]

    def start(number: int, host: Host, own: dict[str, str], argv: list[str]) -> None:
        env = {"JOBCTL_CHECKPOINT_DIR": str(folder), "JOBCTL_NODE": str(number), "JOBCTL_GENERATION": "0"}
        env |= {"JOBCTL_PROGRESS_FILE": "/tmp/progress", "OMP_NUM_THREADS": "1", "PYTHONPATH": "/packages", **own}
        values = [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
        name = ["-d", "--rm", "--network", "host", "--init", "--name", f"hand-{number}"]
        host.docker("run", *name, *mounts, *values, IMAGE, "python3", *argv)

    began, containers = time.time(), BY_HAND[framework](made, 29000 + run)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda one: start(one[0], *one[1]), enumerate(containers)))
    first = folder / "first-0"
    eventually(lambda: first.exists() and first.read_text())
    for number, (host, *_) in enumerate(containers):
        host.docker("kill", f"hand-{number}", check=False)
    for host in made.hosts[:NODES]:
        eventually(partial(has_no_hand, host))
    return float(first.read_text()) - began


def has_no_hand(host: Host) -> bool:
    """Say whether no container that was started by hand is left on a host."""
    return "hand-" not in host.docker("ps", "-a", "--format", "{{.Names}}")


def scheduler_killed(job: Recovering) -> tuple[float, int]:
    """Kill the scheduler's process; return after how long it was started again, and how many steps workers made in ten seconds."""
    host, node = max(job.homes(), key=lambda home: home[1])
    began, step = time.time(), job.step()
    job.process_killed(host, node)
    time.sleep(10.0)
    steps = job.step() - step
    return job.told(began, "started again") - began, steps


def recover(job: Recovering, made: Fleet, bound: float, runs: int) -> None:
    """Let each kind of fault happen that often, and print a line for it."""
    for name, fault, words in (
        ("process killed", job.process_killed, "was killed"),
        ("container killed", job.container_killed, "was killed"),
        ("host lost", lambda host, node: host.power_off(), "is not heard"),
    ):
        found = []
        for _ in range(runs):
            found.append(job.measure(fault, words))
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


def recover_from_standby(job: Recovering, bound: float, runs: int) -> None:
    """Kill a process that often while there is a standby, and print a line."""
    found = []
    for _ in range(runs):
        eventually(job.has_standby)
        found.append(job.measure(job.process_killed, "was killed"))
        job.trains_on()
    cold = [event for event in job.events() if event["event"] == "generation-begun" and not event["standby"]]
    noticed, resumed = (median(column) for column in zip(*found, strict=True))
    print(
        f"process killed, standby ready: noticed after {noticed:.2f} s, first step after {resumed:.2f} s: "
        f"bound x {resumed / bound:.2f} ({len(cold)} cold starts in all)",
        flush=True,
    )


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
            found.append(job.lose(fault))
            ways = [report["start"] for report in job.reports()]  # None on a host that has no node any more
            cold += [way["cold_because"] for way in ways if way is not None and way["cold_because"]]
            for host in job.fleet.hosts:
                if "sshd" not in host.processes:
                    host.power_on()
            eventually(lambda: job.run("down", *job.where).returncode == 0)
        ordered, begun, resumed = (median(column) for column in zip(*found, strict=True))
        print(
            f"{name}: ordered after {ordered:.2f} s, begun after {begun:.2f} s, first step after {resumed:.2f} s "
            f"(asked: {wanted:.1f} s); {len(cold)} cold starts of nodes in all {sorted(set(cold))}",
            flush=True,
        )


def main() -> None:
    """Measure, and print a line for each kind of fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--framework", choices=sorted(BY_HAND), default="torch")
    parser.add_argument("--hot-spares", action="store_true", help="lose hosts while a launcher waits on a spare")
    options = parser.parse_args()
    runs, framework = options.runs, options.framework
    work, NODES = WORKS[framework], 3 if options.hot_spares else 2
    with fleet(NODES + 1, lends=work.lends()) as made, TemporaryDirectory() as directory:
        job = Recovering(Path(directory), made, 1, campaign.JobKind(framework))
        bound = median(by_hand(job, made, run, framework) for run in range(runs))
        print(f"by hand: first step after {bound:.1f} s", flush=True)
        if options.hot_spares:
            recover_with_hot_spare(job, bound, runs)
            return
        if framework == "torch":
            job.begin()
            recover_from_standby(job, bound, runs)
            job.run("down")
        job.begin("--set", "recovery.standby=off")
        recover(job, made, bound, runs)
        if framework == "mindspore":
            again, steps = (
                median(column) for column in zip(*(scheduler_killed(job) for _ in range(runs)), strict=True)
            )
            print(f"scheduler killed: started again after {again:.2f} s; {steps:.0f} steps in the first ten seconds")
        holder = json.loads((job.directory / "state/jobs/counter/supervisor.lock").read_text())
        adopted = []
        for _ in range(runs):
            os.kill(int(holder["pid"]), 9)
            began = time.time()
            supervisor = job.popen("supervise", "counter")
            adopted.append(job.followed(began) - began)
            holder["pid"] = supervisor.pid
        print(f"supervisor killed, and started again: it follows all again after {median(adopted):.1f} s")
        job.run("down")


if __name__ == "__main__":
    main()
