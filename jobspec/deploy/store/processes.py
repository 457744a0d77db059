"""Processes of this machine, known by pid and start time, and found by marks in their environment.

The marks are to target `local` what labels are to containers: they say whose a process is, and nobody has to
keep a file about it.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from jobctl.jobspec.deploy.model.untrusted import as_number, is_number
from jobctl.jobspec.deploy.model.usage import NodeUsage

WORK_MARK = "JOBCTL_WORK"  # the work directory of the job that a process belongs to
NODE_MARK = "JOBCTL_NODE"  # the node of it
ARTEFACT_MARK = "JOBCTL_ARTEFACT"  # hash of the script that started the launcher
MARKS = (WORK_MARK, NODE_MARK, ARTEFACT_MARK)  # of what belongs to a job
SUPERVISES_MARK = "JOBCTL_SUPERVISES"  # the directory of the job that a supervisor in the background watches


def start_ticks(pid: int) -> int | None:
    """Return when `pid` started, in clock ticks since boot (field 22 of /proc/PID/stat); None if it is gone.

    A zombie is gone, unless only its first thread is dead: another that still waits for a disk keeps ports and memory.
    With the pid it names a process for ever: pids are used again.
    """
    fields = _stat(pid)
    if not fields:
        return None
    return None if fields[0] in (b"Z", b"X") and int(fields[17]) <= 1 else int(fields[19])


def is_stopped(pid: int) -> bool:
    """Say whether a process does nothing until it gets SIGCONT, as after Ctrl-Z."""
    return _stat(pid)[:1] == [b"T"]


def children(pid: int) -> Sequence[int]:
    """Return the processes that a process with one thread has started, none if it is gone."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on, none if the process is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return stat[stat.rindex(b")") + 2 :].split()


def ticks_now() -> int:
    """Return how many clock ticks have passed since boot."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def alive(pid: object, ticks: object) -> bool:
    """Say whether the process that had `pid` and started at `ticks`, as read from some file, still runs."""
    found = as_number(pid)
    return found is not None and is_number(ticks) and start_ticks(found) == ticks


def environment(pid: int) -> dict[str, str]:
    """Return the environment that `pid` was started with; {} if it is gone or another user's."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (os.fsdecode(item).partition("=") for item in raw.split(b"\0") if b"=" in item)
    return {name: value for name, _, value in pairs}


def marked(work: Path, node: int | str | None = None) -> Iterator[int]:
    """Yield the pids of all processes of the job in `work` (of its node or service `node`, if given)."""
    return with_folder(WORK_MARK, work, *([] if node is None else [f"{NODE_MARK}={node}"]))


def without_marks(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for what belongs to no job: jobctl may be called from within one, which ends its own processes."""
    return {name: value for name, value in environ.items() if name not in MARKS}


def folder_mark(name: str, folder: Path) -> dict[str, str]:
    """Return the mark that names a folder: by the path without links, since commands may get there by others."""
    return {name: os.path.realpath(folder)}


def with_folder(name: str, folder: Path, *marks: str) -> Iterator[int]:
    """Yield the pids of all other processes with a mark `name` of a folder, and these; earlier versions left links in the mark."""
    for path in {str(folder), os.path.realpath(folder)}:
        yield from with_marks(f"{name}={path}", *marks)


def with_marks(*marks: str) -> Iterator[int]:
    """Yield the pids of all other processes that were started with each of `marks` (`NAME=value`) in their environment."""
    wanted = {os.fsencode(mark) for mark in marks}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            raw = Path(f"/proc/{entry.name}/environ").read_bytes()
        except OSError:
            continue
        if wanted <= set(raw.split(b"\0")):
            yield int(entry.name)


def kill_marked(
    work: Path,
    node: int | str | None = None,
    *,
    before: float = math.inf,
    pause: Callable[[float], None] = time.sleep,
) -> int:
    """SIGKILL all processes of the job in `work` until none is left; return how many there were.

    `before`: only those that had started by then, in clock ticks since boot (see `ticks_now`). Raises TimeoutError if some
    survive for 10 s (a process in uninterruptible sleep: its disk hangs).
    """
    seen: set[int] = set()
    deadline = time.monotonic() + 10
    while pids := {pid: at for pid in marked(work, node) if (at := start_ticks(pid)) is not None and at <= before}:
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {', '.join(map(str, pids))} do not die (uninterruptible sleep?)")
        for pid, at in pids.items():
            seen.add(pid)
            if start_ticks(pid) == at:  # else it has gone, and the number may be another's by now
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        pause(0.01)
    return len(seen)


def end(
    pid: int,
    ticks: int | None,
    grace: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """End the process that had `pid` and started at `ticks`: SIGTERM, `grace` seconds, SIGKILL. Returns once it is gone."""
    number: signal.Signals | None = signal.SIGTERM
    deadline = clock() + grace
    while alive(pid, ticks):
        if number is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            number = None
        pause(0.02)
        if clock() > deadline:
            number = signal.SIGKILL


def working_directory(pid: int) -> str | None:
    """Return the directory that `pid` runs in, None if it is gone."""
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return None


def usage(pids: Iterable[int]) -> NodeUsage:
    """Return what processes use: the CPU time of those that run now, and the memory that is theirs."""
    ticks, pages = 0, 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
            ticks += int(stat[11]) + int(stat[12])
            pages += int(resident) - int(shared)
    return NodeUsage(ticks / os.sysconf("SC_CLK_TCK"), float(pages * os.sysconf("SC_PAGESIZE")))
