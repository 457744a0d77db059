"""Looking into pods, and hurting them."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .pods import Pod, Process


def kill_process(pod: Pod, word: str) -> None:
    """SIGKILL the processes in a pod whose command line has `word`, from outside."""
    for pid in _with(pod, word):
        with contextlib.suppress(ProcessLookupError):  # it has ended with one that was killed before
            os.kill(pid, signal.SIGKILL)


def runs(pod: Pod, word: str) -> bool:
    """Say whether a process with `word` in its command line lives in a pod."""
    return bool(_with(pod, word))


def first_of(process: Process) -> int:
    """Return the first process inside a container: of those that it holds, the one that has number 1 there."""
    for pid in (process.pid, *_below(process.pid)):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:  # it has ended meanwhile
            continue
        numbers = next(line.split() for line in status.splitlines() if line.startswith("NSpid:"))
        if len(numbers) > 2 and numbers[-1] == "1":
            return pid
    raise LookupError("it has ended")


def _with(pod: Pod, word: str) -> list[int]:
    assert pod.process is not None
    found = []
    for pid in _below(pod.process.pid):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in line and "launcher.py" not in line:
            found.append(pid)
    return found


def _below(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found += [int(entry.name), *_below(int(entry.name))]
    return found
