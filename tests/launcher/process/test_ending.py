"""How processes end: signals, grace, and no orphans whatever is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.report_reader import launching
from jobctl.jobspec.launcher.node import agent
from jobctl.jobspec.launcher.node.agent import Launcher
from jobctl.jobspec.launcher.process.guard import Recorder
from jobctl.jobspec.launcher.process.record import ProcessRecord
from jobctl.jobspec.launcher.report.node_report import DECLARED_DEAD
from jobctl.jobspec.launcher.report.progress import Hang
from jobctl.jobspec.launcher.run.run import Run
from jobctl.jobspec.launcher.system import deadline as deadlines
from jobctl.jobspec.launcher.system.deadline import Deadline
from jobctl.jobspec.launcher.system.processes import proc_stat
from tests.launcher.conftest import PATIENCE, kill_together
from tests.tools.launches import launch_of
from tests.tools.waiting import promptly

POLITE = """\
import signal, sys, time
def end(number, frame):
    print('got', signal.Signals(number).name, flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGINT, end)
print('ready', flush=True)
while True:
    time.sleep(0.1)  # Python sees a signal that comes just before a sleep when that is over
"""
STUBBORN = (
    "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(600)\n"
)
# Ends once there is a file, and not when it is asked.
SLOW_TO_END = """\
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: print('asked', flush=True))
print('ready', flush=True)
while not os.path.exists('enough'):
    time.sleep(0.02)
"""

# Processes that do their best to stay: a grandchild in a session of its own, one that also ignores signals, one
# that is orphaned on purpose, and one that closed everything.
CLINGING = """\
import os, signal, subprocess, sys, time
sleeper = [sys.executable, '-c', 'import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)', 'grandchild']
subprocess.Popen(sleeper, start_new_session=True)
subprocess.Popen(sleeper, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, sleeper)
    os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('ready', flush=True)
time.sleep(600)
"""


def ready(node: Any, name: str = "workerlog.0") -> None:
    promptly(lambda: "ready\n" in node.log(name))


@pytest.mark.every_python
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_is_passed_on_and_the_launcher_ends(node: Any, number: int, code: int) -> None:
    process = node.start(nproc=2, command=node.script(POLITE), stop_grace=PATIENCE)
    node.order(1)
    ready(node)
    ready(node, "workerlog.1")
    process.send_signal(number)
    assert process.wait(PATIENCE) == code
    name = signal.Signals(number).name
    assert [node.log(f"workerlog.{i}") for i in (0, 1)] == [f"ready\ngot {name}\n"] * 2
    report = node.report()
    assert (report["state"], report["reason"]) == ("stopped", f"stopped by {name}")


def test_a_signal_to_the_whole_group_ends_it_too(node: Any) -> None:
    """As Ctrl-C in a terminal, or `kill -TERM -- -PGID`."""
    process = node.start(command=node.script(POLITE), stop_grace=PATIENCE)
    node.order(1)
    ready(node)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(PATIENCE) == 143
    assert node.log().count("got SIGTERM") == 1


@pytest.mark.every_python
def test_who_ignores_sigterm_is_killed_after_the_grace_period(node: Any) -> None:
    process = node.start(command=node.script(STUBBORN), stop_grace=0.5)
    node.order(1)
    ready(node)
    begin = time.monotonic()
    process.terminate()
    assert process.wait(PATIENCE) == 143
    assert time.monotonic() - begin >= 0.5
    assert node.report()["processes"][0]["signal"] == 9


def test_the_grace_of_a_new_generation_is_the_orders(node: Any) -> None:
    process = node.start(command=node.script(STUBBORN), stop_grace=600.0)
    node.order(1)
    ready(node)
    node.order(2, grace=0.0)
    assert node.until("running", 2)
    node.order(2, "finish", grace=0.0)
    assert process.wait(PATIENCE) == 0


def test_a_second_signal_while_ending_changes_nothing(node: Any) -> None:
    process = node.start(command=node.script(SLOW_TO_END), stop_grace=PATIENCE)
    node.order(1)
    ready(node)
    process.terminate()
    promptly(lambda: "asked" in node.log())
    process.send_signal(signal.SIGINT)
    node.looks()
    (node.root / "enough").touch()
    assert process.wait(PATIENCE) == 143
    assert node.report()["processes"][0]["signal"] is None


@pytest.mark.every_python
def test_a_launcher_that_cannot_keep_itself_compiled_starts_processes_all_the_same(node: Any) -> None:
    (node.dir / "launcher.pyc.new").mkdir(parents=True)
    node.start(**node.below_a_launcher(STUBBORN))
    node.order(1)
    ready(node)
    assert (node.pids("launcher.py process")[1:], node.pids("launcher.pyc")) == (node.guards(), [])  # the first is T


# O and I are the guard and the launcher proper, T the framework's launcher, S the guard of a process, W the process.
def members(node: Any) -> dict[str, list[int]]:
    outer, inner = node.pids("--control")[:2]  # a guard that was forked is called as they are
    wrapper = node.pids("framework-launcher")
    (guard,) = node.guards()
    return {
        "O": [outer],
        "I": [inner],
        "T": wrapper[:1],
        "S": [guard],
        "W": node.pids("script-0"),
        "O+I": [outer, inner],
        "I+S": [inner, guard],
    }


@pytest.mark.every_python
@pytest.mark.parametrize(
    ("who", "below"),
    [*((who, True) for who in ("O", "I", "T", "S", "W", "O+I", "I+S")), *((who, False) for who in ("I", "S", "I+S"))],
)
def test_no_orphans_whoever_is_killed(node: Any, who: str, below: bool) -> None:
    how = node.below_a_launcher(CLINGING) if below else {"command": node.script(CLINGING)}
    process = node.start(**how)
    node.order(1, on_failure="exit")
    ready(node)
    promptly(lambda: len(node.pids("grandchild")) == 3)
    kill_together(members(node)[who])
    process.wait(PATIENCE)
    node.gone()


@pytest.mark.every_python
def test_a_guard_keeps_nothing_open_that_is_its_launchers(node: Any) -> None:
    node.start(command=node.script(STUBBORN))
    node.order(1)
    ready(node)
    (guard,) = node.guards()

    def files() -> list[str]:
        found = []
        for number in os.listdir(f"/proc/{guard}/fd"):
            with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                found.append(os.readlink(f"/proc/{guard}/fd/{number}"))
        return sorted(found)

    logs = f"{node.dir}/logs/1"
    own = ["/dev/null", f"{logs}/launch.log", f"{logs}/launch.log", f"{logs}/workerlog.0", f"{logs}/workerlog.0.idx"]
    # Beside its files: the process's output, and both ends of its own.
    promptly(lambda: [file.partition(":")[0] for file in files()] == [*own, "pipe", "pipe", "pipe"])


def test_no_orphans_after_a_normal_end(node: Any) -> None:
    process = node.start(command=node.script(CLINGING.rpartition("time.sleep(600)")[0]))
    node.order(1)
    assert process.wait(PATIENCE) == 0
    node.gone()


def test_a_killed_process_is_reported_as_killed_even_with_its_guard(node: Any) -> None:
    node.start(command=node.script(STUBBORN))
    node.order(1)
    ready(node)
    kill_together([*node.guards(), *node.pids("script-0")])
    report = node.until("failed")
    assert report["reason"] == "rank 0 was killed by SIGKILL"


@pytest.mark.parametrize("seen", [0, 1])
def test_a_process_that_ends_as_its_launcher_looks_has_ended_as_its_guard_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: int
) -> None:
    """A launcher on a busy machine may stand still after it has read the record: then the guard is gone, too.

    `seen`: how often it sees the guard before.
    """
    record = Recorder(str(tmp_path / "0.json"), "0", "0")
    record.began(os.getpid(), False, None)
    looks = iter([True] * seen)

    def has_guard(self: ProcessRecord) -> bool:
        record.ended(0)
        return next(looks, False)

    monkeypatch.setattr(ProcessRecord, "is_alive", lambda self: False)
    monkeypatch.setattr(ProcessRecord, "has_guard", has_guard)
    of: Any = {"folders": SimpleNamespace(records=str(tmp_path)), "hang": Hang(None), "stacks": {}, "paces": dict}
    run: Any = SimpleNamespace(launch=launch_of(), environment=SimpleNamespace(first_rank=0), **of)
    found = [Run.process(run, 0) for _ in range(2)]
    assert found[0].state in (("exited",), ("running",))[seen]
    assert (found[1].state, found[1].exit_code, found[1].signal) == ("exited", 0, None)


def test_the_guard_leaves_a_launcher_alone_that_waits_for_what_it_has_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds the memory of devices takes seconds to end, and the lease of a fenced node is over."""
    clock, deadline, killed = [100.0], Deadline(), list[float]()
    for module in (agent, deadlines):
        monkeypatch.setattr(module, "boot_time", lambda: clock[0])
    monkeypatch.setattr(deadlines, "kill_descendants", lambda: killed.append(clock[0]))

    def slowly(but: list[int], goes_on: Callable[[], None]) -> None:
        for _ in range(40):
            clock[0] += 0.25
            goes_on()
            deadline.enforce()

    monkeypatch.setattr(agent, "kill_descendants", slowly)
    idle = SimpleNamespace(pids=list)
    launcher: Any = SimpleNamespace(current_run=None, standby=idle, recovery=SimpleNamespace(teller=idle))
    launcher.busy, launcher.deadline, launcher.lease = True, deadline, SimpleNamespace(end=lambda: 99.0)
    launcher.be_here, launcher.rest = partial(Launcher.be_here, launcher), partial(Launcher.rest, launcher)
    deadline.put(99.8)
    Launcher.end_processes(launcher, 0.0)
    assert killed == []


def replace_launcher(node: Any, report: dict[str, Any]) -> None:
    """Declare a launcher dead by its report, as a deployer does before it starts another one."""
    for name, said in ((DECLARED_DEAD, report["launcher"]), ("report.json", launching(report))):
        new = node.dir / "new"
        new.write_text(json.dumps(said))
        new.replace(node.dir / name)


@pytest.mark.every_python
def test_a_launcher_that_was_declared_dead_ends_and_makes_room_for_the_next(node: Any) -> None:
    """An engine that was killed while it started a container may lose it: then its launcher lives on unknown to all."""
    first = node.start(command=node.script(STUBBORN))
    node.order(1)
    ready(node)
    declared_dead = node.report()
    replace_launcher(node, declared_dead)
    node.start()
    assert first.wait(PATIENCE) == 137
    report = promptly(lambda: (found := node.report())["state"] == "failed" and found)
    assert report["launcher"] != declared_dead["launcher"]
    assert report["reason"] == "its launcher was started again"


def test_a_launcher_ends_only_where_it_is_the_one_declared_dead(node: Any) -> None:
    node.start(command=node.script(STUBBORN))
    node.order(1)
    ready(node)
    running = node.report()
    replace_launcher(node, {**running, "launcher": {**running["launcher"], "start_ticks": 1}})
    node.order(2)
    assert promptly(lambda: (found := node.report())["generation"] == 2 and found)["launcher"] == running["launcher"]


def test_what_a_process_has_left_behind_is_reaped_as_it_ends(node: Any) -> None:
    """A script may start something in the background after each checkpoint, for weeks: ended processes have numbers, too."""
    script = "import os, time\nfor _ in range(5): os.system('true &')\nopen('began', 'w').close()\ntime.sleep(600)\n"
    node.start(command=node.script(script))
    node.order(1)
    promptly((node.root / "began").exists)
    (guard,) = node.guards()

    def below() -> list[int]:
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and (proc_stat(int(pid)) or "  ")[1] == guard]

    promptly(lambda: below() == node.pids("script-0") != [], 15)
