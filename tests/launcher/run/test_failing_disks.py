"""Disks that fail once a generation has begun, that have no room for what a launcher writes, or no locks."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.launcher.failure import Problem
from jobctl.jobspec.launcher.node.guard import take_lock
from jobctl.jobspec.launcher.process.guard import cannot_start
from jobctl.jobspec.launcher.run.scratch import make_shared
from tests.launcher.conftest import failure
from tests.tools.waiting import promptly


@pytest.mark.parametrize("folder", ["logs", "processes"])
def test_a_generation_whose_processes_cannot_write_their_files_has_failed(node: Any, folder: str) -> None:
    """The framework's launcher has begun by then: here it puts a file in the place of a folder."""
    place = node.dir / folder / "1"
    breaks = f"rm -r {place}; touch {place}; " + 'LOCAL_RANK=0 "$@"'
    report = failure(node, start=["sh", "-c", breaks, "sh", {"slot": "process"}], command=["false"])
    assert report["reason"] == f"its processes cannot be started: Not a directory ({place})"
    assert (report["failure"]["kind"], report["failure"]["exit_code"]) == ("launcher", None)


@pytest.mark.parametrize(("setup", "log"), [([], "1/launch.log"), (["true"], "setup.log")])
def test_a_log_without_room_is_named(node: Any, setup: list[str], log: str) -> None:
    path = node.dir / "logs" / log
    path.parent.mkdir(parents=True)
    path.symlink_to("/dev/full")
    report = failure(node, setup=setup, command=["true"])
    assert report["reason"] == f"its processes cannot be started: No space left on device ({path})"


def changed_since(folder: Path) -> Callable[[], bool]:
    """Return what says whether something came into a folder, or went, since this call."""
    before = folder.stat().st_mtime_ns
    return lambda: folder.stat().st_mtime_ns != before


def test_a_report_that_could_not_be_written_is_written_once_it_can(node: Any) -> None:
    """Otherwise a supervisor would take what has failed for running, for ever."""
    node.start(command=["sh", "-c", "while ! test -e enough; do sleep 0.02; done; exit 3"])
    node.order(1)
    node.until("running")
    report = node.dir / "report.json"
    promptly(lambda: node.report()["processes"])
    report.rename(node.root / "last")
    (report / "in the way").mkdir(parents=True)
    (node.root / "enough").touch()
    node.says("rank 0 exited with code 3 (generation 1)")
    node.says(f"cannot write {report}: ")
    for _ in range(2):  # a file comes, and goes as it cannot be renamed
        promptly(changed_since(node.dir))
    shutil.rmtree(report)
    assert node.until("failed", seconds=20.0)["failure"]["exit_code"] == 3


@pytest.mark.parametrize("starts", ["process", "launcher"])
def test_a_program_that_cannot_be_started_just_now_may_be_the_next_time(node: Any, starts: str) -> None:
    """Here somebody still writes it."""
    program = node.root / "program"
    shutil.copy("/bin/true", program)
    with program.open("ab"):
        report = failure(node, start=[str(program)] if starts == "launcher" else [], command=[str(program)])
    refused = {
        "process": f"cannot start {program}: Text file busy",
        "launcher": f"cannot start `{program}`: Text file busy ({program})",
    }
    assert report["reason"] == refused[starts]
    assert (report["failure"]["kind"], report["failure"]["exit_code"]) == ("launcher", None)
    node.order(2)
    node.until("succeeded")


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EAGAIN, "launcher"),  # too many processes
        (errno.ENOMEM, "launcher"),
        (errno.EIO, "launcher"),
        (errno.ESTALE, "launcher"),  # a server of files has been started again
        (errno.ENOENT, "start"),
        (errno.EACCES, "start"),
        (errno.ENOEXEC, "start"),
    ],
)
def test_what_keeps_a_program_from_starting_may_pass_or_not(number: int, kind: str) -> None:
    assert cannot_start("train", OSError(number, os.strerror(number))).failure.kind == kind


@pytest.mark.parametrize(
    ("last", "kind"),
    [
        ("BlockingIOError: [Errno 11] Resource temporarily unavailable", "launcher"),
        ("OSError: [Errno 12] Cannot allocate memory", "launcher"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'train'", "start"),
    ],
)
def test_a_framework_launcher_that_finds_no_room_for_processes_may_find_it_later(
    node: Any, last: str, kind: str
) -> None:
    """It says so in the last line of its traceback, as torchrun does."""
    command = ["sh", "-c", 'echo "Traceback (most recent call last):" >&2; echo "$0" >&2; exit 1', last]
    report = failure(node, start=command)
    words = " ended with code 1 before any process began" + (f": {last}" if kind == "launcher" else "")
    assert report["reason"].endswith(words)
    assert (report["failure"]["kind"], report["failure"]["tail"][-1]) == (kind, last)


def test_secrets_that_cannot_be_read_just_now_are_not_missing(node: Any) -> None:
    """The next generation may read them. Where nothing is mapped, memory says what a broken disk does."""
    node.start("--secrets", "/proc/self/mem", secrets=["TOKEN"])
    node.order(1)
    report = node.until("failed")
    assert report["reason"] == "its processes cannot be started: Input/output error (/proc/self/mem)"
    assert report["failure"]["kind"] == "launcher"


@pytest.mark.parametrize(("number", "passes"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EACCES, False)])
def test_a_folder_for_all_nodes_may_find_room_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, passes: bool
) -> None:
    """What a checkpoint directory forbids it forbids the next generation, too."""

    def refuse(path: str, exist_ok: bool) -> None:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(os, "makedirs", refuse)
    order: Any = type("Order", (), {"job": "demo", "id": "demo-1", "checkpoint_dir": str(tmp_path)})
    with pytest.raises(OSError if passes else Problem, match=os.strerror(number)):
        make_shared(order, str(tmp_path / "node-0"))


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS])
def test_on_storage_without_locks_a_node_has_one_launcher_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    node, other = str(tmp_path / "node-0"), str(tmp_path / "node-1")
    first, second = take_lock(node), take_lock(other)
    assert first is not None
    assert second is not None
    assert (take_lock(node), take_lock(other)) == (None, None)
    os.close(first)
    again = take_lock(node)
    assert again is not None
    os.close(second)
    os.close(again)
