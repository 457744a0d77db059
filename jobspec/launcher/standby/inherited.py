"""What a process keeps when it starts its program once more: a rank that goes on cold is the same process.

A script that gives each rank its share of the cores would get a share of the share at its second start.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.standby.effects import NUMBERS
from jobctl.jobspec.launcher.system.processes import signal_action

if TYPE_CHECKING:
    from typing import Dict, Tuple
TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class Inherited:
    """What a rank that waits begins with, before it imports anything. Python has one thread then."""

    def __init__(self) -> None:
        self.umask = os.umask(0o22)
        os.umask(self.umask)
        self.folder = os.getcwd()
        self.cores = os.sched_getaffinity(0)
        self.nice = os.getpriority(os.PRIO_PROCESS, 0)
        self.limits = limits()
        self.blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        self.actions = {number: signal_action(number) for number in NUMBERS}

    def give_back(self) -> None:
        """Have it all as it was, as far as this process may."""
        os.umask(self.umask)
        for number, limit in self.limits.items():
            with contextlib.suppress(OSError, ValueError):
                set_limit(number, limit)
        with contextlib.suppress(OSError):
            os.chdir(self.folder)
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, self.cores)
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, self.nice)
        for timer in TIMERS:
            signal.setitimer(timer, 0)
        for number, action in self.actions.items():
            signal_action(number, action)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.blocked)


def limits() -> Dict[int, Tuple[int, int]]:
    """Return the limits of this process."""
    import resource

    numbers = {getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
    return {number: resource.getrlimit(number) for number in numbers}


def set_limit(number: int, limit: Tuple[int, int]) -> None:
    """Set a limit; where the script has lowered what it cannot raise again, the one below that. Raises OSError, ValueError."""
    import resource

    now = resource.getrlimit(number)
    if now == limit:
        return
    try:
        resource.setrlimit(number, limit)
    except (OSError, ValueError):
        resource.setrlimit(number, (limit[0], now[1]))
