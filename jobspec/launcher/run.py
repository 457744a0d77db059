"""One generation's processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.control import endpoints, fill, log_of, of_role, overview
from jobctl.jobspec.launcher.failure import Failure, hint_of
from jobctl.jobspec.launcher.files import last_lines, note, read_json
from jobctl.jobspec.launcher.log_files import Lookout
from jobctl.jobspec.launcher.network import answers, in_numbers, interface_of, is_scrubbed, pass_by_proxies, port_range
from jobctl.jobspec.launcher.process_guard import (
    cannot_start,
    fork_guard,
    kill_user_processes,
    process_guard_lives,
    spawn,
)
from jobctl.jobspec.launcher.processes import FROM_OUTSIDE, forward, reap, signal_group, signal_name, start_ticks
from jobctl.jobspec.launcher.progress import Hang
from jobctl.jobspec.launcher.restart_policy import SETTLE
from jobctl.jobspec.launcher.scratch import make_scratch, make_shared, remove_tree
from jobctl.jobspec.launcher.stacks import Stacks, frames, innermost

if TYPE_CHECKING:
    import subprocess
    from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

    from jobctl.jobspec.launcher.agent import Launcher
    from jobctl.jobspec.launcher.files import Json
FAILED_GRACE = 2.0  # seconds that the siblings of a failed process get between SIGTERM and SIGKILL
NCCL_RECORDS = "/tmp/nccl_trace_rank_"  # default of TORCH_NCCL_DEBUG_INFO_TEMP_FILE


class Run:
    """The processes of one generation on this node."""

    def __init__(self, launcher: Launcher, order: Json, member: Json) -> None:
        self.launch, self.order, self.member, self.program = launcher.launch, order, member, launcher.program
        self.generation: int = order["number"]
        self.logs = os.path.join(launcher.dir, "logs", str(self.generation))
        self.progress_dir = os.path.join(launcher.dir, "progress", str(self.generation))
        self.record_dir = os.path.join(launcher.dir, "processes", str(self.generation))
        for folder in (self.progress_dir, self.record_dir):
            remove_tree(folder)  # of another generation of this number
        for folder in (self.logs, self.progress_dir, self.record_dir):
            os.makedirs(folder, exist_ok=True)
        peers = of_role(order, self.launch["role"])
        self.first_rank = sum(m["nproc"] for m in peers if m["rank"] < member["rank"])
        self.until = {m["node"] for m in of_role(order, self.launch.get("until"))}
        self.after = endpoints(order, self.launch.get("after"))  # those that have not answered yet
        others = {m["node"] for m in order["members"] if "trainer" not in m["roles"]}
        self.serving = others if self.launch["role"] == "trainer" else set()
        self.because: Optional[str] = None  # why the framework's launcher has started processes again
        self.again: Dict[int, List[Failure]] = {}  # why processes were started again, by local rank
        self.rank_names = self.launch.get("rank_env", ("RANK", "LOCAL_RANK"))
        in_memory = {"slot": "scratch"} in self.launch["start"]
        self.scratch = make_scratch(launcher.dir) if in_memory else ""
        self.shared = make_shared(order) if {"slot": "shared_scratch"} in [v for _, v in self.launch["env"]] else ""
        self.slots = self.fill_slots()
        self.environ = self.make_environ(launcher.secret_values())
        self.ended: Dict[int, Tuple[int, float]] = {}  # pid of a child: exit code, when
        self.processes: List[Json] = []
        self.hang = Hang(self.launch["hang_timeout"])
        self.progress_at: Optional[float] = None  # when there was progress last, by the clock on the wall
        self.stacks: Dict[int, str] = {}  # where processes stood when they were called hung, by local rank
        self.children: List[int] = []  # their pids
        self.framework: Optional[subprocess.Popen[bytes]] = None  # kept: `subprocess` would reap one that is let go
        with open(os.path.join(self.logs, "launch.log"), "a", encoding="utf-8") as log:
            log.write(overview(order, self.launch))
            log.flush()
            self.own_lines = log.tell()  # what follows is the framework's launcher's
        self.lookout = Lookout(log.name, self.own_lines, self.launch)
        self.go_on()

    # Slots and environment.

    def fill_slots(self) -> Dict[str, str]:
        """Return what only the generation knows, by the names of plan.types.SlotName."""
        order = self.numbered = in_numbers(self.order)
        member = next(m for m in order["members"] if m["node"] == self.member["node"])
        meeting = order["rendezvous"]
        peers = of_role(order, self.launch["role"])
        servers, scheduler = endpoints(order, "server"), (endpoints(order, "scheduler") or [":"])[0].rpartition(":")
        return {
            "address": member["address"],
            "checkpoint_dir": order.get("checkpoint_dir") or "",
            "generation": str(self.generation),
            "interface": self.launch["interface"] or interface_of(member["address"]) or "",
            "job_size": str(sum(m["nproc"] for m in order["members"])),
            "log_dir": self.logs,
            "master": "%s:%s" % (meeting["address"], meeting["port"]),
            "master_addr": meeting["address"],
            "master_port": str(meeting["port"]),
            "nnodes": str(len(peers)),
            "node_rank": str([m["node"] for m in peers].index(member["node"])),
            "port_range": port_range(order["job"], member["node"]),
            "etcd_job": "%s.%d." % (order["job"], order.get("began", 0.0)),
            "rdzv_id": meeting["id"],
            "run_id": order["run_id"],
            "scratch": self.scratch,
            "scheduler_address": scheduler[0],
            "scheduler_port": scheduler[2],
            "shared_scratch": self.shared,
            "server_addresses": ",".join(m["address"] for m in of_role(order, "server")),
            "server_port": servers[0].rpartition(":")[2] if servers else "",
            "servers": ",".join(servers),
            "trainer_count": str(sum(m["nproc"] for m in of_role(order, "trainer"))),
            "trainers": ",".join(endpoints(order, "trainer")),
            "world_size": str(sum(m["nproc"] for m in peers)),
        }

    def make_environ(self, secrets: Dict[str, str]) -> Dict[str, str]:
        """Return the environment of every process; the user's own values win over the interface's name."""
        order, launch = self.order, self.launch
        environ = {name: value for name, value in os.environ.items() if not is_scrubbed(name, launch.get("scrub", ()))}
        interface = self.slots["interface"]
        for name in launch["interface_env"]:
            if interface and name not in environ:
                environ[name] = interface
        environ.update({name: self.value(value) for name, value in launch["env"]})
        environ.update(secrets)
        environ.update(
            JOBCTL_JOB=order["job"],
            JOBCTL_RUN_ID=order["run_id"],
            JOBCTL_NODE=str(launch["node"]),
            JOBCTL_NODES=str(len(order["members"])),
            JOBCTL_ROLE=launch["role"],
            JOBCTL_GENERATION=str(self.generation),
        )
        if self.slots["checkpoint_dir"]:
            environ["JOBCTL_CHECKPOINT_DIR"] = self.slots["checkpoint_dir"]
        meeting = [
            endpoint.rpartition(":")[0].strip("[]") for endpoint in (launch.get("etcd") or {}).get("endpoints", ())
        ]
        nodes = [m["address"] for m in (*self.numbered["members"], *order["members"])]
        pass_by_proxies(environ, [*nodes, *meeting])
        if self.launch["start"]:
            environ["JOBCTL_PROCESS"] = json.dumps(self.task())
        return environ

    def task(self) -> Json:
        """Return what the guard of a process has to know."""
        return {
            "command": self.launch["command"],
            "logs": self.logs,
            # Whoever runs pods reads what their first process prints, and nothing else.
            "echo": "/proc/%d/fd/1" % os.getpid() if self.launch.get("circle") else None,
            "progress": self.progress_dir,
            "records": self.record_dir,
            "name": self.launch["log_name"],
            "ranks": self.rank_names,
            "elsewhere": self.launch.get("elsewhere"),
        }

    def value(self, value: Any) -> str:
        """Return a value of the plan: text as it is, a slot filled."""
        return fill(value, self.slots)

    def argv(self, values: Sequence[Any]) -> List[str]:
        """Return an argv of the plan; the slot `process` becomes the guard of one process."""
        # A launcher that chooses the interpreter by itself does so by the name's ending: that gets the source.
        prefixes = {"process": self.shim(), "process_script": [os.path.abspath(__file__), "process"]}
        argv: List[str] = []
        for value in values:
            slot = value["slot"] if isinstance(value, dict) else None
            argv += prefixes[slot] if slot in prefixes else [self.value(value)]
        return argv

    def shim(self) -> List[str]:
        """Return the argv that runs one process under a guard of its own; what it runs is in JOBCTL_PROCESS.

        Not in argv, because torchrun's parser takes a user's `--log` or `--node` for an abbreviation of its own
        options, even behind the script.
        """
        return [sys.executable, "-S", "-E", self.program, "process"]

    # Starting.

    def start(self) -> List[int]:
        """Start the framework's launcher, or each process under its guard; return the pids. Raises Problem."""
        if not self.launch["start"]:
            return [self.start_process(local) for local in range(self.launch["nproc"])]
        argv = self.argv(self.launch["start"])
        with open(os.path.join(self.logs, "launch.log"), "ab") as log:
            try:
                self.framework = spawn(argv, self.environ, self.launch["workdir"], log.fileno())
            except OSError as error:
                raise cannot_start(argv[0], error) from error
        return [self.framework.pid]

    def start_process(self, local: int) -> int:
        """Start process `local` under its guard, whose own words go to launch.log; return its pid. Raises Problem."""
        with open(os.path.join(self.logs, "launch.log"), "ab") as log:
            try:
                return fork_guard(self.task(), self.process_environ(local), self.launch["workdir"], log.fileno())
            except OSError as error:
                raise cannot_start(self.launch["command"][0], error) from error

    def process_environ(self, local: int) -> Dict[str, str]:
        """Return the environment of process `local` where no framework launcher sets ranks."""
        rank = str(self.first_rank + local)
        ports = self.member.get("ports") or ()
        port = str(ports[local]) if local < len(ports) else ""
        before = [m for m in self.order["members"] if m["rank"] < self.member["rank"]]  # of all roles, trainers first
        job_rank = str(sum(m["nproc"] for m in before) + local)
        own = {"local_rank": str(local), "rank": rank, "port": port, "job_rank": job_rank}
        own["endpoint"] = "%s:%s" % (self.slots["address"], port)
        slots = {**self.slots, **own}
        environ = {**self.environ, **dict(zip(self.rank_names, (rank, str(local))))}
        environ.update(LOCAL_WORLD_SIZE=str(self.launch["nproc"]), WORLD_SIZE=self.slots["world_size"])
        environ.update((name, fill(value, slots)) for name, value in self.launch.get("process_env", ()))
        return environ

    def go_on(self) -> None:
        """Start the processes as soon as what they need answers. Raises Problem."""
        while self.after and answers(self.after[0]):
            self.after.pop(0)
        if not self.after and not self.children:
            self.children = self.start()

    def waits(self) -> Optional[str]:
        """Say what the processes wait for before they start, None if they have."""
        role = self.launch.get("after")
        return "waits for %s %s" % (role, self.after[0]) if self.after else None

    def may_start_again(self, failure: Failure) -> bool:
        """Say whether a process that has failed is started again while all others go on.

        Not one that fails as it did the last time, without any progress in between: that is a bug.
        """
        limit = None if self.launch.get("regroups") else self.launch.get("rejoin")
        if limit is None or failure.local_rank is None or failure.kind not in ("exit", "signal"):
            return False
        earlier, within = self.again.get(failure.local_rank, []), self.launch.get("rejoin_within")
        every = [one for failures in self.again.values() for one in failures]
        if len([one for one in every if within is None or failure.at - one.at <= within]) >= limit:
            failure.kind = "exhausted"
            return False
        same = bool(earlier) and earlier[-1].exit_code == failure.exit_code and failure.exit_code not in FROM_OUTSIDE
        return not (same and earlier[-1].step == self.hang.steps_of.get(failure.local_rank))

    def is_early(self, failure: Failure, now: float) -> bool:
        """Say whether it is too early to start the process of that failure again: others have to have given it up."""
        return now < failure.at + float(self.launch.get("rejoin_after") or 0.0)

    def start_again(self, failure: Failure) -> None:
        """Start the process of that failure again. Raises Problem."""
        local = int(failure.local_rank or 0)
        failure.step = self.hang.steps_of.get(local)
        self.again.setdefault(local, []).append(failure)
        os.unlink(os.path.join(self.record_dir, "%d.json" % local))
        self.ended.pop(self.children[local], None)
        self.children[local] = self.start_process(local)
        self.look()

    # Looking.

    def look(self) -> bool:
        """Take note of what has ended and what was written; say whether anything changed."""
        now = time.time()
        for pid, code in reap().items():
            self.ended[pid] = (code, now)
        processes = [self.process(local) for local in range(self.launch["nproc"])]
        changed, before = processes != self.processes, self.restarts()
        self.processes = processes
        if changed:
            self.keep_files()
        # After the states: what has ended has made its last step.
        progress = self.hang.look(self.progress_dir, time.monotonic())
        if progress:
            self.progress_at = now
        # After the steps, the last of which may be of the process before: loading may take long, the next time too.
        if self.restarts() > before:
            self.hang.at = self.progress_at = None
        for process in processes:
            process["step"] = self.hang.steps_of.get(process["local_rank"])
        return progress or changed

    def process(self, local: int) -> Json:
        """Return the state of one process, as its guard wrote it down."""
        record = read_json(os.path.join(self.record_dir, "%d.json" % local))
        blank = {
            "rank": self.first_rank + local,
            "local_rank": local,
            "state": "pending",
            "pid": None,
            "start_ticks": None,
            "exit_code": None,
            "device": self.launch["devices"][local] if local < len(self.launch["devices"]) else None,
            "started_at": None,
            "finished_at": None,
            "signal": None,
            "step": self.hang.steps_of.get(local),  # as of the last look
            "where": innermost(self.stacks.get(local, "")),
            "stack": frames(self.stacks.get(local, "")),
        }
        if record is None:
            return blank
        process = {**blank, **record}
        if process["state"] == "running" and start_ticks(process["pid"]) != process["start_ticks"]:
            if process_guard_lives(record):
                return process
            # Its guard was killed with it and could not say how it ended.
            process.update(state="failed", exit_code=137, signal=9, finished_at=process["finished_at"] or time.time())
        return process

    def keep_files(self) -> None:
        """Copy what is worth keeping of what the framework's launcher writes into memory."""
        if not self.launch.get("kept"):
            return
        import glob
        import shutil

        for pattern in self.launch["kept"]:
            for path in glob.glob(os.path.join(glob.escape(self.scratch), pattern)):
                with contextlib.suppress(OSError):
                    shutil.copy(path, self.logs)

    def restarts(self) -> int:
        """Return how often the framework's launcher has started processes again."""
        return sum(max(0, int(process.get("starts", 1)) - 1) for process in self.processes)

    def records(self) -> List[Json]:
        """Return the processes for the report."""
        return [{key: value for key, value in p.items() if not key.startswith("guard")} for p in self.processes]

    def progress_fields(self) -> Json:
        """Return progress for the report."""
        return {"progress": self.hang.progress, "progress_at": self.progress_at}

    def stands_still(self) -> bool:
        """Say whether there was no progress for so long that it may become a hang."""
        return self.hang.at is not None and time.monotonic() - self.hang.at > self.hang.limit() / 2

    def write_stacks(self, pause: Callable[[float], bool]) -> None:
        """Write down where each process stands (logs/stack.N), for whoever asks why nothing moved."""
        stacks = Stacks(self, pause)
        stacks.look()
        stacks.freeze()
        stacks.abort()

    def keep_stack(self, local: int, text: str) -> None:
        """Write down where one process stands."""
        self.stacks[local] = text
        path = os.path.join(self.logs, "stack.%d" % local)
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

        for path in glob.glob(self.environ.get("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", NCCL_RECORDS) + "*"):
            with contextlib.suppress(OSError):
                shutil.copy(path, self.logs)

    # Judging.

    def succeeded(self) -> bool:
        """Say whether all children have ended with 0."""
        codes = [self.ended.get(child, (None, 0.0))[0] for child in self.children]
        return bool(codes) and all(code == 0 for code in codes)

    def failure(self) -> Optional[Failure]:
        """Return what failed first, None while nothing has."""
        failed = [p for p in self.processes if p["exit_code"] not in (None, 0)]
        first = self.process_failure(min(failed, key=lambda p: p["finished_at"] or 0.0)) if failed else None
        if first is not None and self.launch.get("regroups"):
            self.because = self.reason(first)
            codes = [self.ended[child][0] for child in self.children if child in self.ended]
            return first if any(codes) else self.lost()
        if first is not None:
            return first
        ended = [pair for child in self.children for pair in [self.ended.get(child)] if pair and pair[0] != 0]
        if ended and abs(time.time() - ended[0][1]) > SETTLE:  # clocks are set
            return self.launcher_failure(*ended[0])
        if self.hang.hangs(time.monotonic()):
            return Failure("hang", None, None, None, None, time.time())
        return self.lost()

    def lost(self) -> Optional[Failure]:
        """Return that the framework's launcher cannot go on although it lives, None while it can."""
        line = self.lookout.look(time.monotonic())
        return Failure("lost", None, None, None, "launch.log", time.time(), [line]) if line else None

    def process_failure(self, process: Json) -> Failure:
        """Return the failure of one process, with its last words (or the framework launcher's, if it had none)."""
        log = log_of(self.launch["log_name"], process["local_rank"])
        tail = last_lines(os.path.join(self.logs, log))
        if not tail:
            log, tail = "launch.log", self.launcher_lines()
        kind = "start" if process.get("guard_why") else "signal" if process["signal"] else "exit"
        code, at = process["exit_code"], process["finished_at"] or time.time()
        return Failure(kind, process["rank"], process["local_rank"], code, log, at, tail)

    def launcher_failure(self, code: int, at: float) -> Failure:
        """Return the failure of the framework's launcher: before its processes began, or of its own."""
        tail = self.launcher_lines()
        began = any(p["pid"] for p in self.processes)
        kind = "signal" if code > 128 else "exit" if began else "start"
        return Failure(kind, None, None, code, "launch.log", at, tail)

    def launcher_lines(self) -> List[str]:
        """Return the last lines of the framework's launcher."""
        return last_lines(os.path.join(self.logs, "launch.log"), self.own_lines)

    def reason(self, failure: Failure) -> str:
        """Say in words what failed."""
        if failure.kind == "hang":
            return "no progress for %.0f s (hang_timeout)" % min(self.hang.limit(), self.hang.told)
        if failure.kind == "lost":
            return "the framework's launcher %s: %s" % (self.lookout.why, failure.tail[0])
        whys = [p["guard_why"] for p in self.processes if p.get("guard_why")]
        if failure.kind == "start" and whys:
            return str(whys[0])
        if failure.kind == "start":
            return "%s ended with code %s before any process began%s" % (
                " ".join(self.argv(self.launch["start"])[:3]) or "the guard of a process",
                failure.exit_code,
                hint_of(failure.tail),
            )
        kind = "rank" if self.launch["role"] == "trainer" else self.launch["role"]
        who = "%s %d" % (kind, failure.rank) if failure.rank is not None else "the framework's launcher"
        code = failure.exit_code or 0
        if failure.kind == "exhausted":
            return "%s ended with code %s, and all %d restarts are used up" % (who, code, self.launch["rejoin"])
        if failure.kind == "signal":
            return "%s was killed by %s" % (who, signal_name(code - 128))
        return "%s exited with code %s" % (who, code)

    # Ending.

    def end(self, grace: float, number: int, pause: Callable[[float], bool]) -> None:
        """Signal all children's sessions, and give them `grace` seconds."""
        living = [child for child in self.children if child not in self.ended]
        if grace > 0:
            for pid in self.leaders(living):
                signal_group(pid, number)
        deadline = time.monotonic() + grace
        # Grace is for the users' processes: torchrun takes a second to write its own report once they are gone.
        while any(child not in self.ended for child in living) and not self.all_ended():
            if time.monotonic() >= deadline or not pause(0.02):
                break
            self.look()
        kill_user_processes(self.processes)
        self.wait_for_records(pause)

    def leaders(self, living: Sequence[int]) -> Sequence[int]:
        """Return the leaders of the process groups that the user's processes are in.

        A framework's launcher that gives each its own is held still: it would SIGKILL all as soon as one has ended.
        """
        if not self.launch.get("apart"):
            return living
        for child in living:
            forward(child, signal.SIGSTOP)
        self.look()  # one may have begun since
        return [int(p["guard_pid"]) for p in self.processes if p["state"] == "running" and process_guard_lives(p)]

    def tidy_up(self) -> None:
        """Remove what all nodes of the generation shared."""
        if self.shared:
            remove_tree(self.shared)

    def all_ended(self) -> bool:
        """Say whether all of the users' processes have ended, by their guards' records."""
        return bool(self.processes) and all(p["state"] in ("exited", "failed") for p in self.processes)

    def wait_for_records(self, pause: Callable[[float], bool]) -> None:
        """Give the guards a moment to write down how their processes ended."""
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            self.look()
            if not any(p["state"] == "running" for p in self.processes):
                return
            pause(0.01)
