"""What the kernel's OOM killer has ended: how it is counted, and what is said of it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.observed import failure_words
from jobctl.jobspec.launcher.system.memory import OomWatch, oom_kills, oom_line, tells_of_oom
from jobctl.jobspec.plan.recovery import Failure
from tests.tools.waiting import promptly

GREEDY = """\
import os
print('takes memory', flush=True)
if os.environ['WHO'] == 'helper' and os.fork():
    os._exit(1 if os.wait()[1] else 0)
open('/proc/self/oom_score_adj', 'w').write('1000')
held = [bytearray(os.urandom(1 << 20)) for _ in range(512)]
"""
V1 = {"oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", "limit_in_bytes": "1610612736\n"}
V2 = {"events": "low 0\nmax 9\noom 4\noom_kill 3\noom_group_kill 0\n", "max": "1610612736\n"}


def written(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / f"memory.{name}").write_text(text)


@pytest.mark.parametrize(
    ("groups", "folder", "files"),
    [
        ("4:memory:/docker/ab\n0::/\n", "memory/docker/ab", V1),
        ("4:cpu,memory:/docker/ab\n", "memory", V1),  # the container sees its own group at the root
        ("0::/system.slice/docker-ab.scope\n", "system.slice/docker-ab.scope", V2),
        ("0::/\n", ".", V2),
    ],
)
def test_the_control_group_says_how_many_were_killed(
    tmp_path: Path, groups: str, folder: str, files: dict[str, str]
) -> None:
    (tmp_path / "cgroup").write_text(groups)
    written(tmp_path / "mounted" / folder, files)
    where = str(tmp_path / "cgroup"), str(tmp_path / "mounted")
    assert oom_kills(*where) == 3
    assert (
        oom_line(*where) == "jobctl: out of memory: the kernel's OOM killer ended a process here; the limit is 1.5 GiB"
    )


def test_without_control_groups_nothing_is_said_of_memory(tmp_path: Path) -> None:
    assert oom_kills(str(tmp_path / "none"), str(tmp_path)) is None


@pytest.mark.parametrize(("before", "told"), [(10.0, True), (10.1, False)])
def test_a_process_that_was_killed_long_ago_is_no_cause_of_an_end(before: float, told: bool) -> None:
    """A script survives that a standby, or a helper, is killed, and may fail days later for another reason."""
    now, count = [0.0], [3]
    watch = OomWatch(lambda: count[0], lambda: now[0])
    now[0], count[0] = 1.0, 4
    watch.look()
    now[0] += before
    assert watch.is_recent() is told


def test_a_process_that_is_killed_just_now_is_seen_at_the_end() -> None:
    now, count = [0.0], [3]
    watch = OomWatch(lambda: count[0], lambda: now[0])
    assert not watch.is_recent()
    count[0] = 4
    watch.look()  # which is too early
    assert watch.is_recent()


def test_without_a_limit_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("0::/\n")
    written(tmp_path / "mounted", {**V2, "max": "max\n"})
    line = oom_line(str(tmp_path / "cgroup"), str(tmp_path / "mounted"))
    assert line == "jobctl: out of memory: the kernel's OOM killer ended a process here"
    assert tells_of_oom(["x", line])
    assert not tells_of_oom([line, "x"])


def test_a_failure_is_told_with_its_cause() -> None:
    tail = ("loading", oom_line())
    failure = Failure(1, 0.0, 0, "a", 3, 137, "signal", 5, 1.0, tail=tail)
    assert failure_words(failure) == "rank 3 was killed by SIGKILL: out of memory"


@pytest.fixture
def little_memory() -> Iterator[Path]:
    """Return a control group whose processes get 192 MiB, as a container's would."""
    root = Path("/sys/fs/cgroup/memory")
    group, limit = root / f"jobctl-test-{os.getpid()}", "memory.limit_in_bytes"
    if not root.is_dir():
        root = Path("/sys/fs/cgroup")
        group, limit = root / f"jobctl-test-{os.getpid()}", "memory.max"
    try:
        if limit == "memory.max":
            (root / "cgroup.subtree_control").write_text("+memory")
        group.mkdir()
        (group / limit).write_text(str(192 << 20))
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        # A machine that has to have engines can have control groups, too.
        give_up = pytest.fail if os.environ.get("JOBCTL_FLEET") == "required" else pytest.skip
        give_up(f"no control group for memory can be made here: {error}")
    yield group

    def gone() -> bool:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):
            group.rmdir()
        return not group.exists()

    promptly(gone)


@pytest.mark.parametrize(
    ("who", "reason"),
    [
        ("rank", "rank 0 was killed by SIGKILL: out of memory"),
        ("helper", "rank 0 exited with code 1: out of memory"),  # of a data loader, for example
    ],
)
def test_the_report_says_that_there_was_no_memory_left(node: Any, little_memory: Path, who: str, reason: str) -> None:
    node.start(command=node.script(GREEDY), environ={"WHO": who})
    promptly((node.dir / "report.json").exists)
    for pid in node.living():
        (little_memory / "cgroup.procs").write_text(str(pid))
    node.order(1)
    report = node.until("failed")
    assert report["reason"] == reason
    assert report["failure"]["tail"] == [
        "takes memory",
        "jobctl: out of memory: the kernel's OOM killer ended a process here; the limit is 0.2 GiB",
    ]
