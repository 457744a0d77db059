"""Many hosts side by side, for a command that is interrupted meanwhile."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pytest

from jobctl.jobspec.deploy.transport import fanout
from jobctl.jobspec.deploy.transport.fanout import after_left, fan_out
from tests.tools.waiting import PATIENCE, promptly


class Tasks:
    """Tasks that go on until they may `end`. Those of two hosts interrupt their command."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.end = threading.Event()
        self.both = threading.Barrier(2)

    def __call__(self, host: str) -> None:
        self.began.append(host)
        if self.both.wait(PATIENCE) == 0:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert self.end.wait(PATIENCE)


@contextmanager
def interrupted(
    monkeypatch: pytest.MonkeyPatch, leave: float, lock: AbstractContextManager[object] | None = None
) -> Iterator[Tasks]:
    """Give the tasks of a command that Ctrl-C ended; `leave`: how long it has waited for them, in seconds; `lock`: what it held."""
    monkeypatch.setattr(fanout, "LEAVE", leave)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    tasks = Tasks()
    try:
        with pytest.raises(KeyboardInterrupt), lock or nullcontext():
            fan_out(["h0", "h1", "h2"], tasks, at_once=2)
        yield tasks
    finally:
        tasks.end.set()
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_waits_for_no_host_and_begins_on_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with interrupted(monkeypatch, 0.0) as tasks:
        assert sorted(tasks.began) == ["h0", "h1"]
        over: list[bool] = []
        after_left(lambda: over.append(tasks.end.is_set()))
        assert over == []
    promptly(lambda: over)
    assert (over, sorted(tasks.began)) == ([True], ["h0", "h1"])


def test_tasks_that_end_in_time_are_not_left(monkeypatch: pytest.MonkeyPatch) -> None:
    join = threading.Thread.join

    def ends(worker: threading.Thread, timeout: float | None = None) -> None:
        tasks[0].end.set()
        join(worker, timeout)

    tasks = [Tasks()]
    monkeypatch.setattr(f"{__name__}.Tasks", lambda: tasks[0])
    monkeypatch.setattr(threading.Thread, "join", ends)
    with interrupted(monkeypatch, PATIENCE):
        over: list[bool] = []
        after_left(lambda: over.append(True))
        assert over == [True]


PROGRAM = """
import os, signal, threading
from jobctl.jobspec.deploy.transport import fanout
from jobctl.jobspec.deploy.transport.aside import aside

def task(host):
    os.kill(os.getpid(), signal.SIGINT)
    aside(threading.Event().wait, "waits").result(5.0)

fanout.LEAVE = 0.0
try:
    fanout.fan_out(["h0"], task)
except KeyboardInterrupt:
    print("interrupted", flush=True)
threading._register_atexit(print, "waits for", [one.name for one in threading.enumerate() if not one.daemon])
"""


def test_no_thread_keeps_an_interrupted_process() -> None:
    """Those of an executor would, until the host answers."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("interrupted\nwaits for ['MainThread']\n", "")
