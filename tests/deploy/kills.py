"""Kills in the middle of transfers: jobctl is a process of its own, and something is killed once so many bytes have come."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import pytest

from jobctl.jobspec.deploy.host.scripts import MARK
from jobctl.jobspec.deploy.store.processes import start_ticks
from tests.tools.waiting import promptly

T = TypeVar("T")

KILLS = int(os.environ.get("JOBCTL_TEST_TRANSFERS", "3"))
SEED = int(os.environ.get("JOBCTL_TEST_SEED", "1"))
NEVER = 1 << 60  # bytes
AGAIN = 0.1  # of the bytes may travel twice


def run_and_kill(work: Callable[[], object], got: Callable[[], int], at: int, kill: Callable[[int], None]) -> bool:
    """Do work in a process of its own, and call `kill` with its id once `got` is `at`; say whether that was done."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            work()
        os._exit(0)
    done = False
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if not done and got() >= at:
            done = True
            kill(child)
        with contextlib.suppress(OSError):
            signal.sigtimedwait([], 0.005)
    return done


def run(work: Callable[[], object]) -> None:
    """Do work in a process of its own, to its end."""
    run_and_kill(work, lambda: 0, NEVER, lambda command: None)


def kill_program(pid_file: Path, *, itself: bool, below: bool) -> None:
    """SIGKILL a program on a host, the engine or `tar` below it, or both, if it runs; return when they are dead."""
    killed = list[int]()
    with contextlib.suppress(OSError, ValueError):
        pid = int(pid_file.read_text())
        if MARK.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return  # it has ended, and another process has its number
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for one in (*(map(int, children) if below else ()), *([pid] if itself else ())):
            os.kill(one, signal.SIGKILL)
            killed.append(one)
    for one in killed:
        promptly(lambda one=one: start_ticks(one) is None)


def stays(left: Callable[[], list[T]]) -> list[T]:
    """Return what is left for good: a program whose jobctl was killed takes a moment to notice."""
    with contextlib.suppress(AssertionError):
        promptly(lambda: not left())
    return left()


def lose_unwritten(files: Iterable[Path], chance: random.Random, most: int) -> None:
    """Cut files as a host does that loses what it has not written to its disk yet."""
    for path in files:
        lost = chance.randrange(most)
        with contextlib.suppress(FileNotFoundError):  # it has got another name meanwhile
            os.truncate(path, max(0, path.stat().st_size - lost))


def tell(hits: int, again: float, capsys: pytest.CaptureFixture[str]) -> None:
    """Print what the kills cost."""
    with capsys.disabled():
        print(f"\n{hits} kills in the middle of {KILLS} transfers: {100 * again:.1f} % of the bytes travelled again")
