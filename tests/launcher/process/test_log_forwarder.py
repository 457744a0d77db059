"""What a pod's own log repeats of its processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jobctl.jobspec.launcher.process import log_files
from jobctl.jobspec.launcher.process.log_files import LogForwarder
from tests.tools.own_time import set_time


def forwarded(tmp_path: Path, *writes: bytes) -> list[bytes]:
    with (tmp_path / "log").open("wb", buffering=0) as file:
        forwarder = LogForwarder(file.fileno(), "rank3")
        for data in writes:
            forwarder.write(data)
            assert len(forwarder.rest) <= LogForwarder.AT_ONCE  # of what goes on without a newline no more is kept
        forwarder.finish()
    return (tmp_path / "log").read_bytes().split(b"\n")[:-1]


def test_lines_come_whole_and_the_last_needs_no_end(tmp_path: Path) -> None:
    assert forwarded(tmp_path, b"a\nb", b"c\n\nd") == [b"rank3 | a", b"rank3 | bc", b"rank3 | ", b"rank3 | d"]


def test_a_line_that_grows_is_said_in_parts(tmp_path: Path) -> None:
    part = b" 50% |#####     |"
    lines = forwarded(tmp_path, *[part] * 1000, b"\n", b"done\n")
    assert (b"".join(line[8:] for line in lines[:-1]), lines[-1]) == (part * 1000, b"rank3 | done")
    assert all(line.startswith(b"rank3 | ") and len(line) < LogForwarder.AT_ONCE for line in lines)


def test_a_progress_bar_is_said_at_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It returns to the beginning of its line for as long as the job runs."""
    now = iter(at / 10 for at in range(100, 10_000))
    set_time(monkeypatch, log_files, monotonic=lambda: next(now))
    lines = forwarded(tmp_path, *(b"\r%3d%%" % state for state in range(101)), b"\n", b"done\n")
    assert (lines[0], lines[-2:]) == (b"rank3 |   0%", [b"rank3 | 100%", b"rank3 | done"])
    assert 10 < len(lines) < 40
    assert len(set(lines)) == len(lines)


def test_a_line_that_fills_a_part_is_one(tmp_path: Path) -> None:
    full = b"x" * (LogForwarder.AT_ONCE - len(b"rank3 | \n"))
    assert forwarded(tmp_path, full, b"\n") == [b"rank3 | " + full]


def test_a_line_that_comes_whole_and_is_long_is_said_in_parts(tmp_path: Path) -> None:
    room = LogForwarder.AT_ONCE - len(b"rank3 | \n")
    text = b"".join(b"%d " % number for number in range(room))
    lines = forwarded(tmp_path, text + b"\n")
    assert b"".join(line.removeprefix(b"rank3 | ") for line in lines) == text
    assert max(map(len, lines)) == LogForwarder.AT_ONCE - 1


# Runs as the guard of a process does, which has the signals of its own process.
PUMP = """\
import os, subprocess, sys
from jobctl.jobspec.launcher.process.log_files import LogFile
from jobctl.jobspec.launcher.process.guard import pump
reading, writing = os.pipe()
child = subprocess.Popen(["sh", "-c", "printf 'last words'; kill -9 $$"], stdout=writing)
os.close(writing)
child.wait()
print(pump(reading, child, LogFile(sys.argv[1])))
"""


def test_what_was_printed_last_is_kept_although_its_process_has_ended(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PUMP, str(tmp_path / "log")], capture_output=True, text=True, check=True
    )
    assert (done.stdout, (tmp_path / "log").read_text()) == ("137\n", "last words")


# The child goes on to its end once its first output is written. A disk takes a moment for each write: so `yes`, which it
# has left behind, always has more to say.
ENDLESS = """\
import os, subprocess, sys, time
from jobctl.jobspec.launcher.process.guard import pump
from jobctl.jobspec.launcher.system.processes import proc_stat
reading, writing = os.pipe()
child = subprocess.Popen(["sh", "-c", "yes & read end; exit 3"], stdin=subprocess.PIPE, stdout=writing)
os.close(writing)
class Log:
    forwarder, said = None, 0
    def write(self, data):
        child.stdin.close()
        while (proc_stat(child.pid) or ("Z",))[0] != "Z":
            time.sleep(0.001)
        time.sleep(0.02)
        self.said += len(data)
        if self.said > 1 << 23:
            sys.exit("it copies for ever")
if sys.argv[1:]:
    child.stdin.close()
    child.wait()
print(pump(reading, child, Log()))
"""


@pytest.mark.parametrize("ended", [[], ["ended"]])
def test_the_end_of_a_process_is_seen_although_another_one_prints_all_the_time(ended: list[str]) -> None:
    """As one may that cannot go on without the process that has started it, and says so again and again."""
    done = subprocess.run([sys.executable, "-c", ENDLESS, *ended], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("3\n", "")
