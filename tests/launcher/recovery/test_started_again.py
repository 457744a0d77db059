"""Launchers that their engines start again, with nobody watching: after a kill, after a power cut, after the end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.launcher.run import setup
from tests.launcher.conftest import Node, lose_power
from tests.tools.launches import launch_of
from tests.tools.waiting import PATIENCE, promptly

from .alone import ALONE, TRAIN


class Trio:
    """Three launchers that hear each other, and no supervisor."""

    def __init__(self, root: Path, python: str, scripts: Sequence[str] = (TRAIN,) * 3) -> None:
        self.nodes = [Node(root / str(number), python) for number in range(3)]
        for number, node in enumerate(self.nodes):
            node.dir = node.root / f"node-{number}"
            node.launch.update(node=number, host=f"h{number}", command=node.script(scripts[number]))
            node.start()
        self.ports = [promptly(lambda node=node: node.report().get("port")) for node in self.nodes]
        self.order()

    def order(self, number: int = 1, command: str = "run") -> None:
        """Hand all of them an order."""
        members = [
            {
                "node": n,
                "rank": n,
                "roles": ["trainer"],
                "host": f"h{n}",
                "address": "127.0.0.1",
                "nproc": 1,
                "port": port,
            }
            for n, port in enumerate(self.ports)
        ]
        alone = {**ALONE, "base": {"number": number, "id": f"demo-{number}"}}
        for node in self.nodes:
            node.order(number, command, members=members, autonomy=alone)

    def kill(self, *numbers: int) -> None:
        """Kill launchers with all that runs below them, as it happens to containers."""
        lose_power(*(self.nodes[number] for number in numbers))
        for number in numbers:
            self.nodes[number].started[-1].wait()

    def until(self, state: str, generation: int) -> list[dict[str, Any]]:
        """Wait until all nodes are in a state."""
        return [node.until(state, generation) for node in self.nodes]


@pytest.fixture
def trio(tmp_path: Path, python: str) -> Iterator[Trio]:
    made = Trio(tmp_path, python)
    yield made
    made.kill(0, 1, 2)


def test_launchers_that_are_started_again_rejoin_the_others(trio: Trio) -> None:
    """First one, whose processes the others wait for; then all, as after a power cut."""
    trio.until("running", 1)
    trio.kill(1)
    trio.nodes[1].start()
    trio.until("running", 2)
    trio.kill(0, 1, 2)
    for node in trio.nodes:
        node.start()
    found = trio.until("running", 3)
    assert {report["order"]["autonomy"]["base"]["number"] for report in found} == {1}
    assert [failure["reason"] for failure in found[0]["order"]["autonomy"]["failures"]] == [
        "its launcher was started again"
    ] * 2
    assert [report["port"] for report in found] == trio.ports


WAITS = """\
import os, sys, time
while not os.path.exists("go"):
    time.sleep(0.02)
sys.exit(3 if os.environ["JOBCTL_GENERATION"] == "1" else 0)
"""


def test_launchers_stay_until_all_nodes_have_ended_well(tmp_path: Path, python: str) -> None:
    """On several machines, too, and also if no engine starts them again: one that fails has all begin again."""
    trio = Trio(tmp_path, python, [WAITS, "pass", "pass"])
    try:
        for node in trio.nodes[1:]:
            node.until("succeeded", 1)
        (trio.nodes[0].root / "go").touch()
        trio.until("succeeded", 2)
        assert [node.started[-1].wait(PATIENCE) for node in trio.nodes] == [0, 0, 0]
    finally:
        trio.kill(0, 1, 2)


def test_a_launcher_that_was_told_to_stop_stays_so_when_it_is_started_again(trio: Trio) -> None:
    trio.until("running", 1)
    trio.order(command="stop")
    trio.until("stopped", 1)
    trio.kill(1)
    trio.nodes[1].start()
    pid = trio.nodes[1].started[-1].pid
    found = promptly(lambda: (r := trio.nodes[1].report())["launcher"]["pid"] == pid and r)
    assert (found["state"], found["generation"], found["reason"]) == ("stopped", 1, "told to stop")


def test_a_new_launcher_enters_an_order_whose_number_launchers_have_passed(node: Node) -> None:
    """A command stops the job for a change and replaces it. It did not know how far launchers had come, or not in time."""
    alone, base = {**ALONE, "failures": []}, {"number": 2, "id": "demo-2"}
    node.start(command=node.script(TRAIN))
    node.order(4, autonomy={**alone, "base": base})
    node.until("running", 4)
    node.order(4, "stop", pause=1, autonomy={**alone, "base": base})
    node.until("stopped", 4)
    node.started[-1].terminate()
    assert node.started[-1].wait() == 143
    node.start()
    node.looks()
    node.order(3, autonomy={**alone, "base": {"number": 3, "id": "demo-3"}})
    node.until("running", 3)
    lose_power(node)
    node.started[-1].wait()
    node.start()  # now it has begun there
    assert node.until("failed", 3)["reason"] == "its launcher was started again"
    other = {"address": "127.0.0.1", "port": 29998, "id": "demo-other"}
    node.order(3, rendezvous=other, autonomy={**alone, "base": {"number": 3, "id": "demo-other"}})
    node.until("running", 3)  # of somebody who was cut off from who has given the last one


def test_launchers_end_a_job_that_fails_the_same_way_again(trio: Trio) -> None:
    """A bug of node 1. One that is started again after that, as by its engine, stays ended; what happened is kept."""
    bug = trio.nodes[1].script("import sys; sys.exit(3)")
    trio.kill(1)
    trio.nodes[1].start(command=bug)
    ended = [
        promptly(lambda node=node: (r := node.report())["order"] and r["order"]["command"] == "stop" and r)
        for node in trio.nodes
    ]
    why = "node 1: rank 1 exited with code 3; failed the same way again, before any progress: a bug, not a fault"
    assert {report["order"]["why"] for report in ended} == {why}
    found = [trio.nodes[0].until("stopped"), trio.nodes[1].until("failed"), trio.nodes[2].until("stopped")]
    assert [report["reason"] for report in found] == [why, "rank 1 exited with code 3", why]
    promptly(lambda: not trio.nodes[0].pids("script-"))
    trio.kill(2)
    pid = trio.nodes[2].start().pid
    found[2] = promptly(lambda: (r := trio.nodes[2].report())["launcher"]["pid"] == pid and r)
    assert (found[2]["state"], found[2]["order"]["command"]) == ("stopped", "stop")
    kept = [json.loads((node.dir / "events.json").read_text())["events"] for node in trio.nodes]
    told = [
        [(one["event"], one["generation"]) for one in events if one["event"] in ("failure", "failed")]
        for events in kept
    ]
    failures = [failure["generation"] for failure in found[0]["order"]["autonomy"]["failures"]]
    assert told == [[*(("failure", number) for number in failures), ("failed", failures[-1])]] * 3
    trio.order(9)  # of the next `up`
    for node in (trio.nodes[0], trio.nodes[2]):
        promptly(lambda node=node: node.report()["generation"] == 9)


def test_a_launcher_that_is_started_again_after_the_end_keeps_how_it_ended(node: Node) -> None:
    node.start(command=["true"])
    node.order()
    done = node.until("succeeded", 1)
    assert node.started[-1].wait() == 0
    pid = node.start(command=["false"]).pid
    found = promptly(lambda: (r := node.report())["launcher"]["pid"] == pid and r)
    node.looks()
    assert {name: found[name] for name in ("state", "exit_code", "finished_at", "processes")} == {
        name: done[name] for name in ("state", "exit_code", "finished_at", "processes")
    }
    assert node.report()["state"] == "succeeded"
    node.order(2)
    node.until("failed", 2)


def test_setup_runs_once_in_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its engine starts the launcher again in the same one; the mark lies in the container's own file system."""
    mark, runs = tmp_path / "mark", []
    monkeypatch.setattr(setup, "container_mark", lambda: str(mark))
    monkeypatch.setattr(setup.Setup, "run_one", lambda self, command, log: runs.append(command) or 0)
    lease = SimpleNamespace(held=lambda now: True)
    launcher: Any = SimpleNamespace(dir=str(tmp_path), launch=launch_of(setup=["install"]), lease=lease)
    for in_container in (False, True, True, True):
        setup.Setup(launcher, in_container).run()
    assert runs == ["install"] * 2
    mark.unlink()  # another container
    setup.Setup(launcher, in_container=True).run()
    assert len(runs) == 3


def test_the_mark_lies_where_nothing_else_is_mounted(tmp_path: Path) -> None:
    mark = setup.container_mark()
    assert mark is None or os.stat(os.path.dirname(mark)).st_dev == os.stat("/").st_dev
