"""What launchers write down for whoever looks next: each thing once, as fields, and no more than there is room for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.launcher.order.autonomy_terms import LastMove
from jobctl.jobspec.launcher.order.order import Moves, OldPlace, Order
from jobctl.jobspec.launcher.process.record import ProcessRecord
from jobctl.jobspec.launcher.records import changed
from jobctl.jobspec.launcher.report import event_log, story
from jobctl.jobspec.launcher.report.event_log import EVENTS, EventLog, key_of
from jobctl.jobspec.launcher.report.node_report import EventStamp, StartWay
from jobctl.jobspec.launcher.report.story import Story
from jobctl.jobspec.launcher.system import files
from tests.launcher.orders import order
from tests.launcher.recovery.failed_nodes import failed
from tests.tools.launches import launch_of, report_of

LAUNCH = launch_of(node=1, host="h1")
REPORT = report_of(epoch=5.0, generation=1, state="setup", started_at=90.0, processes=[ProcessRecord(0, rank=1)])


class Node:
    """The story of node 1, at a time that the test says."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.now = folder, 100.0
        monkeypatch.setattr(story.time, "time", lambda: self.now)
        self.story = Story(LAUNCH, str(folder))

    def look(self, of: Order, **changes: Any) -> None:
        self.story.look(changed(REPORT, node=1, **changes), of)

    @property
    def kept(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / EVENTS).read_text())
        return found

    def told(self) -> list[tuple[str, int]]:
        return [(one["event"], one["generation"]) for one in self.kept["events"]]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def after_a_failure() -> Order:
    """What launchers have begun after generation 1."""
    first = order()
    assert first.autonomy is not None
    failure = changed(failed().failure, generation=1, at=95.0)
    rendezvous = changed(first.rendezvous, id="g2-random")
    return changed(first, number=2, rendezvous=rendezvous, autonomy=changed(first.autonomy, failures=[failure]))


def test_each_thing_is_told_once(node: Node) -> None:
    first = Order.from_json({**order().to_json(), "cause": "`up`"})
    way = StartWay(standby=False, cold_because="the first start of a launcher")
    for _ in range(2):
        node.look(first)
        node.look(first, state="running")
        node.look(first, state="running", start=way, progress=7)
        node.look(first, state="failed", exit_code=1, reason="rank 1 exited with code 1", finished_at=95.0)
        node.story = Story(LAUNCH, str(node.folder))  # another launcher, after a reboot
    assert node.told() == [("generation", 1), ("node", 1), ("generation-begun", 1), ("node", 1)]
    begins, runs, begun, fails = node.kept["events"]
    assert begins == {
        "event": "generation",
        "time": 90.0,
        "began": 5.0,
        "generation": 1,
        "members": [0, 1, 2],
        "hosts": {"0": "h0", "1": "h1", "2": "h2"},
        "port": 1,
        "by": "supervisor",
        "cause": "`up`",
    }
    assert (runs["state"], runs["node"], runs["host"], runs["ranks"]) == ("running", 1, "h1", [1])
    assert {name: begun[name] for name in ("by", "standby", "cold_because", "members", "node", "time")} == {
        **vars(way),
        "by": "supervisor",
        "members": [0, 1, 2],
        "node": 1,
        "time": 100.0,
    }
    assert (fails["state"], fails["exit_code"], fails["reason"]) == ("failed", 1, "rank 1 exited with code 1")
    assert fails["time"] == 95.0


def test_what_launchers_have_begun_comes_with_its_cause(node: Node) -> None:
    second = after_a_failure()
    node.look(second)  # it has heard of it, and runs the first one still
    assert not (node.folder / EVENTS).exists()
    node.look(second, generation=2)
    failure, begins = node.kept["events"]
    assert (failure["event"], failure["generation"], failure["time"]) == ("failure", 1, 95.0)
    known = {"node": 1, "rank": 1, "exit_code": 1, "kind": "exit", "log": "workerlog.1", "tail": ["out of luck"]}
    assert {name: failure[name] for name in known} == known
    assert (begins["by"], begins["generation"]) == ("launchers", 2)
    assert begins["cause"] == "node 1: rank 1 exited with code 1 (the launchers agreed)"


def test_the_end_of_the_job_is_told_by_all_that_hear_of_it(node: Node) -> None:
    ended = failed().give_up(after_a_failure(), "enough")
    node.look(ended, state="stopped", finished_at=99.0)
    assert node.told() == [("failure", 1), ("failure", 2), ("failed", 2), ("node", 1)]
    assert node.kept["events"][2]["reason"] == "node 1: rank 1 exited with code 1; enough"


def test_a_node_that_was_moved_is_told(node: Node) -> None:
    second = after_a_failure()
    assert second.autonomy is not None
    terms = changed(second.autonomy, moved=LastMove(2, second.id, 1, {}))
    members = [changed(one, host="s1") if one.node == 2 else one for one in second.members]
    moves = Moves([OldPlace(2, "h2", {}), OldPlace(0, "h0", {})], 3, {})
    moved = changed(second, autonomy=terms, members=members, moves=moves)
    node.look(moved, generation=2)
    *_, told = node.kept["events"]
    assert (told["event"], told["node"], told["from"], told["host"]) == ("moved", 2, "h2", "s1")
    terms = changed(terms, moved=LastMove(2, "g-before", 1, {}))
    node.look(changed(moved, number=3, autonomy=terms), generation=3)
    assert [kind for kind, _ in node.told()].count("moved") == 1  # later ones only remember the place


def test_what_is_waited_for_is_told_once_in_a_generation(node: Node) -> None:
    for number in (1, 1, 2):
        node.story.waits(order(number), "waits for node 2, which is not heard", [2])
    assert node.told() == [("waiting", 1), ("waiting", 2)]
    assert node.kept["events"][0]["nodes"] == [2]


def test_a_pod_and_an_idle_launcher_tell_nothing(tmp_path: Path) -> None:
    for launch in (launch_of(peer_port=7), launch_of(node=-1)):
        told = Story(launch, str(tmp_path))
        told.look(changed(REPORT, state="running"), order())
        told.waits(order(), "nothing", [])
        assert told.stamp is None
    assert list(tmp_path.iterdir()) == []


def test_in_an_allocation_each_names_its_machine_and_launchers_begin_what_follows(tmp_path: Path) -> None:
    own = str(tmp_path / "hosts" / "s2" / "0")
    told = Story(launch_of(peer_port=7), str(tmp_path), own)
    told.look(changed(REPORT, state="running"), order())
    told.look(changed(REPORT, state="running", generation=2), after_a_failure())
    kept = json.loads((tmp_path / EVENTS).read_text())["events"]
    assert [one["host"] for one in kept if one["event"] == "node"] == ["s2", "s2"]
    assert [one["by"] for one in kept if one["event"] == "generation"] == ["supervisor", "launchers"]


def happened(number: int) -> dict[str, Any]:
    return {"event": "generation", "time": float(number), "began": 5.0, "generation": number}


def test_the_oldest_go_first_and_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "MAX_EVENTS", 3)
    log = EventLog(str(tmp_path))
    log.add([happened(1), happened(2)])
    log.add([happened(2), happened(3), happened(4), happened(5)])
    kept = json.loads((tmp_path / EVENTS).read_text())
    assert ([one["generation"] for one in kept["events"]], kept["dropped"]) == ([3, 4, 5], 2)
    again = EventLog(str(tmp_path))
    assert again.stamp == log.stamp == EventStamp(kept["file"], 5)
    again.add([happened(1)])
    assert again.stamp.count == 6


def test_a_full_disk_only_puts_it_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EventLog(str(tmp_path))
    with monkeypatch.context() as full:
        full.setattr(event_log, "write_json", lambda path, value: False)
        log.add([happened(1)])
    assert not (tmp_path / EVENTS).exists()
    assert log.add([happened(1)]) is False
    assert len(json.loads((tmp_path / EVENTS).read_text())["events"]) == 1


def test_a_damaged_file_is_begun_anew(tmp_path: Path) -> None:
    for text in ("{", '{"events": 7, "dropped": "x", "file": null}', '{"events": [7, {}]}'):
        (tmp_path / EVENTS).write_text(text)
        log = EventLog(str(tmp_path))
        assert log.add([happened(1)])
        assert files.read_json(log.path) is not None


@pytest.mark.parametrize(
    ("event", "key"),
    [
        ({"event": "generation", "generation": 2}, "generation 2"),
        ({"event": "step", "step": "generation", "generation": 2}, "generation 2"),
        ({"event": "step", "step": "start", "node": 2}, None),
        ({"event": "failure", "generation": 2, "node": 1}, "failure 2"),
        ({"event": "failure", "generation": 2, "alone": True}, None),
        ({"event": "node", "generation": 2, "node": 1, "state": "running"}, "node 2 1 running"),
        ({"event": "node", "generation": 2, "node": 1, "state": "lost"}, None),
        ({"event": "moved", "node": 1, "host": "h2"}, None),
        ({"event": "failed"}, None),
        ({"event": "up"}, None),
    ],
)
def test_what_is_the_same(event: dict[str, Any], key: str | None) -> None:
    assert key_of(event) == key
