"""What the control file makes the launcher do: nothing without one, generations in place, stop, finish."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.launcher.recovery import control_file
from jobctl.jobspec.launcher.recovery.control_file import ControlFile
from tests.launcher.conftest import PATIENCE
from tests.launcher.orders import order
from tests.tools.launches import launch_of
from tests.tools.waiting import promptly

SLEEPER = "import os, time\nprint('generation', os.environ['JOBCTL_GENERATION'], flush=True)\ntime.sleep(600)\n"


def test_nothing_starts_without_a_control_file(node: Any) -> None:
    process = node.start(command=["touch", str(node.root / "ran")])
    report = node.until("waiting")
    node.looks()
    assert not (node.root / "ran").exists()
    assert process.poll() is None
    assert (report["generation"], report["processes"], report["launcher"]["pid"]) == (0, [], process.pid)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a JSON object"),
        ("{", "not a JSON object"),
        ("[]", "not a JSON object"),
        ('{"number": 1}', "without command, members, rendezvous, grace"),
        (
            '{"number": 1, "command": "dance", "members": [], "rendezvous": {}, "grace": 1}',
            "unknown command 'dance': this launcher is older than who wrote it",
        ),
    ],
)
def test_a_bad_control_file_is_reported_and_the_next_one_obeyed(node: Any, text: str, reason: str) -> None:
    process = node.start()
    node.write(text)
    wanted = f"the control file is unreadable: {reason}"
    promptly(lambda: node.report().get("reason") == wanted)
    node.order()
    assert process.wait(PATIENCE) == 0


def test_a_control_file_that_its_disk_did_not_give_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NFS does for a while. It may be the last order that anybody gives."""
    real, refusals = control_file.read_json, [None, None]
    monkeypatch.setattr(control_file, "read_json", lambda path: refusals.pop() if refusals else real(path))
    path = tmp_path / "control.json"
    said: list[str] = []
    path.write_text(json.dumps(order().to_json()))
    control = ControlFile(str(path), launch_of(), None, None, said.append)
    assert [control.read() for _ in range(4)] == [False, False, True, False]
    assert (control.order, said) == (order(), ["the control file is unreadable: not a JSON object"])


@pytest.mark.parametrize(("before", "obeyed"), [("", False), ("{", True)])
def test_a_finish_is_for_this_launcher_if_another_file_was_there_before(
    tmp_path: Path, before: str, obeyed: bool
) -> None:
    path = tmp_path / "control.json"
    control = ControlFile(str(path), launch_of(), None, None, print)
    if before:
        path.write_text(before)
    assert not control.read()
    path.write_text(json.dumps(order(1, "finish").to_json()))
    assert control.read() == obeyed


def test_a_node_that_is_no_member_waits(node: Any) -> None:
    node.order(members=[])
    process = node.start(command=["false"])
    promptly(lambda: node.report().get("reason") == "not part of this generation")
    assert process.poll() is None
    node.order(2)
    assert node.until("failed")["generation"] == 2


@pytest.mark.every_python
def test_a_higher_number_restarts_the_processes_in_place(node: Any) -> None:
    process = node.start(command=node.script(SLEEPER))
    node.order(1)
    first = node.until("running", 1)
    promptly(lambda: "\n" in node.log(generation=1))
    node.order(2)
    second = node.until("running", 2)
    promptly(lambda: "\n" in node.log(generation=2))
    assert process.poll() is None
    assert (first["restarts"], second["restarts"]) == (0, 1)
    assert (node.log(generation=1), node.log(generation=2)) == ("generation 1\n", "generation 2\n")
    assert len(node.pids("script-0")) == 1


def test_a_generation_begins_although_somebody_removed_the_files_of_the_job(node: Any) -> None:
    node.start(**node.below_a_launcher(SLEEPER))
    node.order(1)
    promptly(lambda: "\n" in node.log(generation=1))
    (node.dir / "launcher.pyc").unlink()
    node.order(2)
    promptly(lambda: "\n" in node.log(generation=2))
    assert node.until("running", 2)["failure"] is None


def test_a_lower_or_equal_number_changes_nothing(node: Any) -> None:
    node.start(command=node.script(SLEEPER))
    node.order(5)
    promptly(lambda: "\n" in node.log(generation=5))
    before = node.pids("script-0")
    for number in (4, 5):
        node.order(number)
        node.looks()
        assert (node.pids("script-0"), node.report()["generation"]) == (before, 5)


def test_stop_ends_the_processes_and_keeps_the_launcher(node: Any) -> None:
    process = node.start(command=node.script(SLEEPER))
    node.order(1)
    promptly(lambda: "\n" in node.log())
    node.order(1, "stop")
    report = node.until("stopped")
    assert (process.poll(), report["reason"], node.pids("script-0")) == (None, "told to stop", [])
    node.order(2)
    node.until("running", 2)


def test_finish_ends_the_launcher_with_the_code_of_what_ran(node: Any) -> None:
    process = node.start(command=["sh", "-c", "exit 7"])
    node.order(1)
    node.until("failed")
    node.order(1, "finish")
    assert process.wait(PATIENCE) == 7


def test_finish_of_what_runs_is_a_stop(node: Any) -> None:
    process = node.start(command=node.script(SLEEPER))
    node.order(1)
    promptly(lambda: "\n" in node.log())
    node.order(1, "finish")
    assert process.wait(PATIENCE) == 0
    assert (node.report()["state"], node.report()["reason"]) == ("stopped", "told to finish")


def test_a_finish_that_was_there_before_is_not_for_this_launcher(node: Any) -> None:
    node.order(1, "finish")
    process = node.start(command=["sh", "-c", "exit 3"])
    node.until("waiting")
    node.looks()
    assert process.poll() is None
    node.order(2)
    assert node.until("failed", 2)["exit_code"] == 3


@pytest.mark.every_python
def test_a_launcher_that_was_killed_does_not_start_a_generation_twice(node: Any) -> None:
    first = node.start(command=node.script(SLEEPER))
    node.order(3)
    promptly(lambda: "\n" in node.log(generation=3))
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    node.gone()
    second = node.start()
    report = node.until("failed", 3)
    assert (report["reason"], report["failure"]["kind"]) == ("its launcher was started again", "launcher")
    assert second.poll() is None
    node.order(4)
    node.until("running", 4)


def test_a_second_launcher_of_a_node_gives_way(node: Any) -> None:
    first = node.start(command=node.script(SLEEPER))
    node.order(1)
    promptly(lambda: "\n" in node.log())
    second = node.start()
    assert second.wait(PATIENCE) == 75
    assert second.stdout is not None
    assert "another launcher of this node runs already" in second.stdout.read()
    assert first.poll() is None
    assert len(node.pids("script-0")) == 1


def test_a_failed_node_waits_for_the_next_generation_or_exits(node: Any) -> None:
    process = node.start(command=["sh", "-c", "exit 5"])
    node.order(1)
    node.until("failed", 1)
    node.looks()
    assert process.poll() is None
    node.order(2, on_failure="exit")
    assert process.wait(PATIENCE) == 5


def test_success_ends_the_launcher(node: Any) -> None:
    process = node.start(nproc=2, command=["echo", "done"])
    node.order(1)
    assert process.wait(PATIENCE) == 0
    report = node.report()
    assert (report["state"], report["exit_code"], report["reason"], report["failure"]) == ("succeeded", 0, None, None)
    assert [(p["rank"], p["state"], p["exit_code"], p["device"]) for p in report["processes"]] == [
        (0, "exited", 0, "cpu:0"),
        (1, "exited", 0, "cpu:1"),
    ]
    assert (node.log("workerlog.0"), node.log("workerlog.1")) == ("done\n", "done\n")


@pytest.mark.every_python
def test_without_its_order_the_launcher_says_what_is_missing(node: Any) -> None:
    process = node.start("--nonsense")
    assert process.wait(PATIENCE) == 2
    assert process.stdout is not None
    assert "unrecognized arguments: --nonsense" in process.stdout.read()
    assert not Path(node.dir).exists()


def test_an_order_that_comes_after_a_newer_one_of_its_number_is_not_followed(node: Any) -> None:
    """What was handed to a host may arrive late. By the report, jobctl sees what this node follows, and others may lack."""
    meeting = {"address": "127.0.0.1", "port": 29999}
    node.start(command=["sleep", "1000"])
    node.order(2, rendezvous={**meeting, "id": "demo-2-b"})
    node.until("running", 2)
    node.order(2, rendezvous={**meeting, "id": "demo-2-a"})
    told = promptly(lambda: node.report()["order"])
    assert (told["rendezvous"]["id"], node.report()["state"], len(node.pids("sleep"))) == ("demo-2-b", "running", 1)
