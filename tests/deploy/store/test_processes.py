"""Processes by /proc: which are still there."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.store import processes
from jobctl.jobspec.deploy.store.processes import start_ticks
from jobctl.jobspec.launcher.system import processes as launched
from jobctl.jobspec.launcher.system.processes import descendants

# As one that was killed, one thread of which waits for a disk: that keeps the port open.
FIRST_THREAD_DEAD = """\
import ctypes, threading, time
threading.Thread(target=lambda: (time.sleep(0.2), print("dead", flush=True), time.sleep(600))).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_is_gone_with_its_last_thread() -> None:
    with subprocess.Popen([sys.executable, "-c", FIRST_THREAD_DEAD], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "dead\n"
        there = start_ticks(process.pid) is not None, process.pid in descendants(os.getpid())
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        gone = start_ticks(process.pid) is None, process.pid not in descendants(os.getpid())
    assert (there, gone) == ((True, True), (True, True))


class Ticking:
    """A clock of which each look takes a second."""

    time = 0.0

    def __call__(self) -> float:
        self.time += 1.0
        return self.time


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts shells with more in their environment; none is left afterwards."""
    made: list[subprocess.Popen[bytes]] = []

    def start(script: str, **more: str) -> subprocess.Popen[bytes]:
        argv = ["sh", "-c", f"{script}; echo ready; while :; do sleep 0.02; done"]
        process = subprocess.Popen(argv, env={**os.environ, **more}, stdout=subprocess.PIPE, start_new_session=True)
        made.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start
    for process in made:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def reaping(process: subprocess.Popen[bytes]) -> Callable[[float], None]:
    """What to do in place of a pause: see whether a child has ended, which nobody else does."""

    def pause(seconds: float) -> None:
        time.sleep(0.01)
        process.poll()

    return pause


def test_a_process_is_told_to_end_and_killed_after_its_grace(started: Any) -> None:
    willing, stubborn = started("trap 'sleep 0.1; exit 3' TERM"), started("trap '' TERM")
    for process, grace, code in ((willing, 1e9, 3), (stubborn, 3.0, -signal.SIGKILL)):
        processes.end(process.pid, start_ticks(process.pid), grace, clock=Ticking(), pause=reaping(process))
        assert process.wait() == code


def test_another_process_of_that_pid_is_left_alone(started: Any) -> None:
    process = started(":")
    ticks = start_ticks(process.pid)
    assert processes.alive(process.pid, ticks)
    assert not processes.alive(process.pid, ticks - 1)
    processes.end(process.pid, ticks - 1, 0.0)
    assert process.poll() is None


def test_the_processes_of_one_node_are_found_and_killed(started: Any, tmp_path: Path) -> None:
    mine = {processes.WORK_MARK: str(tmp_path)}
    first, second = (
        started(":", **mine, **{processes.NODE_MARK: "0"}),
        started(":", **mine, **{processes.NODE_MARK: "1"}),
    )
    other = started(":", **{processes.WORK_MARK: f"{tmp_path}-2", processes.NODE_MARK: "0"})
    assert {first.pid, second.pid} <= set(processes.marked(tmp_path))
    assert processes.kill_marked(tmp_path, 0, before=processes.start_ticks(first.pid) - 1) == 0  # type: ignore[operator]
    assert processes.kill_marked(tmp_path, 0, before=processes.ticks_now(), pause=reaping(first)) >= 1
    assert (first.wait(), second.poll(), other.poll()) == (-signal.SIGKILL, None, None)


@pytest.mark.parametrize(("now", "killed"), [(5, [7]), (6, []), (None, [])])
def test_a_number_that_is_anothers_by_now_is_not_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, now: int | None, killed: list[int]
) -> None:
    """Between a look at all processes and the kill one may end, and another get its number."""
    said: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: said.append(pid))
    looks, ticks = iter([[7], []]), iter([5, now])
    monkeypatch.setattr(processes, "marked", lambda work, node: next(looks))
    monkeypatch.setattr(processes, "start_ticks", lambda pid: next(ticks))
    assert (processes.kill_marked(tmp_path, pause=lambda seconds: None), said) == (1, killed)
    below = iter([{7: 5}, {}])
    monkeypatch.setattr(launched, "descendants", lambda root, but: next(below))
    monkeypatch.setattr(launched, "start_ticks", lambda pid: now)
    monkeypatch.setattr(launched, "reap", dict)
    launched.kill_descendants()
    assert said == killed * 2
