"""Whether the kernel has killed a process here because there was no memory left, as the control group counts it.

Source: https://docs.kernel.org/admin-guide/cgroup-v2.html (memory.events), and memory.oom_control of version 1. Both count what
any OOM killer ends: that of the group's limit, and that of the host.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Iterator, Optional, Sequence, Tuple
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
