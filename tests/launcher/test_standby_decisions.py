"""When a node's standby begins, is used and ends: without any process, by a clock that the test sets."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.launcher import standby as module
from jobctl.jobspec.launcher.agent import Launcher
from jobctl.jobspec.launcher.standby import AGAIN, LONGEST, MISSED, UNSUITABLE, Standby
from jobctl.jobspec.launcher.standby_guard import Adopting

MB = 1 << 20
READY = {"state": "ready", "reason": None}
WARMING = {"state": "warming", "reason": None}


class Fake:
    """What waits, without being there."""

    def __init__(self, run: Any) -> None:
        self.environ = dict(run.environment.environ)
        self.ready = self.ended = self.over = False
        self.says: list[dict[str, Any]] = []
        self.pid, self.order, self.hears = 7, None, True

    def heard(self) -> list[dict[str, Any]]:
        said, self.says = self.says, []
        return said

    def end(self) -> None:
        self.over = True

    def hand_over(self, argv: Any, environment: Any, log: str) -> bool:
        self.order = argv
        return self.hears


class Stage:
    """A standby, its clock and its memory."""

    def __init__(self, root: Path) -> None:
        self.now, self.free, self.begun = 0.0, 20_000 * MB, list[Fake]()
        self.environment = SimpleNamespace(environ={"PLACE": "1", "RANK": "0"})
        self.run: Any = SimpleNamespace(
            environment=self.environment,
            launch={"nproc": 2},
            footprint=lambda: 200 * MB,
            folders=SimpleNamespace(records=str(root)),
        )
        wanted = {"standby": {"imports": [["torch"]], "launcher": "torch.distributed.run", "off": ""}}
        memory = lambda: (self.free, 24_000 * MB)  # noqa: E731
        self.standby = Standby(wanted, self.begin, lambda: self.now, memory)  # type: ignore[arg-type]
        self.take()

    def begin(self, run: Any) -> Fake:
        self.begun.append(Fake(run))
        return self.begun[-1]

    def look(self, seconds: float = 1.0, *, running: bool = True, says: Any = None) -> dict[str, Any]:
        """Let time pass, have it look, and return the state."""
        self.now += seconds
        if says:
            self.begun[-1].says.append(says)
        self.standby.look(self.run, running)
        return self.standby.state()

    def take(self) -> Any:
        """Begin a generation; return what runs it."""
        return self.standby.take(["python3", "-m", "torch.distributed.run"], self.environment, "launch.log")  # type: ignore[arg-type]

    def ready(self) -> Fake:
        """Have one ready."""
        self.look()
        assert self.look(says={"ready": True}) == READY
        return self.begun[-1]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_it_begins_when_all_processes_train_and_is_used_once(stage: Stage) -> None:
    assert stage.look(600, running=False) == {"state": "warming", "reason": "it is begun after the first step"}
    assert stage.begun == []
    assert stage.look() == WARMING
    assert stage.look(says={"ready": True}) == READY
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
    standby = Standby(launch, stage.begin)  # type: ignore[arg-type]
    standby.look(stage.run, True)
    assert (standby.state(), stage.begun) == ({"state": "off", "reason": why}, [])
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
    assert stage.look(says={"off": "an import has opened a socket"}) == {
        "state": "off",
        "reason": "an import has opened a socket",
    }
    assert stage.begun[0].over
    stage.look(3600)
    assert len(stage.begun) == 1


def test_one_that_ends_by_itself_is_begun_again_after_a_pause_and_not_for_ever(stage: Stage) -> None:
    for _ in range(MISSED - 1):
        stage.ready().ended = True
        stage.look()
        count = len(stage.begun)
        stage.look(AGAIN - 0.1)
        assert len(stage.begun) == count
        stage.look(0.1)
        assert len(stage.begun) == count + 1
    stage.begun[-1].ended = True
    assert stage.look() == {"state": "off", "reason": f"it has ended by itself, {MISSED} times"}


def test_imports_that_take_too_long_are_given_up(stage: Stage) -> None:
    stage.look()
    assert stage.look(LONGEST) == WARMING
    assert stage.look(1)["reason"] == "its imports take longer than 600 s"


def test_memory_decides(stage: Stage) -> None:
    """200 MB for the framework's launcher, 300 MB for each rank, and a tenth of all stays free."""
    stage.free = (800 + 2400 - 1) * MB
    assert stage.look() == {"state": "off", "reason": "it takes about 800 MB of memory, and 3199 MB are free"}
    assert stage.begun == []


def test_it_ends_when_the_job_needs_the_memory(stage: Stage) -> None:
    fake = stage.ready()
    stage.free = 1200 * MB
    assert stage.look() == READY
    stage.free -= 1
    assert stage.look() == {"state": "off", "reason": "memory is short"}
    assert fake.over


def test_a_script_that_went_on_cold_keeps_its_job_cold(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "0.json").write_text("{}")
    (tmp_path / "1.cold").write_text("the script changes LEVEL")
    assert stage.look() == {"state": "off", "reason": "the script changes LEVEL"}


def test_a_limit_of_the_container_is_what_it_may_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("max", "1000"), ("current", "700"), ("stat", "anon 500\ninactive_file 100\n")):
        (tmp_path / name).write_text(text)
    paths = tuple(str(tmp_path / name) for name in ("max", "current", "stat"))
    monkeypatch.setattr(module, "CGROUPS", (("/none", "/none", "/none"), paths))
    assert module.free_memory() == (400, 1000)
    (tmp_path / "max").write_text("max")
    assert module.free_memory()[1] > 1 << 20


def test_a_generation_that_is_just_ending_is_not_the_last_chance(stage: Stage) -> None:
    gone = iter([FileNotFoundError("gone"), None])

    def footprint() -> int:
        error = next(gone)
        if error:
            raise error
        return 200 * MB

    stage.run.footprint = footprint
    assert stage.look()["state"] == "warming"
    stage.look(AGAIN)
    assert len(stage.begun) == 1


def test_a_broken_standby_does_not_break_the_job(stage: Stage) -> None:
    stage.run.footprint = lambda: 1 // 0
    assert stage.look() == {"state": "off", "reason": "ZeroDivisionError: integer division or modulo by zero"}


def test_a_fenced_node_keeps_nothing(stage: Stage) -> None:
    """It may be started elsewhere: what waits ends with what trains, and not after it."""
    fake, ended = stage.ready(), list[bool]()
    launcher: Any = SimpleNamespace(standby=stage.standby, end_processes=lambda grace: ended.append(fake.over))
    launcher.fail, launcher.lease = lambda failure, why: None, SimpleNamespace(why_over=lambda: "")
    Launcher.fence(launcher)
    assert (ended, stage.standby.pids()) == ([True], [])


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
