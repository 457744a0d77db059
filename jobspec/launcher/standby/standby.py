"""What the next generation of a node is started from: processes that have imported everything, and wait.

Begun after the first step of a generation, one process after another, so that it takes nothing from what trains or loads;
used once, and begun again after that. Whatever is not as it should be, the next start is a cold one, and says why.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.process.guard import spawn
from jobctl.jobspec.launcher.report.node_report import StandbyState
from jobctl.jobspec.launcher.standby.guard import differing, write_hook
from jobctl.jobspec.launcher.standby.messages import (
    FrameworkStart,
    GuardStart,
    NodePreparation,
    StandbyNews,
)
from jobctl.jobspec.launcher.standby.processes import ParkedProcesses, send
from jobctl.jobspec.launcher.system.bytecode import program_for
from jobctl.jobspec.launcher.system.files import files_in, note
from jobctl.jobspec.launcher.system.pipe import MessagePipe
from jobctl.jobspec.launcher.system.processes import forward_signal, start_ticks

if TYPE_CHECKING:
    from typing import Callable, Iterator, List, Optional, Sequence, Tuple, Union

    from jobctl.jobspec.launcher.order.launch import Launch
    from jobctl.jobspec.launcher.run.environment import Environment
    from jobctl.jobspec.launcher.standby.processes import Trained

    ParkedNode = Union["Parked", ParkedProcesses]
IMPORTS_TIMEOUT = 600.0  # seconds that all imports of a node may take
MISSED = 3  # times that a standby may not come to be, or end by itself
STANDBY_RETRY_AFTER = 10.0  # seconds after which it is begun again then
ROOM = 1.5  # times what the framework's launcher takes is what a rank may take: it has imported more
# Bytes that the first import takes at most, where nothing tells yet; frameworks take 0.15 to 0.4 GB
MAX_FIRST_IMPORT_BYTES = 1 << 30
MIN_FREE_MEMORY_SHARE = 0.05  # of all memory: with less left a standby ends
AFTER_FIRST_STEP = "it is begun after the first step"
UNSUITABLE = "there is none for `command`"


class Parked:
    """The framework's launcher that waits, with the guards of its ranks. Raises OSError."""

    def __init__(self, run: Trained) -> None:
        environment, launch = run.environment, run.launch
        wanted, python = launch.standby, environment.argv(launch.start)[0]
        assert wanted is not None
        hook = os.path.join(run.folders.node, "standby")
        write_hook(hook, os.path.abspath(__file__))
        environs, apart, trial = run.surroundings()
        self.environ = dict(environment.environ)
        self.ready = False
        ours, theirs = socket.socketpair()
        self.pipe = MessagePipe(ours)
        with open(os.path.join(run.folders.node, "logs", "standby.log"), "wb") as log:
            self.process = spawn(
                [python, program_for(python, self.environ.get("PATH"), environment.program), "parked-launcher"],
                {**self.environ, "JOBCTL_STANDBY": json.dumps({"fd": theirs.fileno()})},
                launch.workdir,
                log.fileno(),
                [theirs.fileno()],
            )
        theirs.close()
        self.ticks = start_ticks(self.pid)
        guard = [*environment.shim()[:-1], "parked"]
        names = (wanted.launcher, environment.rank_names[1])
        how = (wanted.imports, apart, *names, trial, wanted.changing, wanted.meets)
        node = NodePreparation(environs, guard, launch.command, hook, *how)
        self.pipe.send(node.to_json())

    @property
    def pid(self) -> int:
        """The pid of the framework's launcher."""
        return self.process.pid

    def heard(self) -> List[StandbyNews]:
        """Return what it has said since."""
        self.pipe.flush()
        return [StandbyNews.from_json(said) for said in self.pipe.receive()]

    @property
    def imports(self) -> bool:
        """Whether it is not ready yet."""
        return not self.ready

    @property
    def ended(self) -> bool:
        """Whether it has ended by itself."""
        return self.pipe.closed

    def end(self) -> None:
        """Kill it: what is below it ends with it."""
        if start_ticks(self.pid) == self.ticks:  # else it was reaped, and the number may be another's
            forward_signal(self.pid, signal.SIGKILL)
        self.pipe.socket.close()

    def hand_over(self, argv: Sequence[str], environment: Environment, log: str) -> bool:
        """Have it run; say whether it could be told."""
        given = argv[3:], environment.guard(), environment.environ, log, environment.gathering()
        return send(self.pipe, FrameworkStart(*given))

    def pids(self) -> List[int]:
        """Return its pid: all else is below it."""
        return [self.pid]

    def price(self) -> Optional[int]:
        """Return None: all begin at once."""
        return None

    def go_on(self) -> None:
        """Begin nothing further."""


def begin_waiting(run: Trained) -> ParkedNode:
    """Begin what waits for the generation after `run`. Raises OSError."""
    return Parked(run) if run.launch.start else ParkedProcesses(run)


class Standby:
    """When a node's standby begins, is used and ends; `state` is for the report."""

    def __init__(
        self,
        launch: Launch,
        begin: Callable[[Trained], ParkedNode] = begin_waiting,
        clock: Callable[[], float] = time.monotonic,
        memory: Optional[Callable[[], Tuple[int, int]]] = None,
    ) -> None:
        wanted = launch.standby
        self.off: Optional[str] = UNSUITABLE if wanted is None else wanted.off or None
        self.changing: Sequence[str] = () if wanted is None else wanted.changing
        self.begin, self.clock, self.memory = begin, clock, memory or free_memory
        self.parked: Optional[ParkedNode] = None
        self.begun = self.not_before = 0.0
        self.missed = 0  # since one was used: a job may run for months
        self.waits = AFTER_FIRST_STEP
        self.workdir = launch.workdir
        self.folder: Optional[Tuple[int, int]] = None  # what that was when what waits was begun
        self.used = False  # whether a generation was started before
        self.short = False  # whether it is off for want of memory, which the next generation may have
        self.cold_because: Optional[str] = None  # why the last start was a cold one

    def state(self) -> StandbyState:
        """Return how it is, for the report."""
        if self.off is not None:
            return StandbyState("off", self.off)
        if self.parked is None:
            return StandbyState("warming", self.waits)
        return StandbyState("ready" if self.parked.ready else "warming")

    def pids(self) -> List[int]:
        """Return what outlives a generation."""
        return [] if self.parked is None else self.parked.pids()

    def look(self, run: Trained, running: bool) -> None:
        """See how it is, and begin it where it is time to; `running`: all processes are, and load nothing any more."""
        now = self.clock()
        try:
            if self.parked is not None:
                self.hear(self.parked, now)
                self.go_on(run, running and now >= self.not_before, now)
            elif self.off is None and running and now >= self.not_before:
                self.begin_for(run, now)
        except OSError as error:  # the generation may be ending just now
            self.miss(now, str(error))
        except Exception as error:  # whatever it is, what trains must not end because of what waits
            self.give_up("%s: %s" % (type(error).__name__, error))

    def hear(self, parked: ParkedNode, now: float) -> None:
        """Take note of what it says, and of how it is."""
        for said in parked.heard():
            if said.off is not None:
                self.give_up(said.off)
                return
            parked.ready = True
        if parked.ended:
            self.drop()
            self.miss(now, "it has ended by itself")
        elif parked.imports and now - self.begun > IMPORTS_TIMEOUT:
            self.give_up("its imports take longer than %d s" % IMPORTS_TIMEOUT)
        elif self.is_short():
            self.do_without("memory is short")

    def go_on(self, run: Trained, may_begin: bool, now: float) -> None:
        """Begin what is missing of it, one process after another, as long as there is memory and none went on cold."""
        needs = self.parked.price() if self.parked is not None and may_begin else None
        if self.parked is None or needs is None:
            return
        if self.may_take(run, needs):
            self.begun = now
            self.parked.go_on()

    def miss(self, now: float, why: str) -> None:
        """Try again later, but not for ever."""
        self.missed += 1
        self.not_before = now + STANDBY_RETRY_AFTER
        if self.missed >= MISSED:
            self.give_up("%s, %d times" % (why, self.missed))

    def is_short(self) -> bool:
        """Say whether the job needs the memory more."""
        free, whole = self.memory()
        return free < whole * MIN_FREE_MEMORY_SHARE

    def begin_for(self, run: Trained, now: float) -> None:
        """Begin one for what follows `run`, unless something speaks against it."""
        taken = run.footprint()
        needs = taken * (1 + ROOM * run.launch.nproc) if run.launch.start else min(taken, MAX_FIRST_IMPORT_BYTES)
        if self.may_take(run, needs):
            self.folder = identity(self.workdir)
            self.parked, self.begun = self.begin(run), now

    def may_take(self, run: Trained, needs: float) -> bool:
        """Say whether one may take so much memory; have none any more if not."""
        why, short = refused(run.folders.records), self.too_much(needs)
        if why is not None:
            self.give_up(why)
        elif short is not None:
            self.do_without(short)
        return self.off is None

    def too_much(self, needs: float) -> Optional[str]:
        """Say why it cannot take so much memory, None if it can."""
        free, whole = self.memory()
        if free - needs >= whole * 2 * MIN_FREE_MEMORY_SHARE:
            return None
        return "it takes about %d MB of memory, and %d MB are free" % (needs / 1e6, free / 1e6)

    def heed(self, run: Trained) -> None:
        """Have none any more if a rank of a generation that has ended could not go on from standby."""
        with contextlib.suppress(OSError):
            why = refused(run.folders.records)
            if why is not None and self.off is None:
                self.give_up(why)

    def give_up(self, why: str) -> None:
        """Have none any more."""
        note("standby is off: %s" % why)
        self.drop()
        self.off = why

    def do_without(self, why: str) -> None:
        """Have none in this generation."""
        self.give_up(why)
        self.short = True

    def forget_shortage(self) -> None:
        """Try again in the generation that begins, if there was no memory in the last one."""
        if self.short:
            self.off, self.short = None, False

    def drop(self) -> None:
        """End it."""
        if self.parked is not None:
            self.parked.end()
            self.parked = None

    def take(self, argv: Sequence[str], environment: Environment, log: str) -> Optional[Parked]:
        """Return what now runs the generation; None where it has to be started cold, for the reason `cold_because`."""
        parked, self.parked = self.parked, None
        assert not isinstance(parked, ParkedProcesses)
        self.cold_because = self.unfit(parked, environment)
        self.used, self.waits, self.folder = True, AFTER_FIRST_STEP, None
        self.forget_shortage()
        if parked is not None and self.cold_because is None:
            if parked.hand_over(argv, environment, log):
                self.missed = 0
                return parked
            self.cold_because = "standby does not answer"
        if parked is not None:
            parked.end()
        return None

    def unfit(self, parked: Optional[Parked], environment: Environment) -> Optional[str]:
        """Say why the next generation cannot be started from what there is."""
        why = self.unusable()
        if why is not None:
            return why
        if parked is None or not parked.ready or parked.heard() or parked.ended:
            return "standby was not ready"
        name = differing(parked.environ, environment.environ, self.changing)
        return "the variable %s has changed" % name if name else None

    def unusable(self) -> Optional[str]:
        """Say why the next start is cold whatever waits."""
        if self.off is not None:
            return "standby is off: %s" % self.off
        if self.folder is not None and self.folder != identity(self.workdir):
            return "the working directory has been replaced"
        return None if self.used else "it is the first start of this launcher"

    def take_process(self, local: int, start: GuardStart) -> Tuple[Optional[int], Optional[str]]:
        """Return the pid of the guard that now runs a process; where it has to be started cold, None and why."""
        why, process = self.unusable(), None
        if isinstance(self.parked, ParkedProcesses):
            process = self.parked.take(local)
            self.not_before = self.clock() + STANDBY_RETRY_AFTER  # the others go on where one alone begins again
        if why is None and (process is None or not process.waits()):
            why = "standby was not ready"
        if process is not None and why is None:
            if send(process.pipe, start):
                self.missed = 0
                return process.pid, None
            why = "standby does not answer"
        if process is not None:
            process.end()
        return None, why

    def begin_anew(self) -> None:
        """Take note that all processes of a generation have been started: what still waits is not for the next one."""
        self.used, self.waits, self.not_before, self.folder = True, AFTER_FIRST_STEP, 0.0, None
        self.forget_shortage()
        self.drop()


def identity(folder: Optional[str]) -> Optional[Tuple[int, int]]:
    """Return what tells a folder, by default this process's own, from a later one of its path; None if there is none."""
    try:
        found = os.stat(folder or ".")
    except OSError:
        return None
    return found.st_dev, found.st_ino


def refused(records: str) -> Optional[str]:
    """Return why a rank that was started from standby went on cold, None if none did."""
    for path in files_in(records):
        if path.endswith(".cold"):
            with open(path, encoding="utf-8") as file:
                return file.read()
    return None


def free_memory() -> Tuple[int, int]:
    """Return how much memory is free for this node, and how much it may have at most, in bytes."""
    with open("/proc/meminfo") as file:
        lines = dict(line.split(":") for line in file)
    free, whole = (int(lines[name].split()[0]) << 10 for name in ("MemAvailable", "MemTotal"))
    machine = whole
    for limit, used, cached in memory_groups():
        try:
            with open(limit) as file:
                most = int(file.read())  # not a number where there is no limit
            with open(used) as file:
                taken = int(file.read())
            with open(cached) as file:
                stat = dict(line.split() for line in file)
        except (OSError, ValueError):
            continue
        if most < machine:
            # Both: what is read again and again, as in each epoch, is active.
            files = [stat.get("total_" + name, stat.get(name, "0")) for name in ("inactive_file", "active_file")]
            free, whole = min(free, most - taken + sum(map(int, files))), min(whole, most)
    return free, whole


def memory_groups(own: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> Iterator[Tuple[str, ...]]:
    """Yield limit, use and statistics, as files, of each group that this process may be in: of a container, or of Slurm or systemd.

    A container may see the whole machine's path of its group, and have its own group at the root.
    """
    with contextlib.suppress(OSError, ValueError), open(own) as file:
        for line in file:
            _, controllers, group = line.rstrip("\n").split(":", 2)
            kind = CGROUPS.get("memory" if "memory" in controllers.split(",") else controllers)
            while kind is not None:
                yield tuple(root + os.path.join(kind[0] + group, name) for name in kind[1:])
                if group in ("/", ""):
                    break
                group = os.path.dirname(group)


# Where the groups of memory are, and their files for limit, use and statistics, by controllers: of cgroups 2, and 1.
CGROUPS = {
    "": ("", "memory.max", "memory.current", "memory.stat"),
    "memory": ("/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"),
}
