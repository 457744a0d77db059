"""One generation's processes."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.failure import Failure, Problem, fenced
from jobctl.jobspec.launcher.order.control import overview
from jobctl.jobspec.launcher.process.guard import (
    cannot_start,
    fork_guard,
    kill_user_processes,
    process_guard,
    spawn,
)
from jobctl.jobspec.launcher.process.record import ProcessRecord, environs_of_guards, latest_record
from jobctl.jobspec.launcher.report.node_report import StartWay
from jobctl.jobspec.launcher.report.progress import Hang
from jobctl.jobspec.launcher.run.environment import Environment, Folders
from jobctl.jobspec.launcher.run.scratch import remove_tree
from jobctl.jobspec.launcher.run.stacks import Stacks, frames, innermost
from jobctl.jobspec.launcher.run.verdict import Verdict
from jobctl.jobspec.launcher.standby.guard import resident
from jobctl.jobspec.launcher.standby.messages import GuardStart
from jobctl.jobspec.launcher.system.files import naming, note
from jobctl.jobspec.launcher.system.network import answers
from jobctl.jobspec.launcher.system.processes import boot_time, forward_signal, reap, signal_group

if TYPE_CHECKING:
    import subprocess
    from typing import Callable, Dict, List, Optional, Sequence, Set, Tuple

    from jobctl.jobspec.launcher.node.agent import Launcher
    from jobctl.jobspec.launcher.order.order import Member, Order
    from jobctl.jobspec.launcher.report.node_report import ProgressChanges
    from jobctl.jobspec.launcher.standby.messages import Trial
SETTLED = 60.0  # seconds after which a generation that counts no steps is taken to train
OWN_WAY = "the framework's launcher starts processes in a way of its own"
FAILED_GRACE = 2.0  # seconds that the siblings of a failed process get between SIGTERM and SIGKILL
NCCL_RECORDS = "/tmp/nccl_trace_rank_"  # default of TORCH_NCCL_DEBUG_INFO_TEMP_FILE


class Run:
    """The processes of one generation on this node."""

    def __init__(self, launcher: Launcher, order: Order, member: Member) -> None:
        self.launch, self.order, self.standby, self.lease = launcher.launch, order, launcher.standby, launcher.lease
        self.folders = Folders(launcher.dir, order.number)
        self.environment = Environment(launcher, order, member, self.folders)
        self.until = {m.node for m in order.of_role(self.launch.until)}
        self.after = order.endpoints(self.launch.after)  # those that have not answered yet
        others = {m.node for m in order.members if "trainer" not in m.roles}
        self.serving = others if self.launch.role == "trainer" else set()
        self.again: Dict[int, List[Failure]] = {}  # why processes were started again, by local rank
        self.ended: Dict[int, Tuple[int, float]] = {}  # pid of a child: exit code, when
        self.began = time.monotonic()
        self.processes: List[ProcessRecord] = []
        self.hang = Hang(self.launch.hang_timeout)
        self.progress_at: Optional[float] = None  # when there was progress last, by the clock on the wall
        self.stacks: Dict[int, str] = {}  # where processes stood when they were called hung, by local rank
        self.children: List[int] = []  # their pids
        self.way: Optional[StartWay] = None  # whether they were started from standby
        self.cold_because: Optional[str] = None
        self.framework: Optional[subprocess.Popen[bytes]] = None  # kept: `subprocess` would reap one that is let go
        path = os.path.join(self.folders.logs, "launch.log")
        with naming(path), open(path, "a", encoding="utf-8") as log:
            log.write(overview(order, self.launch))
            log.flush()
            self.verdict = Verdict(self, log.tell())
        self.go_on()

    # Starting.

    def start(self) -> List[int]:
        """Start the framework's launcher, or each process under its guard; return the pids. Raises Problem."""
        if not self.launch.start:
            pids = [self.start_process(local) for local in range(self.launch.nproc)]
            self.standby.begin_anew()
            return pids
        argv = self.environment.argv(self.launch.start)
        path = os.path.join(self.folders.logs, "launch.log")
        waiting = self.standby.take(argv, self.environment, path)
        self.cold_because = self.standby.cold_because
        if waiting is not None:
            self.framework = waiting.process
            return [waiting.pid]
        with open(path, "ab") as log:
            try:
                self.framework = spawn(argv, self.environment.environ, self.launch.workdir, log.fileno())
            except OSError as error:
                raise cannot_start(argv[0], error) from error
        return [self.framework.pid]

    def start_process(self, local: int) -> int:
        """Start process `local` under its guard, whose own words go to launch.log; return its pid. Raises Problem."""
        path = os.path.join(self.folders.logs, "launch.log")
        task, environ = self.environment.task(), self.environment.process_environ(local)
        given = {**environ, "JOBCTL_PROCESS": json.dumps(task.to_json())}
        pid, why = self.standby.take_process(local, GuardStart(given, path, self.environment.meets(local)))
        if pid is not None:
            return pid
        self.cold_because = why
        with open(path, "ab") as log:
            try:
                return fork_guard(functools.partial(process_guard, task, environ), self.launch.workdir, log.fileno())
            except OSError as error:
                raise cannot_start(self.launch.command[0], error) from error

    def go_on(self) -> None:
        """Start the processes as soon as what they need answers. Raises Problem."""
        while self.after and answers(self.after[0]):
            self.after.pop(0)
        if self.after or self.children:
            return
        if not self.lease.held(boot_time()):  # looking up the names of hosts has taken long
            raise Problem(self.lease.why_over(), fenced())
        self.children = self.start()

    def waits(self) -> Optional[str]:
        """Say what the processes wait for before they start, None if they have."""
        role = self.launch.after
        return "waits for %s %s" % (role, self.after[0]) if self.after else None

    def start_again(self, failure: Failure) -> None:
        """Start the process of that failure again. Raises Problem."""
        local = int(failure.local_rank or 0)
        failure.step = self.hang.steps_of.get(local)
        self.again.setdefault(local, []).append(failure)
        os.unlink(os.path.join(self.folders.records, "%d.json" % local))
        self.ended.pop(self.children[local], None)
        self.children[local] = self.start_process(local)
        self.look()
        self.hang.at = self.progress_at = None  # as in `look`: it may load for long

    # Looking.

    def look(self) -> bool:
        """Take note of what has ended and what was written; say whether anything changed."""
        now = time.time()
        for pid, code in reap().items():
            self.ended[pid] = (code, now)
        processes = self.read_processes()
        if processes != self.processes and any(process.exit_code for process in processes):
            # One may have ended after its record was read, and made another one fail before the record of that was.
            processes = self.read_processes()
        changed, before = processes != self.processes, self.restarts()
        self.processes = processes
        if changed:
            self.keep_files()
        # After the states: what has ended has made its last step.
        progress = self.hang.look(self.folders.progress, time.monotonic())
        if progress:
            self.progress_at = now
        # After the steps, the last of which may be of the process before: loading may take long, the next time too.
        if self.restarts() > before:
            self.hang.at = self.progress_at = None
        for process in processes:
            process.step = self.hang.steps_of.get(process.local_rank)
            process.own_seconds = self.paces().get(process.local_rank)
        return progress or changed

    def read_processes(self) -> List[ProcessRecord]:
        """Return the states of all processes, one after the other."""
        return [self.process(local) for local in range(self.launch.nproc)]

    def process(self, local: int) -> ProcessRecord:
        """Return the state of one process, as its guard wrote it down."""
        record, is_left = latest_record(os.path.join(self.folders.records, "%d.json" % local))
        process = record or ProcessRecord(local)
        if process.rank is None:
            process.rank = self.environment.first_rank + local
        process.device = self.launch.devices[local] if local < len(self.launch.devices) else None
        # As of the last look.
        process.step, process.own_seconds = self.hang.steps_of.get(local), self.paces().get(local)
        stack = self.stacks.get(local, "")
        process.where, process.stack = innermost(stack), frames(stack)
        if is_left:
            # Its guard was killed with it and could not say how it ended.
            process.state, process.exit_code, process.signal = "failed", 137, 9
            process.finished_at = process.finished_at or time.time()
        return process

    def keep_files(self) -> None:
        """Copy what is worth keeping of what the framework's launcher writes into memory."""
        if not self.launch.kept:
            return
        import glob
        import shutil

        for pattern in self.launch.kept:
            for path in glob.glob(os.path.join(glob.escape(self.environment.scratch), pattern)):
                with contextlib.suppress(OSError):
                    shutil.copy(path, self.folders.logs)

    def restarts(self) -> int:
        """Return how often the framework's launcher has started processes again."""
        return sum(max(0, process.starts - 1) for process in self.processes)

    def paces(self) -> Dict[int, float]:
        """Return how long processes need by themselves in each step, at least, by local rank, where that is known."""
        known = {local: pace.least for local, pace in self.hang.paces.items()}
        return {local: least for local, least in known.items() if least is not None}

    def paces_of_ranks(self) -> Dict[int, float]:
        """Return the same by rank."""
        known = self.paces()
        return {p.rank: known[p.local_rank] for p in self.processes if p.rank is not None and p.local_rank in known}

    def progress_fields(self) -> ProgressChanges:
        """Return progress for the report."""
        return {"progress": self.hang.progress, "progress_at": self.progress_at}

    def stands_still(self) -> bool:
        """Say whether there was no progress for so long that it may become a hang."""
        return self.hang.at is not None and time.monotonic() - self.hang.at > self.hang.limit() / 2

    def write_stacks(self, pause: Callable[[float], bool]) -> None:
        """Write the stack of each process (logs/stack.N), for the person who asks why nothing moved."""
        stacks = Stacks(self, pause)
        stacks.look()
        stacks.freeze()
        stacks.abort()

    def keep_stack(self, local: int, text: str) -> None:
        """Write down where one process stands."""
        self.stacks[local] = text
        path = os.path.join(self.folders.logs, "stack.%d" % local)
        try:
            with open(path + ".new", "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(path + ".new", path)
        except OSError as error:
            note("cannot write %s: %s" % (path, error))

    def keep_recorder(self) -> None:
        """Keep what NCCL's flight recorder has written, where it is switched on."""
        import glob
        import shutil

        for path in glob.glob(self.environment.environ.get("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", NCCL_RECORDS) + "*"):
            with contextlib.suppress(OSError):
                if os.stat(path).st_uid == os.getuid():  # in /tmp, those of other users' jobs have the same names
                    shutil.copy(path, self.folders.logs)

    def trains(self) -> bool:
        """Say whether all processes run, and load nothing any more as far as that can be told."""
        settled = time.monotonic() - self.began > SETTLED
        running = bool(self.processes) and all(process.state == "running" for process in self.processes)
        return running and (self.hang.progress is not None or settled)

    def start_way(self) -> Optional[StartWay]:
        """Say whether all processes were started from standby, and if not, why; None before all have been started."""
        begun = bool(self.processes) and all(process.pid is not None for process in self.processes)
        if self.way is None and begun:  # one that is started again later does not change it
            whys = [process.guard_cold for process in self.processes if not process.guard_standby]
            because = next(filter(None, whys), self.cold_because or OWN_WAY) if whys else None
            self.way = StartWay(not whys, because)
        return self.way

    def footprint(self) -> int:
        """Return how much memory the framework's launcher takes, or the first process where there is none, in bytes."""
        return resident(self.children[0] if self.launch.start else self.processes[0].pid or 0)

    def surroundings(self) -> Tuple[List[Dict[str, str]], bool, Optional[Trial]]:
        """Return the environments of guards, whether each leads a session, and None: nothing has to be tried. Raises OSError."""
        nproc, names = self.launch.nproc, self.environment.rank_names
        return (*environs_of_guards(self.folders.records, nproc, names[1]), None)

    # Ending.

    def end(self, grace: float, number: int, pause: Callable[[float], bool]) -> None:
        """Signal all children's sessions, and give them `grace` seconds."""
        living = [child for child in self.children if child not in self.ended]
        held, told = grace > 0 and self.hold(living), set(living)
        for pid in living if grace > 0 and not held else ():
            signal_group(pid, number)
        deadline = time.monotonic() + grace
        # Grace is for the users' processes: torchrun takes a second to write its own report once they are gone.
        while any(child not in self.ended for child in living) and not self.all_ended(held):
            for pid in self.guards() - told if held else ():
                signal_group(pid, number)
                told.add(pid)
            if time.monotonic() >= deadline or not pause(0.02):
                break
            self.look()
        kill_user_processes(self.processes)
        self.wait_for_records(pause)

    def hold(self, living: Sequence[int]) -> bool:
        """Hold a framework's launcher still that gives each process a session of its own, and has begun one; say whether it is.

        Of msrun, as soon as one has ended, all would get SIGKILL. Paddle's launcher would first take up to half a second to
        close its port, and then signal one after the other, up to three times (paddle/distributed/launch/utils/
        process_context.py): the eighth, four seconds later.
        """
        if not self.launch.apart:
            return False
        for child in living:
            forward_signal(child, signal.SIGSTOP)
        self.look()  # one may have begun since
        if self.guards():
            return True
        for child in living:
            forward_signal(child, signal.SIGCONT)
        return False

    def guards(self) -> Set[int]:
        """Return the guards of processes that run, each of which leads the session of its process."""
        return {p.guard_pid for p in self.processes if p.state == "running" and p.guard_pid and p.has_guard()}

    def tidy_up(self) -> None:
        """Remove what all nodes of the generation shared."""
        if self.environment.shared:
            remove_tree(self.environment.shared)

    def all_ended(self, held: bool) -> bool:
        """Say whether all of the users' processes have ended, by their guards' records; what is `held` begins no more."""
        over = ("exited", "failed", "pending") if held else ("exited", "failed")
        return bool(self.processes) and all(p.state in over for p in self.processes)

    def wait_for_records(self, pause: Callable[[float], bool]) -> None:
        """Give the guards a moment to write down how their processes ended."""
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            self.look()
            if not any(p.state == "running" for p in self.processes):
                return
            pause(0.01)
