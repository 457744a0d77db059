#!/usr/bin/env python3
"""The shared launcher of jobctl: one per node, in whatever image or machine the node runs.

It starts the framework's own launcher (torchrun and the like) or the processes themselves, keeps one log per
process, reports what happens, and ends everything it started in every case. It decides nothing about other nodes:
what to run is in the environment (JOBCTL_LAUNCH), who takes part and where they meet is in the control file.

    launcher.py --control run/control.json --dir node-0 [--secrets secrets.json]

    O  guard: reaps orphans, kills whatever is left when the launcher proper is gone
    ├─ E  (with etcd) keeps the node's lease there, and the job's generation; (in a cluster) agrees on them with the others
    └─ I  launcher proper: follows the control file, starts and ends processes, writes report.json
       └─ T  the framework's launcher, if there is one
          └─ S_k  guard of process k, forked where there is no T: pumps its output into workerlog.k, writes down its exit code
             └─ W_k  the user's process

Each of O, I and S_k adopts orphans below it (PR_SET_CHILD_SUBREAPER), each of T, S_k and W_k dies with its parent
(PR_SET_PDEATHSIG), S_k only after it has ended what is below it, O and I watch each other. So no SIGKILL of any of
them leaves a process behind, unless it hits S_k and all above it at once.

Standard library only, Python 3.8 or later, Linux. Imports nothing of jobctl.
"""

from __future__ import annotations

import binascii
import contextlib
import errno
import fcntl
import itertools
import json
import mmap
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time

# Imports are half of what a start takes once the program is compiled: what few need is imported where it is needed.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any, Callable, Dict, Iterator, List, NoReturn, Optional, Sequence, Set, Tuple

    Json = Dict[str, Any]

POLL = 0.1  # seconds between two looks at the control file and the processes
EXPECTANT = ("waiting", "failed", "fenced")  # states in which it looks oftener: the next generation is as good as there
SOON = 20.0  # seconds after which it is not any more
TAKEN = 10.0  # seconds that another launcher of this node gets to end, as one does whose engine was killed
EXIT_TAKEN = 75  # another launcher of this node runs (EX_TEMPFAIL of sysexits.h)
FROM_OUTSIDE = (129, 130, 137, 143)  # how a process ends that somebody, or something, has ended
FAILED_GRACE = 2.0  # seconds that the siblings of a failed process get between SIGTERM and SIGKILL
LOOKOUT_BYTES = 65536  # of a framework launcher's log, at a time
SETTLE = 0.5  # seconds after which a framework launcher's end is believed before its processes' own records
UNSUPERVISED = 3.0  # seconds without an answer of the supervisor's after which launchers with etcd go on by themselves
FIRST_DELAY, LONGEST_DELAY = 1.0, 30.0  # seconds before they begin again, without progress in between
TAIL_LINES, TAIL_BYTES = 20, 64 * 1024
LONGEST_TAIL = 4096  # characters of one of these lines, its last ones
TAIL_ALONE, TAIL_CHARACTERS = 5, 300  # what of that goes into etcd, whose requests may not be large, or on a full disk
PROGRESS_WITHOUT_COUNTER = 60.0  # seconds that a run without a step counter has to last to count as progress
HANG_LEAST, HANG_FACTOR, HANG_SAMPLES = 30.0, 5.0, 20  # `hang_timeout: auto`
STACKS = 5.0  # seconds in which hung processes are asked where they stand
MUSTER = 10.0  # seconds that the launchers of a job that stands still wait for each other's stacks
UNANSWERED = 1.0  # seconds after which they do not wait for one that has not answered at all
STACK_LINES = 30  # of a stack, in the report
DONE = 10.0  # seconds in which launchers of servers are told that a trainer is done
ANSWER = 0.2  # seconds that a server gets to answer at its port
TICK = 1.0  # seconds between two ticks; also the least that an unheard launcher is told of
FIRST_TICKS = 0.2  # seconds between two ticks while nothing may start before one is answered
DATAGRAM = 4096  # bytes; also what a pipe takes whole
SCRATCH = "jobctl-"  # how the names of such folders begin
MEMORY = "/dev/shm"  # where files lie in memory; in a container it goes with the container
RESOLVING = 5.0  # seconds for the names of all hosts; where they are not answered, names remain names
PRIVATE_PORTS, PORTS_OF_NODE = (10_000, 20_000), 100  # for what framework launchers choose ports for themselves
PROXIES = ("http_proxy", "https_proxy", "all_proxy")
NCCL_RECORDS = "/tmp/nccl_trace_rank_"  # default of TORCH_NCCL_DEBUG_INFO_TEMP_FILE
ABANDONED = signal.SIGUSR2  # what the guard of a process gets when its parent dies
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)

CODE: Any = None  # this file as the interpreter has compiled it, where it is the program that runs


# --- The kernel's help against orphans -------------------------------------------------------------------------

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def _from_libc(name: str) -> Optional[Callable[..., int]]:
    """Return a function of libc, None where there is no ctypes, or an old libc."""
    try:
        import ctypes

        function: Callable[..., int] = getattr(ctypes.CDLL(None, use_errno=True), name)
        return function
    except (ImportError, OSError, AttributeError):
        return None


# Looked up before any fork: a child between fork and exec must not load libraries. Without prctl orphans are found by
# walking /proc only.
_PRCTL = _from_libc("prctl")
_TGKILL = _from_libc("tgkill")


def prctl(option: int, value: int) -> None:
    """Call prctl(2) with one argument, where there is one."""
    if _PRCTL is not None:
        _PRCTL(option, value, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of whatever descendant loses its own."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Ask for SIGKILL when the parent dies (runs in a child between fork and exec)."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


# --- Processes by /proc ----------------------------------------------------------------------------------------


def proc_stat(pid: int) -> Optional[Tuple[str, int, int]]:
    """Return state, parent and start time in clock ticks of `pid`; None if it is gone.

    `T` for one whose first thread alone is dead: others, which still wait for a disk or a device, keep what they have.
    """
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        state = "T" if int(fields[17]) > 1 and fields[0] == b"Z" else fields[0].decode()
        return state, int(fields[1]), int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def start_ticks(pid: int) -> Optional[int]:
    """Return when `pid` started, None if it is gone: with the pid it names a process for ever."""
    stat = proc_stat(pid)
    return stat[2] if stat else None


def descendants(root: int) -> List[int]:
    """Return all living processes below `root`, children before grandchildren; zombies are not living."""
    children: Dict[int, List[int]] = {}
    for name in os.listdir("/proc"):
        stat = proc_stat(int(name)) if name.isdigit() else None
        if stat:
            children.setdefault(stat[1], []).append(int(name))
    found, look = [], [root]
    while look:
        below = children.get(look.pop(0), [])
        found.extend(below)
        look.extend(below)
    return [pid for pid in found if (proc_stat(pid) or ("Z", 0, 0))[0] not in "ZX"]


def kill_descendants() -> None:
    """SIGKILL everything below this process until nothing is left, and reap it.

    A process may fork while it is being killed, so this looks again until it finds none; one in uninterruptible
    sleep is given up after 10 s, its disk hangs.
    """
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        below = descendants(os.getpid())
        for pid in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        reap()
        if not below:
            return
        time.sleep(0.005)


def reap() -> Dict[int, int]:
    """Collect all children that have ended: pid to exit code (128 + n for signal n)."""
    ended: Dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = exit_code(status)


def exit_code(status: int) -> int:
    """Return a wait status as a shell would: 128 + n where signal n ended the process."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


# --- Files -----------------------------------------------------------------------------------------------------


def write_json(path: str, value: Json) -> bool:
    """Replace `path` whole; say whether that went. A full disk must not end a training run, so failures are only noted."""
    folder = os.path.dirname(path)
    name, text = None, json.dumps(value).encode()
    try:
        os.makedirs(folder, exist_ok=True)
        new = os.path.join(folder, ".%s.%s" % (os.path.basename(path), os.urandom(6).hex()))
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        name = new
        with os.fdopen(handle, "wb") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
        return True
    except OSError as error:
        if name:
            with contextlib.suppress(OSError):
                os.unlink(name)
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and overwrite(path, text):
            return True
        note("cannot write %s: %s" % (path, error))
        return False


def overwrite(path: str, text: bytes) -> bool:
    """Write JSON over what a file holds, if it has the room; say whether that went.

    Not at once, as a reader may see: only for a full disk, where what the file said before would be said for ever.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        size = os.fstat(handle).st_size
        if len(text) > size:
            os.posix_fallocate(handle, size, len(text) - size)
        os.write(handle, text.ljust(size))
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


def keep_compiled(directory: str) -> str:
    """Write this program down as the interpreter has compiled it, and return the path; its source where that cannot be.

    What a framework's launcher starts for each process is its guard, this program once more, and compiling it takes
    longer than all else that a guard does before its process runs.
    """
    source, path = os.path.abspath(__file__), os.path.join(directory, "launcher.pyc")
    if CODE is None:
        return source
    import importlib.util
    import marshal

    try:
        with open(path + ".new", "wb") as file:
            file.write(importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(CODE))
        os.replace(path + ".new", path)
    except OSError as error:
        note("cannot write %s: %s" % (path, error))
        return source
    return path


def read_json(path: str) -> Optional[Json]:
    """Return the JSON object in `path`, None if there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def load_for_later() -> None:
    """Import what only trouble needs: by then the disk that it is on may hang."""
    import glob
    import shutil
    import tempfile

    del glob, shutil, tempfile


def note(message: str) -> None:
    """Tell a person who reads the launcher's own log."""
    with contextlib.suppress(OSError):
        sys.stderr.write("%s launcher: %s\n" % (time.strftime("%Y-%m-%d %H:%M:%S"), message))
        sys.stderr.flush()


def last_lines(path: str, start: int = 0) -> List[str]:
    """Return the last lines of a log, as text whatever its bytes are, from byte `start` on."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(start, file.tell() - TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [line[-LONGEST_TAIL:] for line in lines if line.strip()][-TAIL_LINES:]


def abridged(failure: Json) -> Json:
    """Return a failure with less of the log."""
    return {**failure, "tail": [line[:TAIL_CHARACTERS] for line in failure["tail"][-TAIL_ALONE:]]}


def make_scratch(directory: str) -> str:
    """Make a new folder in memory that only this user can read, in place of the last one of this node.

    A link to it lies in `directory`, so that whoever finds this launcher killed can remove it.
    """
    import tempfile

    remove_scratch(directory)
    where = MEMORY if os.access(MEMORY, os.W_OK | os.X_OK) else None
    path, link = tempfile.mkdtemp(prefix=SCRATCH, dir=where), os.path.join(directory, "scratch")
    with contextlib.suppress(OSError):
        os.symlink(path, link)
    return path


def make_shared(order: Json) -> str:
    """Return a folder below the checkpoint directory for a generation, made if it is not there; those of earlier ones go.

    Raises Problem.
    """
    mine: str = shared_prefix(order) + order["rendezvous"]["id"]
    remove_shared(order, but=mine)
    try:
        os.makedirs(mine, exist_ok=True)
    except OSError as error:
        raise Problem("cannot make %s: %s" % (mine, os.strerror(error.errno or 0)), start_failure(None)) from error
    return mine


def shared_prefix(order: Json) -> str:
    """Return how the paths of such folders begin."""
    # The dot: names of jobs hold none, so this one's folders are not taken for those of another.
    folder: str = order.get("checkpoint_dir") or ""
    return os.path.join(folder, ".jobctl-%s." % order["job"])


def remove_shared(order: Json, but: str = "") -> None:
    """Remove such folders of all generations but one."""
    import glob

    for path in glob.glob(glob.escape(shared_prefix(order)) + "*"):
        if path != but:
            remove_tree(path)


def remove_tree(path: str) -> None:
    """Remove a folder with all that is in it, as far as that goes."""
    if os.path.isdir(path):
        import shutil

        shutil.rmtree(path, ignore_errors=True)


def remove_scratch(directory: str) -> None:
    """Remove the folder that `make_scratch` has made, if there is one."""
    link = os.path.join(directory, "scratch")
    with contextlib.suppress(OSError):
        path = os.readlink(link)
        if os.path.basename(path).startswith(SCRATCH):
            remove_tree(path)
        os.unlink(link)


def read_secrets(path: Optional[str]) -> Json:
    """Return the values of secrets by name: of a JSON file, or of a folder with a file for each."""
    if not path or not os.path.isdir(path):
        return read_json(path or "") or {}
    values = {}
    for file in files_in(path):
        if os.path.isfile(file):  # not what Kubernetes keeps versions in
            with contextlib.suppress(OSError), open(file, encoding="utf-8", errors="surrogateescape") as opened:
                values[os.path.basename(file)] = opened.read()
    return values


# --- O: the guard ----------------------------------------------------------------------------------------------


def guard(options: argparse.Namespace) -> int:
    """Fork the launcher proper, forward signals to it, and leave nothing behind when it ends."""
    launch: Json = json.loads(os.environ.pop("JOBCTL_LAUNCH"))
    lock = wait_for_lock(options.dir)
    if lock is None:
        note("another launcher of this node runs already (it holds %s/launcher.lock)" % options.dir)
        return EXIT_TAKEN
    remove_scratch(options.dir)  # of a launcher that was killed with all that would have done so
    adopt_orphans()
    # Blocked until both sides are ready: a signal between fork and handler would otherwise kill only one of them.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    channel, deadline = None, Deadline()
    if launch.get("etcd") or launch.get("circle"):
        channel, keepers = socket.socketpair()
        keeper = Circle if launch.get("circle") else Keeper
        fork(lambda: keeper(launch, options, keepers).run(), channel)
        keepers.close()
    pid = fork(lambda: Launcher(launch, options, deadline, channel).run())
    if channel is not None:
        channel.close()
    for number in SIGNALS:
        signal.signal(number, lambda received, frame: forward(pid, received))
    signal.signal(signal.SIGALRM, lambda received, frame: deadline.enforce())
    signal.setitimer(signal.ITIMER_REAL, POLL, POLL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    code = wait_for(pid)
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    kill_descendants()
    remove_scratch(options.dir)
    return code


class Deadline:
    """Until when processes may run, in memory that the launcher proper shares with its guard.

    A launcher whose files hang (a home on NFS, behind the cable that is out) cannot end its processes when its lease is
    over; its guard, which touches no file, ends everything then.
    """

    LATE = 0.5  # seconds that the launcher gets to see to it itself

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, 8)

    def put(self, at: float) -> None:
        """Let processes run until `at` (of `boot_time`), 0 for as long as they like."""
        self.memory[:] = struct.pack("d", at)

    def enforce(self) -> None:
        """Kill everything below this process if the time is over."""
        at = float(struct.unpack("d", self.memory[:])[0])
        if at and boot_time() > at + self.LATE:
            self.put(0.0)
            kill_descendants()


def fork(work: Callable[[], int], *close: socket.socket) -> int:
    """Do `work` in a child, without the sockets that are its parent's alone; return its pid. It ends with the exit code."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for other in close:
            other.close()
        code = work()
    except BaseException as error:  # whatever it is, the guard must see an exit code and the log the reason
        import traceback

        note("broken: %r\n%s" % (error, traceback.format_exc()))
    finally:
        kill_descendants()
        os._exit(code)


def wait_for_lock(directory: str) -> Optional[int]:
    """Lock the node's directory, be it that a launcher that is just ending has it still; None if it is kept."""
    deadline = time.monotonic() + TAKEN
    while True:
        lock = take_lock(directory)
        if lock is not None or time.monotonic() > deadline:
            return lock
        time.sleep(POLL)


def take_lock(directory: str) -> Optional[int]:
    """Lock the node's directory for as long as this process or its fork lives; None if it is locked already."""
    os.makedirs(directory, exist_ok=True)
    handle = os.open(os.path.join(directory, "launcher.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def forward(pid: int, number: int) -> None:
    """Send a signal on to a child that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def wait_for(pid: int) -> int:
    """Reap children (adopted ones too) until `pid` ends, and return its exit code."""
    while True:
        try:
            ended, status = os.waitpid(-1, 0)
        except InterruptedError:
            continue
        except ChildProcessError:
            return 128 + signal.SIGKILL  # ended and reaped when its deadline was over
        if ended == pid:
            return exit_code(status)


# --- I: the launcher proper ------------------------------------------------------------------------------------


class Launcher:
    """Follows the control file: begins, ends and reports generations, one at a time."""

    def __init__(
        self,
        launch: Json,
        options: argparse.Namespace,
        deadline: Deadline,
        channel: Optional[socket.socket] = None,
    ) -> None:
        self.deadline = deadline
        self.control, self.dir, self.secrets = options.control, options.dir, options.secrets
        self.launch = launch
        self.program = keep_compiled(self.dir) if launch["start"] else ""
        self.guard = os.getppid()
        # The lease in etcd, or among the launchers of a cluster, if that decides.
        self.kept = None if channel is None else Circled(channel) if launch.get("circle") else Kept(channel)
        self.lease = self.kept or Lease()
        self.post = Post(self, os.path.join(os.path.dirname(self.control), "feeds"))
        self.signal: Optional[int] = None
        self.pending: Optional[Tuple[Json, Json]] = None  # a generation that begins once there is a lease for it
        self.seen: Optional[Tuple[int, int, int]] = None
        self.file: Optional[Json] = None  # the control file as last read
        self.order: Optional[Json] = None  # the newest: of the control file as last read, and of etcd
        self.run_: Optional[Run] = None
        self.busy = False  # whether there may be processes
        self.since = boot_time()  # when the state last changed
        self.set_up = False
        self.failed: Optional[Failed] = None  # what go_on is about
        last = read_json(self.report_path) or {}
        self.generation, self.epoch = int(last.get("generation") or 0), float(last.get("epoch") or 0.0)
        self.first_generation = self.generation
        self.began = 0
        self.loaded = False
        self.report: Json = {
            "version": 1,
            "node": self.launch["node"],
            "role": self.launch["role"],
            "generation": self.generation,
            "epoch": self.epoch,  # when the job was brought up from nothing: generations are counted from there
            "state": "waiting",
            "artefact": os.environ.get("JOBCTL_ARTEFACT"),  # what the deployer says it was started from
            "port": self.post.port,
            "launcher": {"pid": self.guard, "start_ticks": start_ticks(self.guard)},
            "exit_code": None,
            "reason": None,
            "started_at": None,
            "finished_at": None,
            "progress": None,
            "progress_at": None,
            "restarts": 0,
            "again": 0,  # how often processes were started again in this generation, which went on
            "because": None,  # why, the last time
            "processes": [],
            "failure": None,
            "order": None,
            "mustered": False,  # whether it was called hung, and has said where its processes stand
        }

    @property
    def regroups(self) -> bool:
        """Whether the framework's launcher sees to failed processes, and to other nodes, by itself."""
        return bool(self.launch.get("regroups"))

    @property
    def rejoins(self) -> bool:
        """Whether this node joins a generation again that goes on without it: its launcher was started anew."""
        return self.launch.get("rejoin") is not None and self.report["state"] == "waiting" and self.pending is None

    @property
    def report_path(self) -> str:
        """Where the supervisor looks."""
        return os.path.join(self.dir, "report.json")

    def run(self) -> int:
        """Serve until told to finish, or until the node's work is done; return the exit code."""
        adopt_orphans()
        for number in SIGNALS:
            signal.signal(number, self.on_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        if _PRCTL is None:
            note("no ctypes here: orphans of a killed launcher are not ended by the kernel")
        self.say()
        while True:
            code = self.turn()
            if code is not None:
                if self.kept is not None:
                    self.kept.leave()
                return code
            if not self.loaded and self.report["state"] == "running" and boot_time() - self.since > SETTLE:
                load_for_later()  # when processes have had the time to begin
                self.loaded = True
            expectant = self.report["state"] in EXPECTANT and boot_time() - self.since < SOON
            self.pause(POLL / 5 if self.pending is not None or expectant else POLL)

    def pause(self, seconds: float) -> bool:
        """Sleep, but hear and answer; whatever waits here waits so, or the others would take this launcher for lost.

        Says whether processes may still run: there is no grace for what is fenced.
        """
        until = time.monotonic() + seconds
        while True:
            self.be_here()
            self.post.attend()
            left = until - time.monotonic()
            if left <= 0:
                return self.lease.held(boot_time())
            self.post.wait(min(left, POLL))

    def on_signal(self, number: int, frame: Any) -> None:
        """Remember it; the loop acts on it."""
        self.signal = number

    def turn(self) -> Optional[int]:
        """Look once at everything; return an exit code when it is time to go."""
        if os.getppid() != self.guard or (self.kept is not None and self.kept.lost):
            kill_descendants()
            return 137
        if self.signal is not None:
            return self.stopped_by_signal(self.signal)
        if self.run_ is not None and not self.lease.held(boot_time()):
            self.fence()
        if self.read_control():
            code = self.obey()
            if code is not None:
                return code
        if self.pending is not None and self.lease.held(boot_time()):
            order, member = self.pending
            self.pending = None
            self.begin(order, member)
        elif self.pending is not None and self.kept is not None and self.report["reason"] != self.kept.waits():
            self.say(reason=self.kept.waits())
        code = self.watch()
        if self.kept is not None and code is None:
            if self.kept.again and self.report["state"] in ("running", "succeeded"):
                self.begin_anew(self.kept)
            self.go_on(self.kept)
            if self.report["state"] == "succeeded" and self.kept.all_done:
                return 0
        return code

    def begin_anew(self, kept: Kept) -> None:
        """End a generation that has lost a member whose launcher was started again: nobody there remembers it."""
        self.end_processes(FAILED_GRACE)
        nodes = ", ".join(map(str, kept.again))
        failure = Failure("launcher", None, None, None, None, time.time())
        self.fail(failure, "the launcher of node %s was started again" % nodes)

    def go_on(self, kept: Kept) -> None:
        """Have the next generation begun where this node has failed and no supervisor sees to it."""
        order, now = self.order, boot_time()
        if order is None or self.report["state"] not in ("failed", "fenced") or not self.is_current(order):
            self.failed = None
            return
        if self.failed is None:
            self.failed = Failed(self.report, self.launch, now)
        failed = self.failed
        waits = failed.waits(order, kept, now)
        final = None if waits else failed.final(order)
        if final and kept.gives_up:
            kept.propose(failed.end(order, final))
        elif waits or final:
            kept.say_once(waits or "%s; waits for the supervisor" % final)
        elif now - failed.since >= failed.delay(order) and not failed.waits_for_etcd(now):
            failed.proposed = now
            kept.propose(failed.successor(order), order["rendezvous"]["id"])

    def stopped_by_signal(self, number: int) -> int:
        """SIGTERM and the like: the user (or the engine) ends this node."""
        self.end_processes(float(self.launch["stop_grace"]), number)
        if self.report["state"] in ("waiting", "setup", "running"):
            self.say(state="stopped", reason="stopped by %s" % signal.Signals(number).name, finished_at=time.time())
        return 128 + number

    # What is to be done.

    def read_control(self) -> bool:
        """Read what is to be done; say whether there is something new, in the control file or in etcd."""
        replaced = self.read_file()
        if self.kept is None:
            self.order = self.file or self.order
            return replaced
        orders = [order for order in (self.file, self.kept.order) if order is not None]
        newest = max(orders, key=age, default=None)
        if newest is None or newest == self.order:
            return False
        self.order = newest
        self.report["order"] = None if newest is self.file else newest
        if newest is self.file:
            self.kept.propose(newest)
        return True

    def read_file(self) -> bool:
        """Read the control file if it was replaced; say whether there is something new in it."""
        try:
            stat = os.stat(self.control)
        except OSError:
            return False
        seen = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
        if seen == self.seen:
            return False
        first, self.seen = self.seen is None, seen
        order = read_json(self.control)
        problem = control_problem(order)
        if problem or order is None:
            note("%s: %s" % (self.control, problem))
            self.say(reason="the control file is unreadable: %s" % problem)
            return False
        if first and order["command"] == "finish":
            return False  # that ended the launcher before this one, whose own order is yet to come
        self.file = order
        return True

    def obey(self) -> Optional[int]:
        """Do what the control file says now."""
        order = self.order or {}
        member = self.member()
        if order["command"] == "finish":
            return self.finish(float(order["grace"]))
        if order["command"] == "stop" or member is None:
            self.stop(float(order["grace"]), member is None)
        elif self.regroups and self.run_ is not None and order.get("began", 0.0) == self.epoch:
            self.adopt(order, member)
        elif self.is_later(order) or self.is_another(order):
            if self.run_ is not None and self.run_.stands_still() and self.post.level < Muster.HELD:
                self.run_.write_stacks(self.pause)  # another node called it a hang, and could not tell this one
            self.end_processes(float(order["grace"]))
            self.expect(order, member)
        elif self.is_current(order) and self.run_ is None and self.rejoins:
            self.expect(order, member)
        elif self.is_current(order) and self.run_ is None and self.report["state"] == "waiting":
            # A launcher that was killed and started again: its peers run on with processes that are no more.
            self.fail(Failure("launcher", None, None, None, None, time.time()), "its launcher was started again")
        return None

    def is_later(self, order: Json) -> bool:
        """Say whether `order` is a generation after the current one; numbers begin anew when a job is brought up again."""
        return (order.get("began", 0.0), order["number"]) > (self.epoch, self.generation)

    def is_current(self, order: Json) -> bool:
        """Say whether `order` has the current generation's number."""
        return (order.get("began", 0.0), order["number"]) == (self.epoch, self.generation)

    def is_another(self, order: Json) -> bool:
        """Say whether `order` is a generation of the current one's number, but not that one: two have begun one each."""
        lease = self.lease.generation
        return self.is_current(order) and lease is not None and lease != order["rendezvous"]["id"]

    def expect(self, order: Json, member: Json) -> None:
        """Begin a generation as soon as somebody has answered a tick that was sent for it."""
        self.pending = order, member
        nodes = [m["node"] for m in order["members"]]
        timeout = float(order.get("host_timeout", 30.0))
        voters = [m["node"] for m in of_role(order, "trainer")]
        self.lease.begin(order["rendezvous"]["id"], nodes, member["node"], timeout, boot_time(), voters)
        self.post.meet(order)
        self.say(state="waiting", reason=self.lease.WAITS)

    def adopt(self, order: Json, member: Json) -> None:
        """Go on in a new generation: the frameworks' launchers agree by themselves on who takes part."""
        self.generation = order["number"]
        nodes = [m["node"] for m in order["members"]]
        self.lease.move_on(order["rendezvous"]["id"], nodes, member["node"], boot_time())
        self.post.meet(order)
        self.say(generation=self.generation)

    def fence(self) -> None:
        """End the processes at once: whoever cannot hear this launcher may start its node elsewhere."""
        self.end_processes(0.0)
        self.fail(fenced(), self.lease.why_over())

    def member(self) -> Optional[Json]:
        """Return this node's entry in the control file, None if it has none, or runs on another host now."""
        members: List[Json] = (self.order or {}).get("members", [])
        mine = next((member for member in members if member["node"] == self.launch["node"]), None)
        return mine if mine is not None and mine["host"] == self.launch["host"] else None

    def finish(self, grace: float) -> int:
        """End for good, with the code of what ran."""
        busy = self.run_ is not None or self.pending is not None
        self.end_processes(grace, over=True)
        if self.launch.get("rejoin_after"):
            remove_shared(self.order or {})  # of a generation that has failed here
        if busy:
            self.say(state="stopped", reason="told to finish", finished_at=time.time())
        if busy and self.launch.get("until"):
            self.say(state="succeeded", exit_code=0, reason=None)  # it serves others, and they need it no more
            return 0
        failure = self.report["failure"]
        if self.kept is not None and not self.kept.gives_up:
            return 0  # engines start what failed again where there is etcd, but this is the end
        if self.order is not None and "exit_code" in self.order:
            note("the job ends: %s" % self.order["why"])
            return int(self.order["exit_code"])
        return int(failure["exit_code"] or 1) if failure else 0

    def stop(self, grace: float, excluded: bool) -> None:
        """End the processes and stay."""
        busy = self.run_ is not None
        self.end_processes(grace, over=True)
        if excluded:
            self.say(state="waiting", reason="not part of this generation", processes=[], failure=None)
        elif busy or self.report["state"] == "waiting":
            self.say(state="stopped", reason="told to stop", finished_at=time.time())

    # A generation.

    def begin(self, order: Json, member: Json) -> None:
        """Start the processes of a generation."""
        if self.kept is not None:
            order, member = self.kept.located(order, member)
        self.generation, self.epoch = order["number"], order.get("began", 0.0)
        self.busy = True
        self.be_here()
        self.began += 1
        self.say(
            generation=self.generation,
            epoch=self.epoch,
            state="setup",
            exit_code=None,
            reason=None,
            started_at=time.time(),
            finished_at=None,
            progress=None,
            progress_at=None,
            restarts=self.began - 1,
            mustered=False,
            again=0,
            processes=[],
            failure=None,
        )
        try:
            self.prepare()
            if self.program and not os.path.exists(self.program):  # somebody has removed the job's files under it
                self.program = keep_compiled(self.dir)
            self.run_ = Run(self, order, member)
        except Problem as problem:
            self.end_processes(0.0)
            self.fail(problem.failure, str(problem))
            return
        self.say(state="running")

    def prepare(self) -> None:
        """Run the setup commands, once in this launcher's life. Raises Problem."""
        if self.set_up:
            return
        log = os.path.join(self.dir, "logs", "setup.log")
        for command in self.launch["setup"]:
            os.makedirs(os.path.dirname(log), exist_ok=True)
            with open(log, "ab") as file:
                file.write(b"+ %s\n" % command.encode())
                file.flush()
                code = self.run_setup(command, file.fileno())
            if not self.lease.held(boot_time()):
                raise Problem(self.lease.why_over(), fenced())
            if code != 0:
                failure = Failure("setup", None, None, code, "setup.log", time.time(), last_lines(log))
                raise Problem("setup command `%s` ended with code %d" % (command, code), failure)
        self.set_up = True

    def run_setup(self, command: str, log: int) -> int:
        """Run one setup command, and stop it if this launcher is told to stop."""
        environ = {**os.environ, **self.secret_values()}
        child = spawn(["/bin/sh", "-c", command], environ, self.launch["workdir"], log)
        while True:
            code = child.poll()
            if code is not None:
                kill_descendants()
                return code if code >= 0 else 128 - code
            if self.signal is not None or os.getppid() != self.guard or not self.lease.held(boot_time()):
                kill_descendants()
                return 143
            self.pause(POLL / 2)

    def secret_values(self) -> Dict[str, str]:
        """Return the secrets, from the 0600 file that holds them. Raises Problem."""
        if not self.launch["secrets"]:
            return {}
        values = read_secrets(self.secrets)
        missing = [name for name in self.launch["secrets"] if name not in values]
        if missing:
            raise Problem("no value for secret %s in %s" % (", ".join(missing), self.secrets), start_failure(None))
        return {name: str(values[name]) for name in self.launch["secrets"]}

    def end_processes(self, grace: float, number: int = signal.SIGTERM, over: bool = False) -> None:
        """End whatever runs: a signal, `grace` seconds, SIGKILL. Also what lost its parents.

        `over`: the generation goes on without this node no more.
        """
        run, self.run_, self.pending = self.run_, None, None
        if run is not None:
            run.end(grace, number, self.pause)
            run.look()
            if over or not self.launch.get("rejoin_after"):
                run.tidy_up()  # else others may go on without this node, with what lies in the folder that all share
            self.report.update(processes=run.records(), **run.progress_fields())
        self.be_here()
        kill_descendants()
        self.rest()

    def be_here(self) -> None:
        """Tell the guard until when processes may run; while this launcher says so it sees to their end itself."""
        end = self.lease.end() if self.busy else 0.0
        self.deadline.put(max(end, boot_time() + Deadline.LATE) if end else 0.0)

    def rest(self) -> None:
        """Nothing runs any more that could have to be ended in time."""
        self.busy = False
        self.deadline.put(0.0)

    # Watching.

    def watch(self) -> Optional[int]:
        """See how the processes are; return 0 when they have all ended well."""
        run = self.run_
        if run is None:
            reap()
            return None
        try:
            run.go_on()
            changed = run.look()
            if self.post.limit is not None:
                run.hang.told, self.post.limit = self.post.limit, None
                if not self.goes_on_alone:
                    return self.hang(run, time.time())
                Muster(self, run).show()
            if run.until and run.until <= self.post.done | (self.kept.done if self.kept is not None else set()):
                return self.retire()
            failure = run.failure()
            if failure is not None and run.may_start_again(failure):
                because = run.reason(failure)
                if run.is_early(failure, time.time()):
                    self.wait_to_start_again(run, because)
                    return None
                note("%s; it is started again" % because)
                run.start_again(failure)
                again = self.report["again"] + 1
                self.say(again=again, because=because, processes=run.records(), **run.progress_fields())
                return None
        except Problem as problem:
            self.end_processes(0.0)
            return self.fail(problem.failure, str(problem))
        if failure is not None and failure.kind == "hang":
            return self.hang(run, failure.at)
        if failure is not None:
            reason = run.reason(failure)
            self.end_processes(FAILED_GRACE)
            return self.fail(failure, reason)
        if run.succeeded():
            self.run_ = None
            run.tidy_up()
            kill_descendants()
            self.rest()
            fields = run.progress_fields()
            self.say(state="succeeded", exit_code=0, finished_at=time.time(), processes=run.records(), **fields)
            if self.kept is not None and self.kept.gives_up:
                self.kept.say_done(run.order["rendezvous"]["id"])
                return None  # one that fails now has all begin again
            self.tell_servers(run)
            return 0
        if run.restarts() > self.report["again"]:
            self.say(again=run.restarts(), because=run.because)
        if changed or self.report["reason"] != run.waits():
            self.say(reason=run.waits(), processes=run.records(), **run.progress_fields())
        return None

    @property
    def goes_on_alone(self) -> bool:
        """Whether this node may go on where another one has failed."""
        return self.regroups or self.launch.get("rejoin") is not None

    def stands_still(self, limit: float) -> bool:
        """Say whether this node may be part of a hang that another one, which waits `limit` seconds, has seen.

        A node that never wrote a step may be: often rank 0 alone counts.
        """
        run = self.run_
        if run is None or not run.children or self.launch["role"] != "trainer":
            return False
        return run.hang.at is None or time.monotonic() - run.hang.at > limit / 2

    def hang(self, run: Run, at: float) -> Optional[int]:
        """End a generation that stands still since `at`, once all its nodes have written where."""
        failure = Failure("hang", None, None, None, None, at)
        reason = run.reason(failure)
        Muster(self, run).hold()
        self.end_processes(FAILED_GRACE)
        return self.fail(failure, reason)

    def wait_to_start_again(self, run: Run, because: str) -> None:
        """Say what is waited for."""
        reason = "%s; it is started again %g s after that" % (because, self.launch["rejoin_after"])
        if self.report["reason"] != reason:
            self.say(reason=reason, processes=run.records(), **run.progress_fields())

    def retire(self) -> int:
        """End what serves trainers that are done; how that ends is not what the job is judged by."""
        self.end_processes(float(self.launch["stop_grace"]), over=True)
        self.say(state="succeeded", exit_code=0, reason=None, finished_at=time.time())
        return 0

    def tell_servers(self, run: Run) -> None:
        """Tell the launchers of what serves this node that it is done, until they have heard it.

        The supervisor sees to those that cannot be told.
        """
        until = time.monotonic() + DONE
        while run.serving - self.post.told and time.monotonic() < until:
            self.post.say_done(run.serving - self.post.told)
            if self.signal is not None or not self.pause(FIRST_TICKS):
                return

    def fail(self, failure: "Failure", reason: str) -> Optional[int]:
        """Report a failure and wait for the next generation, or exit if nobody will begin one."""
        code = failure.exit_code if failure.exit_code is not None else 1
        note("%s (generation %d)" % (reason, self.generation))
        self.say(
            state="fenced" if failure.kind == "fenced" else "failed",
            exit_code=failure.exit_code,
            reason=reason,
            finished_at=time.time(),
            failure=failure.to_json(),
        )
        ends = self.regroups and failure.kind != "fenced"  # whoever starts this launcher again has it join the others
        return code if ends or (self.order or {}).get("on_failure") == "exit" else None

    def say(self, **changes: Any) -> None:
        """Report a change."""
        before = self.summary()
        if "state" in changes:
            self.since = boot_time()
        self.report.update(changes)
        if not write_json(self.report_path, self.report) and self.report["failure"]:
            write_json(self.report_path, {**self.report, "failure": abridged(self.report["failure"])})
        if self.summary() != before:
            self.post.report_changed()

    def summary(self) -> Any:
        """Return what of the report those who watch are told of at once; of progress they hear with the next tick."""
        processes = [(p["rank"], p["state"], p["pid"], p["where"]) for p in self.report["processes"]]
        return [self.report[key] for key in ("state", "generation", "reason", "restarts")], processes


def control_problem(order: Optional[Json]) -> Optional[str]:
    """Say what is wrong with a control file, None if nothing is."""
    if order is None:
        return "not a JSON object"
    missing = [key for key in ("number", "command", "members", "rendezvous", "grace") if key not in order]
    if missing:
        return "without %s" % ", ".join(missing)
    if order["command"] not in ("run", "stop", "finish"):
        return "unknown command %r: this launcher is older than who wrote it" % (order["command"],)
    return None


def age(order: Json) -> Tuple[float, int, str, int]:
    """Return what grows with every order: see deploy/control.py."""
    commands = ("run", "stop", "finish")
    return order.get("began", 0.0), order["number"], order["rendezvous"]["id"], commands.index(order["command"])


# --- The lease ---------------------------------------------------------------------------------------------------


def boot_time() -> float:
    """Return seconds since the machine booted, by a clock that nobody sets; time that it was suspended counts."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease:
    """The right to run processes in a generation, renewed only by answers to this launcher's own ticks.

    An answer renews it from when its tick was *sent*, however late it comes: that of the supervisor alone, those of
    launchers once with this one they are a strict majority of the generation's. Unanswered for `timeout` seconds it is
    over, and does not come back before the next generation. Whoever starts a node elsewhere relies on that: see
    docs/recovery.md. Times are of `boot_time`.
    """

    WAITS = "waits for an answer from the supervisor or most of the launchers"

    def __init__(self) -> None:
        self.begin(None, [], 0, 0.0, 0.0)

    def begin(
        self,
        generation: Optional[str],
        nodes: Sequence[int],
        me: int,
        timeout: float,
        now: float,
        voters: Optional[Sequence[int]] = None,
    ) -> None:
        """Ask for one for a new generation of `nodes`, named by the id of its rendezvous.

        Only `voters` (None: all) are counted: a host that has a server beside its trainer has one vote.
        """
        self.generation, self.me, self.timeout = generation, me, timeout
        counted = nodes if voters is None else voters
        self.votes = me in counted or generation is None
        self.had = self.over = False
        self.sent: Dict[str, float] = {}  # ticks that may still be answered, oldest first
        self.supervisor: Optional[float] = None  # when the newest tick that it has answered was sent
        self.answers: Dict[int, float] = {}  # likewise, by launcher
        self.heard: Dict[int, float] = {node: now for node in nodes if node != me}  # when each was last answered by us
        self.others = [node for node in counted if node != me]

    def move_on(self, generation: str, nodes: Sequence[int], me: int, now: float) -> None:
        """Have the same lease for a new generation."""
        self.generation, self.me = generation, me
        self.others = [node for node in nodes if node != me]
        self.heard = {node: self.heard.get(node, now) for node in self.others}

    def tick(self, now: float) -> str:
        """Return the name of a tick that is sent now; nobody can guess it."""
        for old in [name for name, at in self.sent.items() if now - at > self.timeout]:
            del self.sent[old]
        name = os.urandom(8).hex()
        self.sent[name] = now
        return name

    def answered(self, name: str, by: Optional[int]) -> None:
        """Take note of an answer, of the supervisor's (None) or a launcher's; one to no tick of ours means nothing."""
        at = self.sent.get(name)
        if at is None:
            return
        if by is None:
            self.supervisor = max(at, self.supervisor or at)
        elif by in self.others:
            self.answers[by] = max(at, self.answers.get(by, at))

    def asked(self, generation: str, by: int, now: float) -> bool:
        """Say whether the tick of another launcher is to be answered: it is of the same generation."""
        if generation != self.generation or by not in self.heard or self.over:
            return False
        self.heard[by] = now
        return True

    def misses(self, by: int) -> bool:
        """Say whether a launcher that counts has not answered yet."""
        return by in self.others and by not in self.answers

    def renewed(self) -> Optional[float]:
        """Return from when on it counts, None if nobody has answered."""
        # That many others (and this one, if it is counted) are a strict majority.
        needed = (len(self.others) + 1) // 2 if self.votes else len(self.others) // 2 + 1
        times = sorted(self.answers.values(), reverse=True)
        by_launchers = times[needed - 1] if 0 < needed <= len(times) else None
        found = [at for at in (self.supervisor, by_launchers) if at is not None]
        return max(found) if found else None

    def held(self, now: float) -> bool:
        """Say whether processes may run. The only node of a job is a majority by itself."""
        return self.is_alone or self.is_fresh(now)

    @property
    def is_alone(self) -> bool:
        """Whether nobody else is counted."""
        return self.votes and not self.others

    def is_fresh(self, now: float) -> bool:
        """Say whether it was renewed in time, always."""
        at = self.renewed()
        fresh = at is not None and now - at <= self.timeout
        self.over = self.over or (self.had and not fresh)
        self.had = self.had or fresh
        return fresh and not self.over

    def end(self) -> float:
        """Return until when processes may run if nobody answers any more, 0 for ever."""
        return 0.0 if self.is_alone else (self.renewed() or 0.0) + self.timeout

    def why_over(self) -> str:
        """Say why the processes may not go on."""
        return "neither the supervisor nor most of the launchers have answered for %g s" % self.timeout

    def unheard(self, now: float) -> Dict[int, float]:
        """Return the launchers that were not answered for a while, and for how many seconds."""
        return {node: now - at for node, at in self.heard.items() if now - at > 2.5 * TICK}


class Post:
    """How launchers and the supervisor hear of each other.

    To other launchers a tick is a datagram, as are their answers. To those who watch the job on this host it is a line
    in each of their pipes (`run/feeds`, made by them); the supervisor's answers come in the file `answer`.
    """

    def __init__(self, launcher: Launcher, feeds: str) -> None:
        self.launcher, self.lease, self.feeds = launcher, launcher.lease, feeds
        self.answer = os.path.join(launcher.dir, "answer")
        self.cut = os.path.join(os.path.dirname(feeds), "cut")
        self.socket = open_socket()
        self.port: Optional[int] = self.socket.getsockname()[1] if self.socket else None
        self.peers: Dict[int, Any] = {}  # their sockets' addresses
        self.next = 0.0
        self.last: Optional[str] = None  # the newest tick in this generation
        self.done: Set[int] = set()  # nodes that have said that they are done
        self.told: Set[int] = set()  # nodes that have heard that this one is
        self.hung: Dict[int, int] = {}  # how far other nodes are with their stacks, see Muster
        self.level = 0  # how far this one is
        self.limit: Optional[float] = None  # after how many seconds another node has called this generation hung
        self.shown = -MUSTER  # when this one has written its stacks, and gone on
        self.echo: Optional[str] = None  # what the supervisor last said beside an answer: that we have heard it by then
        self.version = 0  # of the report

    def meet(self, order: Json) -> None:
        """Take note of where the launchers of a new generation hear."""
        self.peers, self.next, self.last, self.echo = {}, 0.0, None, None
        self.done, self.told = set(), set()
        self.hung, self.level, self.limit = {}, 0, None
        for member in order["members"]:
            port = member.get("port")
            if self.socket is not None and port and member["node"] != self.lease.me:
                found = resolve(self.socket, member["address"], port)
                if found is not None:
                    self.peers[member["node"]] = found

    def wait(self, seconds: float) -> None:
        """Return when something may have come, or after `seconds`."""
        if self.socket is None:
            time.sleep(seconds)
            return
        import select

        kept = self.launcher.kept
        with contextlib.suppress(InterruptedError):
            select.select([self.socket, *([kept.wire.socket] if kept else [])], [], [], seconds)

    def report_changed(self) -> None:
        """Tell at once."""
        self.version += 1
        self.next = 0.0

    def attend(self) -> None:
        """Read what has come, answer it, and send a tick if it is time for one."""
        self.lease.held(boot_time())  # what is over is not saved by an answer that comes just now
        if self.launcher.kept is not None:
            self.launcher.kept.read()
        if is_cut(self.cut):
            self.lose_datagrams()
            return
        self.read_answer()
        self.read_datagrams()
        now = boot_time()
        if now < self.next:
            return
        self.next = now + (TICK if self.launcher.pending is None else FIRST_TICKS)
        name = self.last = self.lease.tick(now)
        if self.lease.generation is not None and self.launcher.kept is None:
            for peer in self.peers.values():
                self.send({"tick": name, "generation": self.lease.generation, "node": self.lease.me}, peer)
        self.write_line(name, now)

    def lose_datagrams(self) -> None:
        """Forget what has come, as a cut cable does."""
        with contextlib.suppress(OSError):
            while self.socket is not None:
                self.socket.recv(DATAGRAM)

    def read_answer(self) -> None:
        """Read the supervisor's last answer: the tick's name, and something to repeat."""
        try:
            with open(self.answer) as file:
                text = file.read(200)
        except (OSError, ValueError):
            return
        if text.endswith("\n") and len(text.split()) == 2:  # else it is being written just now
            name, echo = text.split()
            if name in self.lease.sent:
                self.echo = echo
            self.lease.answered(name, None)

    def read_datagrams(self) -> None:
        """Read and answer what other launchers have sent."""
        while self.socket is not None:
            try:
                data, sender = self.socket.recvfrom(DATAGRAM)
            except OSError:
                return
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                self.hear(json.loads(data.decode()), sender)

    def hear(self, message: Json, sender: Any) -> None:
        """Take note of one datagram. Raises KeyError and the like for what no launcher has sent."""
        generation, node = message["generation"], int(message["node"])
        if generation != self.lease.generation:
            return
        if message.get("done"):
            self.done.add(node)
            self.send({"heard": True, "generation": generation, "node": self.lease.me}, sender)
        elif message.get("heard"):
            self.told.add(node)
        elif "hung" in message:
            self.hear_hung(message, node)
        elif "answer" in message:
            self.lease.answered(message["answer"], node)
        elif self.lease.asked(generation, node, boot_time()):
            self.send({"answer": message["tick"], "generation": generation, "node": self.lease.me}, sender)
            # It may not have been there yet when that was sent; only who misses an answer asks, so two never go on for ever.
            if self.launcher.pending is not None and self.last is not None and self.lease.misses(node):
                self.send({"tick": self.last, "generation": generation, "node": self.lease.me}, sender)

    def hear_hung(self, message: Json, node: int) -> None:
        """Take note of how far another node is with its stacks. One that asks is answered, and has this node write its own."""
        limit = float(message["limit"])
        self.hung[node] = int(message["hung"])
        if not message["asks"]:
            return
        there = not self.launcher.stands_still(limit) or time.monotonic() - self.shown < MUSTER
        level = Muster.WRITTEN if there else self.level
        if level == 0:
            self.limit = limit
        self.say_hung({node}, level, limit, asks=False)

    def say_hung(self, nodes: Set[int], level: int, limit: float, asks: bool) -> None:
        """Tell the launchers of `nodes` how far this one is with its stacks."""
        said = {"hung": level, "limit": limit, "asks": asks, "generation": self.lease.generation, "node": self.lease.me}
        for node in nodes & set(self.peers):
            self.send(said, self.peers[node])

    def say_done(self, nodes: Set[int]) -> None:
        """Tell the launchers of `nodes` that this one is done."""
        for node in nodes & set(self.peers):
            self.send({"done": True, "generation": self.lease.generation, "node": self.lease.me}, self.peers[node])

    def send(self, message: Json, to: Any) -> None:
        """Send a datagram; one that is lost is like one that was never sent."""
        if self.socket is not None:
            with contextlib.suppress(OSError):
                self.socket.sendto(json.dumps(message).encode(), to)

    def write_line(self, name: str, now: float) -> None:
        """Tell those who watch: one line each, whole or not at all."""
        report = self.launcher.report
        line = {
            "node": self.launcher.launch["node"],
            "tick": name,
            "generation": self.lease.generation,
            "report": "%d.%d" % (self.launcher.guard, self.version),
            "progress": report["progress"],
            "echo": self.echo,
            "unheard": {str(node): round(age, 3) for node, age in self.lease.unheard(now).items()},
        }
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        if len(data) > select_pipe_size():
            line["unheard"] = None  # too many: nothing is said of any
            data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        for path in files_in(self.feeds):
            with contextlib.suppress(OSError):  # nobody reads it any more, or does not keep up
                handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    os.write(handle, data)
                finally:
                    os.close(handle)


def is_cut(path: str) -> bool:
    """Say whether a drill plays that this host is lost: the file says until when, in seconds since the epoch."""
    try:
        with open(path) as file:
            return time.time() < float(file.read(32))
    except (OSError, ValueError):
        return False


def select_pipe_size() -> int:
    """Return how many bytes a pipe takes whole (PIPE_BUF)."""
    import select

    return select.PIPE_BUF


def open_socket() -> Optional[socket.socket]:
    """Return a socket for datagrams at a free port of all addresses, of both families where there are two."""
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
        try:
            made = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        except OSError:
            continue
        try:
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            made.bind((address, 0))
            made.setblocking(False)
            return made
        except OSError:
            made.close()
    note("no socket for datagrams: other launchers cannot hear this one")
    return None


def resolve(made: socket.socket, address: str, port: int) -> Any:
    """Return an address for `sendto`, None for a name that means nothing here."""
    flags = socket.AI_V4MAPPED | socket.AI_ALL if made.family == socket.AF_INET6 else 0
    try:
        return socket.getaddrinfo(address, port, made.family, socket.SOCK_DGRAM, 0, flags)[0][4]
    except OSError as error:
        note("cannot resolve %s: %s" % (address, error))
        return None


# --- The lease in etcd -------------------------------------------------------------------------------------------
#
# Below the job's prefix there is `generation`, the newest order, and `nodes/N` for each node that has a launcher: a
# key that goes with that launcher's lease. Only who has it may run the node, wherever it is: etcd decides alone.

TERMINATED = 2.0  # seconds between the end of a lease here and in etcd: processes are to be killed, clocks drift
ASKED = 2.0  # seconds within which a member of etcd has to answer
STALE_TOKEN = ("auth token", "auth store", "user name is empty")  # in what it answers to a token that it forgot


class Wire:
    """One end of a pair of sockets, for lines of JSON; it never waits, neither to send nor to receive."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.socket, self.out, self.rest, self.closed = end, b"", b"", False

    def send(self, message: Json) -> None:
        """Send a message, what there is no room for with the next `flush`."""
        self.out += json.dumps(message).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send what was not sent yet, as far as there is room."""
        try:
            while self.out:
                self.out = self.out[self.socket.send(self.out) :]
        except BlockingIOError:
            pass
        except OSError:
            self.out, self.closed = b"", True

    def receive(self) -> List[Json]:
        """Return the messages that have come."""
        try:
            while True:
                data = self.socket.recv(65536)
                if not data:
                    self.closed = True
                    break
                self.rest += data
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        *lines, self.rest = self.rest.split(b"\n")
        return [json.loads(line.decode()) for line in lines]


class Kept(Lease):
    """The lease that the keeper (another process, as etcd may be slow) keeps in etcd, and what it says of the job.

    `order` is the newest generation there, `gone` the members whose leases are over and for how long, `lost` whether
    the keeper itself has ended.
    """

    WAITS = "waits for its lease in etcd, and for the generation there"

    def __init__(self, channel: socket.socket) -> None:
        self.wanted = self.granted = 0.0  # what the generation has for a timeout, and the lease in etcd
        super().__init__()
        self.wire = Wire(channel)
        self.order: Optional[Json] = None
        self.first = True  # whether nothing was heard of a generation yet
        self.at: Optional[float] = None  # from when on the lease counts
        self.agreed: Optional[str] = None  # the generation that etcd has
        self.gone: Dict[int, float] = {}
        self.problem: Optional[str] = None
        self.said: Optional[str] = None
        self.lost = False
        self.began = boot_time()
        self.again: List[int] = []  # members whose launchers have forgotten this generation
        self.done: Set[int] = set()  # members that are done with it
        self.all_done = False  # all are, and know it

    # Whether the end is for the launchers to decide: where nobody else ever will.
    gives_up = False

    def located(self, order: Json, member: Json) -> Tuple[Json, Json]:
        """Return an order with addresses in place of names that change their meaning, and this node's entry in it."""
        return order, member

    def say_done(self, generation: str) -> None:
        """Tell the others that this node is done with a generation."""

    def begin(
        self,
        generation: Optional[str],
        nodes: Sequence[int],
        me: int,
        timeout: float,
        now: float,
        voters: Optional[Sequence[int]] = None,
    ) -> None:
        """Ask for one for a new generation: what etcd has is asked for each time."""
        super().begin(generation, nodes, me, min(timeout, self.granted or timeout), now, voters)
        self.began, self.wanted = now, timeout

    def move_on(self, generation: str, nodes: Sequence[int], me: int, now: float) -> None:
        """Have the same lease for a new generation."""
        super().move_on(generation, nodes, me, now)
        self.began = now

    def read(self) -> None:
        """Take note of what the keeper says."""
        for said in self.wire.receive():
            self.hear(said)
        self.wire.flush()
        self.lost = self.wire.closed

    def hear(self, said: Json) -> None:
        """Take note of one round of the keeper's."""
        self.at, self.agreed = said["at"], said["id"]
        self.gone = {int(node): seconds for node, seconds in said["gone"].items()}
        self.granted = said["ttl"] - TERMINATED
        self.timeout = min(self.wanted, self.granted)
        self.problem = said["problem"]
        if said["problem"]:
            self.say_once(said["problem"])
        if said["over"]:
            self.over = self.had  # the node may run elsewhere already
        order = said.get("order")
        if order is not None:
            self.order = None if self.first and order["command"] == "finish" else order
            self.first = False

    def renewed(self) -> Optional[float]:
        """Return from when on it counts, None before etcd has this generation."""
        return self.at if self.had or self.agreed == self.generation else None

    def has(self, now: float) -> bool:
        """Say whether there is a lease at all, whatever became of the one that the processes ran on."""
        return self.at is not None and now - self.at <= self.granted

    def held(self, now: float) -> bool:
        """Say whether processes may run."""
        return self.is_fresh(now)

    def unheard(self, now: float) -> Dict[int, float]:
        """Return the members that have no lease, and for how many seconds."""
        return self.gone

    def why_over(self) -> str:
        """Say why the processes may not go on."""
        return "its lease in etcd is over (%s)" % (self.problem or "%g s without an answer" % self.timeout)

    def waits(self) -> str:
        """Say what is waited for before processes may run."""
        return "%s (%s)" % (self.WAITS, self.problem) if self.problem else self.WAITS

    def supervised(self, now: float) -> bool:
        """Say whether a supervisor sees to the job: it has answered lately, or has hardly had the time to."""
        return now - (self.supervisor or self.began) <= UNSUPERVISED

    def end(self) -> float:
        """Return until when processes may run if etcd does not answer any more."""
        return (self.renewed() or 0.0) + self.timeout

    def propose(self, order: Json, after: Optional[str] = None) -> None:
        """Have `order` put into etcd if it is newer than what is there; with `after`, if that generation runs there."""
        self.wire.send({"order": order, "after": after})

    def leave(self) -> None:
        """Give the lease back; takes as long as etcd takes to answer, at most."""
        import select

        self.wire.send({"leave": True})
        until = time.monotonic() + ASKED
        while not self.wire.closed and time.monotonic() < until:
            select.select([self.wire.socket], [], [], 0.1)
            self.wire.receive()
            self.wire.flush()

    def say_once(self, text: str) -> None:
        """Tell a person who reads the launcher's own log, once."""
        if text != self.said:
            self.said = text
            note(text)


class Circled(Kept):
    """The lease that the launchers of a cluster give each other, by their Circle: no supervisor sees to them."""

    WAITS = "waits for the launchers of all nodes"
    gives_up = True

    def __init__(self, channel: socket.socket) -> None:
        super().__init__(channel)
        self.addresses: Dict[int, str] = {}

    def hear(self, said: Json) -> None:
        """Take note of one round of the circle's."""
        super().hear(said)
        self.again, self.done, self.all_done = said["again"], set(said["done"]), said["all_done"]
        self.addresses = {int(node): address for node, address in said["addresses"].items()}

    def supervised(self, now: float) -> bool:
        """Nobody does."""
        return False

    def why_over(self) -> str:
        """Say why the processes may not go on."""
        return "most of the launchers have not answered for %g s" % self.timeout

    def located(self, order: Json, member: Json) -> Tuple[Json, Json]:
        """Return an order with the addresses that the launchers have now: names come to mean others when pods do."""
        self.wire.send({"begun": order["rendezvous"]["id"]})
        members = [{**m, "address": self.addresses.get(m["node"], m["address"])} for m in order["members"]]
        known = {m["address"]: new["address"] for m, new in zip(order["members"], members)}
        meeting = order["rendezvous"]
        meeting = {**meeting, "address": known.get(meeting["address"], meeting["address"])}
        mine = next(m for m in members if m["node"] == member["node"])
        return {**order, "members": members, "rendezvous": meeting}, mine

    def say_done(self, generation: str) -> None:
        """Have the circle tell the others."""
        self.wire.send({"done": generation})


class Failed:
    """A node that has failed, and what the launchers may do about it by themselves: begin the next generation.

    A small part of what supervisors decide (supervise/failures.py): whatever is not plain waits for one.
    """

    def __init__(self, report: Json, launch: Json, now: float) -> None:
        failure = report["failure"]
        self.since = now
        self.proposed: Optional[float] = None
        self.failure = {
            "generation": report["generation"],
            "at": failure["at"],
            "node": launch["node"],
            "host": launch["host"],
            "rank": failure["rank"],
            "exit_code": failure["exit_code"],
            "kind": failure["kind"],
            "progress": report["progress"],
            "ran": max(0.0, failure["at"] - (report["started_at"] or failure["at"])),
            "log": failure["log"],
            "tail": abridged(failure)["tail"],
            "reason": report["reason"],
            "alike": [],
        }

    def waits(self, order: Json, kept: Kept, now: float) -> Optional[str]:
        """Say what is waited for before anything may be begun, None if nothing is."""
        alone = order.get("alone")
        if alone is None or order["command"] != "run":
            return "waits for the supervisor"
        if kept.supervised(now):
            return "leaves it to the supervisor"
        if not kept.has(now):
            return "has no lease, and so begins nothing"
        if kept.gone:
            return "waits for node %s, which has no lease" % ", ".join(map(str, sorted(kept.gone)))
        return None

    def final(self, order: Json) -> Optional[str]:
        """Say why nothing is to be begun any more, None if something is."""
        alone = order["alone"]
        if self.failure["kind"] in ("setup", "start"):
            return "what cannot be started is not retried"
        if len(alone["failures"]) >= alone["restarts"]:
            return "the restarts of `recovery.max_restarts` are used up"
        rule = next((rule for rule in alone["rules"] if self.matches(rule)), None)
        if rule is not None:
            return None if rule["do"] == "restart" else "a rule says not to retry here"
        if any(self.is_repeated(earlier) for earlier in self.fruitless(alone["failures"])):
            return "failed the same way again, before any progress"
        return None

    def end(self, order: Json, why: str) -> Json:
        """Return the order to end the job, because of this failure."""
        code = self.failure["exit_code"] or 1
        # What a signal has ended is started again by the cluster, and this is the end.
        code = code if code < 128 else 1
        return {**order, "command": "finish", "exit_code": code, "why": "%s: %s" % (self.failure["reason"], why)}

    def matches(self, rule: Json) -> bool:
        """Say whether a rule of the spec, or of jobctl's own, is about this failure."""
        if rule["exit"] is not None and rule["exit"] != self.failure["exit_code"]:
            return False
        return rule["log"] is None or any(re.search(rule["log"], line) for line in self.failure["tail"])

    def fruitless(self, failures: Sequence[Json]) -> List[Json]:
        """Return the failures since there was progress, the newest first."""
        found: List[Json] = []
        later = self.failure
        for earlier in reversed(failures):
            if made_progress(later, earlier):
                break
            found.append(earlier)
            later = earlier
        return found

    def is_repeated(self, earlier: Json) -> bool:
        """Say whether the same rank had failed with the same code, by itself."""
        same = all(self.failure[key] == earlier[key] for key in ("rank", "exit_code", "kind"))
        by_itself = self.failure["exit_code"] not in [128 + number for number in (1, 2, 9, 15)]
        return same and by_itself and self.failure["kind"] in ("exit", "signal")

    def delay(self, order: Json) -> float:
        """Return how many seconds to wait first: for the failure that is the cause of others, longer without progress."""
        count = len(self.fruitless(order["alone"]["failures"]))
        return SETTLE if count == 0 else min(FIRST_DELAY * 2.0 ** (count - 1), LONGEST_DELAY)

    def waits_for_etcd(self, now: float) -> bool:
        """Say whether a generation was proposed a moment ago."""
        return self.proposed is not None and now - self.proposed <= UNSUPERVISED

    def successor(self, order: Json) -> Json:
        """Return the generation after `order`, of the same members."""
        number, meeting, alone = order["number"] + 1, order["rendezvous"], order["alone"]
        port = free_port(meeting["address"], meeting["port"] + 1, *alone["ports"])
        name = "%s-%d-%s" % (order["job"], number, os.urandom(4).hex())
        return {
            **order,
            "number": number,
            "grace": 0.0,  # a process whose peer is gone hangs in its collective: it gets no time to end
            "rendezvous": {**meeting, "port": port, "id": name},
            "alone": {**alone, "failures": [*alone["failures"], self.failure]},
        }


def made_progress(failure: Json, last: Json) -> bool:
    """Say whether a generation that ended with `failure` got anywhere since `last`: see supervise/failures.py."""
    if failure["progress"] is None:
        return last["progress"] is None and float(failure["ran"]) >= PROGRESS_WITHOUT_COUNTER
    return bool(failure["progress"] != last["progress"])


def free_port(address: str, first: int, least: int, most: int) -> int:
    """Return the first port from `first` on, between `least` and `most`, at which nobody listens."""
    for number in range(20):
        port = least + (first - least + number) % (most - least + 1)
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            probe.settimeout(0.5)
            try:
                probe.connect((address, port))
            except OSError:
                return port
    return first


class EtcdError(Exception):
    """etcd did not do as asked; `status` is that of HTTP, None where no member answered."""

    def __init__(self, message: str, status: Optional[int] = None) -> None:
        super().__init__(message)
        self.status = status


class Etcd:
    """The calls of etcd's JSON gateway (v3) that a lease needs. Each raises EtcdError.

    https://etcd.io/docs/v3.5/dev-guide/api_grpc_gateway/
    """

    def __init__(self, settings: Json, password: Optional[str]) -> None:
        self.endpoints: List[str] = list(settings["endpoints"])
        self.user, self.password, self.token = settings.get("user"), password, ""
        self.tls: Optional[Json] = settings.get("tls")
        self.connection: Any = None
        self.doubt = False  # whether members are asked whether they have a leader, before they are asked for more

    def call(self, path: str, **body: Any) -> Json:
        """Return what the first member answers that does; the one that has answered last is asked first."""
        problems = []
        for _ in self.endpoints:
            try:
                if self.doubt and not self.leader(self.endpoints[0]):
                    raise EtcdError("it has no leader")
                found = self.authorised(path, body)
                self.doubt = False
                return found
            except EtcdError as error:
                if error.status is not None and error.status < 500:
                    raise
                problems.append("%s: %s" % (self.endpoints[0], error))
                self.endpoints.append(self.endpoints.pop(0))
                self.doubt = True
        raise EtcdError("etcd does not answer: %s" % "; ".join(problems))

    def leader(self, member: str) -> int:
        """Return whom a member follows, 0 for nobody; it knows at once, where all else waits for a leader."""
        return int(self.ask(member, "/v3/maintenance/status", {}).get("leader", 0))

    def authorised(self, path: str, body: Json) -> Json:
        """Ask the first member; with a new token where it knows the old one no more (it forgets them in five minutes)."""
        if self.user and not self.token:
            found = self.ask(self.endpoints[0], "/v3/auth/authenticate", {"name": self.user, "password": self.password})
            self.token = found["token"]
            return self.ask(self.endpoints[0], path, body)  # a new token: what is refused now is refused
        try:
            return self.ask(self.endpoints[0], path, body)
        except EtcdError as error:
            if not self.user or not (error.status == 401 or any(sign in str(error) for sign in STALE_TOKEN)):
                raise
            self.token = ""
            return self.authorised(path, body)

    def ask(self, endpoint: str, path: str, body: Json) -> Json:
        """Ask one member, by the open connection if there is one that still works."""
        import http.client

        kept, self.connection = self.connection, None
        if kept is not None and kept.name != endpoint:
            kept.close()
            kept = None
        try:
            if kept is not None:
                with contextlib.suppress(ConnectionError):  # it was closed meanwhile
                    return self.exchange(kept, path, body)
            return self.exchange(self.connect(endpoint), path, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise EtcdError(str(error) or type(error).__name__) from error

    def connect(self, endpoint: str) -> Any:
        """Return a connection to a member, which is opened with the first request."""
        import http.client

        host, _, port = endpoint.rpartition(":")
        host = host.strip("[]")
        made: Any
        if self.tls is None:
            made = http.client.HTTPConnection(host, int(port), timeout=ASKED)
        else:
            made = http.client.HTTPSConnection(host, int(port), timeout=ASKED, context=tls_context(self.tls))
        made.name = endpoint
        return made

    def exchange(self, connection: Any, path: str, body: Json) -> Json:
        """Send a request and read the answer; the connection is kept if all went well."""
        headers = {"Content-Type": "application/json"}
        if self.token and path != "/v3/auth/authenticate":
            headers["Authorization"] = self.token
        try:
            connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace").partition("\n")[0]
        except BaseException:
            connection.close()
            raise
        self.connection = connection
        try:
            found: Json = json.loads(text)  # a stream, that of keepalive, has its one result on the first line
        except ValueError:
            found = {"error": text or answer.reason}
        if answer.status != 200 or "error" in found:
            error = found.get("error") or found.get("message") or answer.reason  # 3.6 has no `error`
            raise EtcdError(error["message"] if isinstance(error, dict) else str(error), answer.status)
        return dict(found.get("result", found))


def tls_context(files: Json) -> Any:
    """Return how to speak TLS with etcd. Raises OSError for files that cannot be read."""
    import ssl

    for path in files.values():
        if path is not None:
            with open(path, "rb"):
                pass  # OpenSSL does not say which of the files is missing
    context = ssl.create_default_context(cafile=files.get("ca"))
    if files.get("cert"):
        context.load_cert_chain(files["cert"], files.get("key"))
    return context


def text64(text: str) -> str:
    """Return text as etcd's gateway wants keys and values."""
    return binascii.b2a_base64(text.encode(), newline=False).decode()


def of64(text: str) -> str:
    """Return the text that a key or value of etcd's gateway holds."""
    return binascii.a2b_base64(text).decode()


class Keeper:
    """Keeps the node's lease in etcd, and knows the generation there. A process of its own, told by lines of JSON.

    In: `{"order": …, "after": …}`, a generation to be put into etcd if it is the newest, and `{"leave": true}`. Out: after
    each round from when on the lease counts (`at`), the generation that etcd has (its `id`; `order` when it has changed),
    which members have no lease (`gone`), whether ours is `over`, and what is wrong (`problem`).
    """

    def __init__(self, launch: Json, options: argparse.Namespace, channel: socket.socket) -> None:
        settings = launch["etcd"]
        secrets = read_secrets(options.secrets)
        self.etcd = Etcd(settings, secrets.get(settings.get("password") or ""))
        self.prefix: str = settings["prefix"]
        self.key = "%s/nodes/%d" % (self.prefix, launch["node"])
        self.value = json.dumps({"node": launch["node"], "host": launch["host"], "instance": os.urandom(8).hex()})
        self.wire = Wire(channel)
        self.host = launch["host"]
        self.file = os.path.join(options.dir, "lease")
        self.cut = os.path.join(os.path.dirname(options.control), "cut")
        self.before = self.lease_of_before()  # of the launcher before this one, which is dead
        self.lease: Optional[str] = None
        self.asked = self.asked_other = 0.0  # when that was granted, or asked to be kept alive
        self.other: Optional[str] = None  # one of another length, which the key is to go with
        self.has_key = False
        self.ttl = self.lease_ttl = self.other_ttl = 0  # seconds: as it should be, as it is, as it will be
        self.alive: Optional[float] = None  # from when on the lease counts, with which the key was seen
        self.paused: Optional[float] = None  # when it stood still, see Quorum
        self.over = False
        self.order: Optional[Json] = None  # as etcd has it
        self.revision = "0"
        self.changed = False
        self.proposal: Optional[Json] = None
        self.after: Optional[str] = None
        self.gone: Dict[int, float] = {}  # members without a lease, and since when
        self.quorum = Quorum(self.etcd)

    def run(self) -> int:
        """Keep it until told to leave."""
        die_with_parent()
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        import select

        while True:
            began = boot_time()
            pause = self.turn(began)
            select.select(
                [self.wire.socket],
                [self.wire.socket] if self.wire.out else [],
                [],
                max(0.0, began + pause - boot_time()),
            )
            if not self.listen():
                self.leave()
                return 0

    def turn(self, now: float) -> float:
        """See to everything once, and tell the launcher; return after how many seconds to do so again."""
        problem, again = None, False
        try:
            if not is_cut(self.cut):
                again = self.round()
                self.quorum.there()
        except EtcdError as error:
            problem = str(error)
            self.pause(self.quorum.paused(now) if error.status is None else None)
        self.say(problem)
        return 0.0 if again else TICK if self.has_key or problem else FIRST_TICKS

    def pause(self, at: Optional[float]) -> None:
        """Let the lease count from `at`, when no lease could end; it must not have been over by then."""
        times = [time for time in (self.alive, self.paused) if time is not None]
        if at is not None and self.alive is not None and at - max(times) <= self.lease_ttl - TERMINATED:
            self.paused = at

    def listen(self) -> bool:
        """Read what the launcher says; return False when it leaves."""
        for said in self.wire.receive():
            if said.get("leave"):
                return False
            self.proposal, self.after = said["order"], said["after"]
            self.take_length(said["order"])
        return not self.wire.closed

    def take_length(self, order: Json) -> None:
        """Take note of how long leases are in a generation."""
        self.ttl = int(float(order.get("host_timeout", 30.0)) + TERMINATED + 0.999)

    def say(self, problem: Optional[str]) -> None:
        """Tell the launcher how things are."""
        now = boot_time()
        times = [at for at in (self.alive, self.paused) if at is not None]
        said: Json = {
            "at": max(times) if self.has_key and self.alive is not None else None,
            "id": self.order["rendezvous"]["id"] if self.order else None,
            "gone": {str(node): now - since for node, since in self.gone.items()},
            "over": self.over,
            "ttl": self.lease_ttl,
            "problem": problem,
        }
        self.wire.flush()
        if self.wire.out:
            return  # it hears nothing just now; what is said then is what is so then
        if self.changed:
            said["order"], self.changed = self.order, False
        self.over = False
        self.wire.send(said)

    def round(self) -> bool:
        """See to everything once; say whether there is more to do at once. Raises EtcdError."""
        if self.before is not None:
            self.revoke(self.before)
            self.before = None
        if self.lease is not None:
            self.renew(self.lease)
        if self.ttl and self.lease is None:
            self.asked = boot_time()
            self.lease = self.grant()
            self.lease_ttl = self.ttl
        took = self.look()
        if self.has_key and self.ttl != self.lease_ttl:
            self.swap()
            took = True
        return self.put_proposal() or took

    def grant(self) -> str:
        """Return a new lease, which the next launcher on this host will know of."""
        lease = str(self.etcd.call("/v3/lease/grant", TTL=str(self.ttl))["ID"])
        self.remember(lease)
        return lease

    def swap(self) -> None:
        """Have the key go with a lease of another length; the next look says whether it does."""
        self.asked_other = boot_time()
        self.other, self.other_ttl = self.grant(), self.ttl
        key = text64(self.key)
        self.etcd.call(
            "/v3/kv/txn",
            compare=[{"key": key, "target": "LEASE", "lease": self.lease}],
            success=[{"request_put": {"key": key, "value": text64(self.value), "lease": self.other}}],
        )

    def renew(self, lease: str) -> None:
        """Keep the lease alive."""
        now = boot_time()
        left = int(self.etcd.call("/v3/lease/keepalive", ID=lease).get("TTL", 0))
        if left <= 0:
            self.lose()
        else:
            self.asked = now

    def lose(self) -> None:
        """Take note that the lease is over: others may have the node."""
        self.over = self.over or self.has_key
        self.lease, self.other, self.has_key, self.alive = None, None, False, None

    def look(self) -> bool:
        """Read generation and nodes, and take the node's key if it is free; say whether to look again at once."""
        now = boot_time()
        end = self.prefix + "0"  # the character after the slash
        found = self.etcd.call("/v3/kv/range", key=text64(self.prefix + "/"), range_end=text64(end)).get("kvs", [])
        keys = {of64(item["key"]): item for item in found}
        item = keys.get(self.prefix + "/generation")
        self.revision = item["mod_revision"] if item else "0"
        order = json.loads(of64(item["value"])) if item else None
        if order != self.order:
            self.order, self.changed = order, True
        if order is not None and self.proposal is None:
            self.take_length(order)
        nodes = {m["node"] for m in order["members"]} if order else set()
        missing = {node for node in nodes if "%s/nodes/%d" % (self.prefix, node) not in keys}
        self.gone = {node: self.gone.get(node, now) for node in missing}
        return self.look_at_key(keys.get(self.key))

    def look_at_key(self, mine: Optional[Json]) -> bool:
        """See whether the node's key goes with our lease; take it if it is free, and say so. Raises EtcdError for another's."""
        lease = mine.get("lease") if mine else None
        if self.other is not None and lease == self.other:
            before, self.lease, self.other = self.lease, self.other, None
            self.lease_ttl, self.asked = self.other_ttl, self.asked_other
            if before is not None:
                self.revoke(before)
        if self.lease is not None and lease == self.lease:
            self.has_key, self.alive = True, self.asked
            return False
        if self.has_key:
            self.lose()  # somebody has deleted it
            return True
        if self.lease is None:
            return False
        if mine is not None:
            host = json.loads(of64(mine["value"]))["host"]
            raise EtcdError("the node's lease is that of a launcher on %s; waits until it is over" % host, 409)
        self.take_key(self.lease)
        return True

    def take_key(self, lease: str) -> None:
        """Take the node's key if nobody has it; the next look says whether we do."""
        self.etcd.call(
            "/v3/kv/txn",
            compare=[{"key": text64(self.key), "target": "CREATE", "create_revision": "0"}],
            success=[{"request_put": {"key": text64(self.key), "value": text64(self.value), "lease": lease}}],
        )

    def put_proposal(self) -> bool:
        """Put what was proposed into etcd if that is due; say whether to look again at once. Raises EtcdError."""
        order, after = self.proposal, self.after
        if order is None or not self.has_key:
            return False
        there = self.order
        late = there is not None and age(order) <= age(there)
        follows = there is not None and there["rendezvous"]["id"] == after and there["command"] == "run"
        if late or (after is not None and not follows):
            self.proposal = None
            return False
        key = text64(self.prefix + "/generation")
        self.etcd.call(
            "/v3/kv/txn",
            compare=[{"key": key, "target": "MOD", "mod_revision": self.revision}],
            success=[{"request_put": {"key": key, "value": text64(json.dumps(order))}}],
        )
        return True

    def leave(self) -> None:
        """Give the lease back; the last one to leave a job that is finished takes the rest along."""
        with contextlib.suppress(EtcdError, OSError):
            if self.lease is not None:
                self.revoke(self.lease)
            proposal = self.proposal or self.order
            if proposal is not None and proposal["command"] == "finish":
                start, end = text64(self.prefix + "/nodes/"), text64(self.prefix + "/nodes0")
                if not self.etcd.call("/v3/kv/range", key=start, range_end=end).get("kvs"):
                    start, end = text64(self.prefix + "/"), text64(self.prefix + "0")
                    self.etcd.call("/v3/kv/deleterange", key=start, range_end=end)

    def revoke(self, lease: str) -> None:
        """End a lease, and the key that goes with it. Raises EtcdError if nobody answers."""
        try:
            self.etcd.call("/v3/lease/revoke", ID=lease)
        except EtcdError as error:
            if error.status is None:
                raise  # else it is over already

    # What the next launcher on this host has to know: it may end this one's lease, as it starts only once this one is dead.

    def lease_of_before(self) -> Optional[str]:
        """Return the lease of the launcher before this one, None if there was none.

        Not that of one on another host whose directory this is too: it may live.
        """
        last = read_json(self.file) or {}
        return last["lease"] if last.get("host") == self.host else None

    def remember(self, lease: str) -> None:
        """Write down our lease."""
        write_json(self.file, {"lease": lease, "host": self.host})


# --- The lease among the launchers of a cluster ------------------------------------------------------------------
#
# In a cluster without an operator nobody sees to the job but its launchers. Each tells all others by datagrams, once a
# second, which generation it knows, and repeats what it has last heard from them: that is an answer, and a strict
# majority of them keeps the lease. The newest generation wins (see `age`). One begins when all its members were heard, so
# that each knows the others' launchers; who hears another launcher for the same node ends it.

LINGER = 1.5  # seconds in which a launcher that leaves still says so
SILENT = 2.5  # ticks after which a launcher is called unheard
FAILURES = 50  # that are told of: a datagram holds no more than 64 KiB


class Heard:
    """What was last heard of another launcher."""

    def __init__(self, message: Json, sender: Any, now: float) -> None:
        self.sender, self.at = sender, now
        self.who: str = message["who"]
        self.address: str = message["address"]
        self.generation: Optional[str] = message["generation"]
        self.tick: str = message["tick"]
        self.begun: bool = message["begun"]
        self.knows: Optional[str] = message["knows"]  # which launcher of this node it has met in that generation
        self.done: Set[int] = set(message["done"])
        self.age: Any = message["age"]


class Circle:
    """Agrees with the launchers of the other nodes on the generation. A process of its own, told by lines of JSON.

    In and out as with Keeper, and besides: in `{"begun": id}` and `{"done": id}`; out which members' launchers have
    forgotten the generation (`again`), which are `done` with it, whether `all_done` is true and known to all, and where
    the members are (`addresses`).
    """

    def __init__(self, launch: Json, options: argparse.Namespace, channel: socket.socket) -> None:
        self.me: int = launch["node"]
        self.port: int = launch["circle"]
        self.address: str = options.address
        self.wire = Wire(channel)
        self.who = os.urandom(8).hex()
        self.socket = self.open()
        self.names = Names(self.socket.family, self.port)
        self.lease = Lease()
        self.order: Optional[Json] = None
        self.changed = False
        self.heard: Dict[int, Heard] = {}
        self.met: Dict[int, str] = {}  # the launcher of each member, in this generation
        self.agreed = self.begun = self.over = False
        self.again: Set[int] = set()
        self.done: Set[int] = set()
        self.leaving: Optional[float] = None
        self.last: Optional[float] = None  # until when the generation before had its lease
        self.began = boot_time()

    def open(self) -> socket.socket:
        """Return the socket at which the others hear this launcher."""
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        made = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        made.bind((self.address, self.port))
        made.setblocking(False)
        return made

    def run(self) -> int:
        """Agree until told to leave."""
        die_with_parent()
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        self.names.start()
        import select

        following = 0.0
        while True:
            now = boot_time()
            if now >= following:
                self.tell(now)
                self.say(now)
                following = now + (TICK if self.agreed and self.leaving is None and not self.done else FIRST_TICKS)
            writing = [self.wire.socket] if self.wire.out else []
            select.select([self.socket, self.wire.socket], writing, [], max(0.0, following - boot_time()))
            if self.read():
                following = 0.0  # there is something new, for the launcher and for the others
            if not self.listen() or (self.leaving is not None and boot_time() > self.leaving):
                return 0

    # The others.

    def others(self) -> List[Json]:
        """Return the other members."""
        return [m for m in (self.order or {}).get("members", ()) if m["node"] != self.me]

    def identity(self) -> Optional[str]:
        """Return what tells the generation from all others: ids are used again when a job is brought up anew."""
        order = self.order
        return "%s %d %s" % (order.get("began", 0.0), order["number"], self.id) if order else None

    @property
    def id(self) -> Optional[str]:
        """The generation's id, as the launcher knows it."""
        return self.order["rendezvous"]["id"] if self.order else None

    def tell(self, now: float) -> None:
        """Tell every other launcher how things are."""
        if self.order is None:
            return
        message = {
            "job": self.order["job"],
            "run_id": self.order["run_id"],
            "node": self.me,
            "who": self.who,
            "address": self.address,
            "generation": self.identity(),
            "begun": self.begun,
            "done": sorted(self.done),
            "age": age(self.order),
            "tick": self.lease.tick(now),
        }
        for member in self.others():
            heard = self.heard.get(member["node"])
            to = heard.sender if heard and now - heard.at <= SILENT * TICK else self.names.find(member["address"])
            if to is None:
                continue
            same = heard is not None and heard.generation == self.identity()
            own = {"answer": heard.tick if heard and same else None, "knows": self.met.get(member["node"])}
            news = {} if heard and list(heard.age) >= list(age(self.order)) else {"order": self.newest()}
            with contextlib.suppress(OSError):
                self.socket.sendto(json.dumps({**message, **own, **news}).encode(), to)

    def newest(self) -> Json:
        """Return what is not in the control file of the generation that this launcher knows."""
        assert self.order is not None
        known = ("began", "number", "command", "grace", "rendezvous", "exit_code", "why")
        failures = [{**failure, "tail": []} for failure in self.order["alone"]["failures"][-FAILURES:]]
        return {**{key: self.order[key] for key in known if key in self.order}, "failures": failures}

    def read(self) -> bool:
        """Read what the others have sent; say whether it changes anything."""
        before = self.state()
        while True:
            try:
                data, sender = self.socket.recvfrom(65536)
            except OSError:
                break
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                self.hear(json.loads(data.decode()), sender, boot_time())
        self.agree(boot_time())
        return bool(self.state() != before)

    def state(self) -> Any:
        """Return what the others, and the launcher, are told of at once."""
        return self.identity(), (self.order or {}).get("command"), self.agreed, set(self.again), set(self.done)

    def hear(self, message: Json, sender: Any, now: float) -> None:
        """Take note of one datagram. Raises KeyError and the like for what no launcher has sent."""
        order, node = self.order, int(message["node"])
        if order is None or (message["job"], message["run_id"]) != (order["job"], order["run_id"]):
            return
        if node not in [member["node"] for member in self.others()]:
            return
        heard = self.heard[node] = Heard(message, sender, now)
        if "order" in message:
            self.adopt(merged(order, message["order"]))
        if heard.generation is None or heard.generation != self.identity():
            return
        self.lease.asked(heard.generation, node, now)
        if message["answer"]:
            self.lease.answered(message["answer"], node)
        self.done |= heard.done
        known = self.met.get(node)
        if known is None or not self.begun:
            self.met[node] = heard.who
        elif known != heard.who:
            self.again.add(node)

    def adopt(self, order: Json) -> None:
        """Go over to an order that is newer; a new generation is met anew."""
        if self.order is not None and list(age(order)) <= list(age(self.order)):
            return
        before, self.order, self.changed = self.identity(), order, True
        if before != self.identity():
            self.last = self.renewed(boot_time())
            self.met, self.again, self.done = {}, set(), set()
            self.agreed = self.begun = False
            self.began = boot_time()
            nodes = [m["node"] for m in order["members"]]
            voters = [m["node"] for m in of_role(order, "trainer")]
            timeout = float(order.get("host_timeout", 30.0))
            self.lease.begin(self.identity(), nodes, self.me, timeout, boot_time(), voters)

    def agree(self, now: float) -> None:
        """Take note when all members are there for this generation, and none runs it with an earlier launcher of ours."""
        if self.order is None or self.agreed:
            return
        self.agreed = not self.missing(now)

    def missing(self, now: float) -> List[int]:
        """Return the members that are waited for before this generation may begin."""
        return [m["node"] for m in self.others() if not self.is_there(self.heard.get(m["node"]), now)]

    def is_there(self, heard: Optional[Heard], now: float) -> bool:
        """Say whether a member is ready for this generation, together with this launcher."""
        if heard is None or now - heard.at > SILENT * TICK or heard.generation != self.identity():
            return False
        return heard.knows == self.who or (heard.knows is None and not heard.begun)

    # The launcher.

    def listen(self) -> bool:
        """Read what the launcher says; return False when it is gone."""
        for said in self.wire.receive():
            if said.get("leave"):
                self.leaving = boot_time() + LINGER
            elif "begun" in said:
                self.begun = self.begun or said["begun"] == self.id
            elif "done" in said:
                self.done |= {self.me} if said["done"] == self.id else set()
            else:
                self.take(said["order"], said["after"])
        return not self.wire.closed

    def take(self, order: Json, after: Optional[str]) -> None:
        """Go over to what the launcher proposes, if it follows what there is."""
        there = self.order
        if after is None or (there is not None and self.id == after and there["command"] == "run"):
            self.adopt(order)

    def say(self, now: float) -> None:
        """Tell the launcher how things are."""
        self.agree(now)
        self.wire.flush()
        if self.wire.out:
            return  # it hears nothing just now; what is said then is what is so then
        timeout = float((self.order or {}).get("host_timeout", 30.0))
        waited = self.missing(now) if not self.agreed else []
        said: Json = {
            "at": self.renewed(now),
            "id": self.id if self.agreed else None,
            "gone": {str(m["node"]): self.silence(m["node"], now) for m in self.others() if self.is_silent(m, now)},
            "over": False,
            "ttl": timeout + TERMINATED,
            "problem": "not there yet: node %s" % ", ".join(map(str, waited)) if waited else None,
            "again": sorted(self.again),
            "done": sorted(self.done),
            "all_done": self.all_done(now),
            "addresses": {str(node): heard.address for node, heard in self.heard.items()},
        }
        said["addresses"][str(self.me)] = self.address
        if self.changed:
            said["order"], self.changed = self.order, False
        self.wire.send(said)

    def renewed(self, now: float) -> Optional[float]:
        """Return from when on the lease counts; the only trainer of a job has one always.

        Until most have answered in a generation it is that of the one before: its processes may yet have to be ended, and
        the launcher may begin before the first answer is here, as all are known to be there.
        """
        found = now if self.lease.is_alone else self.lease.renewed()
        return self.last if found is None else found

    def silence(self, node: int, now: float) -> float:
        """Return for how many seconds a launcher was not heard."""
        heard = self.heard.get(node)
        return now - (heard.at if heard else self.began)

    def is_silent(self, member: Json, now: float) -> bool:
        """Say whether a member is called unheard."""
        return member["node"] not in self.heard or self.silence(member["node"], now) > SILENT * TICK

    def all_done(self, now: float) -> bool:
        """Say whether all trainers are done, and everyone who is still there knows that this node is."""
        trainers = {m["node"] for m in of_role(self.order or {"members": []}, "trainer")}
        if not self.done or not trainers <= self.done:
            return False
        known = {node for node, heard in self.heard.items() if self.me in heard.done}
        return all(self.is_silent(m, now) or m["node"] in known for m in self.others())


def merged(order: Json, newest: Json) -> Json:
    """Return `order` as another launcher knows it: its members stay the same."""
    failures = newest["failures"]
    rest = {key: value for key, value in newest.items() if key != "failures"}
    return {**order, **rest, "alone": {**order["alone"], "failures": failures}}


class Names:
    """Where names lead, asked for by a thread: a name server that is away must not hold up what else is to be said."""

    def __init__(self, family: int, port: int) -> None:
        self.family, self.port = family, port
        self.wanted: Dict[str, Any] = {}

    def find(self, name: str) -> Any:
        """Return where a name led when it was last asked for, None while that is not known; it is asked for again."""
        return self.wanted.setdefault(name, None)

    def start(self) -> None:
        """Ask from now on."""
        import threading

        threading.Thread(target=self.ask, daemon=True).start()

    def ask(self) -> None:
        """Ask for all names that are wanted, again and again: pods that are started anew have new addresses."""
        while True:
            for name in list(self.wanted):
                with contextlib.suppress(OSError):
                    found = socket.getaddrinfo(name, self.port, self.family, socket.SOCK_DGRAM)
                    self.wanted[name] = found[0][4]
            time.sleep(TICK)


class Quorum:
    """Whether etcd has lost its quorum, so that no lease can end there: then no processes have to end here either.

    Where this host alone is cut off, the others may have a quorum. So of most members it must be known, twice and one
    second apart, that they follow no leader: they say so, or, if at least one of them says so, their hosts refuse to be
    called (a firewall may refuse, but then none says so). Only members that are reached at the addresses of the spec
    count. When a leader is elected again, it gives all leases their whole time once more (etcd's lessor.Promote).
    """

    AGAIN = 60  # rounds after which the members are asked for anew

    def __init__(self, etcd: Etcd) -> None:
        self.etcd = etcd
        self.members: List[Optional[str]] = []  # where they are called, as far as the spec says
        self.left = 0  # rounds until they are asked for
        self.since: Optional[float] = None
        self.rounds = 0

    def there(self) -> None:
        """Take note that it is there, and of who its members are."""
        self.since, self.rounds = None, 0
        if self.left > 0:
            self.left -= 1
            return
        with contextlib.suppress(EtcdError):
            found = self.etcd.call("/v3/cluster/member/list").get("members", [])
            voters = [member for member in found if not member.get("isLearner")]
            self.members = [self.address_of(member) for member in voters]
            if all(member.get("clientURLs") for member in voters):  # else one has not run yet, and so has not said them
                self.left = self.AGAIN

    def address_of(self, member: Json) -> Optional[str]:
        """Return the endpoint of the spec that a member says is its own, None if there is none."""
        own = [str(url).partition("://")[2].rstrip("/") for url in member.get("clientURLs", ())]
        return next((url for url in own if url in self.etcd.endpoints), None)

    def paused(self, now: float) -> Optional[float]:
        """Return when leases stood still, for certain; None if that cannot be said."""
        answers = [self.follows(member) for member in self.members if member is not None]
        leaderless, refused = answers.count("nobody"), answers.count("refused")
        if not leaderless or 2 * (leaderless + refused) <= len(self.members):
            self.since, self.rounds = None, 0
            return None
        self.rounds += 1
        before, self.since = self.since, now
        return before if self.rounds >= 2 else None

    def follows(self, member: str) -> str:
        """Return whether a member follows `somebody` or `nobody`, or its host has `refused` the call; or that it is `silent`."""
        try:
            return "somebody" if self.etcd.leader(member) else "nobody"
        except EtcdError as error:
            return "refused" if isinstance(error.__cause__, ConnectionRefusedError) else "silent"


# --- One generation's processes --------------------------------------------------------------------------------


class Failure:
    """What failed first, for the supervisor and for people."""

    def __init__(
        self,
        kind: str,
        rank: Optional[int],
        local_rank: Optional[int],
        code: Optional[int],
        log: Optional[str],
        at: float,
        tail: Sequence[str] = (),
    ) -> None:
        self.kind, self.rank, self.local_rank, self.exit_code = kind, rank, local_rank, code
        self.log, self.at, self.tail = log, at, list(tail)
        self.step: Optional[int] = None  # the last of that process, where it is started again

    def to_json(self) -> Json:
        """Return the report's form."""
        return dict(vars(self))


class Problem(Exception):
    """Something that keeps a generation from starting."""

    def __init__(self, message: str, failure: Failure) -> None:
        super().__init__(message)
        self.failure = failure


def fenced() -> Failure:
    """Return the failure of a node whose processes may not go on."""
    return Failure("fenced", None, None, None, None, time.time())


def start_failure(code: Optional[int], tail: Sequence[str] = ()) -> Failure:
    """Return the failure of something that could not be started."""
    return Failure("start", None, None, code, "launch.log" if tail else None, time.time(), tail)


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


class Lookout:
    """Looks in the log of a framework's launcher for lines that say that it cannot go on, and `why` that is so."""

    def __init__(self, path: str, start: int, launch: Json) -> None:
        self.path, self.read = path, start
        self.lost: str = launch.get("lost", "")
        stall: Sequence[Any] = launch.get("stall") or ("", "", 0.0)
        self.begins, self.ends, self.limit = str(stall[0]), str(stall[1]), float(stall[2])
        self.waits: Optional[Tuple[str, float]] = None  # the line that says that it waits, and since when
        self.why = ""

    def look(self, now: float) -> Optional[str]:
        """Return the line that says so, None while there is none."""
        for line in self.lines():
            if self.lost and re.search(self.lost, line):
                self.why = "has lost the others for good"
                return line
            if self.begins and re.search(self.begins, line):
                self.waits = line, now
            elif self.begins and re.search(self.ends, line):
                self.waits = None
        if self.waits is None or now - self.waits[1] <= self.limit:
            return None
        self.why = "has waited for the others for %g s" % self.limit
        return self.waits[0]

    def lines(self) -> List[str]:
        """Return the whole lines that were written since the last look."""
        if not (self.lost or self.begins) or os.path.getsize(self.path) <= self.read:
            return []
        with open(self.path, "rb") as file:
            file.seek(self.read)
            text = file.read(LOOKOUT_BYTES)
        whole = text[: text.rfind(b"\n") + 1] or (text if len(text) == LOOKOUT_BYTES else b"")
        self.read += len(whole)
        return [line.strip() for line in whole.decode("utf-8", "replace").splitlines()]


def of_role(order: Json, role: Optional[str]) -> List[Json]:
    """Return the members with a role, in the order of their ranks."""
    return sorted((m for m in order["members"] if role in m["roles"]), key=lambda m: int(m["rank"]))


def endpoints(order: Json, role: Optional[str]) -> List[str]:
    """Return address:port of all processes of a role, in the order of their ranks."""
    return ["%s:%d" % (m["address"], port) for m in of_role(order, role) for port in m.get("ports") or ()]


def in_numbers(order: Json) -> Json:
    """Return an order with IPv4 addresses in place of names.

    Interfaces are found by them, and Paddle's launcher leaves names without a dot aside, and then waits for ever.
    """
    names = {m["address"] for m in (order["rendezvous"], *order["members"])}
    known, deadline = {}, time.monotonic() + RESOLVING
    for name in names:
        known[name] = number_of(name) if time.monotonic() < deadline else name
    members = [{**m, "address": known[m["address"]]} for m in order["members"]]
    meeting = order["rendezvous"]
    return {**order, "members": members, "rendezvous": {**meeting, "address": known[meeting["address"]]}}


def number_of(name: str) -> str:
    """Return the IPv4 address of a name; the name where it has none, or one that means another machine elsewhere."""
    try:
        number = str(socket.getaddrinfo(name, None, socket.AF_INET)[0][4][0])
    except (OSError, UnicodeError):
        return name
    return name if number.startswith("127.") and name != "localhost" else number


def overview(order: Json, launch: Json) -> str:
    """Return who takes part in a generation, as a table for people, and what this node's processes are told by name."""
    meeting = order["rendezvous"]
    title = "%s, generation %d: %d nodes, which meet at %s:%s"
    lines = [title % (order["job"], order["number"], len(order["members"]), meeting["address"], meeting["port"])]
    rows = [("NODE", "ROLE", "HOST", "ADDRESS", "RANKS", "PORTS")]
    ranks: Dict[str, int] = {}
    for m in sorted(order["members"], key=lambda m: int(m["rank"])):
        role, first = m["roles"][0], ranks.get(m["roles"][0], 0)
        ranks[role] = first + m["nproc"]
        last = ranks[role] - 1
        span = str(first) if first == last else "%d-%d" % (first, last)
        ports = ",".join(map(str, m.get("ports") or ())) or "-"
        rows.append((str(m["node"]), role, m["host"], m["address"], span, ports))
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    names = sorted({name for name, _ in [*launch["env"], *launch.get("process_env", ())]} | set(launch["secrets"]))
    lines.append("this is node %d, on %s; devices %s" % (launch["node"], launch["host"], " ".join(launch["devices"])))
    lines.append("its processes are given %s" % (", ".join(names) or "nothing of their own"))
    return "\n".join(lines) + "\n\n"


def fill(value: Any, slots: Dict[str, str]) -> str:
    """Return a value of the plan: text as it is, a slot filled."""
    return slots[value["slot"]] if isinstance(value, dict) else str(value)


def log_of(name: str, local: Any) -> str:
    """Return the log of a process of a node."""
    return name if name.endswith(".log") else "%s.%s" % (name, local)


def answers(endpoint: str) -> bool:
    """Say whether somebody listens at address:port."""
    address, _, port = endpoint.rpartition(":")
    try:
        socket.create_connection((address, int(port)), ANSWER).close()
    except OSError:
        return False
    return True


def kill_user_processes(processes: Sequence[Json]) -> None:
    """SIGKILL the users' processes, so that their guards can still say how they ended."""
    for process in processes:
        if process["state"] == "running" and start_ticks(process["pid"]) == process["start_ticks"]:
            forward(process["pid"], signal.SIGKILL)


def process_guard_lives(record: Json) -> bool:
    """Say whether the guard that wrote `record` lives, and so will write down the end."""
    pid = record.get("guard_pid")
    return pid is not None and start_ticks(pid) == record.get("guard_ticks")


def signal_group(pid: int, number: int) -> None:
    """Signal a child's process group (each child leads one)."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def signal_name(number: int) -> str:
    """Return a signal's name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


def hint_of(tail: Sequence[str]) -> str:
    """Return the remedy for the commonest reasons why a framework's launcher does not start."""
    text = "\n".join(tail)
    if "No module named" in text:
        return ": %s; install it for %s" % (tail[-1].strip(), sys.executable)
    return ""


def spawn(argv: Sequence[str], environ: Dict[str, str], workdir: Optional[str], log: int) -> "subprocess.Popen[bytes]":
    """Start a child in a session of its own that dies with this process."""
    return subprocess.Popen(
        list(argv),
        env=environ,
        cwd=workdir,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


def cannot_start(program: str, error: OSError) -> Problem:
    """Return what keeps a generation from starting where a program, or the folder that it runs in, is not there."""
    what = error.filename if error.filename is not None else program
    message = "cannot start `%s`: %s (%s)" % (program, os.strerror(error.errno or 0), what)
    return Problem(message, start_failure(127))


def fork_guard(task: Json, environ: Dict[str, str], workdir: Optional[str], log: int) -> int:
    """Fork the guard of one process in a session of its own, and return its pid. Raises OSError.

    As if it were started anew, in a tenth of the time that an interpreter takes to begin.
    """
    reading, writing = os.pipe()
    # Blocked until they mean to the child what they mean to a program that begins.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    parent = os.getpid()
    try:
        pid = os.fork()
        if pid == 0:
            be_guard(parent, before, (workdir, log, writing), task, environ)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(writing)
        # Until the child has closed it: from then on it leads a session, which can be signalled.
        with open(reading, "rb") as pipe:
            failed = pipe.read()
    if failed:
        os.waitpid(pid, 0)
        raise OSError(int(failed), os.strerror(int(failed)), workdir)
    return pid


def be_guard(
    parent: int, mask: Set[int], where: Tuple[Optional[str], int, int], task: Json, environ: Dict[str, str]
) -> None:
    """Be the guard of a process, forked from `parent`, and do not return."""
    code = 1
    try:
        die_with_parent()
        if os.getppid() == parent and start_afresh(*where):
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            code = process_guard(task, environ)
    except BaseException as error:  # whatever it is, launch.log must say so
        import traceback

        note("the guard of a process is broken: %r\n%s" % (error, traceback.format_exc()))
    finally:
        os._exit(code)


def start_afresh(workdir: Optional[str], log: int, pipe: int) -> bool:
    """Leave behind what a fork has of its parent: session, folder, files and signal handlers.

    Return False where the folder is not to be had: then why goes into the pipe, which is closed else.
    """
    import gc

    gc.freeze()  # what the parent had opened must not be closed once more when somebody finds it unused
    os.setsid()
    try:
        if workdir is not None:
            os.chdir(workdir)
    except OSError as error:
        os.write(pipe, b"%d" % (error.errno or 0))
        return False
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):  # what listed them
                os.close(int(name))
    return True


# --- Progress and hangs ----------------------------------------------------------------------------------------


class Hang:
    """The node's step counter, and for how long it may stand still: None never, 0 automatic, else seconds."""

    def __init__(self, timeout: Optional[float]) -> None:
        self.timeout = timeout
        self.progress: Optional[int] = None
        self.at: Optional[float] = None  # by a clock that nobody sets
        self.steps: List[float] = []  # seconds per step, as seen
        self.steps_of: Dict[int, int] = {}  # by local rank
        self.told = float("inf")  # the limit by which another node has called this generation hung

    def look(self, folder: str, now: float) -> bool:
        """Read the progress files; say whether there was progress."""
        found = {os.path.basename(path): read_step(path) for path in files_in(folder)}
        self.steps_of = {int(name): step for name, step in found.items() if step is not None and name.isdigit()}
        newest = max((step for step in found.values() if step is not None), default=None)
        if newest is None or newest == self.progress:
            return False
        if self.progress is not None and self.at is not None and newest > self.progress:
            self.steps = [*self.steps[-999:], (now - self.at) / (newest - self.progress)]
        self.progress, self.at = newest, now
        return True

    def limit(self) -> float:
        """Return how many seconds without progress are too many; infinite while that cannot be said."""
        if self.timeout is None or (self.timeout == 0 and len(self.steps) < HANG_SAMPLES):
            return float("inf")
        if self.timeout > 0:
            return self.timeout
        slow = sorted(self.steps)[int(len(self.steps) * 0.99)]
        return max(HANG_LEAST, HANG_FACTOR * slow)

    def hangs(self, now: float) -> bool:
        """Say whether the processes stand still; before the first step nobody can tell."""
        return self.at is not None and now - self.at > self.limit()


def files_in(folder: str) -> Iterator[str]:
    """Yield the paths of the files in a folder."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        yield os.path.join(folder, name)


def read_step(path: str) -> Optional[int]:
    """Return the step number in a progress file, None for anything else (a script may be writing it just now)."""
    try:
        with open(path, "rb") as file:
            return int(file.read(32).split()[0])
    except (OSError, ValueError, IndexError):
        return None


# --- Where processes stand -------------------------------------------------------------------------------------

# py-spy's dump, then faulthandler's: the innermost function of the main thread, which the latter names last.
PLACES = (
    (
        r'Process (?P<pid>\d+):[\s\S]*?\nThread (?:(?P=pid) \(|[^\n]*"MainThread")[^\n]*\n'
        r"\s+(?P<function>\S+) \((?P<file>.+):(?P<line>\d+)\)"
    ),
    (
        r"(?:Current t|T)hread [^\n]*\(most recent call first\):\n"
        r'\s+File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>\S+)'
        r"(?![\s\S]*\(most recent call first\):\n\s+File)"
    ),
)


class Stacks:
    """Asks the processes of a run where they stand.

    First those that go on afterwards: py-spy asks, or the script prints its stack at SIGUSR1. One that prints it at
    SIGABRT alone (`faulthandler.enable()`) dies of that, and its peers then fail in what they waited for. So those are
    held still first, on every node, and asked when all are: what has got SIGABRT prints before it does anything else.
    """

    def __init__(self, run: Run, pause: Callable[[float], bool]) -> None:
        self.run, self.pause = run, pause
        run.look()
        run.stacks.clear()
        self.running = {p["local_rank"]: p["pid"] for p in run.processes if p["state"] == "running"}
        self.logs = {local: os.path.join(run.logs, log_of(run.launch["log_name"], local)) for local in self.running}
        self.frozen: Dict[int, int] = {}

    def look(self) -> None:
        """Ask those that go on afterwards."""
        for local, text in spied(self.running, self.pause).items():
            self.run.keep_stack(local, text)
        before = {local: size_of(path) for local, path in self.logs.items()}
        self.wait({local: before[local] for local in self.rest(signal.SIGUSR1) if self.ask(local, signal.SIGUSR1)})
        self.run.keep_recorder()

    def freeze(self) -> None:
        """Hold those still that die of being asked."""
        self.frozen = {local: self.running[local] for local in self.rest(signal.SIGABRT)}
        for local in list(self.frozen):
            self.ask(local, signal.SIGSTOP)

    def abort(self) -> None:
        """Ask them."""
        before = {local: size_of(self.logs[local]) for local in self.frozen}
        for local in self.frozen:
            self.ask(local, signal.SIGABRT)
        for local in self.frozen:
            self.ask(local, signal.SIGCONT)
        self.wait(before)

    def rest(self, number: int) -> List[int]:
        """Return the processes that have not said where they stand, and have a handler for a signal."""
        left = {local: pid for local, pid in self.running.items() if local not in self.run.stacks}
        return [local for local, pid in left.items() if caught_signals(pid) >> (number - 1) & 1]

    def ask(self, local: int, number: int) -> bool:
        """Send a process a signal; say whether it is there."""
        with contextlib.suppress(OSError):
            # Another of its threads would leave the first one the time to go on.
            if number == signal.SIGABRT and _TGKILL is not None:
                return _TGKILL(self.running[local], self.running[local], number) == 0
            os.kill(self.running[local], number)
            return True
        return False

    def wait(self, before: Dict[int, int]) -> None:
        """Keep what processes print into their logs behind what was there `before`."""
        deadline = time.monotonic() + STACKS
        texts: Dict[int, str] = {}
        while time.monotonic() < deadline:
            texts = {local: since(self.logs[local], start) for local, start in before.items()}
            if all(innermost(text) is not None for text in texts.values()) or not self.pause(0.02):
                break
        for local, text in texts.items():
            if text.strip():
                self.run.keep_stack(local, text)


class Muster:
    """All nodes of a job that stands still write where their processes stand, before any of them ends its own.

    Who has seen the hang asks the others, who join. Each says how far it is: HELD when what dies of being asked stands
    still, WRITTEN when all stacks are in its report. A node that moves, or is not heard, keeps nobody waiting.
    """

    BEGUN, HELD, WRITTEN = 1, 2, 3
    REPEAT = 0.25  # seconds

    def __init__(self, launcher: Launcher, run: Run) -> None:
        self.launcher, self.run, self.post = launcher, run, launcher.post
        self.limit = min(run.hang.limit(), run.hang.told)
        self.began = time.monotonic()
        members = of_role(run.order, "trainer")
        self.others = {m["node"] for m in members if m["node"] in launcher.post.peers}

    def hold(self) -> None:
        """Write the stacks of this node, and wait for those of the others; the processes end afterwards."""
        self.reach(self.BEGUN)
        stacks = Stacks(self.run, self.launcher.pause)
        stacks.look()
        if not self.launcher.goes_on_alone:
            stacks.freeze()
        self.reach(self.HELD)
        self.wait_for(self.HELD)
        if self.launcher.goes_on_alone:
            stacks.freeze()
        stacks.abort()
        self.run.look()
        self.launcher.say(processes=self.run.records(), mustered=True)
        self.reach(self.WRITTEN)
        self.wait_for(self.WRITTEN)

    def show(self) -> None:
        """Write the stacks of this node, whose processes go on."""
        self.post.level = self.BEGUN
        Stacks(self.run, self.launcher.pause).look()
        self.run.look()
        self.launcher.say(processes=self.run.records(), mustered=True)
        self.reach(self.WRITTEN)
        self.post.level, self.post.shown = 0, time.monotonic()

    def reach(self, level: int) -> None:
        """Tell all others how far this node is."""
        self.post.level = level
        self.post.say_hung(self.others, level, self.limit, asks=level == self.BEGUN)

    def wait_for(self, level: int) -> None:
        """Return when all others are as far, or cannot be waited for."""
        asked = 0.0
        while self.launcher.signal is None:
            now = time.monotonic()
            late = {node for node in self.others if self.post.hung.get(node, 0) < level}
            if now - self.began > UNANSWERED:
                late &= set(self.post.hung)
            if not late or now - self.began > MUSTER:
                return
            if now - asked > self.REPEAT:
                asked = now
                self.post.say_hung(late, self.post.level, self.limit, asks=True)
            if not self.launcher.pause(0.01):
                return


def spied(running: Dict[int, int], pause: Callable[[float], bool]) -> Dict[int, str]:
    """Return what py-spy says of processes, where there is one that may look into them."""
    import shutil
    import tempfile

    tool = shutil.which("py-spy")
    if tool is None:
        return {}
    outputs = {local: tempfile.TemporaryFile() for local in running}  # noqa: SIM115
    spies = {
        local: subprocess.Popen(
            [tool, "dump", "--full-filenames", "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=outputs[local],
            stderr=subprocess.DEVNULL,
        )
        for local, pid in running.items()
    }
    deadline = time.monotonic() + STACKS
    while any(spy.poll() is None for spy in spies.values()) and time.monotonic() < deadline:
        if not pause(0.05):
            break
    found = {}
    for local, spy in spies.items():
        spy.kill()
        if spy.wait() == 0:
            outputs[local].seek(0)
            found[local] = outputs[local].read().decode("utf-8", "replace")
        outputs[local].close()
    return found


def caught_signals(pid: int) -> int:
    """Return the mask of the signals that a process has handlers for."""
    try:
        with open("/proc/%d/status" % pid) as file:
            return next(int(line.split()[1], 16) for line in file if line.startswith("SigCgt:"))
    except (OSError, StopIteration):
        return 0


def size_of(path: str) -> int:
    """Return the size of a file, 0 if there is none."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def since(path: str, start: int) -> str:
    """Return what was written into a file from byte `start` on."""
    try:
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(1 << 20).decode("utf-8", "replace")
    except OSError:
        return ""


def innermost(text: str) -> Optional[str]:
    """Return the function that the main thread of a dumped process is in, None if it does not say."""
    for pattern in PLACES:
        match = re.search(pattern, text)
        if match:
            return "%s (%s:%s)" % (match.group("function"), match.group("file"), match.group("line"))
    return None


def frames(text: str) -> List[str]:
    """Return the frames of the main thread of a dumped process, the innermost first."""
    for pattern in PLACES:
        match = re.search(pattern, text)
        if match:
            first = text.rindex("\n", 0, match.start("file")) + 1
            lines = itertools.takewhile(lambda line: line[:1].isspace() and line.strip(), text[first:].splitlines())
            return [line.strip()[:TAIL_CHARACTERS] for line in itertools.islice(lines, STACK_LINES)]
    return []


# --- The network interface of an address -----------------------------------------------------------------------

SIOCGIFADDR = 0x8915


def is_scrubbed(name: str, patterns: Sequence[str]) -> bool:
    """Say whether a variable is one of `patterns`, where `PADDLE_*` means all that begin so."""
    return any(name.startswith(p[:-1]) if p.endswith("*") else name == p for p in patterns)


def pass_by_proxies(environ: Dict[str, str], addresses: Sequence[str]) -> None:
    """Where `environ` has proxies, have them left out on the way to the job's own nodes, and to its etcd.

    Some clients read the variables in capitals, some the others, so both get the addresses, beside their own.
    """
    if not any(name.lower() in PROXIES for name in environ):
        return
    for name, other in (("NO_PROXY", "no_proxy"), ("no_proxy", "NO_PROXY")):
        given = environ.get(name, environ.get(other, "")).split(",")
        environ[name] = ",".join(dict.fromkeys([*filter(None, given), *addresses]))


def port_range(job: str, node: int) -> str:
    """Return "first:last" of ports that no other node of the job uses, and other jobs on this host rarely."""
    blocks = (PRIVATE_PORTS[1] - PRIVATE_PORTS[0]) // PORTS_OF_NODE
    first = PRIVATE_PORTS[0] + (binascii.crc32(job.encode()) + node) % blocks * PORTS_OF_NODE
    return "%d:%d" % (first, first + PORTS_OF_NODE - 1)


def interface_of(address: str) -> Optional[str]:
    """Return the network interface that owns an IPv4 address, None if there is none."""
    if address.startswith("127."):
        return "lo"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return None


# --- S: the guard of one process -------------------------------------------------------------------------------


def process_guard(task: Json, environ: Dict[str, str]) -> int:
    """Run one process of the user with `environ`: its output into its log, its end into its record, nothing left behind."""
    if task["elsewhere"] and environ.get(task["elsewhere"][0]) == task["elsewhere"][1]:
        return 0
    adopt_orphans()
    # Not SIGKILL: whoever kills the launchers above must not make orphans of what this process has adopted.
    signal.signal(ABANDONED, lambda number, frame: abandon())
    prctl(PR_SET_PDEATHSIG, ABANDONED)
    # The framework's launcher signals the whole process group, so the process gets these without our help.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    rank, local = (environ.get(name, "") for name in task["ranks"])
    local = local or "0"
    log = LogFile(os.path.join(task["logs"], log_of(task["name"], local)), Echo.of(task, rank))
    record = Record(os.path.join(task["records"], "%s.json" % local), local, rank)
    own = {"JOBCTL_PROGRESS_FILE": os.path.join(task["progress"], local), "JOBCTL_ROLE_RANK": rank or "0"}
    code = run_process(task["command"], {**environ, **own}, log, record)
    if log.echo is not None:
        log.echo.finish()
    kill_descendants()
    return code


def abandon() -> NoReturn:
    """End everything below and this process: what started it is gone."""
    kill_descendants()
    os._exit(128 + signal.SIGKILL)


def run_process(argv: List[str], environ: Dict[str, str], log: "LogFile", record: "Record") -> int:
    """Run `argv` until it ends; return its exit code (128 + n for signal n)."""
    reading, writing = os.pipe()
    try:
        child = subprocess.Popen(
            argv,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            preexec_fn=as_user_process,
        )
    except OSError as error:
        why = "cannot start %s: %s" % (argv[0], os.strerror(error.errno or 0))
        log.write(os.fsencode(why) + b"\n")
        code = 126 if error.errno == errno.EACCES else 127
        record.ended(code, why)
        return code
    os.close(writing)
    record.began(child.pid)
    code = pump(reading, child, log)
    record.ended(code)
    return code


def as_user_process() -> None:
    """Undo what the guard ignores, and die with it (runs between fork and exec)."""
    for number in (*SIGNALS, ABANDONED):
        signal.signal(number, signal.SIG_DFL)
    die_with_parent()


def pump(reading: int, child: "subprocess.Popen[bytes]", log: "LogFile") -> int:
    """Copy the child's output into its log until the child has ended and its output is drained.

    A background process of the child may hold the pipe open for ever: it is not waited for.
    """
    import select

    os.set_blocking(reading, False)
    poller = select.poll()
    poller.register(reading, select.POLLIN | select.POLLHUP)
    woken = wake_at_ends(poller)
    open_ = True
    while True:
        code = child.poll()
        if code is not None:
            drain(reading, log)
            return code if code >= 0 else 128 - code
        poller.poll(1000)
        drain(woken, None)
        while open_:
            try:
                data = os.read(reading, 65536)
            except BlockingIOError:
                break
            if not data:
                open_ = False
                poller.unregister(reading)
            log.write(data)


def wake_at_ends(poller: Any) -> int:
    """Have the poller wake when a child ends, by a pipe; return its reading end. Children wake it whoever they are."""
    import select

    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(writing)
    poller.register(reading, select.POLLIN)
    return reading


def drain(reading: int, log: "Optional[LogFile]") -> None:
    """Copy what is in the pipe now, or forget it."""
    with contextlib.suppress(OSError):
        while True:
            data = os.read(reading, 65536)
            if not data:
                return
            if log is not None:
                log.write(data)


class LogFile:
    """A process's log, and beside it the index that says from which byte on was written when."""

    RESOLUTION = 0.01  # seconds between two records of the index

    def __init__(self, path: str, echo: "Optional[Echo]" = None) -> None:
        self.echo = echo
        self.log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.index = os.open(path + ".idx", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.offset = os.fstat(self.log).st_size
        self.last = 0.0

    def write(self, data: bytes) -> None:
        """Append output. A full disk loses output, it does not end the process that printed it."""
        now = time.time()
        if self.echo is not None:
            self.echo.write(data)
        try:
            if data and now - self.last >= self.RESOLUTION:
                os.write(self.index, struct.pack("<Qd", self.offset, now))
                self.last = now
            while data:
                written = os.write(self.log, data)
                self.offset += written
                data = data[written:]
        except OSError as error:
            note("output lost: %s" % error)


class Echo:
    """What a process prints, said once more where the launcher's own words go, each line with who printed it.

    Lines of several processes come out whole: a pipe takes up to PIPE_BUF bytes at once.
    """

    AT_ONCE = 4096  # PIPE_BUF of Linux
    PACE = 0.5  # seconds between two states of a line that is written over and over

    def __init__(self, file: int, who: str) -> None:
        self.file, self.who, self.rest = file, os.fsencode(who + " | "), b""
        self.room = self.AT_ONCE - len(self.who) - 1
        self.shown, self.shown_at = b"", 0.0  # the last such state, and when it was said

    @classmethod
    def of(cls, task: Json, rank: str) -> "Optional[Echo]":
        """Return the echo that a task asks for, None if it asks for none, or there is nobody to hear it."""
        if not task.get("echo"):
            return None
        try:
            file = os.open(task["echo"], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError:
            return None
        name = task["name"].split(".")[0]
        role = "rank" if name == "workerlog" else name[:-3] if name.endswith("log") else name
        return cls(file, role + rank)

    def write(self, data: bytes) -> None:
        """Say the lines that are whole by now; of one that grows the parts that are full; of a progress bar a state at times."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self.say_last(line)
        before = len(self.rest)
        self.rest = self.rest[self.rest.rstrip(b"\r").rfind(b"\r") + 1 :]
        if (len(self.rest) < before or self.rest.endswith(b"\r")) and time.monotonic() - self.shown_at >= self.PACE:
            self.say_last(self.rest)
            self.shown, self.shown_at = self.rest.rstrip(b"\r"), time.monotonic()
        full = max(0, len(self.rest) - 1) // self.room * self.room
        if full:
            self.say(self.rest[:full])
            self.rest = self.rest[full:]

    def say_last(self, line: bytes) -> None:
        """Say of a line that was written over and over what a terminal shows in the end, unless that was said."""
        state = line.rstrip(b"\r").rpartition(b"\r")[2]
        if not state or state != self.shown:
            self.say(state)
        self.shown = b""

    def say(self, line: bytes) -> None:
        """Say one line, in parts if it is long."""
        for at in range(0, max(len(line), 1), self.room):
            with contextlib.suppress(OSError):
                os.write(self.file, self.who + line[at : at + self.room] + b"\n")

    def finish(self) -> None:
        """Say the last line, which has no end."""
        if self.rest:
            self.say_last(self.rest)
            self.rest = b""


class Record:
    """What the guard of a process writes down for the launcher."""

    def __init__(self, path: str, local: str, rank: str) -> None:
        self.path = path
        pid = os.getpid()
        self.fields: Json = {
            "local_rank": int(local),
            "guard_pid": pid,
            "guard_ticks": start_ticks(pid),
            "starts": int((read_json(path) or {}).get("starts", 0)) + 1,
        }
        if rank.isdigit():
            self.fields["rank"] = int(rank)

    def began(self, pid: int) -> None:
        """The process runs."""
        self.fields.update(state="running", pid=pid, start_ticks=start_ticks(pid), started_at=time.time())
        write_json(self.path, self.fields)

    def ended(self, code: int, why: Optional[str] = None) -> None:
        """The process is gone; `why` it could not even be started."""
        self.fields.update(
            guard_why=why,
            state="failed" if code else "exited",
            exit_code=code,
            signal=code - 128 if code > 128 else None,
            finished_at=time.time(),
        )
        write_json(self.path, self.fields)


# --- Main ------------------------------------------------------------------------------------------------------


def main() -> NoReturn:
    """Be the launcher, or (first argument `process`) the guard of one process."""
    while (
        os.open(os.devnull, os.O_RDWR) < 2
    ):  # in the place of standard streams that are closed: else files become them
        pass
    if sys.argv[1:2] == ["process"]:
        task = json.loads(os.environ.pop("JOBCTL_PROCESS"))
        sys.exit(process_guard(task, dict(os.environ)))
    import argparse

    parser = argparse.ArgumentParser(description="The shared launcher of jobctl: runs one node of a job.")
    parser.add_argument("--control", required=True, help="the control file; nothing starts before there is one")
    parser.add_argument("--dir", required=True, help="this node's directory: report, logs, progress")
    parser.add_argument(
        "--secrets", help="a 0600 JSON file with the values of secrets, or a folder with a file for each"
    )
    parser.add_argument("--launch", help="a file with what to run; default: what JOBCTL_LAUNCH holds")
    parser.add_argument("--address", help="this node's own address, where launchers agree among themselves")
    options = parser.parse_args()
    if options.launch:
        with open(options.launch, encoding="utf-8") as file:
            os.environ["JOBCTL_LAUNCH"] = file.read()
    if "JOBCTL_LAUNCH" not in os.environ:
        parser.error("JOBCTL_LAUNCH is not set: it says what to run")
    for name in ("control", "dir", "secrets"):
        value = getattr(options, name)
        setattr(options, name, os.path.abspath(value) if value else None)
    sys.exit(guard(options))


if __name__ == "__main__":
    CODE = sys._getframe().f_code
    main()
