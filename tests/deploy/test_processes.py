"""Processes by /proc: which are still there."""

from __future__ import annotations

import os
import subprocess
import sys

from jobctl.jobspec import launcher
from jobctl.jobspec.deploy.processes import start_ticks

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
        there = start_ticks(process.pid) is not None, process.pid in launcher.descendants(os.getpid())
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        gone = start_ticks(process.pid) is None, process.pid not in launcher.descendants(os.getpid())
    assert (there, gone) == ((True, True), (True, True))
