"""Living processes, by what stands in their environments. Tests look often, so a look is cheap."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from jobctl.jobspec.deploy.store.processes import start_ticks


def read(pid: str, name: str) -> bytes:
    """Return a file of a process below /proc, nothing of one that has ended or that we may not read."""
    try:
        handle = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)
    except OSError:
        return b""
    parts = []
    try:
        while part := os.read(handle, 1 << 20):
            parts.append(part)
    except OSError:  # it ends meanwhile
        return b""
    finally:
        os.close(handle)
    return b"".join(parts)


def bound(*argv: str) -> list[str]:
    """Return the command whose process is killed with the thread that starts it, so also where a run of tests is killed."""
    return ["setpriv", "--pdeathsig", "KILL", "--", *argv]


def pids() -> Iterator[str]:
    """Yield the pid of each process of this machine."""
    return (name for name in os.listdir("/proc") if name.isdigit())


def by_age(found: Iterable[int]) -> list[int]:
    """Return processes, the oldest first. Pids do not tell: after the last one, the kernel begins again at the first."""
    return sorted(found, key=lambda pid: (start_ticks(pid) or 0, pid))


def hurry(found: Iterable[int]) -> None:
    """Give those of these processes as much of the cores as others get that import behind all of them, for a later start.

    On a machine that is never idle, an import of PyTorch would take a quarter of an hour so.
    """
    for pid in found:
        if b"\0JOBCTL_STANDBY=" in b"\0" + read(str(pid), "environ"):
            with contextlib.suppress(OSError):  # it has ended; or nobody else may do that
                os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
                with open(f"/proc/{pid}/autogroup", "w") as group:
                    group.write("0")


def marked(mark: str) -> dict[int, str]:
    """Return processes whose environments have a variable that begins with `mark`: pid to command line; no zombies."""
    wanted = b"\0" + os.fsencode(mark)
    found = {}
    for pid in pids():
        if wanted in b"\0" + read(pid, "environ") and (line := read(pid, "cmdline")):
            found[int(pid)] = line.replace(b"\0", b" ").decode(errors="replace").strip()
    return found
