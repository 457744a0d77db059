"""Processes by /proc and prctl: orphans are adopted, and nothing outlives the process that started it."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.system.files import note

if TYPE_CHECKING:
    import socket
    from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
EXIT_TAKEN = 75  # how a launcher ends that finds another one of its node (EX_TEMPFAIL of sysexits.h)
EXIT_MOVES = 76  # how one ends whose node a rule has leave its machine, in an allocation, where its node runner may give it another
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
PRCTL = _from_libc("prctl")
TGKILL = _from_libc("tgkill")
_SIGACTION = _from_libc("sigaction")
# `struct sigaction` of 64 bits: handler, mask (of which the kernel knows 8 bytes of 128; the others are anything), flags, and
# what libc adds by itself.
_ACTION = struct.Struct("=8s8s120xI12x")
_BY_LIBC = 0x04000000  # the flag for that


def prctl(option: int, value: int) -> None:
    """Call prctl(2) with one argument, where there is one."""
    if PRCTL is not None:
        PRCTL(option, value, 0, 0, 0)


def handle_signals(handler: Callable[[int, Any], None]) -> None:
    """Have the signals that tell a launcher to end call this."""
    for number in SIGNALS:
        signal.signal(number, handler)


def signal_action(number: int, action: Optional[bytes] = None) -> Optional[bytes]:
    """Return how this process handles a signal, as C has it, after it was set to `action`; None where that is not known."""
    if _SIGACTION is None or struct.calcsize("P") != 8:
        return None
    import ctypes

    found = ctypes.create_string_buffer(_ACTION.size)
    if action is not None:
        _SIGACTION(number, ctypes.create_string_buffer(action, _ACTION.size), None)
    _SIGACTION(number, None, found)
    handler, mask, flags = _ACTION.unpack(found.raw)
    return _ACTION.pack(handler, mask, flags & ~_BY_LIBC)


def adopt_orphans() -> None:
    """Become the parent of whatever descendant loses its own."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Ask for SIGKILL when the parent dies (runs in a child between fork and exec)."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


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


def descendants(root: int, but: Sequence[int] = ()) -> Dict[int, int]:
    """Return all living processes below `root`, children before grandchildren, and when each started, in clock ticks.

    Zombies are not living. Those of `but` are left out, with all that is below them.
    """
    children: Dict[int, List[Tuple[int, int]]] = {}
    for name in os.listdir("/proc"):
        stat = proc_stat(int(name)) if name.isdigit() else None
        if stat:
            children.setdefault(stat[1], []).append((int(name), stat[2]))
    found, look = {}, [root]
    while look:
        below = {pid: ticks for pid, ticks in children.get(look.pop(0), []) if pid not in but}
        found.update(below)
        look.extend(below)
    return {pid: ticks for pid, ticks in found.items() if (proc_stat(pid) or ("Z", 0, 0))[0] not in "ZX"}


def kill_descendants(but: Sequence[int] = (), goes_on: Callable[[], None] = lambda: None) -> None:
    """SIGKILL everything below this process until nothing is left, and reap it; not what is below `but`, nor that.

    A process may fork while it is being killed, so this looks again until it finds none; one in uninterruptible
    sleep is given up after 10 s, its disk hangs. `goes_on` is called at each look.
    """
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        goes_on()
        below = descendants(os.getpid(), but)
        for pid, ticks in below.items():
            if start_ticks(pid) == ticks:  # else it is reaped, and the number may be another's by now
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


def reap_all_but(child: int) -> None:
    """Collect the children that have ended, until `child` is among them: who has started that waits for it."""
    with contextlib.suppress(ChildProcessError):
        while True:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None or found.si_pid == child:
                return
            os.waitpid(found.si_pid, 0)


def exit_code(status: int) -> int:
    """Return a wait status as a shell would: 128 + n where signal n ended the process."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


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


def forward_signal(pid: int, number: int) -> None:
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


def boot_time() -> float:
    """Return seconds since the machine booted, by a clock that nobody sets; time that it was suspended counts."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def signal_group(pid: int, number: int) -> None:
    """Signal a child's process group (each child leads one)."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def signal_of(code: int) -> Optional[int]:
    """Return the signal that an exit code stands for, None for what a program has chosen itself: 255, for example."""
    return code - 128 if 0 < code - 128 < signal.NSIG else None


def signal_name(number: int) -> str:
    """Return a signal's name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


def caught_signals(pid: int) -> int:
    """Return the mask of the signals that a process has handlers for."""
    try:
        with open("/proc/%d/status" % pid) as file:
            return next(int(line.split()[1], 16) for line in file if line.startswith("SigCgt:"))
    except (OSError, StopIteration):
        return 0
