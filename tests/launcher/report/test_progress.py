"""Steps and hangs: what the progress file says, and when standing still is a failure."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.launcher.failure import Failure
from jobctl.jobspec.launcher.process.record import ProcessRecord
from jobctl.jobspec.launcher.report.progress import STEADY, Hang
from jobctl.jobspec.launcher.run.environment import Folders
from jobctl.jobspec.launcher.run.run import Run
from tests.launcher.conftest import PATIENCE, STALL
from tests.tools.launches import launch_of
from tests.tools.waiting import promptly

STEPS = """\
import os, time
path = os.environ['JOBCTL_PROGRESS_FILE']
for step in range(1, 6):
    with open(path + '.tmp', 'w') as file:
        file.write(str(step))
    os.replace(path + '.tmp', path)
    time.sleep(0.05)
print('ready', flush=True)
time.sleep(600)
"""


@pytest.mark.every_python
def test_progress_is_reported(node: Any) -> None:
    before = time.time()
    node.start(nproc=2, command=node.script(STEPS))
    node.order(1)
    deadline = time.monotonic() + PATIENCE
    while node.report().get("progress") != 5:
        assert time.monotonic() < deadline, node.report()
        time.sleep(0.01)
    assert before <= node.report()["progress_at"] <= time.time()


def test_what_is_written_as_it_ends_counts(node: Any) -> None:
    node.start(command=node.script("import os\nopen(os.environ['JOBCTL_PROGRESS_FILE'], 'w').write('7')"))
    node.order(1)
    report = node.until("succeeded")
    assert (report["progress"], report["processes"][0]["step"]) == (7, 7)


def test_standing_still_is_a_failure(node: Any) -> None:
    node.start(command=node.script(STEPS.replace("range(1, 6)", "(5,)")), hang_timeout=1.0)
    node.order(1)
    report = node.until("failed")
    assert (report["reason"], report["failure"]["kind"]) == ("no progress for 1 s (hang_timeout)", "hang")
    assert (report["progress"], node.pids("script-0")) == (5, [])


def test_before_the_first_step_nothing_hangs(node: Any) -> None:
    process = node.start(command=["sleep", "1.5"], hang_timeout=0.3)
    node.order(1)
    assert process.wait(PATIENCE) == 0


def test_nor_before_the_first_step_of_one_that_the_framework_has_started_again(node: Any) -> None:
    steps = f"import os, sys, time\nif os.path.exists('again'): time.sleep({STALL + 1.0}); sys.exit()\n"
    steps += (
        "open(os.environ['JOBCTL_PROGRESS_FILE'], 'w').write('7'); open('again', 'w'); time.sleep(0.3); sys.exit(1)"
    )
    start = ["sh", "-c", 'export RANK=0 LOCAL_RANK=0; "$@"; "$@"', "sh", {"slot": "process"}]
    process = node.start(start=start, command=node.script(steps), regroups=True, rejoin=3, hang_timeout=STALL)
    node.order(1)
    assert process.wait(PATIENCE) == 0, node.report()
    assert node.report()["process_restarts"] == 1


def looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return the processes of a generation that only looks: none of them is real."""
    monkeypatch.setattr("jobctl.jobspec.launcher.run.run.reap", dict)
    run = object.__new__(Run)
    run.launch, run.ended, run.folders = launch_of(), {}, Folders(str(tmp_path), 1)
    run.hang, run.progress_at, run.processes = Hang(1.0), None, []
    return run


def test_a_step_that_is_seen_once_its_process_was_started_again_is_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the launcher has stood still meanwhile: loading may take long all the same."""
    run = looking(tmp_path, monkeypatch)
    for starts, since in ((1, True), (2, False)):
        Path(run.folders.progress, "0").write_text(str(6 + starts))
        run.process = lambda local, starts=starts: ProcessRecord(local, starts=starts)
        run.look()
        assert (run.hang.progress, run.hang.at is not None) == (6 + starts, since)


def test_a_process_that_its_launcher_has_started_again_may_load_for_long_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer of a parameter server, for one: its node would be called hung, and all would begin again."""
    run = looking(tmp_path, monkeypatch)
    run.children, run.again = [5], {}
    run.process, run.start_process = ProcessRecord, lambda local: 6
    Path(run.folders.progress, "0").write_text("7")
    Path(run.folders.records, "0.json").write_text("{}")
    run.look()
    assert run.hang.at is not None
    run.start_again(Failure("exit", 0, 0, 1, None, time.time()))
    assert (run.hang.progress, run.hang.at, run.progress_at) == (7, None, None)
    Path(run.folders.progress, "0").write_text("8")
    run.look()
    assert run.hang.at is not None


def test_progress_begins_anew_with_a_generation(node: Any) -> None:
    node.start(
        command=node.script(
            STEPS.replace("range(1, 6)", "range(1, 6 if os.environ['JOBCTL_GENERATION'] == '1' else 1)")
        )
    )
    node.order(1)
    deadline = time.monotonic() + PATIENCE
    while node.report().get("progress") != 5:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    node.order(2)
    assert node.until("running", 2)["progress"] is None


def test_a_process_is_as_slow_as_in_the_fastest_of_its_last_steps(tmp_path: Path) -> None:
    hang = Hang(None)
    for step in range(1, STEADY + 1):
        assert hang.paces.get(0) is None or hang.paces[0].least is None
        (tmp_path / "0").write_text(f"{step} {0.5 if step == 7 else 0.8}")
        hang.look(str(tmp_path), float(step))
        hang.look(str(tmp_path), step + 0.5)  # the same step again does not count
    assert (hang.progress, hang.paces[0].least) == (STEADY, 0.5)
    for step in range(STEADY + 1, STEADY + 8):
        (tmp_path / "0").write_text(f"{step} 0.9")
        hang.look(str(tmp_path), float(step))
    assert hang.paces[0].least == 0.8


@pytest.mark.parametrize("seconds", ["", "x", "-1", "nan", "inf", "0"])
def test_seconds_that_are_none_do_not_keep_the_step_from_counting(tmp_path: Path, seconds: str) -> None:
    (tmp_path / "0").write_text(f"3 {seconds}")
    hang = Hang(None)
    assert hang.look(str(tmp_path), 1.0)
    assert (hang.steps_of, hang.paces[0].seconds) == ({0: 3}, [])


@pytest.mark.parametrize("text", ["", "x", "step 3", "\n", "3.5"])
def test_what_is_no_step_is_no_progress(tmp_path: Path, text: str) -> None:
    (tmp_path / "0").write_text(text)
    hang = Hang(1.0)
    assert not hang.look(str(tmp_path), 5.0)
    assert hang.progress is None


def counted(hang: Hang, folder: Path, pauses: Sequence[float], steps: int = 1) -> float:
    """Have a rank write its counter after each of the pauses, so many steps further; return the time of the last one."""
    now = 100.0
    for number, pause in enumerate(pauses):
        now += pause
        (folder / "0").write_text(str(number * steps))
        assert hang.look(str(folder), now)
    return now


def test_the_limit_follows_the_slow_steps(tmp_path: Path) -> None:
    hang = Hang(0)
    now = counted(hang, tmp_path, [120.0] * 30)
    assert hang.limit() == 600.0
    assert not hang.hangs(now + 600.0)
    assert hang.hangs(now + 600.1)


def test_a_script_that_writes_only_each_hundredth_step_does_not_hang(tmp_path: Path) -> None:
    hang = Hang(0)
    now = counted(hang, tmp_path, [100.0] * 30, steps=100)
    assert not hang.hangs(now + 400.0)


def test_a_pause_that_was_seen_once_may_come_again(tmp_path: Path) -> None:
    """An evaluation is no hang: one of three hundred steps here, which no percentile shows."""
    hang = Hang(0)
    now = counted(hang, tmp_path, [1.0] * 150 + [250.0] + [1.0] * 150)
    assert hang.limit() == 500.0
    assert not hang.hangs(now + 450.0)


def test_automatic_needs_samples_and_has_a_least(tmp_path: Path) -> None:
    hang = Hang(0)
    for step in range(10):
        (tmp_path / "0").write_text(str(step))
        hang.look(str(tmp_path), 100.0 + step * 0.01)
    assert hang.limit() == float("inf")
    for step in range(10, 40):
        (tmp_path / "0").write_text(str(step))
        hang.look(str(tmp_path), 100.0 + step * 0.01)
    assert hang.limit() == 300.0


HUNG = """\
import faulthandler, os, signal, sys, time
if True:
    {ask}
def waits_for_a_peer():
    open(os.environ['JOBCTL_PROGRESS_FILE'], 'w').write(str(7 + int(os.environ['JOBCTL_ROLE_RANK']))); time.sleep(600)
waits_for_a_peer()
"""


@pytest.mark.every_python
@pytest.mark.parametrize("ask", ["faulthandler.register(signal.SIGUSR1)", "faulthandler.enable()"])
def test_where_a_hung_process_stands(node: Any, ask: str) -> None:
    without_py_spy = {"PATH": "/usr/bin:/bin"}
    node.start(command=node.script(HUNG.format(ask=ask)), hang_timeout=0.5, environ=without_py_spy)
    node.order(1)
    report = node.until("failed")
    (process,) = report["processes"]
    where = f"waits_for_a_peer ({node.dir.parent}/script-0.py:5)"
    assert (report["failure"]["kind"], process["step"], process["where"]) == ("hang", 7, where)
    assert "in waits_for_a_peer" in (node.dir / "logs" / "1" / "stack.0").read_text()


@pytest.mark.every_python
def test_py_spy_shows_where_a_process_stands_that_shows_nothing(node: Any) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    if shutil.which("py-spy", path=path) is None:
        pytest.skip("py-spy is not installed")
    node.start(command=node.script(HUNG.format(ask="pass")), hang_timeout=0.5, environ={"PATH": path})
    node.order(1)
    (process,) = node.until("failed")["processes"]
    assert process["where"] == f"waits_for_a_peer ({node.dir.parent}/script-0.py:5)"


def test_a_process_that_asked_for_nothing_is_sent_nothing(node: Any) -> None:
    node.start(command=node.script(HUNG.format(ask="pass")), hang_timeout=0.5, environ={"PATH": "/usr/bin:/bin"})
    node.order(1)
    (process,) = node.until("failed")["processes"]
    assert (process["where"], process["signal"]) == (None, signal.SIGTERM)


def test_nodes_that_stood_still_too_say_where(node: Any) -> None:
    """The first node to call it a hang has everything restarted: the others tell before they end."""
    node.start(command=node.script(HUNG.format(ask="faulthandler.enable()")), hang_timeout=4.0)
    node.order(1)
    since = promptly(lambda: node.report().get("progress_at"))
    promptly(lambda: time.time() - since > 2.2)  # more than half of what makes a hang
    node.order(2)
    promptly((node.dir / "logs" / "1" / "stack.0").exists)
