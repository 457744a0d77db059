"""The first process of a container, and what a node runner holds so that it lives."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobctl.jobspec.allocation.container import ContainerHold, passed, why_ended
from jobctl.jobspec.render.launcher import allocation
from tests.slurm.cluster import wait_for

# Leaves a process in a session of its own, which would outlive it; says so once it can be told to end.
_NODE = """\
import os, signal, subprocess, sys, time
left = subprocess.Popen(["sleep", "1000"], start_new_session=True)
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
print(left.pid, os.environ["SLURM_JOB_ID"], os.environ["MINE"], flush=True)
while True:
    time.sleep(0.1)  # Python sees a signal that comes just before a sleep when that is over
"""


class Inside:
    """A container's first process, without a container, and what its runner holds."""

    def __init__(self, directory: Path) -> None:
        (directory / "allocation.py").write_bytes(allocation())
        self.directory = directory
        self.started: list[subprocess.Popen[bytes]] = []
        (directory / "environ.json").write_text('{"MINE": "a=b"}')
        (directory / "own").mkdir()
        self.hold = ContainerHold(str(directory), str(directory / "own"))

    def start(self, *options: str, program: str = _NODE) -> subprocess.Popen[bytes]:
        """Start it."""
        argv = [sys.executable, str(self.directory / "allocation.py"), "inside", "--work", str(self.directory)]
        argv += ["--own", str(self.directory / "own"), "--environ", str(self.directory / "environ.json")]
        argv += [*options, "--", sys.executable, "-c", program]
        self.started.append(subprocess.Popen(argv, stdout=subprocess.PIPE))
        return self.started[-1]


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Inside]:
    made = Inside(tmp_path)
    yield made
    for first in made.started:
        first.terminate()
        first.wait(60)


def left_by(first: subprocess.Popen[bytes]) -> int:
    assert first.stdout is not None
    words = first.stdout.readline().split()
    assert words[1:] == [b"7", b"a=b"]
    return int(words[0])


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_all_in_it_ends_when_nobody_holds_it_any_more(inside: Inside) -> None:
    inside.hold.take({"SLURM_JOB_ID": "7"})
    first = inside.start()
    left = left_by(first)
    inside.hold.let_go()
    wait_for(lambda: first.poll() == 137, "the end of the container", 120.0)
    wait_for(lambda: is_gone(left), "the end of what it left")


def test_it_passes_signals_on_and_ends_as_what_it_runs(inside: Inside) -> None:
    inside.hold.take({"SLURM_JOB_ID": "7"})
    first = inside.start()
    left = left_by(first)
    first.send_signal(signal.SIGTERM)
    assert first.wait(60) == 7
    assert is_gone(left)
    inside.hold.let_go()


def test_one_that_starts_after_its_runner_has_died_ends(inside: Inside) -> None:
    inside.hold.take({"SLURM_JOB_ID": "7"})
    inside.hold.let_go()
    assert inside.start().wait(60) == 137


@pytest.mark.parametrize(("options", "seen"), [((), b"0,1"), (("--named-devices",), b"none")])
def test_where_the_devices_are_the_jobs_alone_no_variable_counts_them(
    inside: Inside, options: tuple[str, ...], seen: bytes
) -> None:
    inside.hold.take({"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "0,1"})
    first = inside.start(*options, program='import os; print(os.environ.get("CUDA_VISIBLE_DEVICES", "none"))')
    assert first.communicate(timeout=60)[0].strip() == seen


def test_one_that_may_not_read_its_variables_says_so(inside: Inside) -> None:
    """As an image's own user may not, whose processes would train without them."""
    (inside.directory / "environ.json").unlink()
    inside.hold.take({"SLURM_JOB_ID": "7"})
    assert inside.start().wait(60) == 126


def test_an_engine_that_does_not_answer_holds_nobody_up(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobctl.jobspec.allocation.container.REMOVING", 0.05)
    (inside.directory / "start.sh").write_text("sleep 1000 &\nwait\n")
    inside.hold.take({})
    inside.hold.remove()
    assert inside.hold.pipe is None


def test_a_container_gets_what_slurm_tells_the_job_and_no_token() -> None:
    given = {
        "SLURM_JOB_ID": "7",
        "SLURM_JWT": "secret",
        "CUDA_VISIBLE_DEVICES": "2",
        "HOME": "/home/ada",
        "PATH": "/bin",
    }
    assert passed(given) == {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "2"}


def test_a_node_that_failed_without_words_is_told_with_its_place(tmp_path: Path) -> None:
    hosts = {0: "s1", 1: "s2"}
    assert why_ended(str(tmp_path), {"container": "none"}, hosts, 1, 125) == "node 1 failed"
    assert why_ended(str(tmp_path), {"container": "podman"}, hosts, 1, 125) == (
        "node 1 failed on s2: its container ended with exit code 125 before a process did; "
        "slurm.out has what podman said"
    )
    (tmp_path / "node-0").mkdir()
    (tmp_path / "node-0" / "report.json").write_text(
        '{"failure": {"kind": "process"}, "reason": "rank 0 exited with 1"}'
    )
    assert why_ended(str(tmp_path), {"container": "podman"}, hosts, 1, 125) == "rank 0 exited with 1"
