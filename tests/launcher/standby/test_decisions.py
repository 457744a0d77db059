"""When a node's standby begins, is used and ends: without any process, by a clock that the test sets."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.launcher.node.agent import Launcher
from jobctl.jobspec.launcher.report.node_report import StandbyState
from jobctl.jobspec.launcher.standby import standby as module
from jobctl.jobspec.launcher.standby.launcher import Adopting
from jobctl.jobspec.launcher.standby.messages import GuardStart, StandbyNews
from jobctl.jobspec.launcher.standby.processes import ParkedProcesses
from jobctl.jobspec.launcher.standby.standby import IMPORTS_TIMEOUT, MISSED, STANDBY_RETRY_AFTER, UNSUITABLE, Standby
from tests.tools.launches import launch_of

from .stage import MB, READY, WARMING, Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_it_begins_when_all_processes_train_and_is_used_once(stage: Stage) -> None:
    assert stage.look(600, running=False) == StandbyState("warming", "it is begun after the first step")
    assert stage.begun == []
    assert stage.look() == WARMING
    assert stage.look(says=StandbyNews(ready=True)) == READY
    assert stage.standby.pids() == [7]
    first = stage.begun[0]
    assert stage.take() is first
    assert (first.order, stage.standby.cold_because, stage.standby.pids()) == (
        ["python3", "-m", "torch.distributed.run"],
        None,
        [],
    )
    stage.look(running=False)
    assert stage.begun == [first]
    assert stage.ready() is not first


@pytest.mark.parametrize(
    ("launch", "why"), [({}, UNSUITABLE), ({"standby": {"imports": [], "launcher": "", "off": "said so"}}, "said so")]
)
def test_where_there_is_none_it_says_why(stage: Stage, launch: dict[str, Any], why: str) -> None:
    standby = Standby(launch_of(**launch), stage.begin)  # type: ignore[arg-type]
    standby.look(stage.run, True)
    assert (standby.state(), stage.begun) == (StandbyState("off", why), [])
    assert standby.take([], stage.run.environment, "") is None
    assert standby.cold_because == f"standby is off: {why}"


def test_the_first_start_is_cold(stage: Stage) -> None:
    assert stage.standby.cold_because == "it is the first start of this launcher"


def test_what_still_imports_is_not_used(stage: Stage) -> None:
    stage.look()
    assert stage.take() is None
    assert (stage.standby.cold_because, stage.begun[0].over) == ("standby was not ready", True)


def test_what_has_just_ended_is_not_used(stage: Stage) -> None:
    stage.ready().ended = True
    assert stage.take() is None
    assert stage.standby.cold_because == "standby was not ready"


def test_another_environment_is_another_start(stage: Stage) -> None:
    fake = stage.ready()
    stage.environment.environ = {"PLACE": "2", "RANK": "0"}
    assert stage.take() is None
    assert (stage.standby.cold_because, fake.over) == ("the variable PLACE has changed", True)


def test_a_rank_of_its_own_is_no_other_environment(stage: Stage) -> None:
    fake = stage.ready()
    stage.environment.environ = {"PLACE": "1", "RANK": "5", "JOBCTL_GENERATION": "2"}
    assert stage.take() is fake


def test_what_cannot_be_told_is_ended(stage: Stage) -> None:
    fake = stage.ready()
    fake.hears = False
    assert stage.take() is None
    assert (stage.standby.cold_because, fake.over) == ("standby does not answer", True)


def test_an_import_that_is_not_clean_switches_it_off(stage: Stage) -> None:
    stage.look()
    assert stage.look(says=StandbyNews(off="an import has opened a socket")) == StandbyState(
        "off", "an import has opened a socket"
    )
    assert stage.begun[0].over
    stage.look(3600)
    assert len(stage.begun) == 1


def test_one_that_ends_by_itself_is_begun_again_after_a_pause_and_not_for_ever(stage: Stage) -> None:
    for _ in range(MISSED - 1):
        stage.ready().ended = True
        stage.look()
        count = len(stage.begun)
        stage.look(STANDBY_RETRY_AFTER - 0.1)
        assert len(stage.begun) == count
        stage.look(0.1)
        assert len(stage.begun) == count + 1
    stage.begun[-1].ended = True
    assert stage.look() == StandbyState("off", f"it has ended by itself, {MISSED} times")


def test_what_ended_by_itself_before_one_was_used_does_not_count(stage: Stage) -> None:
    """Else a job that runs for months would have none in the end."""
    for _ in range(MISSED - 1):
        stage.ready().ended = True
        stage.look()
        stage.look(STANDBY_RETRY_AFTER)
    stage.look(says=StandbyNews(ready=True))
    assert stage.take() is stage.begun[-1]
    stage.ready().ended = True
    assert stage.look() == StandbyState("warming", "it is begun after the first step")


def test_imports_that_take_too_long_are_given_up(stage: Stage) -> None:
    stage.look()
    assert stage.look(IMPORTS_TIMEOUT) == WARMING
    assert stage.look(1).reason == "its imports take longer than 600 s"


def test_memory_decides(stage: Stage) -> None:
    """200 MB for the framework's launcher, 300 MB for each rank, and a tenth of all stays free."""
    stage.free = (800 + 2400 - 1) * MB
    assert stage.look() == StandbyState("off", "it takes about 800 MB of memory, and 3199 MB are free")
    assert stage.begun == []


def test_it_ends_when_the_job_needs_the_memory(stage: Stage) -> None:
    fake = stage.ready()
    stage.free = 1200 * MB
    assert stage.look() == READY
    stage.free -= 1
    assert stage.look() == StandbyState("off", "memory is short")
    assert fake.over


def test_the_next_generation_has_one_again_if_there_is_memory(stage: Stage) -> None:
    stage.ready()
    whole, stage.free = stage.free, 0
    assert stage.look() == StandbyState("off", "memory is short")
    assert stage.take() is None
    assert stage.standby.cold_because == "standby is off: memory is short"
    stage.free = whole
    assert stage.look() == WARMING


def test_a_script_that_went_on_cold_keeps_its_job_cold(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "0.json").write_text("{}")
    (tmp_path / "1.cold").write_text("the script changes LEVEL")
    assert stage.look() == StandbyState("off", "the script changes LEVEL")


def test_a_rank_that_could_not_go_on_from_standby_is_remembered_as_its_generation_ends(
    stage: Stage, tmp_path: Path
) -> None:
    """Records of the next generation are in another folder."""
    stage.ready()
    (tmp_path / "0.cold").write_text("the script changes LEVEL")
    stage.standby.heed(stage.run)
    assert (stage.standby.state(), stage.standby.parked) == (StandbyState("off", "the script changes LEVEL"), None)


def test_a_generation_that_is_just_ending_is_not_the_last_chance(stage: Stage) -> None:
    gone = iter([FileNotFoundError("gone"), None])

    def footprint() -> int:
        error = next(gone)
        if error:
            raise error
        return 200 * MB

    stage.run.footprint = footprint
    assert stage.look().state == "warming"
    stage.look(STANDBY_RETRY_AFTER)
    assert len(stage.begun) == 1


def test_a_broken_standby_does_not_break_the_job(stage: Stage) -> None:
    stage.run.footprint = lambda: 1 // 0
    assert stage.look() == StandbyState("off", "ZeroDivisionError: integer division or modulo by zero")


def test_a_fenced_node_keeps_nothing(stage: Stage) -> None:
    """It may be started elsewhere: what waits ends with what trains, and not after it."""
    fake, ended = stage.ready(), list[bool]()
    launcher: Any = SimpleNamespace(standby=stage.standby, end_processes=lambda grace: ended.append(fake.over))
    launcher.fail, launcher.lease = lambda failure, why: None, SimpleNamespace(why_over=lambda: "")
    Launcher.fence(launcher)
    assert (ended, stage.standby.pids()) == ([True], [])


class FakeProcess:
    """The guard of one process that waits, without being there."""

    def __init__(self) -> None:
        self.ready = self.over = False
        self.says: list[StandbyNews] = []
        self.pipe: Any = SimpleNamespace(closed=False)
        self.pid = 7

    def heard(self) -> list[StandbyNews]:
        said, self.says = self.says, []
        return said

    def waits(self) -> bool:
        return self.ready and not self.pipe.closed

    def end(self) -> None:
        self.over = True


class FakeProcesses(ParkedProcesses):
    """The guards that wait where the launcher starts processes itself."""

    def __init__(self, run: Any) -> None:
        self.launch, self.processes, self.ready, self.memory = run.launch, {}, False, 0
        self.go_on()

    def go_on(self) -> None:
        self.processes[self.missing()[0]] = FakeProcess()  # type: ignore[assignment]


class Itself(Stage):
    """The same where the launcher starts each process itself."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root)
        self.sent: list[GuardStart] = []
        self.hears = True
        monkeypatch.setattr(module, "send", lambda pipe, order: self.sent.append(order) or self.hears)
        self.run.launch.start = []
        self.standby.begin_anew()

    def begin(self, run: Any) -> Any:
        self.begun.append(FakeProcesses(run))  # type: ignore[arg-type]
        return self.begun[-1]

    def imported(self, local: int, memory: int = 200 * MB) -> StandbyState:
        """Have a process say that it waits, and return the state."""
        waiting: Any = self.begun[-1]
        waiting.processes[local].says.append(StandbyNews(ready=True, memory=memory))
        return self.look()

    def take_all(self) -> list[tuple[int | None, str | None]]:
        """Begin a generation; return what runs its processes."""
        found = [self.standby.take_process(local, GuardStart({"RANK": str(local)}, "launch.log")) for local in (0, 1)]
        self.standby.begin_anew()
        return found


@pytest.fixture
def itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Itself:
    return Itself(tmp_path, monkeypatch)


def test_processes_import_one_after_another_and_all_are_used(itself: Itself) -> None:
    assert itself.look() == WARMING
    waiting: Any = itself.begun[0]
    assert list(waiting.processes) == [0]
    assert itself.look() == WARMING
    assert list(waiting.processes) == [0]
    assert itself.imported(0) == WARMING
    assert list(waiting.processes) == [0, 1]
    assert itself.imported(1) == READY
    assert itself.take_all() == [(7, None), (7, None)]
    assert [order.environ for order in itself.sent] == [{"RANK": "0"}, {"RANK": "1"}]
    assert itself.look(running=False).state == "warming"
    assert len(itself.begun) == 1


def test_what_the_first_import_takes_decides_on_the_others(itself: Itself) -> None:
    """A tenth of all stays free: 2400 MB."""
    itself.run.footprint = lambda: 50_000 * MB  # of the job: no import takes that
    itself.free = 2400 * MB + (1 << 30) - 1
    assert itself.look() == StandbyState("off", "it takes about 1073 MB of memory, and 3473 MB are free")
    itself.standby.off, itself.free = None, itself.free + 1
    assert itself.look() == WARMING
    itself.free = 2400 * MB + 700 * MB - 1
    assert itself.imported(0, 700 * MB).reason == "it takes about 700 MB of memory, and 3099 MB are free"
    first: Any = itself.begun[0]
    assert first.processes[0].over


def test_a_process_that_begins_again_alone_takes_one_that_waits(itself: Itself) -> None:
    itself.look()
    itself.imported(0)
    itself.imported(1)
    waiting: Any = itself.begun[0]
    assert itself.look(2 * IMPORTS_TIMEOUT) == READY
    assert itself.standby.take_process(1, GuardStart({}, "launch.log")) == (7, None)
    assert itself.look(STANDBY_RETRY_AFTER - 1) == WARMING  # the process may be loading
    assert list(waiting.processes) == [0]
    assert itself.look(1) == WARMING
    assert list(waiting.processes) == [0, 1]
    assert itself.standby.take_process(1, GuardStart({}, "launch.log")) == (None, "standby was not ready")


def test_a_process_that_went_on_cold_alone_keeps_its_job_cold(itself: Itself, tmp_path: Path) -> None:
    itself.look()
    itself.imported(0)
    itself.imported(1)
    itself.standby.take_process(1, GuardStart({}, "launch.log"))
    (tmp_path / "1.cold").write_text("the script changes LEVEL")
    assert itself.look(STANDBY_RETRY_AFTER) == StandbyState("off", "the script changes LEVEL")


def test_one_that_was_ready_is_used_although_another_was_not(itself: Itself) -> None:
    itself.look()
    itself.imported(0)
    waiting: Any = itself.begun[0]
    slow = waiting.processes[1]
    assert itself.take_all() == [(7, None), (None, "standby was not ready")]
    assert slow.over


def test_a_process_that_waits_and_cannot_be_told_is_ended(itself: Itself) -> None:
    itself.look()
    itself.imported(0)
    waiting: Any = itself.begun[0]
    first, itself.hears = waiting.processes[0], False
    assert itself.take_all()[0] == (None, "standby does not answer")
    assert first.over


@pytest.mark.parametrize("ends", [True, False])
def test_one_of_them_that_cannot_wait_ends_all(itself: Itself, ends: bool) -> None:
    itself.look()
    itself.imported(0)
    waiting: Any = itself.begun[0]
    first, second = waiting.processes[0], waiting.processes[1]
    second.pipe.closed, second.says = ends, [] if ends else [StandbyNews(off="an import has opened a socket")]
    assert itself.look().reason == ("it is begun after the first step" if ends else "an import has opened a socket")
    assert (first.over, second.over) == (True, True)


@pytest.mark.parametrize(
    ("args", "how", "used", "left"),
    [
        (["guard", "process"], {"start_new_session": True}, True, 0),
        (["guard", "process"], {"start_new_session": True, "stdout": None}, True, 0),
        (["guard", "process"], {"start_new_session": True, "stdout": 5}, False, 0),  # torchrun's --redirects
        (["guard", "process"], {}, False, 0),  # another session than the one that the rank is in
        (["numactl", "guard", "process"], {"start_new_session": True}, False, 1),
        ("guard process", {"start_new_session": True}, False, 1),
    ],
)
def test_a_guard_that_waits_takes_the_place_of_the_very_start_it_waits_for(
    args: Any, how: dict[str, Any], used: bool, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = list[bool]()
    guard: Any = SimpleNamespace(channel=SimpleNamespace(close=lambda: closed.append(True)))
    monkeypatch.setattr(Adopting, "guards", {"0": guard})
    monkeypatch.setattr(Adopting, "argv", ["guard", "process"])
    monkeypatch.setattr(Adopting, "apart", True)
    found = Adopting.find(args, (), {"env": {"LOCAL_RANK": "0"}, **how})
    assert (found is guard, len(Adopting.guards), bool(closed)) == (used, left, not used and not left)


def test_a_guard_that_waits_prints_where_the_frameworks_launcher_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paddle's launcher opens a log for each process, and makes it lead a session by a function."""
    guard: Any = SimpleNamespace(channel=SimpleNamespace(close=lambda: None), process=SimpleNamespace(pid=7))
    told = list[tuple[dict[str, str], str, str | None]]()
    guard.hand_over = lambda environ, log, meets: told.append((environ, log, meets))
    monkeypatch.setattr(Adopting, "guards", {"1": guard})
    monkeypatch.setattr(Adopting, "argv", ["guard", "process"])
    monkeypatch.setattr(Adopting, "local", "PADDLE_RANK_IN_NODE")
    monkeypatch.setattr(Adopting, "apart", True)
    environ = {"PADDLE_RANK_IN_NODE": "1"}
    with (tmp_path / "workerlog.1").open("a") as log:
        started = Adopting(["guard", "process"], env=environ, stdout=log, stderr=log, preexec_fn=os.setsid)
    started.returncode = 0
    assert (started.pid, told) == (7, [(environ, str(tmp_path / "workerlog.1"), None)])
