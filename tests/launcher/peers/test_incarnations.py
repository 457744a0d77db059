"""Launchers that may be started again without what they kept, as in new pods: by real sockets and without processes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from jobctl.jobspec.launcher.failure import Failure
from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.peers.incarnations import Incarnation, Incarnations
from jobctl.jobspec.launcher.peers.lease import SILENT_TICKS, TICK
from jobctl.jobspec.launcher.recovery.autonomy import SETTLE, SETTLE_BEFORE_END, Autonomy, FailedNode
from jobctl.jobspec.launcher.recovery.control_file import ControlFile
from jobctl.jobspec.launcher.recovery.self_recovery import SelfRecovery
from jobctl.jobspec.launcher.report.progress import Headway
from jobctl.jobspec.launcher.restart_policy import FIRST_DELAY
from tests.tools.launches import launch_of, report_of
from tests.tools.peer_links import BASE, KILLED, Clock, Launchers, links_of, order
from tests.tools.ports import free_ports

LATE = "waits for the launchers of all nodes (not there yet: node %d)"


def test_a_node_begins_once_all_launchers_have_met(job: Launchers) -> None:
    assert [job.awaited(node) for node in (0, 1)] == [LATE % 1, LATE % 0]
    job.say(0)
    job.say(1)  # has heard node 0, which has not heard of this launcher
    assert job.awaited(0) == LATE % 1
    job.talk()
    assert [job.awaited(node) for node in (0, 1)] == [None, None]


def test_a_launcher_without_a_disk_does_not_begin_where_its_predecessor_has(job: Launchers) -> None:
    """It learns of the order and that it has begun there. What its predecessor ran is lost: that is the cause of all."""
    job.begin()
    job.start_again(1)
    job.talk()
    assert (job.newest(1).id, job.known(1).forgot, job.awaited(1)) == ("job-2", True, LATE % 0)
    job.all[0].launcher.recovery.failed = ("exit", 5.0)
    assert job.orders(0).failed_first == 1


def test_a_launcher_says_at_once_that_it_has_met_all(job: Launchers) -> None:
    """The others wait for that, and its next tick may be a while away."""
    job.say(0, 1)
    first = job.all[0]
    first.next, before = job.clock.at + TICK, first.last
    first.attend()
    assert (set(job.known(0).met), first.last != before) == ({1}, True)


def test_in_the_next_order_all_meet_again(job: Launchers) -> None:
    job.begin()
    job.start_again(1)
    job.talk()
    job.orders(1).propose(order(3), "job-2")
    job.talk()
    assert [job.awaited(node) for node in (0, 1)] == [None, None]
    assert not job.known(1).forgot


def test_a_launcher_that_is_replaced_before_all_are_there_is_met_in_this_order(tmp_path: Path, clock: Clock) -> None:
    """A pod that is started again while the job waits for its last one costs no order."""
    job = Launchers(tmp_path, clock, nodes=3)
    job.all[2].addresses.close()
    job.say(0, 1, 0, 1)
    for node in (1, 2):
        job.start_again(node, order(nodes=3))
    job.talk()
    assert [job.awaited(node) for node in range(3)] == [None] * 3
    assert [job.known(node).forgot for node in range(3)] == [False] * 3
    job.close()


def test_a_launcher_meets_nobody_who_was_silent_before_the_last_one_came(tmp_path: Path, clock: Clock) -> None:
    job = Launchers(tmp_path, clock, nodes=3)
    job.say(0, 1, 0)
    clock.at += SILENT_TICKS * TICK + 0.1
    job.say(2, 0)
    assert job.known(0).met == {}
    job.talk()
    assert set(job.known(0).met) == {1, 2}
    job.close()


def test_once_it_has_met_all_a_launcher_meets_no_other_one_in_that_order(job: Launchers) -> None:
    """The one that it has met may have begun, although it has not: a node would begin twice in one order."""
    job.say(0, 1, 0)  # now node 1 may begin as soon as it hears that, and node 0 may not yet
    assert (set(job.known(0).met), job.awaited(0)) == ({1}, LATE % 1)
    job.start_again(1, order())
    job.clock.at += SILENT_TICKS * TICK + 0.1
    job.talk()
    assert [job.awaited(node) for node in (0, 1)] == [LATE % 1, LATE % 0]
    assert job.known(1).forgot


def test_a_node_does_not_wait_for_a_launcher_that_is_gone_of_one_that_has_ended_well(job: Launchers) -> None:
    """That one was started again with what it kept, while all others lost that: it begins nothing here."""
    job.say(0, 1, 0)
    job.start_again(1, order())
    job.all[1].done.are_all(order())
    job.talk()
    assert (job.awaited(0), job.known(0).forgot, job.all[0].done.nodes) == (LATE % 1, False, {1})
    launcher, failed = job.all[0].launcher, []
    more: dict[str, Any] = {"links": job.all[0], "pending": (order(), order().members[0]), "say": lambda **fields: None}
    vars(launcher).update(more, fail=lambda failure, reason: failed.append((failure.kind, reason)))
    launcher.launch.regroups = False
    SelfRecovery.remember(cast(Any, SimpleNamespace(launcher=launcher)), order(), order().members[0])
    assert failed == [("launcher", "node 1, which has ended well, cannot say that it is met")]
    assert launcher.pending is None


def test_only_the_launcher_that_it_has_met_can_say_that_it_is_met(job: Launchers) -> None:
    known = Incarnations("127.0.0.1")
    known.enter([1.0])
    known.hear(1, Incarnation("old", "127.0.0.3", None), [1], 5.0)
    known.hear(1, Incarnation("new", "127.0.0.3", known.name), [1], 5.1)
    assert not known.is_ready(1)
    known.hear(1, Incarnation("old", "127.0.0.3", known.name), [1], 5.2)
    assert known.is_ready(1)


def test_where_a_node_may_join_again_any_of_its_launchers_can_say_so() -> None:
    known = Incarnations("127.0.0.1", together=False)
    known.enter([1.0])
    known.hear(1, Incarnation("old", "127.0.0.3", None), [1], 5.0)
    known.hear(1, Incarnation("new", "127.0.0.3", known.name), [1], 5.1)
    assert known.is_ready(1)


def test_a_node_that_the_others_do_without_for_a_while_joins_their_order(job: Launchers) -> None:
    job.begin()
    job.start_again(1, order())
    job.known(1).joined = list(job.newest(1).age)
    job.talk()
    assert job.awaited(1) is None


def test_an_order_gets_the_addresses_that_launchers_have_when_it_begins(job: Launchers) -> None:
    job.talk()
    begun = job.orders(1).located(job.newest(1))
    assert [member.address for member in begun.members] == ["127.0.0.2", "127.0.0.3"]
    assert begun.rendezvous.address == "127.0.0.2"


def test_an_order_gets_no_address_of_a_launcher_that_is_gone(job: Launchers) -> None:
    """What that has said may come late. Where any launcher of a node counts, the last word does."""
    job.talk()
    late = Incarnation("gone", "127.0.0.9", None)
    job.orders(0).hear(1, "tick", list(job.newest(0).age), incarnation=late)
    assert job.orders(0).located(job.newest(0)).members[1].address == "127.0.0.3"
    job.known(0).together = False
    assert job.orders(0).located(job.newest(0)).members[1].address == "127.0.0.9"


def test_a_launcher_is_found_where_its_name_leads_by_now(job: Launchers) -> None:
    job.begin()
    names, moved = json.loads(job.names.read_text()), free_ports(1)[0]
    job.all[1].addresses.close()
    job.all[1] = links_of(job.folder / "1", 1, BASE, moved, job.names)
    job.all[1].addresses.meet(BASE)
    assert job.all[0].addresses.names is not None
    job.names.write_text(json.dumps({**names, "node-1": ["127.0.0.3", moved]}))
    job.all[0].addresses.names.written = job.all[0].addresses.names.read()
    job.say(0)  # hears what the launcher before it has said
    job.clock.at += SILENT_TICKS * TICK + 0.1
    job.say(0)
    assert job.all[0].peers[1] == ("127.0.0.3", moved)


def fails(headway: Headway) -> FailedNode:
    """The failure of node 1, whose launcher was started again."""
    failure = Failure("launcher", None, None, None, None, 20.0)
    node = FailedNode(report_of(generation=2, failure=failure, reason="why"), launch_of(node=1), 0.0)
    node.learn(headway)
    return node


def test_a_launcher_that_forgot_waits_no_longer_after_steps_that_another_node_has_counted(job: Launchers) -> None:
    """The steps are those of the only node that counts; the one whose launcher is new cannot know of any."""
    job.begin()
    job.start_again(1)
    job.talk()
    found = fails(job.orders(1).headway)
    assert (found.failure.progress, found.delay(order())) == (None, FIRST_DELAY)
    job.orders(0).own = lambda: Headway(45, 7.0)
    job.talk()
    found.learn(job.orders(1).headway)
    assert (found.failure.progress, found.failure.ran, found.delay(order())) == (45, 7.0, SETTLE)


class FailedAgain:
    """What the launcher of node 0 does whose process has failed like the last time, with code 1 before any step."""

    def __init__(self, job: Launchers) -> None:
        self.links, failure = job.all[0], Failure("exit", 0, 0, 1, "workerlog.0", 20.0)
        self.orders = job.orders(0)
        self.links.launcher.recovery.failed = ("exit", 20.0)
        again = {**KILLED, "kind": "exit", "exit_code": 1, "rank": 0, "node": 0}
        self.orders.order = order(2, again)
        report: Any = SimpleNamespace(state="failed", fields=report_of(generation=2, failure=failure, reason="why"))
        self.mine = Autonomy(launch_of(node=0), report, self.orders, None)

    def goes_on(self) -> Order | None:
        """Return the order that it has proposed, if it has."""
        before = self.orders.order
        self.mine.go_on(before)
        return None if self.orders.order is before else self.orders.order


def test_what_a_killed_pod_causes_twice_is_no_bug(job: Launchers) -> None:
    """Its peer fails at once, it is missed seconds later, and its new launcher knows nothing of the generation."""
    job.begin()
    node = FailedAgain(job)
    job.all[1].addresses.close()
    for wait in (0.0, SETTLE, SETTLE_BEFORE_END - SETTLE):
        job.clock.at += wait
        job.say(0)
        assert node.goes_on() is None
    job.start_again(1)
    job.talk()
    assert node.goes_on() is None  # leaves it to the one that was started again
    job.all[1].launcher.recovery.failed = ("launcher", 30.0)
    failure = Failure("launcher", None, None, None, None, 30.0)
    report: Any = SimpleNamespace(state="failed", fields=report_of(generation=2, failure=failure, reason="why"))
    other = Autonomy(launch_of(node=1), report, job.orders(1), None)
    for wait in (0.0, SETTLE, FIRST_DELAY):
        job.clock.at += wait
        job.talk()
        other.go_on(job.newest(1))
    made = job.newest(1)
    assert made.autonomy is not None
    assert (made.command, made.number, made.autonomy.failures[-1].kind) == ("run", 3, "launcher")


def test_a_bug_ends_the_job_once_all_other_launchers_were_heard(job: Launchers) -> None:
    job.begin()
    node = FailedAgain(job)
    for wait in (0.0, SETTLE):
        job.clock.at += wait
        job.talk()
        assert node.goes_on() is None
    job.clock.at += SETTLE_BEFORE_END - SETTLE
    job.talk()
    made = node.goes_on()
    assert made is not None
    assert (made.command, made.exit_code, made.number) == ("finish", 1, 2)
    job.talk()
    assert (job.newest(1).command, job.newest(1).exit_code) == ("finish", 1)


def test_nobody_calls_it_a_bug_beside_a_node_that_has_failed_first(job: Launchers) -> None:
    job.begin()
    node = FailedAgain(job)
    job.all[1].launcher.recovery.failed = ("signal", 19.9)
    for wait in (0.0, SETTLE, SETTLE_BEFORE_END - SETTLE):
        job.clock.at += wait
        job.talk()
        assert node.goes_on() is None
    assert node.orders.said == "leaves it to node 1, which failed first"


def test_an_order_of_an_earlier_version_is_its_own_base(tmp_path: Path) -> None:
    """Its coordinator may run on after `up` has replaced the launcher: all launchers have to agree on a base."""
    path = tmp_path / "control.json"
    data = order().to_json()
    del data["autonomy"]["base"]
    path.write_text(json.dumps(data))
    found = []
    for launch in (launch_of(gossip_port=7), launch_of()):
        control = ControlFile(str(path), launch, None, None, print)
        assert control.read()
        assert control.order is not None
        found.append(control.order.base and control.order.base.id)
    assert found == ["job-2", None]
