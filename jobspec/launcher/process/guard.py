"""The guard of one process: it pumps its output into a log, and writes down its exit code."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import time
import warnings
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.failure import Problem, may_pass, passing_failure, start_failure
from jobctl.jobspec.launcher.order.control import log_of
from jobctl.jobspec.launcher.process.log_files import LogFile, LogForwarder, drain
from jobctl.jobspec.launcher.process.record import ProcessRecord, read_record
from jobctl.jobspec.launcher.system.files import note, write_json
from jobctl.jobspec.launcher.system.memory import OomWatch, oom_line
from jobctl.jobspec.launcher.system.processes import (
    PR_SET_PDEATHSIG,
    SIGNALS,
    adopt_orphans,
    die_with_parent,
    forward_signal,
    kill_descendants,
    prctl,
    reap_all_but,
    signal_of,
    start_ticks,
)

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence, Set, Tuple

    from jobctl.jobspec.launcher.process.task import ProcessTask

    Waiting = Any  # a ParkedRank of standby/guard.py
ABANDONED = signal.SIGUSR2  # what the guard of a process gets when its parent dies


def load_for_later() -> None:
    """Import what only trouble needs: by then the disk that it is on may hang."""
    import glob
    import shutil
    import tempfile

    del glob, shutil, tempfile


def kill_user_processes(processes: Sequence[ProcessRecord]) -> None:
    """SIGKILL the users' processes, so that their guards can still say how they ended."""
    for process in processes:
        if process.pid is not None and process.is_alive():
            forward_signal(process.pid, signal.SIGKILL)


def spawn(
    argv: Sequence[str], environ: Dict[str, str], workdir: Optional[str], log: int, further: Sequence[int] = ()
) -> "subprocess.Popen[bytes]":
    """Start a child in a session of its own that dies with this process; `further` are files that it gets."""
    return subprocess.Popen(
        list(argv),
        env=environ,
        cwd=workdir,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        preexec_fn=die_with_parent,
        pass_fds=further,
    )


def cannot_start(program: str, error: OSError) -> Problem:
    """Return what keeps a generation from starting where a program, or the folder that it runs in, is not there."""
    what = error.filename if error.filename is not None else program
    message = "cannot start `%s`: %s (%s)" % (program, os.strerror(error.errno or 0), what)
    return Problem(message, passing_failure() if may_pass(error) else start_failure(127))


def fork_guard(work: Callable[[], int], workdir: Optional[str], log: int, kept: int = -1) -> int:
    """Fork the guard of one process in a session of its own, and return its pid. Raises OSError.

    The fork behaves like a new process, and begins in a tenth of the time that an interpreter takes to start.
    `work` is what it does; `kept` is a file of this process that it keeps.
    """
    # Python 3.12 and later warn of threads, in what a pod prints. Here these do no more than ask name servers.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    reading, writing = os.pipe()
    # Blocked until they mean to the child what they mean to a program that begins.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    parent = os.getpid()
    try:
        pid = os.fork()
        if pid == 0:
            be_guard(parent, before, (workdir, log, writing, kept), work)
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


def be_guard(parent: int, mask: Set[int], where: Tuple[Optional[str], int, int, int], work: Callable[[], int]) -> None:
    """Be the guard of a process, forked from `parent`, and do not return."""
    code = 1
    try:
        die_with_parent()
        if os.getppid() == parent and start_afresh(*where):
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            code = work()
    except BaseException as error:  # whatever it is, launch.log must say so
        import traceback

        note("the guard of a process is broken: %r\n%s" % (error, traceback.format_exc()))
    finally:
        os._exit(code)


def start_afresh(workdir: Optional[str], log: int, pipe: int, kept: int) -> bool:
    """Leave behind what a fork has of its parent: session, folder, files but `kept`, and signal handlers.

    Return False if it cannot change to the folder: then the reason is in the pipe, which is closed otherwise.
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
        if int(name) > 2 and int(name) != kept:
            with contextlib.suppress(OSError):  # what listed them
                os.close(int(name))
    return True


def process_guard(task: ProcessTask, environ: Dict[str, str], waiting: Optional[Waiting] = None) -> int:
    """Run one process of the user with `environ`: its output into its log, its end into its record, nothing left behind.

    `waiting` is an interpreter that may be that process: it has imported everything already.
    """
    if task.elsewhere and environ.get(task.elsewhere[0]) == task.elsewhere[1]:
        return 0
    leave_nothing_behind()
    rank, local = (environ.get(name, "") for name in task.ranks)
    local = local or "0"
    log = LogFile(os.path.join(task.logs, log_of(task.name, local)), LogForwarder.of(task, rank))
    record = Recorder(os.path.join(task.records, "%s.json" % local), local, rank)
    own = {"JOBCTL_PROGRESS_FILE": os.path.join(task.progress, local), "JOBCTL_ROLE_RANK": rank or "0"}
    code = run_process(task.command, {**environ, **own}, log, record, waiting)
    if log.forwarder is not None:
        log.forwarder.finish()
    kill_descendants()
    return code


def leave_nothing_behind() -> None:
    """End all below this process with it, whatever becomes of its parent; it itself ends with what it guards."""
    adopt_orphans()
    # Not SIGKILL: a kill of the launchers above must not make orphans of what this process has adopted.
    signal.signal(ABANDONED, lambda number, frame: abandon())
    prctl(PR_SET_PDEATHSIG, ABANDONED)
    # The framework's launcher signals the whole process group, so the process gets these without our help.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def abandon() -> NoReturn:
    """End everything below and this process: what started it is gone."""
    kill_descendants()
    os._exit(128 + signal.SIGKILL)


def run_process(
    argv: List[str], environ: Dict[str, str], log: "LogFile", record: "Recorder", waiting: Optional[Waiting] = None
) -> int:
    """Run `argv` until it ends; return its exit code (128 + n for signal n)."""
    why = None if waiting is None else waiting.take(argv, environ, record.cold)
    if waiting is not None and why is None:
        child, reading = waiting.child, waiting.reading
    else:
        try:
            child, reading = start_process(argv, environ)
        except OSError as error:
            why = "cannot start %s: %s" % (argv[0], os.strerror(error.errno or 0))
            log.write(os.fsencode(why) + b"\n")
            code = 126 if error.errno == errno.EACCES else 127
            record.ended(code, why, passes=may_pass(error))
            return code
    memory = OomWatch()
    record.began(child.pid, waiting is not None and why is None, why)
    code = pump(reading, child, log, memory.look)
    # Only the kernel knows why it has killed a process, or a helper of it: nobody would find that in the log otherwise.
    if code not in (0, 128 + signal.SIGTERM) and memory.is_recent():
        log.write(os.fsencode(oom_line()) + b"\n")
    record.ended(code)
    return code


def start_process(argv: List[str], environ: Dict[str, str]) -> "Tuple[subprocess.Popen[bytes], int]":
    """Start a process of the user; return it, and the end of a pipe at which its output comes. Raises OSError."""
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
    finally:
        os.close(writing)
    return child, reading


def as_user_process() -> None:
    """Undo what the guard ignores, and die with it (runs between fork and exec)."""
    for number in (*SIGNALS, ABANDONED):
        signal.signal(number, signal.SIG_DFL)
    die_with_parent()


def pump(
    reading: int, child: "subprocess.Popen[bytes]", log: "LogFile", look: "Callable[[], None]" = lambda: None
) -> int:
    """Copy the child's output into its log until the child has ended and its output is drained.

    `look` is called at least once a second meanwhile.

    A background process of the child may hold the pipe open for ever, and fill it as fast as it is read: the guard does
    not wait for it.
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
        look()
        drain(woken, None)
        reap_all_but(child.pid)
        with contextlib.suppress(BlockingIOError):
            data = os.read(reading, 65536) if open_ else None
            if data:
                log.write(data)
            elif data is not None:
                open_ = False
                poller.unregister(reading)


def wake_at_ends(poller: Any) -> int:
    """Wake the poller when any child ends, by a pipe; return its reading end."""
    import select

    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(writing)
    poller.register(reading, select.POLLIN)
    return reading


class Recorder:
    """Writes the record of a process for the launcher."""

    def __init__(self, path: str, local: str, rank: str) -> None:
        self.path = path
        self.cold = path[: -len("json")] + "cold"  # what a process writes that goes on cold although it had waited
        pid, before = os.getpid(), read_record(path)
        self.record = ProcessRecord(
            int(local),
            int(rank) if rank.isdigit() else None,
            starts=before.starts + 1 if before else 1,
            guard_pid=pid,
            guard_ticks=start_ticks(pid),
            guard_before=before.ending() if before else None,
        )

    def began(self, pid: int, from_standby: bool, cold_because: Optional[str]) -> None:
        """Write down that the process runs; `cold_because` is why the one that waited was not fit for it."""
        record = self.record
        record.state, record.pid, record.start_ticks, record.started_at = "running", pid, start_ticks(pid), time.time()
        record.guard_standby, record.guard_cold = from_standby, cold_because
        write_json(self.path, record.to_json())

    def ended(self, code: int, why: Optional[str] = None, passes: bool = False) -> None:
        """Write down that the process has ended; `why` it could not even be started, and whether that may pass."""
        record = self.record
        record.state, record.exit_code = "failed" if code else "exited", code
        record.signal, record.finished_at = signal_of(code), time.time()
        record.guard_why, record.guard_passes = why, passes
        write_json(self.path, record.to_json())
