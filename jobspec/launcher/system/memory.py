"""Whether the kernel has killed a process here because there was no memory left, as the control group counts it.

Source: https://docs.kernel.org/admin-guide/cgroup-v2.html (memory.events), and memory.oom_control of version 1. Both count what
any OOM killer ends: that of the group's limit, and that of the host.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Callable, Iterator, Optional, Sequence, Tuple
OOM_MARK = "out of memory: the kernel's OOM killer"  # how the line begins, after the name of jobctl
NO_LIMIT = 1 << 60  # bytes: version 1 names at least as many where there is no limit


def oom_kills(proc: str = "/proc/self/cgroup", mounted: str = "/sys/fs/cgroup") -> Optional[int]:
    """Return how many processes of this one's control group the kernel has killed for want of memory, None if unknown."""
    for events, _ in _memory_files(proc, mounted):
        for line in _control_text(events).splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.strip().isdigit():
                return int(count)
    return None


class OomWatch:
    """Whether the kernel has killed a process of this control group a moment ago.

    What it has killed earlier, such as a standby or a helper that the script survived, is no cause of what ends now.
    """

    AT_MOST_OFTEN = 1.0  # seconds between two looks
    RECENT = 10.0  # seconds that a script may take to fail because a helper of it was killed

    def __init__(
        self, count: Callable[[], Optional[int]] = oom_kills, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._count, self._clock = count, clock
        self._known, self._looked = count() or 0, clock()
        self._rose: Optional[float] = None  # when the count was last seen to be higher than before

    def look(self) -> None:
        """Look at the count, if that is a while ago."""
        if self._clock() - self._looked >= self.AT_MOST_OFTEN:
            self._read()

    def is_recent(self) -> bool:
        """Look once more; say whether the count has risen just now."""
        self._read()
        return self._rose is not None and self._clock() - self._rose <= self.RECENT

    def _read(self) -> None:
        found, self._looked = self._count() or 0, self._clock()
        if found > self._known:
            self._known, self._rose = found, self._looked


def oom_line(proc: str = "/proc/self/cgroup", mounted: str = "/sys/fs/cgroup") -> str:
    """Return what a log says of such a process, with the limit of its control group if there is one."""
    for _, limit in _memory_files(proc, mounted):
        text = _control_text(limit).strip()
        if text.isdigit() and int(text) < NO_LIMIT:
            return "jobctl: %s ended a process here; the limit is %.1f GiB" % (OOM_MARK, int(text) / (1 << 30))
    return "jobctl: %s ended a process here" % OOM_MARK


def tells_of_oom(tail: Sequence[str]) -> bool:
    """Say whether the last line of a process's log is that of `oom_line`."""
    return bool(tail) and tail[-1].startswith("jobctl: " + OOM_MARK)


def _memory_files(proc: str, mounted: str) -> Iterator[Tuple[str, str]]:
    """Return where the counter and the limit may be: a container may see its own group at the root of the mount."""
    for line in _control_text(proc).splitlines():
        _, kinds, path = line.split(":", 2)
        if kinds == "" or "memory" in kinds.split(","):
            root = os.path.join(mounted, "memory") if kinds else mounted
            names = ("memory.oom_control", "memory.limit_in_bytes") if kinds else ("memory.events", "memory.max")
            for folder in (root + path, root):
                yield os.path.join(folder, names[0]), os.path.join(folder, names[1])


def _control_text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
