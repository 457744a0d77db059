"""What launchers on hosts agree on without a supervisor: several of them at once, without any process or socket."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobctl.jobspec.launcher.order.whole_order import packed, unpacked
from jobctl.jobspec.launcher.peers import orders as peer_orders
from jobctl.jobspec.launcher.peers.lease import SILENT_TICKS, UNSUPERVISED, MajorityLease
from jobctl.jobspec.launcher.peers.orders import PeerOrders
from jobctl.jobspec.launcher.records import changed
from jobctl.jobspec.launcher.recovery.autonomy import LEFT_FOR, SETTLE, SETTLE_BEFORE_END, given_up
from jobctl.jobspec.launcher.recovery.control_file import ControlFile
from jobctl.jobspec.launcher.recovery.going_back import successor
from tests.launcher.orders import order
from tests.launcher.recovery.failed_nodes import failed
from tests.tools.launches import launch_of

TIMEOUT = 30.0


class Job:
    """Three launchers, and the time that they share."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(peer_orders, "boot_time", lambda: self.now)
        self.leases = [MajorityLease() for _ in range(3)]
        self.said: list[str] = []
        self.nodes = [PeerOrders(lease, self.said.append) for lease in self.leases]
        for node, (lease, orders) in enumerate(zip(self.leases, self.nodes, strict=True)):
            lease.begin("g1", range(3), node, TIMEOUT, self.now)
            orders.follow(order())

    def talk(self, *nodes: int) -> None:
        """Let these launchers send each other a tick, and answer it."""
        for sender in nodes:
            for other in nodes:
                name = self.leases[sender].tick(self.now)
                if other != sender and self.leases[other].asked("g1", sender, self.now):
                    known = self.nodes[sender].age
                    self.nodes[other].hear(sender, name, known, failed=self.nodes[sender].failed())
                    news = self.nodes[other].news(known)
                    if self.leases[sender].answered(name, other) and news is not None:
                        self.nodes[sender].take(news)

    def pass_time(self, seconds: float, *nodes: int) -> None:
        """Let time pass, in which these launchers hear each other."""
        for _ in range(round(seconds)):
            self.now += 1.0
            for lease in self.leases:
                lease.held(self.now)
            self.talk(*nodes)

    def fail(self, node: int) -> str | None:
        """Have a launcher whose node has failed begin the next generation if it may; return what it waits for."""
        mine, lease = self.nodes[node], self.leases[node]
        now = mine.order
        assert now is not None
        assert now.autonomy is not None
        one = failed()
        one.since = self.now
        waits = one.waits(now, mine, lease.supervised(self.now), self.now)
        if waits is None:
            mine.propose(one.successor(now, now.autonomy), now.id)
        return waits

    def numbers(self) -> list[int]:
        """The generations of all launchers."""
        return [orders.order.number for orders in self.nodes if orders.order is not None]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    made = Job(monkeypatch)
    made.talk(0, 1, 2)
    made.pass_time(UNSUPERVISED + 2, 0, 1, 2)
    return made


def test_all_enter_what_one_begins_and_only_then_is_nobody_missing(job: Job) -> None:
    assert job.fail(1) is None
    assert job.numbers() == [1, 2, 1]
    assert job.nodes[1].missing == "waits for node 0, 2, which is not heard"
    job.talk(0, 1, 2)
    job.talk(0, 1, 2)
    assert job.numbers() == [2, 2, 2]
    assert [orders.missing for orders in job.nodes] == [None] * 3
    assert {orders.order.id for orders in job.nodes if orders.order} != {"g1"}


def test_it_is_left_to_a_supervisor_that_answers(job: Job) -> None:
    job.leases[1].answered(job.leases[1].tick(job.now), None)
    assert job.fail(1) == "leaves it to the supervisor"
    job.pass_time(UNSUPERVISED + 1, 0, 1, 2)
    assert job.fail(1) is None


def test_a_silent_node_is_waited_for(job: Job) -> None:
    job.pass_time(SILENT_TICKS + 1, 0, 1)
    assert job.fail(1) == "waits for node 2, which is not heard"
    job.talk(0, 1, 2)
    assert job.fail(1) is None


def test_a_node_whose_lease_is_over_takes_part_in_none(job: Job) -> None:
    """It may run elsewhere by now. It answers nobody either, so the others wait for it."""
    job.pass_time(TIMEOUT + 1, 0, 1)
    assert not job.leases[2].held(job.now)
    job.pass_time(5, 0, 1, 2)
    assert job.fail(2) == "has no lease, and so begins nothing"
    assert job.fail(1) == "waits for node 2, which is not heard"
    assert not job.leases[2].held(job.now)


def test_one_of_two_that_begin_at_once_counts_for_all(job: Job) -> None:
    assert (job.fail(0), job.fail(2)) == (None, None)
    both = [job.nodes[0].order, job.nodes[2].order]
    for _ in range(3):
        job.talk(0, 1, 2)
    assert [orders.order.id for orders in job.nodes if orders.order] == [
        max((one for one in both if one), key=lambda one: one.age).id
    ] * 3
    assert [orders.missing for orders in job.nodes] == [None] * 3


@pytest.mark.parametrize("command", ["stop", "finish"])
def test_what_a_command_orders_counts_whatever_launchers_have_begun(job: Job, command: str) -> None:
    """Also where it knew of nothing but the first generation; and launchers which it did not reach begin nothing."""
    for _ in range(2):
        assert job.fail(1) is None
        job.pass_time(2, 0, 1, 2)
    assert job.numbers() == [3, 3, 3]
    told = job.nodes[0].follow(order(command=command))
    assert told is not None
    assert told.command == command
    job.pass_time(2, 0, 1, 2)
    assert job.numbers() == [1, 3, 3]
    assert job.fail(1) == "waits for node 0, which is not heard"


def test_the_next_order_of_a_supervisor_counts_whatever_number_it_has(job: Job) -> None:
    for _ in range(3):
        assert job.fail(1) is None
        job.pass_time(2, 0, 1, 2)
    assert job.numbers() == [4, 4, 4]
    assert order(2).age > (job.nodes[0].order or order()).age
    assert job.nodes[0].follow(order(2)) == order(2)


def test_all_enter_the_end_of_the_job_and_the_next_order_of_a_command_counts(job: Job) -> None:
    """Also one that has heard nothing for a while, whatever the others had begun before."""
    assert job.fail(1) is None
    job.pass_time(2, 0, 1, 2)
    mine, now = job.nodes[1], job.nodes[1].order
    assert now is not None
    mine.propose(failed().give_up(now, "enough"), now.id)
    job.pass_time(1, 0, 1)
    ends = [(one.order.command, one.order.why) for one in job.nodes if one.order is not None]
    assert ends == [("stop", "node 1: rank 1 exited with code 1; enough")] * 2 + [("run", None)]
    assert job.fail(0) == "waits for the supervisor"
    job.pass_time(2, 0, 1, 2)
    assert job.nodes[2].order == job.nodes[0].order
    assert job.nodes[2].follow(order(2)) == order(2)


def test_a_launcher_that_was_told_to_stop_does_not_enter_what_others_begin(job: Job) -> None:
    assert job.fail(1) is None
    job.nodes[0].follow(order(command="stop"))
    job.pass_time(2, 0, 1, 2)
    assert job.nodes[0].order == order(command="stop")
    assert job.numbers() == [1, 2, 2]
    assert job.nodes[1].missing == "waits for node 0, which is not heard"


@pytest.mark.parametrize("cause", [("fenced", 104.0), ("launcher", 109.0), ("exit", 105.0)])
def test_a_node_leaves_it_to_the_one_that_failed_first(job: Job, cause: tuple[str, float]) -> None:
    """What its peers say of themselves when a launcher was killed is a consequence, whenever they say it."""
    job.pass_time(UNSUPERVISED + 1, 0, 1, 2)
    job.nodes[1].failed = lambda: ("exit", 105.0)
    job.nodes[0].failed = lambda: cause
    job.talk(0, 1, 2)
    assert job.fail(1) == "leaves it to node 0, which failed first"
    assert job.fail(0) is None
    job.talk(0, 1, 2)
    assert job.numbers() == [2, 2, 2]


def test_a_node_does_not_leave_it_for_ever_to_one_that_leaves_it_to_a_supervisor(job: Job) -> None:
    """That one may wait for this very node's host, to which its own link is cut."""
    job.pass_time(UNSUPERVISED + 1, 0, 1, 2)
    job.nodes[1].failed, job.nodes[0].failed = lambda: ("exit", 105.0), lambda: ("exit", 104.0)
    job.talk(0, 1, 2)
    one, now = failed(), job.nodes[1].order
    assert now is not None
    late = one.since + one.delay(now) + LEFT_FOR
    told = [one.waits(now, job.nodes[1], False, at) for at in (late - 0.1, late)]
    assert told == ["leaves it to node 0, which failed first", None]


def test_a_node_that_is_not_heard_has_failed_after_all_others(job: Job) -> None:
    job.pass_time(UNSUPERVISED + 1, 0, 1, 2)
    job.nodes[0].failed = lambda: ("exit", 104.0)
    job.talk(0, 1, 2)
    job.nodes[1].failed = lambda: ("exit", 105.0)
    job.pass_time(SILENT_TICKS + 1, 1, 2)
    assert job.fail(1) == "waits for node 0, which is not heard"


def test_an_order_of_a_command_is_handed_on_whole(job: Job) -> None:
    """To launchers of the same job, since it was brought up, and whatever they have begun by themselves."""
    first, second, third = job.nodes
    assert job.fail(1) is None
    assert second.order is not None
    assert second.whole(first.age) is None  # these have its base: the news is enough
    first.follow(order(2))
    assert [first.whole(second.age), second.whole(first.age), first.whole(None)] == [order(2), None, None]
    assert (second.lacks(list(order(2).age)), first.lacks(list(order(2).age))) == (True, False)
    for another in (changed(order(2), began=6.0), changed(order(2), job="another"), None):
        third.take_whole(another)
        assert third.order == order()
    assert first.whole([6.0, *list(order().age)[1:]]) is None
    for launcher in (second, third):
        launcher.take_whole(unpacked(packed(order(2))))
        assert launcher.order == order(2)
        assert launcher.follow(order()) == order(2)
    second.take_whole(order(2, "stop"))
    assert second.order == order(2, "stop")
    assert [unpacked("?"), unpacked(packed(order())[:-9])] == [None, None]


def test_a_stop_of_what_launchers_have_begun_is_handed_on_whole(job: Job) -> None:
    """Whether it is for a change or not; and it is older than what launchers begin after it, or newer."""
    first, second, _ = job.nodes
    job.talk(0, 1, 2)
    assert job.fail(1) is None
    begun = second.order
    assert begun is not None
    pause, stop = changed(begun, command="stop", pause=1), changed(begun, command="stop")
    for told in (pause, stop):
        second.follow(told)
        assert (second.news(list(begun.age)), second.whole(list(begun.age))) == (None, told)
        first.take_whole(unpacked(packed(told)))
        assert first.order == told
    after = successor(pause)
    assert begun.age < pause.age < after.age < stop.age < order(2).age
    assert (after.command, after.members, after.lease, after.is_of_launchers) == ("run", begun.members, "g1", True)


def test_launchers_hear_of_what_follows_a_stop_for_a_change(job: Job) -> None:
    """But nothing that follows any other stop."""
    first, second, third = job.nodes
    pause = changed(order(), command="stop", pause=1)
    for launcher in (first, second):
        launcher.follow(pause)
    third.follow(order(1, "stop"))
    first.propose(successor(pause), pause.id)
    news = first.news(list(pause.age))
    assert news is not None
    for launcher in (second, third):
        launcher.take(news, list(pause.age))
    assert [found and found.command for found in (first.order, second.order, third.order)] == ["run", "run", "stop"]


def test_news_of_another_base_is_not_taken(job: Job) -> None:
    """It comes late: it is about a tick that this launcher sent in its last order."""
    assert job.fail(1) is None
    news, known = job.nodes[1].news(list(order().age)), list(order().age)
    assert news is not None
    job.nodes[0].follow(order(2))
    job.nodes[0].take(news, known)
    assert job.nodes[0].order == order(2)
    job.nodes[2].take(news, known)
    assert job.nodes[2].order is not None
    assert job.nodes[2].order.number == 2


def test_nobody_ends_the_job_beside_a_launcher_that_is_dead_and_not_missed_yet(job: Job) -> None:
    """A container was killed: its node's peers fail at once, it is missed seconds later, and its launcher comes back."""
    mine, now = job.nodes[1], order()
    one = failed()
    one.since = job.now
    job.now += SETTLE
    job.talk(1, 2)
    job.now += SETTLE_BEFORE_END - SETTLE
    job.talk(1, 2)
    assert (mine.missing, one.is_due(now, mine, True, job.now), one.is_due(now, mine, False, job.now)) == (
        None,
        False,
        True,
    )
    job.talk(0, 1, 2)
    assert one.is_due(now, mine, True, job.now)


def test_a_launcher_that_says_nothing_for_ever_keeps_no_job_from_its_end(job: Job) -> None:
    one = failed()
    one.since = job.now
    job.pass_time(TIMEOUT + LEFT_FOR - 1, 1, 2)
    assert not one.is_due(order(), job.nodes[1], True, job.now)
    job.pass_time(1, 1, 2)
    assert one.is_due(order(), job.nodes[1], True, job.now)


def test_an_end_that_launchers_agree_on_ends_a_setup_that_runs(tmp_path: Path) -> None:
    """The setup of another node has failed, so this one installs for nothing."""
    path = tmp_path / "control.json"
    path.write_text(json.dumps(order().to_json()))
    peers = PeerOrders(MajorityLease(), lambda text: None)
    control = ControlFile(str(path), launch_of(), None, peers, lambda why: None)
    assert control.read()
    assert not control.tells_to_end()
    peers.propose(given_up(order(), failed().failure, "no disk"), "g1")
    assert control.tells_to_end()
    assert control.read()
    assert not control.tells_to_end()
