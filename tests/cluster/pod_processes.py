"""Looking into pods, and hurting them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
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


def gossip_process_of(pod: Pod) -> int:
    """Return the process in a pod by which its launcher hears the others: it has a socket at the pod's address."""
    assert pod.process is not None
    own = "".join(f"{int(part):02X}" for part in reversed(pod.address.split(".")))
    table = Path(f"/proc/{pod.process.pid}/net/udp").read_text()
    rows = [line.split() for line in table.splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]" for row in rows if row[1].startswith(f"{own}:")}
    for pid in _below(pod.process.pid):
        if sockets & set(_open_in(pid)):
            return pid
    raise LookupError(f"nobody in {pod.name} listens at {pod.address}")


def _open_in(pid: int) -> Iterator[str]:
    """Yield what a process has open; it opens and closes files, or ends, meanwhile."""
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield os.readlink(entry)


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
