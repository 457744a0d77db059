"""What a coordinator does about what `jobctl` leaves for it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.allocation.coordinator import Coordinator
from jobctl.jobspec.allocation.generation import Generations
from jobctl.jobspec.allocation.orders import UserOrders
from jobctl.jobspec.allocation.places import Places

HOSTS = ("s1", "s2")


class PlayedCoordinator:
    """Two nodes on two machines; their launchers run until they are told to end."""

    def __init__(self, work: Path) -> None:
        self.work, self.stopping, self.resizing, self.ending = str(work), None, None, None
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
    played.hear(alive=False)
    for _ in range(3):
        played.turn()
    assert (played.begun, played.places.turns, played.resizing) == (1, {0: 2, 1: 2}, None)


def test_a_fresh_run_is_noted_for_the_generation_that_begins(played: PlayedCoordinator) -> None:
    played.leave("restart-1", "restart", fresh=True)
    played.turn()
    assert played.events[0] == "all nodes begin again: `jobctl up --fresh`"
    assert Generations(played.work, "2").start["fresh"] is True


def test_an_order_for_the_allocation_before_is_not_followed(played: PlayedCoordinator) -> None:
    played.leave("restart-1", "restart")
    played.orders.begin()
    played.turn()
    assert played.resizing is None
