"""How long something that must end may still take."""

from __future__ import annotations

import mmap
import struct

from jobctl.jobspec.launcher.system.processes import boot_time, kill_descendants


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
