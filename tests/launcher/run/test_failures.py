"""What goes wrong: in setup, at the start, in a process, on a full disk; and what the report says of it."""

from __future__ import annotations

import json
import os
import struct
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.launcher.process.guard import Recorder
from jobctl.jobspec.launcher.process.log_files import LogWatcher
from jobctl.jobspec.launcher.process.record import ProcessRecord, latest_record
from jobctl.jobspec.launcher.report.progress import Hang
from jobctl.jobspec.launcher.run import setup
from jobctl.jobspec.launcher.run.environment import Folders
from jobctl.jobspec.launcher.run.run import Run
from jobctl.jobspec.launcher.run.verdict import Verdict
from jobctl.jobspec.launcher.system.files import last_lines
from tests.launcher.conftest import PATIENCE, failure
from tests.tools.launches import launch_of
from tests.tools.waiting import promptly


@pytest.mark.every_python
def test_setup_runs_once_and_is_logged(node: Any) -> None:
    process = node.start(setup=["echo one", "echo two >&2; echo x >> setup-ran"], command=["cat", "setup-ran"])
    node.order(1)
    assert process.wait(PATIENCE) == 0
    assert (
        node.dir / "logs" / "setup.log"
    ).read_text() == "+ echo one\none\n+ echo two >&2; echo x >> setup-ran\ntwo\n"
    assert node.log() == "x\n"


def test_setup_is_not_repeated_for_the_next_generation(node: Any) -> None:
    node.start(setup=["echo x >> setup-ran"], command=["false"])
    node.order(1)
    node.until("failed", 1)
    node.order(2)
    node.until("failed", 2)
    assert (node.root / "setup-ran").read_text() == "x\n"


def test_a_setup_that_fails(node: Any) -> None:
    report = failure(node, setup=["echo broken; exit 4", "touch never"])
    assert report["reason"] == "setup command `echo broken; exit 4` ended with code 4"
    assert (report["failure"]["kind"], report["failure"]["exit_code"]) == ("setup", 4)
    assert report["failure"]["tail"] == ["+ echo broken; exit 4", "broken"]
    assert not (node.root / "never").exists()


def test_a_setup_without_its_folder(node: Any) -> None:
    report = failure(node, setup=["true"], workdir=str(node.root / "gone"))
    assert report["reason"] == f"cannot start `/bin/sh`: No such file or directory ({node.root / 'gone'})"
    assert report["failure"]["kind"] == "start"


def test_a_setup_that_hangs_can_be_stopped(node: Any) -> None:
    process = node.start(setup=["sleep 600"])
    node.order(1)
    node.until("setup")
    process.terminate()
    assert process.wait(PATIENCE) == 143
    node.gone()


def test_a_setup_that_a_signal_ends_runs_again(node: Any) -> None:
    """As the host shuts down, or its engine: nothing is wrong with it, so it is no failure."""
    process = node.start(setup=["echo x >> setup-ran; test -e enough || sleep 600"], command=["true"])
    node.order(1)
    node.until("setup")
    promptly((node.root / "setup-ran").exists)
    process.terminate()
    assert process.wait(PATIENCE) == 143
    report = node.report()
    assert (report["state"], report["failure"], report["reason"]) == ("stopped", None, "stopped by SIGTERM")
    (node.root / "enough").touch()
    again = node.start()
    assert node.until("failed", 1)["reason"] == "its launcher was started again"
    node.order(2)
    assert again.wait(PATIENCE) == 0
    assert (node.root / "setup-ran").read_text() == "x\nx\n"


@pytest.mark.parametrize(("code", "said"), [(0, 0), (1, None), (-15, None), (None, None)])
def test_how_a_setup_command_has_ended_as_its_launcher_is_to_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int | None, said: int | None
) -> None:
    """What ends all processes of a host may end the command first. One that was done has not to run again."""
    monkeypatch.setattr(setup, "kill_descendants", lambda: None)
    monkeypatch.setattr(setup, "spawn", lambda *told: SimpleNamespace(poll=lambda: code))
    launcher: Any = SimpleNamespace(dir=str(tmp_path), launch=launch_of(), secrets=None, signal=15)
    assert setup.Setup(launcher, in_container=False).run_one("install", 1) == said


def test_an_order_ends_a_setup_that_runs(node: Any) -> None:
    """`stop` and `down` of a job that still installs things; the next start begins its setup again."""
    process = node.start(setup=["echo x >> setup-ran; test -e enough || sleep 600"], command=["true"])
    node.order(1)
    promptly(lambda: (ran := node.root / "setup-ran").exists() and ran.read_text() == "x\n")  # not just begun
    node.order(1, "stop")
    heard = len(node.supervisor.lines)  # it reads its order before it has sent that many ticks more
    promptly(lambda: node.report()["state"] != "setup" or len(node.supervisor.lines) > heard + 3)
    report = node.report()
    assert (report["state"], report["failure"], report["reason"]) == ("stopped", None, "told to stop")
    (node.root / "enough").write_text("")
    node.order(2)
    assert process.wait(PATIENCE) == 0
    assert (node.root / "setup-ran").read_text() == "x\nx\n"


def test_an_order_to_finish_ends_a_setup_and_the_launcher(node: Any) -> None:
    process = node.start(setup=["sleep 600"])
    node.order(1)
    node.until("setup")
    node.order(1, "finish")
    assert process.wait(PATIENCE) == 0
    assert node.report()["state"] == "stopped"
    node.gone()


@pytest.mark.every_python
@pytest.mark.parametrize(
    ("command", "code", "last"),
    [
        (["no-such-program"], 127, "cannot start no-such-program: No such file or directory"),
        (["/etc/passwd"], 126, "cannot start /etc/passwd: Permission denied"),
    ],
)
def test_a_program_that_cannot_be_started(node: Any, command: list[str], code: int, last: str) -> None:
    report = failure(node, command=command)
    assert (report["reason"], report["exit_code"], report["failure"]["kind"]) == (last, code, "start")
    assert report["failure"]["tail"] == [last]


def test_a_framework_launcher_that_is_not_there(node: Any) -> None:
    report = failure(node, start=["no-such-launcher", "--x"])
    assert report["reason"] == "cannot start `no-such-launcher`: No such file or directory (no-such-launcher)"


def test_a_framework_launcher_that_ends_at_once(node: Any) -> None:
    report = failure(node, start=["sh", "-c", "echo wrong option >&2; exit 2"])
    assert report["reason"] == "sh -c echo wrong option >&2; exit 2 ended with code 2 before any process began"
    assert (report["failure"]["kind"], report["failure"]["tail"]) == ("start", ["wrong option"])


@pytest.mark.parametrize("process", ["", 'RANK=0 LOCAL_RANK=0 "$@"; '])
def test_a_framework_launcher_that_says_that_it_cannot_go_on(node: Any, process: str) -> None:
    """It would go on for ever, also where it has ended its process; half a line is not looked at."""
    says = f"echo peer lease found; {process}printf 'no lea'; sleep 0.3; echo 'se found: <5>'; exec sleep 600"
    start = ["sh", "-c", says, "sh", {"slot": "process"}]
    report = failure(node, start=start, command=["false"], lost="no lease (found|left)", regroups=True, rejoin=3)
    assert report["reason"] == "the framework's launcher has lost the others for good: no lease found: <5>"
    found = report["failure"]
    assert (found["kind"], found["exit_code"], found["tail"]) == ("lost", None, ["no lease found: <5>"])


def test_a_framework_launcher_that_waits_for_ever(node: Any) -> None:
    """The first time it has waited for less than it may."""
    says = "printf 'waits for one\\ntrouble\\nruns\\n'; sleep 1; echo waits for two; echo trouble; exec sleep 600"
    report = failure(node, start=["sh", "-c", says], stall=["^waits", "^runs", 0.5], regroups=True, rejoin=3)
    assert report["reason"] == "the framework's launcher has waited for the others for 0.5 s: waits for two"
    assert (report["failure"]["kind"], report["failure"]["tail"]) == ("lost", ["waits for two"])


def test_a_process_that_fails_each_time_that_the_framework_launcher_starts_it(node: Any) -> None:
    start = ["sh", "-c", 'export RANK=0 LOCAL_RANK=0; while :; do "$@"; done', "sh", {"slot": "process"}]
    report = failure(node, start=start, command=["sh", "-c", "echo tried; exit 7"], regroups=True, rejoin=2)
    assert (report["reason"], report["failure"]["kind"]) == ("rank 0 exited with code 7", "exit")
    assert node.log().count("tried") >= 3


@pytest.mark.every_python
def test_a_framework_that_is_not_installed(node: Any) -> None:
    report = failure(node, start=[node.python, "-m", "no_such_module_here"])
    assert "No module named no_such_module_here; install it for " in report["reason"]


def test_a_directory_that_is_not_there(node: Any) -> None:
    report = failure(node, workdir="/no/such/directory")
    assert "/no/such/directory" in report["reason"]


@pytest.mark.every_python
def test_the_last_lines_explain(node: Any) -> None:
    script = (
        "import sys\nfor i in range(50): print('line', i)\nsys.stdout.flush()\nprint()\nraise ValueError('the cause')\n"
    )
    report = failure(node, command=node.script(script))
    found = report["failure"]
    assert (found["kind"], found["rank"], found["local_rank"], found["exit_code"], found["log"]) == (
        *("exit", 0, 0, 1),
        "workerlog.0",
    )
    assert (len(found["tail"]), found["tail"][-1]) == (20, "ValueError: the cause")


def test_a_progress_bar_is_one_of_the_last_lines(tmp_path: Path) -> None:
    bar = "".join(f"\rstep {number}/50" for number in range(50))
    (tmp_path / "log").write_bytes(f"begins\r\n{bar}\nValueError: the cause\n".encode())
    assert last_lines(str(tmp_path / "log")) == ["begins", "step 49/50", "ValueError: the cause"]


def test_output_that_is_no_text_does_not_hurt(node: Any) -> None:
    report = failure(node, command=["sh", "-c", r"printf '\377\376\000bad\n'; exit 1"])
    assert report["failure"]["tail"] == ["\ufffd\ufffd\x00bad"]
    assert (node.dir / "logs" / "1" / "workerlog.0").read_bytes() == b"\xff\xfe\0bad\n"


@pytest.mark.every_python
def test_a_process_that_was_killed(node: Any) -> None:
    report = failure(node, command=["sh", "-c", "kill -SEGV $$"])
    assert (report["reason"], report["exit_code"]) == ("rank 0 was killed by SIGSEGV", 139)
    assert report["processes"][0]["signal"] == 11


def test_a_code_that_is_larger_than_any_signals(node: Any) -> None:
    report = failure(node, command=node.script("import sys; sys.exit(-1)"))
    assert (report["reason"], report["exit_code"]) == ("rank 0 exited with code 255", 255)
    assert report["processes"][0]["signal"] is None


ASLEEP = """\
import os, signal, subprocess, sys
launcher = os.getppid()
os.kill(launcher, signal.SIGSTOP)
code = subprocess.call(sys.argv[1:])
os.kill(launcher, signal.SIGCONT)
sys.exit(code)
"""


def test_how_a_generation_was_started_is_told_where_it_has_failed_by_the_first_look(node: Any) -> None:
    """The launcher may stand still for as long as the processes take: here what it starts stops it."""
    report = failure(node, start=[*node.script(ASLEEP), {"slot": "process"}], command=["false"])
    assert (report["reason"], report["start"]["standby"]) == ("rank 0 exited with code 1", False)
    told = json.loads((node.dir / "events.json").read_text())["events"]
    assert [event["event"] for event in told] == ["generation", "node", "generation-begun", "node"]


def test_siblings_of_a_failed_process_end_too(node: Any) -> None:
    script = (
        "import glob, os, sys, time\nrank = os.environ['RANK']\nopen('began-' + rank, 'w').close()\n"
        "while len(glob.glob('began-*')) < 3: time.sleep(0.01)\n"
        "if rank == '1': sys.exit(9)\ntime.sleep(600)\n"
    )
    report = failure(node, nproc=3, command=node.script(script))
    assert (report["reason"], report["failure"]["rank"]) == ("rank 1 exited with code 9", 1)
    assert [p["state"] for p in report["processes"]] == ["failed"] * 3
    assert node.pids("script-0") == []


def test_the_first_failure_counts(node: Any) -> None:
    """Ranks 1 and 2 fail because rank 0 did, as soon as that is written down; all end within one look at them, mostly."""
    record = node.dir / "processes" / "1" / "0.json"
    script = (
        "import os, sys, time\nrank = int(os.environ['RANK'])\nif rank == 0: os._exit(3)\n"
        f"while not os.path.exists({str(record)!r}) or 'failed' not in open({str(record)!r}).read(): time.sleep(0.001)\n"
        "os._exit(4 + rank)\n"
    )
    report = failure(node, nproc=3, command=node.script(script))
    assert report["reason"] == "rank 0 exited with code 3"


def test_what_failed_first_counts_although_it_was_looked_at_before_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 fails after its record was read, and rank 1 because of that, before its own is."""
    run = object.__new__(Run)
    run.launch, run.ended, run.stacks, run.hang = launch_of(nproc=2), {}, {}, Hang(None)
    run.folders, run.processes, run.progress_at = Folders(str(tmp_path), 1), [], None
    recorders = [Recorder(f"{run.folders.records}/{local}.json", str(local), str(local)) for local in range(2)]
    for recorder in recorders:
        recorder.began(os.getpid(), False, None)
    run.verdict = Verdict(run, 0)

    def read(path: str) -> tuple[ProcessRecord | None, bool]:
        found = latest_record(path)
        if recorders[1].record.state == "running":
            recorders[0].ended(3)
            recorders[1].ended(4)
        return found

    monkeypatch.setattr("jobctl.jobspec.launcher.run.run.latest_record", read)
    run.look()
    failure = run.verdict.failure()
    assert failure is not None
    assert (failure.rank, failure.exit_code) == (0, 3)


def test_output_is_indexed_by_time(node: Any) -> None:
    index = node.dir / "logs" / "1" / "workerlog.0.idx"
    # The next line comes once this one was read, and a while later: what is read at once is one record.
    script = (
        "import os, time\nfor i in range(3):\n    print('line', i, flush=True)\n"
        f"    while os.path.getsize({str(index)!r}) < 16 * (i + 1): time.sleep(0.001)\n    time.sleep(0.1)\n"
    )
    before = time.time()
    process = node.start(command=node.script(script))
    node.order(1)
    assert process.wait(PATIENCE) == 0
    raw = index.read_bytes()
    records = [struct.unpack_from("<Qd", raw, at) for at in range(0, len(raw), 16)]
    assert [offset for offset, _ in records] == [0, 7, 14]
    times = [at for _, at in records]
    assert times == sorted(times)
    assert before <= times[0] <= times[-1] <= time.time()


def test_a_background_process_that_keeps_the_pipe_open_is_not_waited_for(node: Any) -> None:
    process = node.start(command=["sh", "-c", "sleep 600 & echo done"])
    node.order(1)
    assert process.wait(PATIENCE) == 0
    assert node.log() == "done\n"
    node.gone()


def test_much_output_is_not_lost(node: Any) -> None:
    script = "import sys\nfor i in range(20000): sys.stdout.write('%08d' % i + 'x' * 91 + '\\n')\n"
    process = node.start(command=node.script(script))
    node.order(1)
    assert process.wait(60) == 0
    lines = node.log().splitlines()
    assert [line[:8] for line in lines] == [f"{i:08d}" for i in range(20000)]


def test_a_full_disk_ends_nothing(node: Any) -> None:
    """/dev/full in place of the log: what the process prints is lost, the process is not."""
    logs = node.dir / "logs" / "1"
    logs.mkdir(parents=True)
    (logs / "workerlog.0").symlink_to("/dev/full")
    process = node.start(command=["sh", "-c", "for i in 1 2 3; do echo $i; done; touch finished"])
    node.order(1)
    assert process.wait(PATIENCE) == 0
    assert (node.root / "finished").exists()


@pytest.mark.parametrize(("setup", "why"), [([], "Not a directory"), (["true"], "File exists")])
def test_a_generation_whose_files_cannot_be_written_has_failed(node: Any, setup: list[str], why: str) -> None:
    """Its launcher lives, and says why; the next one may find room."""
    node.dir.mkdir(parents=True)
    logs = node.dir / "logs"
    logs.symlink_to("/dev/full")
    report = failure(node, setup=setup, command=["true"])
    place = logs if setup else logs / "1"
    assert report["reason"] == f"its processes cannot be started: {why} ({place})"
    assert (report["failure"]["kind"], report["processes"]) == ("launcher", [])
    logs.unlink()
    node.order(2)
    assert node.started[0].wait(PATIENCE) == 0


def test_a_process_that_cannot_be_started_again_fails_its_node(node: Any) -> None:
    """Somebody has removed the folder of its logs, as this script does."""
    script = "import os, shutil, sys\nshutil.rmtree(sys.argv[1])\nos._exit(3)\n"
    logs = node.dir / "logs" / "1"
    report = failure(node, rejoin=3, command=[*node.script(script), str(logs)])
    why = f"No such file or directory ({logs / 'launch.log'})"
    assert report["reason"] == f"its processes cannot be started: {why}"
    assert node.started[0].poll() is None


def test_a_log_that_somebody_has_removed_says_nothing(tmp_path: Path) -> None:
    assert LogWatcher(str(tmp_path / "gone"), 0, launch_of(lost="lost")).look(0.0) is None


def test_a_log_that_somebody_has_emptied_is_watched_on(tmp_path: Path) -> None:
    log = tmp_path / "launch.log"
    log.write_text("of the framework's launcher\n" * 10)
    watcher = LogWatcher(str(log), log.stat().st_size, launch_of(lost="lost"))
    log.write_text("peers are lost\n")
    assert watcher.look(0.0) == "peers are lost"
    assert last_lines(str(log), 280) == ["peers are lost"]


def test_a_report_that_cannot_be_written_ends_nothing(node: Any) -> None:
    (node.dir / "report.json" / "in the way").mkdir(parents=True)
    process = node.start(command=["sh", "-c", "echo done; touch finished"])
    node.order(1)
    assert process.wait(PATIENCE) == 0
    assert (node.root / "finished").exists()
    assert process.stdout is not None
    assert f"cannot write {node.dir}/report.json: " in process.stdout.read()


def test_reports_are_whole_at_any_moment(node: Any) -> None:
    process = node.start(nproc=3, command=["sh", "-c", "sleep 0.2"])
    node.order(1)
    while process.poll() is None:
        path = node.dir / "report.json"
        if path.exists():
            json.loads(path.read_text())
