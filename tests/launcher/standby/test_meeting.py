"""When a process that has waited connects to the first one of the job."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.launcher.order.launch import Slot
from jobctl.jobspec.launcher.run.environment import Environment
from jobctl.jobspec.launcher.standby.launcher import Adopting, ParkedGuard
from jobctl.jobspec.launcher.system import network
from tests.launcher.conftest import PATIENCE

PORT, PLACE = Slot("master_port"), "10.0.0.1:7"


@pytest.mark.parametrize(
    ("first", "local", "launch", "meets"),
    [
        (True, 0, {"start": ["torchrun", PORT]}, None),
        (False, 0, {"start": ["torchrun", PORT]}, PLACE),
        (False, 0, {"start": ["launch", "--master", Slot("master")]}, PLACE),
        (False, 0, {"start": ["launch", "--master", "etcd://10.0.0.9:2379"], "env": [("MASTER_PORT", PORT)]}, None),
        (True, 0, {"env": [("JAX_COORDINATOR_ADDRESS", Slot("master"))]}, None),
        (True, 1, {"env": [("JAX_COORDINATOR_ADDRESS", Slot("master"))]}, PLACE),
        (False, 0, {"process_env": [("MASTER_PORT", PORT)]}, PLACE),
        (False, 1, {"env": [("MS_SCHED_PORT", Slot("scheduler_port"))]}, "10.0.0.3:9"),
        (True, 0, {"env": [("MS_SCHED_PORT", Slot("scheduler_port"))]}, "10.0.0.3:9"),
        (False, 0, {"env": [("MS_SCHED_PORT", Slot("scheduler_port"))], "role": "scheduler"}, None),
        (False, 0, {"env": [("PADDLE_PSERVERS_IP_PORT_LIST", Slot("servers"))]}, None),
    ],
)
def test_all_but_the_first_meet_there(first: bool, local: int, launch: dict[str, Any], meets: str | None) -> None:
    members = [SimpleNamespace(rank=5, nproc=2), SimpleNamespace(rank=0, nproc=2)]
    this: Any = SimpleNamespace(
        order=SimpleNamespace(members=members),
        launch=SimpleNamespace(**{"start": [], "env": [], "process_env": [], "role": "trainer", **launch}),
        member=members[first],
        slots={"master": PLACE, "scheduler_address": "10.0.0.3", "scheduler_port": "9"},
    )
    assert Environment.meets(this, local) == meets


@pytest.mark.parametrize(
    ("meets", "environ", "place"),
    [
        (("STORE", "ID"), {"STORE": PLACE, "ID": "1"}, PLACE),
        (("STORE", "ID"), {"STORE": PLACE, "ID": "0"}, None),
        (("STORE", "ID"), {"ID": "1"}, None),
        ((), {"STORE": PLACE, "ID": "1"}, None),
    ],
)
def test_a_rank_is_told_where_rank_0_listens(
    monkeypatch: pytest.MonkeyPatch, meets: tuple[str, ...], environ: dict[str, str], place: str | None
) -> None:
    told = list[str | None]()
    guard = SimpleNamespace(
        hand_over=lambda environ, log, meets: told.append(meets), process=SimpleNamespace(pid=os.getpid())
    )
    monkeypatch.setattr(Adopting, "guards", {"3": guard})
    monkeypatch.setattr(Adopting, "argv", ["guard", "process"])
    monkeypatch.setattr(Adopting, "meets", meets)
    Adopting(["guard", "process"], env={"LOCAL_RANK": "3", **environ}).returncode = 0
    assert told == [place]


GUARD = """\
import os, socket, sys
from types import SimpleNamespace
from jobctl.jobspec.launcher.standby import guard as standby_guard
apart, child = socket.socketpair(), SimpleNamespace(pid=os.getpid())
standby_guard.ParkedRank = lambda task, environ: SimpleNamespace(channel=apart[0], child=child, await_imports=lambda: None)
standby_guard.ProcessTask = SimpleNamespace(from_json=lambda data: None)
standby_guard.meet = lambda place, seconds: print(place, seconds)
standby_guard.process_guard = lambda task, environ, rank: 0
sys.exit(standby_guard.parked_guard(SimpleNamespace(fd=int(sys.argv[1])), {}))
"""


def test_a_rank_gives_rank_0_the_time_by_which_its_launcher_may_start_it_later(tmp_path: Path) -> None:
    """Launchers of Paddle that ask twice a second start their ranks half a second apart."""
    log, (ours, theirs) = tmp_path / "launch.log", socket.socketpair()
    parked: Any = SimpleNamespace(channel=ours, process=SimpleNamespace())
    with ours, theirs:
        ours.settimeout(PATIENCE)
        argv = [sys.executable, "-c", GUARD, str(theirs.fileno())]
        with subprocess.Popen(argv, pass_fds=[theirs.fileno()]) as guard:
            assert b"ready" in ours.recv(1000)
            ParkedGuard.hand_over(parked, {"JOBCTL_PROCESS": "{}"}, str(log), PLACE)
            assert guard.wait(PATIENCE) == 0
    assert log.read_text() == f"{PLACE} 1.0\n"


class Clock:
    """A clock that only sleep moves; somebody listens from `listens` on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, listens: float) -> None:
        self.now, self.asked = 0.0, list[str]()
        monkeypatch.setattr(network, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep))
        monkeypatch.setattr(network, "answers", lambda place: self.asked.append(place) or self.now >= listens)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 100.0, "it waits for ever"


@pytest.mark.parametrize(("listens", "ends"), [(0.0, 0.0), (0.5, 0.5), (1e9, 7.0)])
def test_it_is_waited_until_somebody_listens_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, listens: float, ends: float
) -> None:
    clock = Clock(monkeypatch, listens)
    network.meet(PLACE, 7.0)
    assert ends <= clock.now <= ends + 2 * network.LOOKED
    assert {*clock.asked} == {PLACE}


def test_who_meets_nobody_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 1e9)
    network.meet(None, 7.0)
    assert (clock.now, clock.asked) == (0.0, [])


def test_an_ipv6_address_is_looked_at_without_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can connect to one with them."""
    asked = list[Any]()

    def connect(place: Any, seconds: float) -> Any:
        asked.append(place)
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(network.socket, "create_connection", connect)
    assert network.answers("[fd00::1]:7")
    assert asked == [("fd00::1", 7)]
