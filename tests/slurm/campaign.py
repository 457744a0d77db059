"""A job in a real Slurm that one thing after another happens to.

    sudo python -m tests.slurm.campaign --seed 1 --faults 50 [--elastic] [--newer] [--notify]

After each the job has to train on by itself, and `status` must never say that it is over. At the end its loss is, bit for
bit, that of a run which nothing disturbed, no node has ever trained twice at a time, and `down` leaves nothing behind. With
`--notify` a webhook must have been told of each failure, once or twice; the process that tells is killed now and then.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import read_holder
from tests.fleet.campaign.listening import EVERY, VARIABLE, Listener, heard
from tests.slurm.cluster import Machine, Slurm, slurm, wait_for
from tests.slurm.conftest import SlurmJobs
from tests.slurm.lies import SILENT, lying
from tests.slurm.newer import newer_root
from tests.tools.webhook import served

PATIENCE = 150.0  # seconds within which a job has to train again; a machine that is lost is revived after 30

LASTING = ("machine lost", "cable out", "slurmctld killed", "slurmd killed")  # until the job goes on all the same
# After which no rank has to begin again.
HARMLESS = (
    "cable out for a moment",
    "slurmctld killed",
    "slurmd killed",
    "commands are empty",
    "commands fail",
    "up again",
)


class Campaign:
    """The job, and what can happen to it."""

    def __init__(
        self, directory: Path, cluster: Slurm, seed: int, *, elastic: bool, listener: Listener | None = None
    ) -> None:
        environ = {
            **os.environ,
            "PATH": f"{cluster.bin}:{os.environ['PATH']}",
            "JOBCTL_STATE_DIR": f"{directory}/state",
        }
        if listener is not None:
            environ[VARIABLE] = listener.url
        self.jobs, self.cluster, self.elastic = SlurmJobs(cluster, directory, environ), cluster, elastic
        self.listener, self.job = listener, JobDir(directory / "state" / "jobs" / self.jobs.name)
        self.lies = directory / "lies"
        self.chance = random.Random(seed)
        self.counts: collections.Counter[str] = collections.Counter()
        self.seconds: list[float] = []
        self.after: list[Callable[[], None]] = []

    def machine(self) -> Machine:
        """Return a machine that has a node of the job. Not the first: it has the batch script, whose loss ends an allocation."""
        homes = {node["host"] for node in self.jobs.status()["nodes"]} - {""}
        return self.chance.choice(
            [node for node in self.cluster.nodes[1:] if node.name in homes] or [self.cluster.nodes[1]]
        )

    # What happens.

    def rank_killed(self) -> None:
        self._kill("rank.py")

    def launcher_killed(self) -> None:
        self._kill("launcher.py")

    def node_runner_killed(self) -> None:
        self._kill("allocation.py\0node")

    def machine_lost(self) -> None:
        machine = self.machine()
        machine.kill()
        self.after += [machine.boot, machine.slurmd]

    def cable_out(self) -> None:
        machine = self.machine()
        machine.cable("down")
        self.after.append(lambda: machine.cable("up"))

    def cable_out_for_a_moment(self) -> None:
        machine = self.machine()
        machine.cable("down")
        time.sleep(self.chance.uniform(0.5, 5.0))
        machine.cable("up")

    def slurmctld_killed(self) -> None:
        self.cluster.end_control()
        self.after.append(self.cluster.control)

    def slurmd_killed(self) -> None:
        machine = self.chance.choice(self.cluster.nodes)
        for pid in machine.processes("slurmd"):
            os.kill(pid, signal.SIGKILL)
        self.after.append(machine.slurmd)

    def commands_are_empty(self) -> None:
        self._lie("exit 0")

    def commands_fail(self) -> None:
        self._lie(SILENT)

    def time_limit(self) -> None:
        self.cluster.run("scancel", "--batch", "--signal=USR1", self.jobs.jobs()[-1])

    def requeued(self) -> None:
        self.cluster.run("scontrol", "requeue", self.jobs.jobs()[-1])

    def preempted(self) -> None:
        options = ("-p", "urgent", "--exclusive", "-N4", "-o", "/dev/null", "--wrap", "sleep 600")
        other = self.cluster.run("sbatch", "--parsable", *options).strip()
        self.jobs.until(lambda state: state["phase"] == "pending", "a job that waits again")
        self.cluster.run("scancel", other)

    def restart(self) -> None:
        self.jobs.ok("restart")

    def stop_and_up(self) -> None:
        self.jobs.ok("stop")
        self.jobs.ok("up")

    def up_again(self) -> None:
        self.jobs.ok("up")

    def teller_killed(self) -> None:
        """Kill who tells, then a rank: the next command has to tell of that, and to leave somebody behind again."""
        if (pid := read_holder(self.job.supervisor_lock).get("pid")) is not None:
            os.kill(pid, signal.SIGKILL)
        begun = len(self.jobs.begun())
        self.rank_killed()
        wait_for(lambda: self._begins(begun), "ranks that begin", PATIENCE)
        self.jobs.ok("up")

    def _kill(self, word: str) -> None:
        """Kill a Python with this word, on any machine that has a node of the job."""
        found = [node.processes(word) for node in self.cluster.nodes if node.processes("rank.py")]
        pids = [pid for pid in self.chance.choice(found) if "python" in os.readlink(f"/proc/{pid}/exe")]
        os.kill(pids[-1], signal.SIGKILL)

    def _lie(self, answer: str) -> None:
        lying(self.jobs, self.lies, squeue=answer, scontrol=answer, sacct=answer)
        assert self.jobs.status()["phase"] in ("running", "degraded", "restarting", "starting")
        lying(self.jobs, self.lies)

    def _begins(self, before: int) -> bool:
        """Say whether ranks have begun again. A job that was requeued would wait for two minutes: it starts at once."""
        for job in self.cluster.run("squeue", "-h", "-n", self.jobs.name, "-t", "PD", "-o", "%i", check=False).split():
            self.cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now", check=False)
        return len(self.jobs.begun()) > before

    # The run.

    def kinds(self) -> list[Callable[[], None]]:
        """Return what can happen."""
        return [
            *(self.rank_killed, self.launcher_killed, self.node_runner_killed, self.machine_lost, self.cable_out),
            *(self.cable_out_for_a_moment, self.slurmctld_killed, self.slurmd_killed, self.commands_are_empty),
            *(self.commands_fail, self.time_limit, self.requeued, self.preempted, self.restart, self.stop_and_up),
            *(self.up_again, *([self.teller_killed] if self.listener is not None else [])),
        ]

    def run(self, faults: int, only: str) -> None:
        """Let so many faults happen, one after the other."""
        options = {"partition": "low", "spares": 0 if self.elastic else 1}
        nodes = {"nodes": "1:3"} if self.elastic else {"nodes": 2}
        recovery = {"host_timeout": "6s", "max_restarts": 10 * faults}
        notify = [{"on": EVERY.split(", "), "webhook": VARIABLE}] if self.listener is not None else None
        self.jobs.write(spec={**nodes, "recovery": recovery, "notify": notify}, **options)
        self.jobs.ok("up", "--target", "slurm")
        self.goes_on()
        kinds = [kind for kind in self.kinds() if only in kind.__name__]
        for number in range(faults):
            kind = self.chance.choice(kinds)
            name = kind.__name__.replace("_", " ")
            print(f"{number:4}  {name}", end="", flush=True)
            began = time.monotonic()
            begun = len(self.jobs.begun())
            kind()
            while self.after and name not in LASTING:
                self.after.pop(0)()
            if name not in HARMLESS:
                wait_for(lambda begun=begun: self._begins(begun), "ranks that begin", PATIENCE)
            self.goes_on()
            self.counts[name] += 1
            self.seconds.append(time.monotonic() - began)
            print(f": {self.seconds[-1]:.1f} s", flush=True)
            self.mend()

    def goes_on(self) -> None:
        """Wait for more steps, while `status` never calls the job over."""
        before, deadline = self.jobs.step, time.monotonic() + PATIENCE
        while self.jobs.step < before + 10:
            assert time.monotonic() < deadline, f"no steps after {before}: {self.jobs.run('status').stdout}"
            time.sleep(0.2)

    def mend(self) -> None:
        """Undo what lasts, and wait until all machines are back."""
        while self.after:
            self.after.pop(0)()
        wait_for(lambda: "down" not in self.cluster.run("sinfo", "-h", "-N", "-o", "%T", check=False), "machines", 60.0)
        state = self.jobs.status()
        assert state["phase"] not in ("succeeded", "failed", "stopped"), state

    def finish(self) -> None:
        """Check what the job has trained, and that `down` leaves nothing behind."""
        self.jobs.check_steps()
        self.jobs.ok("down")
        assert self.jobs.jobs() == []
        left = [pid for node in self.cluster.nodes for pid in node.processes("rank.py") + node.processes("launcher.py")]
        assert not left
        assert not self.jobs.work.exists()
        if self.listener is not None:
            hearing = heard(self.job.events, self.listener.receipts)
            print(hearing.line.partition("\n")[0])
            assert not hearing.lost, "\n".join(hearing.lost)
            assert not hearing.often, hearing.often


def main() -> int:
    """Play a campaign, and print what it survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--only", default="", metavar="WORD", help="the faults with this in their names")
    parser.add_argument("--elastic", action="store_true", help="a job of one to three nodes, without a spare")
    parser.add_argument("--newer", action="store_true", help="Slurm 24.11 of Debian 13, and not this machine's")
    parser.add_argument("--notify", action="store_true", help="with a webhook, which must be told of each failure")
    options = parser.parse_args()
    root = newer_root() if options.newer else None
    with tempfile.TemporaryDirectory(prefix="jobctl-slurm-", dir="/tmp") as name, contextlib.ExitStack() as ending:
        scratch = Path(name)  # in /tmp, which another root file system has too
        cluster = ending.enter_context(slurm(scratch / "cluster", root=root))
        print(cluster.run("sinfo", "--version").strip(), flush=True)
        (scratch / "job").mkdir()
        listener = ending.enter_context(served(Listener())) if options.notify else None
        campaign = Campaign(scratch / "job", cluster, options.seed, elastic=options.elastic, listener=listener)
        try:
            campaign.run(options.faults, options.only.replace(" ", "_"))
            campaign.finish()
        except BaseException:
            print("\n" + campaign.jobs.run("events").stdout, flush=True)
            raise
    for name, count in campaign.counts.most_common():
        print(f"| {name} | {count} |")
    print(f"{options.faults} of {options.faults}; ten steps further after {statistics.median(campaign.seconds):.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
