"""What launchers say to each other and to their own processes: read as it was written, and rejected if nobody wrote it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from jobctl.jobspec.launcher.etcd.session_messages import NodeCourse, SessionReport, SessionRequest
from jobctl.jobspec.launcher.failure import Failure, NodeFailure
from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.peers.incarnations import Incarnation
from jobctl.jobspec.launcher.peers.messages import Heartbeat, PeerMessage, StacksMessage
from jobctl.jobspec.launcher.process.record import ProcessRecord
from jobctl.jobspec.launcher.records import changed, record
from jobctl.jobspec.launcher.report.progress import Headway
from jobctl.jobspec.launcher.standby.messages import (
    FrameworkStart,
    Gathering,
    GuardPreparation,
    GuardStart,
    NodePreparation,
    RankPreparation,
    RankStart,
    StandbyNews,
    Trial,
    TrialOutcome,
)
from jobctl.jobspec.plan.generation import (
    AutonomyTerms,
    Base,
    Generation,
    HotSpare,
    LastMove,
    Member,
    Moves,
    OldPlace,
    RendezvousPoint,
)
from jobctl.jobspec.plan.recovery import Rule
from jobctl.jobspec.render.payload import control_json, handed_over
from tests.tools.failures import failed
from tests.tools.launches import report_of

FAILURE = failed(
    node=0,
    host="a",
    rank=0,
    progress=None,
    ran=2.5,
    reason="why",
    alike=((0, 1),),
    log="workerlog.0",
    tail=("out of luck",),
)
GENERATION = Generation(
    job="demo",
    run_id="demo-1",
    number=2,
    command="run",
    grace=5.0,
    members=(
        Member(1, 1, ("trainer",), "b", "10.0.0.2", 2, 4001, (7000, 7001)),
        Member(0, 0, ("trainer",), "a", "10.0.0.1", 2),
    ),
    rendezvous=RendezvousPoint("10.0.0.1", 29500, "demo-2"),
    checkpoint_dir="/ckpt",
    began=1.5,
    autonomy=AutonomyTerms(3, (Rule("restart", None, 3),), (20000, 29999), (FAILURE,)),
)


def control_file(generation: Generation = GENERATION, **extra: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(control_json(generation, extra))
    return data


def over_a_wire(message: Any) -> Any:
    return type(message).from_json(json.loads(json.dumps(message.to_json())))


TICK = PeerMessage(
    "demo-2", 1, tick="t", age=[1.5, 2, "demo-2", 0.0, 2, "demo-2"], failed=("exit", 5.5), headway=Headway(7, 2.5)
)
ORDER = Order.from_json(control_file())
AFTER_A_MOVE = replace(
    GENERATION,
    autonomy=AutonomyTerms(
        3,
        (Rule("of luck$", None, "fail", "add memory"),),
        (20000, 29999),
        (FAILURE,),
        base=Base(1, "demo-1"),
        spares=(HotSpare("c", "10.0.0.3", 4002),),
        moved=LastMove(2, "demo-2", 1),
        window=60.0,
        spent=(1.0, 2.0),
    ),
    moves=Moves((OldPlace(0, "c"),), 2),
)
MOVED = Order.from_json(control_file(AFTER_A_MOVE))


@pytest.mark.parametrize(
    "message",
    [
        ORDER,
        Failure("exit", 0, 0, 1, "workerlog.0", 5.0, ["out of luck"], 7),
        NodeFailure.from_json(control_file()["autonomy"]["failures"][0]),
        TICK,
        changed(TICK, incarnation=Incarnation("abc", "10.0.0.2", None)),
        changed(TICK, incarnation=Incarnation("abc", "10.0.0.2", "def")),
        PeerMessage("demo-2", 0, tick="t"),
        PeerMessage("demo-2", 0, answer="t"),
        PeerMessage("demo-2", 0, answer="t", headway=Headway(None, 2.5)),
        PeerMessage("demo-2", 0, answer="t", news=ORDER.news()),
        MOVED.news(),
        MOVED,
        PeerMessage("demo-2", 1, done=True),
        PeerMessage("demo-2", 1, stacks=StacksMessage(0, 2.5, asks=False)),
        SessionRequest(proposal=ORDER, after="demo-1"),
        SessionRequest(leave=True),
        SessionRequest(course=NodeCourse("demo-2", ("exit", 5.5), Headway(7, 2.5))),
        SessionRequest(course=NodeCourse("demo-2", None, Headway(None, 2.5))),
        SessionReport(at=1.0, agreed="demo-2", gone={1: 3.5}, ttl=32.0, order=ORDER),
        SessionReport(1.0, "demo-2", {}, 32.0, courses={1: NodeCourse("demo-2", ("exit", 5.5), Headway(7, 2.5))}),
        SessionReport(None, None, {}, 32.0, "no etcd", True),
        SessionRequest(node=0),
        SessionRequest(node=-1, release=True),
        SessionReport(None, "demo-2", {}, 32.0, node=-1, spares=("a", "b")),
        NodePreparation(
            [{"RANK": "0"}],
            ["guard"],
            ["train"],
            "/h",
            [["torch"]],
            True,
            "torch.run",
            changing=["RUN"],
            meets=["STORE", "ID"],
        ),
        NodePreparation(
            [],
            ["guard"],
            ["train"],
            "/h",
            [["torch"]],
            False,
            "torch.run",
            "LOCAL_RANK",
            Trial(["-n"], ["shim"], 2),
            [],
            [],
        ),
        TrialOutcome([{"RANK": "0"}], True),
        GuardPreparation("/hook", [["torch"]], ["train"], 5, ["RUN"]),
        RankPreparation(-1, "/hook", None, 5, ["train"], [["torch"]], "/job", "train.py"),
        FrameworkStart(
            ["--nnodes", "2"], ["guard", "process"], {"RANK": "0"}, "launch.log", Gathering(2, "10.0.0.1:7", True)
        ),
        Gathering(2, "10.0.0.1:7", True),
        GuardStart({"RANK": "0"}, "launch.log", "[fd00::1]:7", 1.0),
        RankStart({"RANK": "0"}, "0.cold"),
        StandbyNews(off="an import has opened a socket"),
        StandbyNews(ready=True, memory=1 << 30),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_is_read_as_it_was_written(message: Any) -> None:
    assert over_a_wire(message) == message


def test_a_launcher_goes_on_from_the_report_of_the_one_before() -> None:
    """Its own place, state and standby are its own; of a node that has not ended only the order is taken over."""
    failure = Failure("exit", 0, 0, 1, "workerlog.0", 5.0, ["out of luck"], 7)
    process = ProcessRecord(0, 1, "failed", 7, 8, 1, started_at=2.0, finished_at=5.0, starts=1, step=7, stack=["train"])
    how = {"started_at": 1.0, "finished_at": 5.0, "progress": 7, "progress_at": 4.5, "exit_code": 1, "reason": "why"}
    before = report_of(state="failed", processes=[process], failure=failure, order=ORDER, left=[2], **how)
    written = json.loads(json.dumps({**before.to_json(), "later": True}))
    after = report_of()
    after.go_on_from(written)
    assert after == before
    running = report_of()
    running.go_on_from({**written, "state": "running"})
    assert running == report_of(order=ORDER, left=[2])


def test_an_order_goes_on_with_every_key_of_the_control_file() -> None:
    """Also those of a newer jobctl: launchers put orders into etcd, and jobctl reads them there."""
    data = control_file(AFTER_A_MOVE, colour="blue")
    terms, moves = data["autonomy"], data["moves"]
    for part in (data["members"][0], terms, *(terms[name][0] for name in ("rules", "failures", "spares"))):
        part["rack"] = "r1"
    for part in (terms["base"], terms["moved"], moves, moves["places"][0]):
        part["later"] = 9
    assert json.loads(json.dumps(Order.from_json(data).to_json())) == data


def test_an_order_is_handed_on_to_launchers_of_earlier_versions() -> None:
    """These know `autonomy` as `alone`, and may be the ones that have written it."""
    data = json.loads(handed_over(GENERATION))
    assert data["alone"] == data["autonomy"]
    old = {name: value for name, value in data.items() if name != "autonomy"}
    for given in (data, old):
        order = Order.from_json(given)
        assert order.autonomy == ORDER.autonomy
        assert order.autonomy is not None
        later = changed(order, autonomy=changed(order.autonomy, restarts=2)).to_json()
        assert later["alone"] == later["autonomy"] == {**data["autonomy"], "restarts": 2}
    assert "alone" not in ORDER.to_json()


def test_a_launcher_with_an_older_order_takes_over_the_newer_one() -> None:
    finished = changed(ORDER, command="finish", exit_code=1, why="in the end")
    known = ORDER.with_news(over_a_wire(finished.news()))
    assert ORDER.autonomy is not None
    tailless = [changed(failure, tail=[]) for failure in ORDER.autonomy.failures]
    assert known == changed(finished, autonomy=changed(ORDER.autonomy, failures=tailless))
    assert known.age > ORDER.age


def test_members_follow_their_ranks_and_move_with_their_addresses() -> None:
    moved = ORDER.at({"10.0.0.1": "10.1.1.1"})
    assert [m.node for m in ORDER.of_role("trainer")] == [0, 1]
    assert moved.endpoints("trainer") == ["10.0.0.2:7000", "10.0.0.2:7001"]
    assert (moved.rendezvous.place, [m.address for m in moved.members]) == (
        "10.1.1.1:29500",
        ["10.0.0.2", "10.1.1.1"],
    )


@pytest.mark.parametrize(
    "change",
    [
        {"generation": ...},
        {"node": None},
        {"failed": [1]},
        {"incarnation": {"name": "abc"}},
        {"headway": [7]},
        {"headway": ["x", 2.5]},
    ],
)
def test_a_datagram_that_no_launcher_has_sent_is_rejected(change: dict[str, Any]) -> None:
    data = {**TICK.to_json(), **change}
    data = {name: value for name, value in data.items() if value is not ...}
    with pytest.raises((KeyError, TypeError, ValueError)):
        PeerMessage.from_json(data)


def test_a_heartbeat_is_what_jobctl_reads() -> None:
    assert Heartbeat(0, "t", "demo-2", "12.3", 7, None, {1: 2.00049}).to_json() == {
        "node": 0,
        "tick": "t",
        "generation": "demo-2",
        "report": "12.3",
        "progress": 7,
        "echo": None,
        "unheard": {"1": 2.0},
    }


def test_an_order_of_a_generation_without_autonomy_has_none() -> None:
    assert Order.from_json(control_file(replace(GENERATION, autonomy=None))).autonomy is None


@record
class Point:
    """A record for the test below."""

    x: int
    y: int = 0


def test_a_record_has_fields_and_is_equal_by_them() -> None:
    assert (Point(1), repr(Point(1, y=2))) == (Point(1, 0), "Point(x=1, y=2)")
    assert changed(Point(1), y=3) == Point(1, 3)
    assert Point(1) != Point(2)
    for wrong in ({"x": 1, "z": 3}, {"y": 3}):
        with pytest.raises(TypeError):
            Point(**wrong)
