"""What a coordinator does about what `jobctl` leaves for it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.allocation.coordinator import Coordinator
from jobctl.jobspec.allocation.generation import Generations
from jobctl.jobspec.allocation.orders import UserOrders
from jobctl.jobspec.allocation.places import Places
from jobctl.jobspec.allocation.size import JobSize

HOSTS = ("s1", "s2")


class PlayedCoordinator:
    """Two nodes on two machines; their launchers run until they are told to end."""

    def __init__(self, work: Path) -> None:
        self.work, self.ending = str(work), None
        self.stopping: Any = None
        self.resizing: Any = None
        self.size: Any = None
        self.settings = {"stop_grace": 1.0}
        (work / "run").mkdir()
        self.generations = Generations(self.work, "1")
        self.places = Places(HOSTS, (0, 0))
        self.events: list[str] = []
        self.record = SimpleNamespace(event=lambda event, message, **fields: self.events.append(message))
        self.refusals = SimpleNamespace(forget=lambda: self.events.append("forgets refusals"))
        self.orders = UserOrders(self)  # type: ignore[arg-type]
        self.begun = 0
        self.hear(alive=False)
        self.places.deal(HOSTS)
        self.hear(alive=True)

    def hear(self, *, alive: bool) -> None:
        for runner in self.places.runners.values():
            runner.heard, runner.sender, runner.said = 0.0, ("10.0.0.1", 1), {"alive": alive}

    def begin(self) -> None:
        self.begun += 1

    def stop(self, kind: str, reason: str) -> None:
        self.stopping = reason

    def again(self) -> PlayedCoordinator:
        """Return the coordinator of the next allocation of the job, which has begun and has no nodes yet."""
        other = copy.copy(self)
        other.places, other.resizing, other.stopping = Places(HOSTS, (0, 0)), None, None
        other.generations = Generations(self.work, "2")
        other.orders = UserOrders(other)  # type: ignore[arg-type]
        other.orders.begin()
        return other

    def leave(self, identity: str, command: str, **more: Any) -> None:
        order = {"id": identity, "command": command, **more}
        (Path(self.work) / "run" / "order.json").write_text(json.dumps(order))

    def turn(self) -> None:
        """Do what the coordinator does in each turn."""
        self.orders.read()
        if self.resizing is not None:
            Coordinator.resize(self, 0.0)  # type: ignore[arg-type]


@pytest.fixture
def played(tmp_path: Path) -> PlayedCoordinator:
    return PlayedCoordinator(tmp_path)


def test_a_restart_begins_a_generation_once_the_last_launcher_has_ended(played: PlayedCoordinator) -> None:
    played.leave("restart-1", "restart")
    played.turn()
    assert (played.begun, played.places.turns, played.generations.start["fresh_budget"]) == (0, {0: 1, 1: 1}, True)
    assert played.events == ["all nodes begin again: `jobctl restart`", "forgets refusals"]
    assert played.generations.cause == "`jobctl restart`"
    played.hear(alive=False)
    for _ in range(3):
        played.turn()
    assert (played.begun, played.places.turns, played.resizing) == (1, {0: 2, 1: 2}, None)


def test_a_fresh_run_is_noted_for_the_generation_that_begins(played: PlayedCoordinator) -> None:
    played.leave("restart-1", "restart", fresh=True)
    played.turn()
    assert played.events[0] == "all nodes begin again: `jobctl up --fresh`"
    assert Generations(played.work, "2").start["fresh"] is True


def test_an_order_is_noted_as_followed_and_no_other_allocation_follows_it_again(played: PlayedCoordinator) -> None:
    played.leave("restart-1", "restart", fresh=True)
    played.turn()
    assert Generations(played.work, "2").start["followed"] == "restart-1"
    played.generations.note(fresh=False)  # as its generation has begun
    following = played.again()
    following.turn()
    assert (following.resizing, following.generations.start["fresh"]) == (None, False)


def test_an_order_that_came_as_an_allocation_ended_is_followed_by_the_next_one(played: PlayedCoordinator) -> None:
    played.orders.begin()
    played.generations.note(fresh_budget=False)
    played.leave("restart-1", "restart", fresh=True)
    following = played.again()
    assert {**following.generations.start, "began": 0} == {
        "began": 0,
        "followed": "restart-1",
        "fresh": True,
        "fresh_budget": True,
    }
    assert following.resizing is None


def test_an_order_that_comes_before_the_first_allocation_listens_is_followed(played: PlayedCoordinator) -> None:
    played.generations.note(fresh_budget=True)  # as `up` writes it
    played.leave("stop-1", "stop")
    assert played.again().stopping == "stopped by the user"


def test_what_was_sent_for_a_restart_is_what_the_job_runs_with_once_it_is_followed(played: PlayedCoordinator) -> None:
    """Also where `up` was killed, or has waited for too long: the next one finds nothing to do."""
    played.leave("restart-1", "restart", sent={"launch.json": "1"})
    played.turn()
    sent = Path(played.work) / "run" / "sent.json"
    assert json.loads(sent.read_text()) == {"launch.json": "1"}
    played.leave("restart-2", "restart")
    played.turn()
    assert json.loads(sent.read_text()) == {"launch.json": "1"}


@pytest.mark.parametrize(("nodes", "left"), [(1, [0]), (2, [0, 1])])
def test_a_job_that_is_scaled_begins_with_what_a_cut_off_up_has_sent(
    played: PlayedCoordinator, nodes: int, left: list[int]
) -> None:
    """The next `up` would begin another generation for nothing. All begin again, also where there is no machine for more."""
    played.size = JobSize(played.places, {"min_nodes": 1, "spares": 0, "shrinks": True, "host_timeout": 1e9})
    for command, more in (("scale", {"nodes": 2}), ("scale", {"nodes": nodes, "sent": {"launch.json": "1"}})):
        assert (played.resizing, played.begun) == (None, 0)
        played.leave(f"{command}-{more}", command, **more)
        played.turn()
    assert json.loads((Path(played.work) / "run" / "sent.json").read_text()) == {"launch.json": "1"}
    assert (played.generations.cause, sorted(played.resizing)) == ("`jobctl scale`", left)
    played.hear(alive=False)
    played.turn()
    assert (played.begun, sorted(played.places.at), played.places.turns[0]) == (1, left, 2)


def test_a_user_gives_processes_another_time_to_end(played: PlayedCoordinator) -> None:
    played.leave("stop-1", "stop", grace=600.0)
    played.turn()
    assert (played.stopping, played.settings) == ("stopped by the user", {"stop_grace": 600.0})


def test_an_order_to_an_allocation_of_an_earlier_version_is_not_followed_again(played: PlayedCoordinator) -> None:
    """That has not noted which it has followed."""
    played.generations.note(fresh_budget=False)
    played.leave("restart-1", "restart", fresh=True)
    assert "fresh" not in played.again().generations.start


@pytest.mark.parametrize("doing", ["starts", "stops", "begins a generation"])
def test_a_fresh_run_is_noted_whatever_the_allocation_does_just_now(played: PlayedCoordinator, doing: str) -> None:
    """The generation that begins next is one, in this allocation or the next; `restart` after it changes nothing of that."""
    if doing == "starts":
        played.places.at = {}
    played.stopping = {"kind": "time"} if doing == "stops" else None
    before = played.resizing = dict(played.places.at) if doing == "begins a generation" else None
    played.leave("restart-1", "restart", fresh=True)
    played.orders.read()
    played.leave("restart-2", "restart")
    played.orders.read()
    noted = Generations(played.work, "2").start
    assert (noted["fresh"], noted["fresh_budget"], played.resizing) == (True, True, before)
