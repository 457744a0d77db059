"""When launchers give a lost node to a hot spare, and what the order says in which they do. docs/protocol.md, rule 8."""

from __future__ import annotations

from typing import Any

import pytest

from jobctl.jobspec.launcher.order.autonomy_terms import Base, HotSpare, LastMove
from jobctl.jobspec.launcher.order.order import Moves, OldPlace, Order
from jobctl.jobspec.launcher.peers import old_places
from jobctl.jobspec.launcher.peers import orders as peer_orders
from jobctl.jobspec.launcher.peers.lease import MajorityLease
from jobctl.jobspec.launcher.peers.messages import PeerMessage
from jobctl.jobspec.launcher.peers.old_places import CONFIRMED, MARGIN
from jobctl.jobspec.launcher.peers.orders import PeerOrders
from jobctl.jobspec.launcher.records import with_rest
from jobctl.jobspec.launcher.recovery import autonomy
from jobctl.jobspec.launcher.recovery.replacement import TURN, Replacement
from jobctl.jobspec.launcher.report.progress import Headway

TIMEOUT = 30.0
LONG = TIMEOUT + MARGIN
SPARE = {"host": "s1", "address": "127.0.0.9", "port": 7}
OTHER = {"host": "s2", "address": "127.0.0.8", "port": 8}


def order(nodes: int, **alone: Any) -> Order:
    """The order of a supervisor for so many nodes, and two hot spares."""
    base = {"number": 1, "id": "g1"}
    members = [
        {"node": node, "rank": node, "roles": ["trainer"], "host": f"h{node}", "address": f"127.0.0.{node}", "nproc": 1}
        for node in range(nodes)
    ]
    terms = {"restarts": 3, "rules": [], "ports": [20000, 29999], "failures": [], "base": base}
    data = {
        "job": "job",
        "run_id": "job-1",
        "began": 5.0,
        "number": 1,
        "command": "run",
        "grace": 2.0,
        "host_timeout": TIMEOUT,
        "members": members,
        "rendezvous": {"address": "127.0.0.0", "port": 20000, "id": "g1"},
        "autonomy": {**terms, "spares": [SPARE, OTHER], **alone},
    }
    return Order.from_json(data)


class Survivor:
    """The launcher of node 0 of a job, which hears the others as long as the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nodes: int = 3, **alone: Any) -> None:
        self.now = 100.0
        for module in (peer_orders, old_places):
            monkeypatch.setattr(module, "boot_time", lambda: self.now, raising=False)
        monkeypatch.setattr(autonomy, "free_port", lambda address, first, *ports: first)
        self.lease = MajorityLease()
        self.orders = PeerOrders(self.lease, lambda text: None)
        self.replacement = Replacement(self.orders)
        first = order(nodes, **alone)
        self.lease.begin("g1", first.nodes, 0, TIMEOUT, self.now)
        self.orders.follow(first)
        self.orders.enter(first)
        self.done: set[int] = set()
        self.replacement.look(self.orders.order, set(), self.now)

    def hear(self, *nodes: int, spares: tuple[str, ...] = ("s1", "s2")) -> str | None:
        """Let a second pass in which these are heard; return what a lost node waits for."""
        self.now += 1.0
        age = self.orders.age
        for node in nodes:
            self.lease.answered(self.lease.tick(self.now), node)
            self.lease.asked("g1", node, self.now)
            self.orders.places.note_answer(node, self.now)
            self.orders.hear(node, "t", age)
        for host in spares:
            self.orders.hear_spare(PeerMessage("g1", -1, tick="t", spare=host, age=age), None)
        self.lease.held(self.now)
        return self.replacement.look(self.orders.order, self.done, self.now)

    def pass_time(self, seconds: float, *nodes: int, **how: Any) -> str | None:
        """Let time pass in which these are heard."""
        said = None
        for _ in range(round(seconds)):
            said = self.hear(*nodes, **how)
        return said

    @property
    def homes(self) -> list[str]:
        """The hosts of all nodes in the newest order."""
        assert self.orders.order is not None
        return [member.host for member in self.orders.order.members]


def test_a_node_moves_once_it_can_hold_no_lease_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Survivor(monkeypatch)
    job.orders.own = lambda: Headway(None, 60.0)  # node 2 has counted, which is the lost one
    job.pass_time(5, 1, 2)
    job.orders.hear_headway(job.orders.age, Headway(7, 4.0))
    job.pass_time(LONG - 1, 1)
    assert job.homes == ["h0", "h1", "h2"]
    job.pass_time(1, 1)
    assert job.homes == ["h0", "h1", "s1"]
    made = job.orders.order
    assert made is not None
    assert made.autonomy is not None
    assert (made.number, made.base, made.lease) == (2, Base(1, "g1", {}), made.id)
    assert made.moves == Moves([OldPlace(2, "h2", {})], 3, {})
    assert made.autonomy.moved == LastMove(2, made.id, 1, {})
    assert made.autonomy.spares == [with_rest(HotSpare, OTHER)]
    assert (made.members[2].address, made.members[2].port) == ("127.0.0.9", 7)
    [failure] = made.autonomy.failures
    told = {name: getattr(failure, name) for name in ("kind", "node", "host", "progress", "ran", "reason")}
    reason = "h2 is lost; node 2 moves from h2 to s1"
    assert told == {"kind": "host", "node": 2, "host": "h2", "progress": 7, "ran": 60.0, "reason": reason}
    assert Order.from_json(made.to_json()) == made


def test_it_is_newer_than_what_others_begin_after_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Survivor(monkeypatch)
    job.pass_time(LONG + 1, 1)
    made, base = job.orders.order, order(3)
    assert made is not None
    assert base.autonomy is not None
    rendezvous = type(base.rendezvous)("127.0.0.0", 1, "g9")
    later = Order(**{**vars(base), "number": 9, "rendezvous": rendezvous})
    assert base.age < later.age < made.age < Order(**{**vars(base), "command": "stop"}).age
    assert base.with_news(made.news()).members == made.members


def test_with_the_first_node_the_others_meet_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Survivor(monkeypatch)
    job.lease.me = 1
    job.lease.begin("g1", range(3), 1, TIMEOUT, job.now)
    job.pass_time(LONG + TURN, 2)
    made = job.orders.order
    assert made is not None
    assert (job.homes, made.rendezvous.address) == (["s1", "h1", "h2"], "127.0.0.9")


def test_one_launcher_begins_and_the_next_one_only_if_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Survivor(monkeypatch, nodes=4)
    job.lease.begin("g1", range(4), 2, TIMEOUT, job.now)  # it is node 2, the third of those that are left
    job.pass_time(LONG, 0, 1)
    assert job.homes[3] == "h3"
    job.pass_time(2 * TURN, 0, 1)
    assert job.homes[3] == "s1"


@pytest.mark.parametrize(
    ("nodes", "heard", "changes", "how", "why"),
    [
        (3, (), {}, {}, None),  # it has no lease itself
        (4, (1,), {}, {}, None),
        (5, (1,), {}, {}, None),
        (3, (1,), {}, {"spares": ()}, "no idle spare either"),
        (6, (1, 2), {}, {}, None),
        (3, (1,), {"spares": []}, {}, None),
    ],
)
def test_it_waits(
    nodes: int, heard: tuple[int, ...], changes: Any, how: Any, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For its host, or for a supervisor; and says why, unless another one is to."""
    job = Survivor(monkeypatch, nodes, **changes)
    job.pass_time(5, *range(1, nodes))
    said = job.pass_time(LONG + 5, *heard, **how)
    assert job.homes == [f"h{node}" for node in range(nodes)]
    assert (said is None) if why is None else (said is not None and why in said)


def test_without_restarts_left_the_job_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Survivor(monkeypatch, restarts=0)
    job.pass_time(LONG + 1, 1)
    made = job.orders.order
    assert made is not None
    assert (made.command, made.id, job.homes) == ("stop", "g1", ["h0", "h1", "h2"])
    assert made.why == "node 2: h2 is lost; the restarts of `recovery.max_restarts` are used up"


def test_a_supervisor_that_answers_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Survivor(monkeypatch)
    job.pass_time(LONG - 5, 1)
    job.lease.answered(job.lease.tick(job.now), None)
    job.orders.places.note_supervisor("one", job.now)
    job.pass_time(LONG + CONFIRMED - 1, 1)
    assert job.homes[2] == "h2"
    job.pass_time(1, 1)
    assert job.homes[2] == "s1"


def test_a_node_that_has_just_moved_gets_the_time_to_be_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Survivor(monkeypatch)
    job.pass_time(LONG, 1)
    made = job.orders.order
    assert made is not None
    job.lease.begin(made.lease, made.nodes, 0, TIMEOUT, job.now)
    job.orders.enter(made)
    job.pass_time(LONG - 1, 1)
    assert job.homes == ["h0", "h1", "s1"]


def test_a_node_that_has_ended_well_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Survivor(monkeypatch)
    job.done = {2}
    assert job.pass_time(2 * LONG, 1) is None
    assert job.homes[2] == "h2"


def test_nodes_that_have_moved_do_not_vote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two launchers of one node both may answer, each in another order."""
    job = Survivor(monkeypatch, nodes=5)
    job.pass_time(LONG + 1, 1, 2, 3)
    made = job.orders.order
    assert made is not None
    job.lease.begin(made.lease, made.nodes, 0, TIMEOUT, job.now)
    job.orders.enter(made)
    for node in (1, 4):
        job.lease.answered(job.lease.tick(job.now), node)
    assert not job.lease.held(job.now)
    job.lease.answered(job.lease.tick(job.now), 2)
    assert job.lease.held(job.now)


def test_a_node_that_a_supervisor_has_moved_votes_once_it_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Survivor(monkeypatch)
    first = job.orders.order
    assert first is not None
    first.moves = Moves([OldPlace(1, "old", {})], 3, {})
    said = job.pass_time(LONG + 1, 1)
    assert said is not None
    assert "too few launchers are left" in said
    job.orders.hear(1, "t", job.orders.age, begun=True)
    job.replacement.look(job.orders.order, set(), job.now)
    assert job.homes[2] == "s1"
