"""What can happen to the job of a campaign: faults, two at a time, in the middle of a hand-over, and users' commands."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from jobctl.jobspec.deploy.store.lock import read_holder
from tests.fleet.host import Host
from tests.fleet.jobs import Jobs
from tests.tools.commands import Command
from tests.tools.waiting import eventually

Mishap = Callable[[Host, int], None]


class Mishaps(Jobs):
    """A job, and what can happen to it: each method takes the host and the node that it happens to."""

    chance: random.Random
    timeout: int  # `host_timeout`, in seconds
    elastic: bool
    regroups: bool  # whether the framework agrees by itself on who takes part
    change = 0  # how often the spec was edited
    supervisor: Command | None = None
    unwritable = "*/counter/run"  # the folders of hosts where nothing can be written while the disk is full
    # From when to when nobody here could watch; without end until a supervisor starts.
    unwatched: list[tuple[float, float]]

    def kinds(self, *, etcd: bool) -> list[Mishap]:
        """Return all that can happen to this job."""
        single = [
            self.process_killed,
            self.launcher_killed,
            self.container_killed,
            self.engine_killed,
            self.power_cycled,
            self.host_lost,
            self.cable_out_for_a_moment,
            self.cable_out,
            self.supervisor_killed,
            self.controller_cut_off,
            self.rank_stands_still,
        ]
        double = [self.two_at_once, self.during_a_hand_over, self.disk_full]
        commands = [
            self.up_again,
            self.up_edited,
            self.checked,
            self.restarted,
            self.stopped_and_up,
            self.down_from_elsewhere,
            self.edited_while_an_engine_restarts,
        ]
        more = [self.etcd_member_killed, self.etcd_quorum_lost, self.process_killed_without_controller] if etcd else []
        return [*single, *double, *commands, *more, *([self.scaled] if self.elastic else [])]

    def trains_on(self) -> None:
        """Wait until it has made some more steps."""
        raise NotImplementedError

    def homes(self, *, trainers: bool = False) -> list[tuple[Host, int]]:
        """Where the nodes of the newest generation are, or only those that train."""
        hosts = {host.name: host for host in self.fleet.hosts}
        every = [m for m in self.order()["members"] if not trainers or "trainer" in m["roles"]]
        return [(hosts[member["host"]], member["node"]) for member in every]

    def moved_on(self, since: int) -> bool:
        """Say whether a generation after `since` has begun."""
        return self.generation() > since

    def failures(self) -> int:
        """How many failures were told of, by the supervisor of either machine."""
        return len(self.happened("failure")) + len(self.happened("failure", "second"))

    def generation(self) -> int:
        """The number of the newest generation."""
        return int(self.order()["number"])

    def container(self, host: Host, node: int) -> str:
        """The container of a node: that of the spare, if its launcher has taken the node over."""
        spare, own = "jobctl-counter-spare", f"jobctl-counter-{node}"
        return spare if spare in host.containers() and own not in host.containers() else own

    # One at a time.

    def process_killed(self, host: Host, node: int) -> None:
        inside = host.docker("top", self.container(host, node), "-eo", "pid,args", check=False).splitlines()
        pids = [int(line.split()[0]) for line in inside if line.split()[1:2] != [] and "counter.py" in line]
        # Not what waits beside it, which has the same command.
        reports = (host.home / ".jobctl").glob(f"*/counter/node-{node}/report.json")
        known = {process["pid"] for path in reports for process in json.loads(path.read_text()).get("processes", ())}
        training = [pid for pid in pids if pid_inside(pid) in known]
        if training:
            self.kill(training[-1])

    def kill(self, pid: int) -> None:
        """Kill a process, unless it has ended meanwhile; 0 is what an engine says of a container that does not run."""
        assert pid >= 0
        with contextlib.suppress(ProcessLookupError):
            if pid:
                os.kill(pid, signal.SIGKILL)

    def launcher_killed(self, host: Host, node: int) -> None:
        kill = "import os; os.kill(next(int(p) for p in os.listdir('/proc') if p.isdigit() and int(p) > 1), 9)"
        host.docker("exec", self.container(host, node), "python3", "-c", kill, check=False)

    def container_killed(self, host: Host, node: int) -> None:
        host.docker("kill", self.container(host, node), check=False)

    def engine_killed(self, host: Host, node: int) -> None:
        host.kill_engine()
        host.start_engine()
        host.wait_for_engine()

    def power_cycled(self, host: Host, node: int) -> None:
        host.power_off()
        host.power_on()

    def host_lost(self, host: Host, node: int) -> None:
        number = self.generation()
        host.power_off()
        eventually(lambda: self.moved_on(number))
        self.trains_on()
        host.power_on()

    def cable_out_for_a_moment(self, host: Host, node: int) -> None:
        host.pull_cable()
        time.sleep(self.chance.uniform(0.5, self.timeout - 2))
        host.plug_cable()

    def cable_out(self, host: Host, node: int) -> None:
        number = self.generation()
        host.pull_cable()
        eventually(lambda: self.moved_on(number))
        host.plug_cable()

    def supervisor_killed(self, host: Host, node: int) -> None:
        eventually(self.is_supervised)  # the one that was killed the last time may have no successor yet
        state = self.kill_supervisor()
        time.sleep(self.chance.uniform(0.0, 2.0 * self.timeout))
        self.supervisor = self.start("supervise", JOBCTL_STATE_DIR=str(state))

    def kill_supervisor(self) -> Path:
        """Kill the process that supervises the job, and return its state directory."""
        found = eventually(lambda: supervising(self.directory))
        assert found
        self.unwatched.append((time.time(), math.inf))
        self.kill(found[1])
        return found[0]

    def is_supervised(self) -> bool:
        """Say whether a supervisor runs."""
        return bool(json.loads(self.run("status", "-o", "json").stdout)["supervised"])

    def controller_cut_off(self, host: Host, node: int) -> None:
        with self.without_controller():
            time.sleep(self.chance.uniform(1.0, 3.0 * self.timeout))

    @contextlib.contextmanager
    def without_controller(self) -> Iterator[None]:
        """Take this machine off the hosts' network."""
        address, begun = f"10.{self.fleet.network}.0.254/24", time.time()
        subprocess.run(["ip", "addr", "del", address, "dev", self.fleet.bridge], check=True)
        try:
            yield
        finally:
            subprocess.run(["ip", "addr", "add", address, "dev", self.fleet.bridge], check=True)
            self.unwatched.append((begun, time.time()))

    def process_killed_without_controller(self, host: Host, node: int) -> None:
        with self.without_controller():
            time.sleep(5.0)
            self.process_killed(host, node)
            self.trains_on()

    def etcd_member_killed(self, host: Host, node: int) -> None:
        where, name = self.chance.choice(self.members())
        self.kill(int(where.docker("inspect", "--format", "{{.State.Pid}}", name)))

    def etcd_quorum_lost(self, host: Host, node: int) -> None:
        chosen = self.chance.sample(self.members(), 2)
        for where, name in chosen:
            where.docker("pause", name)
        time.sleep(self.chance.uniform(0.5, self.timeout - 4))
        for where, name in chosen:
            where.docker("unpause", name)

    def members(self) -> list[tuple[Host, str]]:
        """Where members of etcd run, and what their containers are called."""
        every = [(host, name) for host in self.fleet.hosts for name in host.containers() if "etcd" in name]
        return [
            (h, name) for h, name in every if h.docker("inspect", "--format", "{{.State.Pid}}", name).strip() != "0"
        ]

    def has_made_a_step(self, node: int) -> bool:
        """Whether a node trains in this generation, and not only others."""
        return any(one["node"] == node and one["progress"] is not None for one in self.status()["nodes"])

    def fails_or_moves(self, failures: int, generation: int) -> bool:
        """Whether there are more failures than those, or the job has left a generation."""
        return self.failures() > failures or self.moved_on(generation)

    def rank_stands_still(self, host: Host, node: int) -> None:
        before, stop = self.failures(), self.checkpoints / f"stop-{node}"
        while self.failures() == before:
            eventually(lambda: self.has_made_a_step(node))  # `hang_timeout` counts from there on
            number = self.generation()
            stop.touch()
            try:
                eventually(partial(self.fails_or_moves, before, number))
            except AssertionError:
                raise AssertionError(f"node {node} stands still, and nobody says so") from None
            finally:
                stop.unlink()

    # Two at a time.

    def instant(self) -> list[Mishap]:
        """Return the faults that take no time themselves."""
        return [self.process_killed, self.launcher_killed, self.container_killed, self.container_removed, self.blink]

    def container_removed(self, host: Host, node: int) -> None:
        host.docker("rm", "-f", self.container(host, node), check=False)

    def blink(self, host: Host, node: int) -> None:
        """Take its cable out for longer than a lease."""
        host.pull_cable()
        time.sleep(self.chance.uniform(self.timeout, 2.5 * self.timeout))
        host.plug_cable()

    def two_at_once(self, host: Host, node: int) -> None:
        self.chance.choice(self.instant()[:-1])(host, node)
        time.sleep(self.chance.uniform(0.0, 2.0))
        self.chance.choice(self.instant())(*self.another(host, node))

    def another(self, host: Host, node: int) -> tuple[Host, int]:
        """Return another node than that one, if there is one, and its host."""
        others = [(h, n) for h, n in self.homes() if h is not host]
        return self.chance.choice(others) if others else (host, node)

    def during_a_hand_over(self, host: Host, node: int) -> None:
        """Let something happen elsewhere the moment that a generation is on its way."""
        number = self.generation()
        self.process_killed(host, node)
        deadline = time.monotonic() + 60
        while self.generation() == number and time.monotonic() < deadline:
            time.sleep(0.01)
        self.chance.choice(self.instant())(*self.another(host, node))

    def disk_full(self, host: Host, node: int) -> None:
        """Let nothing be written on a host while a generation begins."""
        folders = list((host.home / ".jobctl").glob(self.unwritable))
        subprocess.run(["chattr", "+i", *map(str, folders)], check=True)
        try:
            self.process_killed(*self.another(host, node))
            time.sleep(self.chance.uniform(1.0, 3.0 * self.timeout))
        finally:
            subprocess.run(["chattr", "-i", *map(str, folders)], check=True)

    # What users do.

    def up_again(self, host: Host, node: int) -> None:
        self.command("up", *self.where)

    def edit(self) -> None:
        """Change the spec."""
        self.change += 1
        path = self.code / "job.yaml"
        lines = [line for line in path.read_text().splitlines() if not line.startswith("env:")]
        env = f"env: {{PYTHONPATH: /packages, OMP_NUM_THREADS: '1', CHANGE: '{self.change}'}}"
        path.write_text("\n".join([*lines, env]) + "\n")

    def up_edited(self, host: Host, node: int) -> None:
        self.edit()
        self.command("up", *self.where)

    def edited_while_an_engine_restarts(self, host: Host, node: int) -> None:
        self.edit()
        host.stop_engine()
        time.sleep(self.chance.uniform(0.0, 3.0))
        up = self.begin_up()
        time.sleep(self.chance.uniform(2.0, 12.0))
        host.start_engine()
        host.wait_for_engine()
        assert up.wait(400) in (0, 4), up.returncode

    def checked(self, host: Host, node: int) -> None:
        self.command("check", "job.yaml", *self.where)

    def restarted(self, host: Host, node: int) -> None:
        self.change_what_runs("restart", *self.chance.choice([(), ("--node", str(node))]))

    def scaled(self, host: Host, node: int) -> None:
        self.change_what_runs("scale", "counter", "2")
        self.trains_on()
        self.command("scale", "counter", "3")

    def stopped_and_up(self, host: Host, node: int) -> None:
        self.command("stop")
        self.command("up", *self.where)

    def down_from_elsewhere(self, host: Host, node: int) -> None:
        """Take it down as somebody does who knows its hosts only, while its supervisor lives; then bring it up."""
        mine = self.environ["JOBCTL_STATE_DIR"]
        self.environ["JOBCTL_STATE_DIR"] = str(self.directory / f"elsewhere-{self.change}")
        try:
            self.command("down", "counter", *self.where)
        finally:
            self.environ["JOBCTL_STATE_DIR"] = mine
        left = self.files()
        assert not left, left
        self.command("up", *self.where)


def pid_inside(pid: int) -> int | None:
    """Return the number that a process of this machine has in its container, None if it is gone."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[-1]) for line in file if line.startswith("NSpid:"))
    return None


def supervising(directory: Path) -> tuple[Path, int] | None:
    """Return the state directory and the process of a job's supervisor: that of the first machine, or of another one."""
    for lock in sorted(directory.glob("*/jobs/counter/supervisor.lock")):
        holder = read_holder(lock)
        if holder:
            return lock.parents[2], int(holder["pid"])
    return None
