"""What the launchers of a cluster tell each other through their GossipMembers, over real sockets and without processes."""

from __future__ import annotations

import json
import socket
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.launcher import autonomy, gossip
from jobctl.jobspec.launcher.autonomy import LAST, SETTLE, Autonomy, FailedNode
from jobctl.jobspec.launcher.failure import Failure
from jobctl.jobspec.launcher.gossip import HURRY, GossipMember
from jobctl.jobspec.launcher.lease import FIRST_TICKS, TICK
from jobctl.jobspec.launcher.order import Order
from jobctl.jobspec.launcher.processes import boot_time
from jobctl.jobspec.launcher.progress import Headway
from jobctl.jobspec.launcher.restart_policy import FIRST_DELAY
from jobctl.jobspec.launcher.session_lease import LeaseSession
from jobctl.jobspec.launcher.session_messages import NodeCourse, SessionRequest
from tests.tools.launches import launch_of, report_of
from tests.tools.ports import free_ports

KILLED: dict[str, Any] = {
    "generation": 1,
    "at": 5.0,
    "node": 1,
    "rank": 1,
    "exit_code": 137,
    "kind": "signal",
    "progress": None,
}
KILLED |= {"host": "b", "ran": 2.0, "log": None, "tail": [], "reason": "why", "alike": []}


def order(number: int = 2, failure: dict[str, Any] | None = None) -> Order:
    """A generation of two nodes, the first after a rank was killed before it had counted a step."""
    members = [
        {"node": node, "rank": node, "roles": ["trainer"], "host": "a", "address": f"node-{node}", "nproc": 1}
        for node in range(2)
    ]
    data = {"job": "job", "run_id": "job-1", "number": number, "command": "run", "grace": 5.0, "members": members}
    data["rendezvous"] = {"address": "node-0", "port": 1, "id": f"job-{number}"}
    terms = {"restarts": 9, "rules": [], "ports": [20000, 29999], "failures": [failure or KILLED]}
    return Order.from_json({**data, "began": 1.0, "autonomy": terms})


class Node:
    """The end of a launcher, and its GossipMember."""

    def __init__(self, node: int, port: int, names: Path) -> None:
        ours, theirs = socket.socketpair()
        self.session = LeaseSession(ours)
        options = Namespace(address=f"127.0.0.{node + 2}", names=str(names))
        self.member = GossipMember(launch_of(node=node, gossip_port=port), options, theirs)

    def close(self) -> None:
        self.member.socket.close()
        for pipe in (self.session.pipe, self.member.pipe):
            pipe.socket.close()

    def turn(self) -> None:
        """Let the member say and hear whatever there is, and the launcher too."""
        self.member.following = 0.0
        self.member.turn()
        self.session.read()


class Pair:
    """The launchers of two nodes, both in the same generation."""

    def __init__(self, folder: Path) -> None:
        (self.port,) = free_ports(1)
        self.names = folder / "names.json"
        self.names.write_text(json.dumps({f"node-{node}": [f"127.0.0.{node + 2}", self.port] for node in range(2)}))
        self.nodes = [Node(node, self.port, self.names) for node in range(2)]
        for node in self.nodes:
            node.session.propose(order())  # as all have it in a file
        self.talk()

    def talk(self) -> None:
        for node in 4 * self.nodes:
            node.turn()

    def start_again(self, node: int) -> None:
        """Put another launcher in the place of one: it knows nothing."""
        self.nodes[node].close()
        self.nodes[node] = Node(node, self.port, self.names)
        self.nodes[node].session.propose(order())
        self.talk()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    for node in made.nodes:
        node.close()


def fails(session: LeaseSession) -> FailedNode:
    """The failure of node 1 whose launcher was started again."""
    failure = Failure("launcher", None, None, None, None, 20.0)
    node = FailedNode(report_of(generation=2, failure=failure, reason="why"), launch_of(node=1), 0.0)
    node.learn(session.headway)
    return node


def test_a_launcher_that_was_started_again_waits_no_longer_after_steps_that_another_node_has_counted(
    pair: Pair,
) -> None:
    """The steps are those of the only node that counts; the one whose launcher is new cannot know of any."""
    pair.start_again(1)
    found = fails(pair.nodes[1].session)
    assert (found.failure.progress, found.delay(order())) == (None, FIRST_DELAY)
    pair.nodes[0].session.tell_course(NodeCourse("job-2", failed=None, headway=Headway(45, 7.0)))
    pair.talk()
    found.learn(pair.nodes[1].session.headway)
    assert (found.failure.progress, found.failure.ran, found.delay(order())) == (45, 7.0, SETTLE)


def test_others_know_the_steps_of_a_node_that_is_lost(pair: Pair) -> None:
    """Also its own new launcher learns of them; in the next generation they do not count."""
    pair.nodes[1].session.tell_course(NodeCourse("job-2", failed=None, headway=Headway(45, 7.0)))
    pair.talk()
    pair.start_again(1)
    assert [node.session.headway for node in pair.nodes] == [Headway(45, 7.0)] * 2
    pair.nodes[0].session.propose(order(3))
    pair.nodes[0].session.tell_course(NodeCourse("job-2", failed=None, headway=Headway(46, 8.0)))
    pair.talk()
    assert [node.session.headway for node in pair.nodes] == [Headway()] * 2


def test_what_a_launcher_proposes_is_told_at_once(pair: Pair) -> None:
    """Not with the next datagram, which may be a second later."""
    member = pair.nodes[0].member
    assert member.following > 0.0
    pair.nodes[0].session.propose(order(3), "job-2")
    member.turn()
    assert member.following == 0.0


def test_all_tell_each_other_more_often_once_a_node_has_failed(pair: Pair) -> None:
    """So it is known how far the others have come, and who has a lease, when the next generation begins."""
    now = max(node.member.following for node in pair.nodes)
    assert [node.member.pause(now) for node in pair.nodes] == [TICK] * 2
    pair.nodes[1].session.tell_course(NodeCourse("job-2", failed=("exit", 5.0), headway=Headway(45, 7.0)))
    pair.talk()
    until = [node.member.hurries for node in pair.nodes]
    for node in pair.nodes:
        assert [node.member.pause(at) for at in (max(until) - HURRY, max(until))] == [FIRST_TICKS, TICK]


def test_a_gossip_member_hears_of_a_step_or_a_failure_and_now_and_then_of_how_long_a_node_has_run(pair: Pair) -> None:
    said: list[Any] = []
    session = pair.nodes[0].session
    session.pipe.send = said.append  # type: ignore[method-assign]
    for failed, step, ran in ((None, 1, 1.0), (None, 1, 2.0), (None, 2, 2.1), (None, 2, 7.2), (("exit", 7.3), 2, 7.3)):
        session.tell_course(NodeCourse("job-2", failed, Headway(step, ran)))
    assert [(one["course"]["failed"], *one["course"]["headway"]) for one in said] == [
        (None, 1, 1.0),
        (None, 2, 2.1),
        (None, 2, 7.2),
        (["exit", 7.3], 2, 7.3),
    ]


def test_the_cause_is_the_node_that_has_failed_first(pair: Pair) -> None:
    """A process of node 0 was killed, and so the one of node 1 has lost its peer."""
    for node, told in zip(pair.nodes, [("signal", 5.0), ("exit", 5.1)], strict=True):
        node.session.failed = lambda told=told: told  # type: ignore[misc]
        node.session.tell_course(NodeCourse("job-2", failed=told, headway=Headway()))
    assert pair.nodes[1].session.failed_first is None
    pair.talk()
    assert [node.session.failed_first for node in pair.nodes] == [None, 0]
    pair.nodes[1].session.propose(order(3))
    pair.talk()
    assert [node.session.failed_first for node in pair.nodes] == [None, None]


class Clock:
    """The clock of all launchers, which only the test moves."""

    def __init__(self) -> None:
        self.at = boot_time()

    def now(self) -> float:
        return self.at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (gossip, autonomy):
        monkeypatch.setattr(module, "boot_time", made.now)
    return made


class FailedAgain:
    """What the launcher of node 1 does whose process has failed like the last time, with code 1 before any step."""

    def __init__(self, pair: Pair) -> None:
        self.session, failure = pair.nodes[1].session, Failure("exit", 1, 0, 1, "workerlog.1", 20.0)
        self.session.failed = lambda: ("exit", 20.0)
        self.session.ask(SessionRequest(begun="job-2"))
        self.session.tell_course(NodeCourse("job-2", failed=("exit", 20.0), headway=Headway()))
        report: Any = SimpleNamespace(state="failed", fields=report_of(generation=2, failure=failure, reason="why"))
        self.mine = Autonomy(launch_of(node=1, gossip_port=pair.port), report, self.session, None)
        self.proposed: list[Order] = []
        self.session.propose = lambda made, after=None: self.proposed.append(made)  # type: ignore[method-assign]

    def goes_on(self) -> list[Order]:
        self.mine.go_on(order(failure={**KILLED, "kind": "exit", "exit_code": 1}))
        return self.proposed


def test_what_a_killed_pod_causes_twice_is_no_bug(pair: Pair, clock: Clock) -> None:
    """Its peer fails at once, it is missed seconds later, and its new launcher knows nothing of the generation."""
    node = FailedAgain(pair)
    pair.nodes[0].close()
    for wait in (0.0, SETTLE, LAST - SETTLE):
        clock.at += wait
        pair.nodes[1].turn()
        assert (node.session.missing, node.goes_on()) == (None, [])
    pair.start_again(0)
    [made] = node.goes_on()
    assert made.autonomy is not None
    assert (made.command, made.number, made.autonomy.failures[-1].kind) == ("run", 3, "launcher")


def test_a_bug_ends_the_job_once_all_other_launchers_were_heard(pair: Pair, clock: Clock) -> None:
    node = FailedAgain(pair)
    for wait in (0.0, SETTLE):
        clock.at += wait
        pair.talk()
        assert node.goes_on() == []
    clock.at += LAST - SETTLE
    [made] = node.goes_on()
    assert (made.command, made.exit_code, made.number) == ("finish", 1, 2)


def test_nobody_calls_it_a_bug_beside_a_node_that_has_failed_first(pair: Pair, clock: Clock) -> None:
    node = FailedAgain(pair)
    pair.nodes[0].session.tell_course(NodeCourse("job-2", failed=("signal", 19.9), headway=Headway()))
    for wait in (0.0, SETTLE, LAST - SETTLE):
        clock.at += wait
        pair.talk()
        assert node.goes_on() == []
    assert node.session.said == "leaves it to node 0, which failed first"
