"""What launchers decide by themselves about a failure, and in which order members are: without any process."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.launcher.etcd.keys import JobKeys
from jobctl.jobspec.launcher.etcd.session_lease import ALL_TOLD, EtcdLease, LeaseSession
from jobctl.jobspec.launcher.etcd.session_messages import NodeCourse, SessionReport
from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.peers.lease import UNSUPERVISED
from jobctl.jobspec.launcher.recovery import autonomy
from jobctl.jobspec.launcher.recovery.autonomy import SETTLE, SETTLE_BEFORE_END
from jobctl.jobspec.launcher.report.progress import Headway
from jobctl.jobspec.launcher.restart_policy import FIRST_DELAY, LONGEST_DELAY
from jobctl.jobspec.launcher.system.processes import EXIT_MOVES, EXIT_TAKEN
from tests.tools.etcd import b64

from .failed_nodes import LAUNCH, ORDER, failed, order

EARLIER = {**failed().failure.to_json(), "generation": 1, "rank": 0, "exit_code": 7}


def test_restarts_are_used_up_at_their_number() -> None:
    assert failed().final(order(EARLIER, restarts=2)) is None
    assert failed().final(order(EARLIER, restarts=1)) == "the restarts of `recovery.max_restarts` are used up"


@pytest.mark.parametrize(
    ("how", "alone", "why"),
    [
        ({"kind": "setup"}, {}, "a failed `setup` is not retried"),
        ({"kind": "start"}, {}, "what cannot be started is not retried"),
        ({"kind": "exhausted"}, {}, "the restarts of `recovery.max_restarts` are used up"),
        ({"kind": "start"}, {"rules": [{"log": None, "exit": 1, "do": "restart"}]}, None),
        ({}, {"rules": [{"log": None, "exit": 1, "do": "fail", "hint": "add memory"}]}, "add memory"),
        ({}, {"rules": [{"log": None, "exit": 1, "do": "fail"}]}, "a rule says not to retry here"),
        ({}, {"rules": [{"log": "of luck$", "exit": None, "do": "fail"}]}, "a rule says not to retry here"),
        ({}, {"rules": [{"log": "of luck$", "exit": None, "do": "exclude_host"}]}, None),
        ({}, {"rules": [{"log": "of luck$", "exit": 2, "do": "fail"}]}, None),
        ({}, {"rules": [{"log": "(what no Python reads", "exit": None, "do": "fail"}]}, None),
        ({}, {"rules": [{"log": None, "exit": 1, "do": "restart"}]}, None),
    ],
)
def test_what_is_not_retried(how: dict[str, Any], alone: dict[str, Any], why: str | None) -> None:
    assert failed(**how).final(order(**alone)) == why


@pytest.mark.parametrize(
    ("now", "repeated"),
    [
        ({}, True),
        ({"exit_code": 2}, False),
        ({"rank": 0}, False),
        ({"progress": 5}, False),
        ({"started_at": 45.0}, False),
    ],
)
def test_the_same_again_before_any_progress_is_a_bug(now: dict[str, Any], repeated: bool) -> None:
    why = "failed the same way again, before any progress: a bug, not a fault" if repeated else None
    assert failed(**now).final(order(failed().failure.to_json())) == why


def test_only_failures_within_the_window_count() -> None:
    """Those of launchers, and those because of which `restarts` is less by as much."""
    old, new = {**EARLIER, "at": 40.0}, {**EARLIER, "at": 60.0}
    now = failed()  # at 105 s
    assert now.final(order(old, new, restarts=2, window=50.0)) is None
    assert now.final(order(new, new, restarts=2, window=50.0)) == "the restarts of `recovery.max_restarts` are used up"
    assert now.final(order(new, new, restarts=2, window=50.0, spent=[54.0])) is None
    assert now.final(order(new, new, restarts=2, window=50.0, spent=[56.0])) is not None


class Keeper:
    """Launchers that all hear each other, and hold what was proposed."""

    missing = None
    failed_first = failed = None
    own = Headway

    def __init__(self, headway: Headway | None = None) -> None:
        self.headway = headway or Headway()
        self.proposed: list[tuple[Order, str | None]] = []
        self.said: list[str] = []
        self.gone: dict[int, float] = {}

    def has_lease(self, now: float) -> bool:
        return True

    def unheard_since(self, at: float) -> list[int]:
        return []

    def propose(self, order: Order, after: str | None = None) -> None:
        self.proposed.append((order, after))

    def say_once(self, text: str) -> None:
        self.said.append(text)


def decided(
    monkeypatch: pytest.MonkeyPatch, given: Order, supervised: Callable[[float], bool] | None, **how: Any
) -> Keeper:
    """What a launcher does whose node has failed, within the seconds until failures have settled."""
    keeper, node = Keeper(), failed(**how)
    now = [100.0]
    monkeypatch.setattr(autonomy, "boot_time", lambda: now[0])
    report: Any = SimpleNamespace(state="failed", fields={})
    mine = autonomy.Autonomy(LAUNCH, report, keeper, supervised)
    mine.failed = node
    node.since = now[0]
    mine.go_on(given)
    assert not keeper.proposed or supervised is None  # the failure that is the cause of others may come yet
    now[0] += SETTLE
    mine.go_on(given)
    assert not [end for end, _ in keeper.proposed if end.why] or supervised is None  # nor has everybody been heard
    now[0] += SETTLE_BEFORE_END - SETTLE
    mine.go_on(given)
    mine.go_on(given)
    return keeper


def test_launchers_end_a_job_that_restarts_cannot_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay: an engine would start again what ends. The order says why, and has the failure, as any later one."""
    keeper = decided(monkeypatch, order(EARLIER, restarts=1), lambda now: False)
    [(end, after)] = keeper.proposed
    why = "node 1: rank 1 exited with code 1; the restarts of `recovery.max_restarts` are used up"
    assert (end.command, end.grace, end.number, end.id, end.why, after) == ("stop", 0.0, 2, "job-2", why, "job-2")
    assert end.autonomy is not None
    assert [one.rank for one in end.autonomy.failures] == [0, 1]
    assert end.age > order(EARLIER, restarts=1).age
    assert Order.from_json(end.to_json()) == end


def test_beside_a_supervisor_they_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert decided(monkeypatch, order(EARLIER, restarts=1), lambda now: True).proposed == []


def test_a_node_that_a_rule_has_leave_its_host_waits_for_a_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    excluded = order(rules=[{"log": None, "exit": 1, "do": "exclude_host"}])
    keeper = decided(monkeypatch, excluded, lambda now: False)
    assert (keeper.proposed, set(keeper.said)) == ([], {"a rule has it leave its host; waits for the supervisor"})


def test_a_node_that_a_rule_has_leave_its_host_begins_again_there_where_there_never_is_a_supervisor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its failure counts, and once no restarts are left, that is why the job ends."""
    rules = [{"log": None, "exit": 1, "do": "exclude_host"}]
    (made, after), *_ = decided(monkeypatch, order(rules=rules), None).proposed
    assert (made.command, made.number, made.why, after) == ("run", 3, None, "job-2")
    assert made.autonomy is not None
    assert [one.exit_code for one in made.autonomy.failures] == [1]
    (end, _), *_ = decided(monkeypatch, order(EARLIER, rules=rules, restarts=1), None).proposed
    assert (end.command, end.why) == (
        *("finish", "rank 1 exited with code 1: the restarts of `recovery.max_restarts` are used up"),
    )


def test_launchers_of_a_cluster_end_no_job_before_all_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them may be dead, and not be missed yet: then this failure is a consequence."""
    keeper, now = Keeper(), [100.0]
    monkeypatch.setattr(autonomy, "boot_time", lambda: now[0])
    mine = autonomy.Autonomy(LAUNCH, SimpleNamespace(state="failed", fields={}), keeper, None)  # type: ignore[arg-type]
    mine.failed = failed()
    mine.failed.since = now[0]
    keeper.unheard_since = lambda at: [0]  # type: ignore[method-assign]
    given = order(failed().failure.to_json())
    now[0] += SETTLE_BEFORE_END
    mine.go_on(given)
    assert keeper.proposed == []
    keeper.unheard_since = lambda at: []  # type: ignore[method-assign]
    mine.go_on(given)
    [(made, _)] = keeper.proposed
    assert made.command == "finish"


@pytest.mark.parametrize(("code", "ends_with"), [(3, 3), (EXIT_TAKEN, 1), (EXIT_MOVES, 1), (137, 1), (None, 1)])
def test_the_end_of_a_job_never_looks_like_a_launcher_that_is_to_start_again(code: int | None, ends_with: int) -> None:
    """A script may end with any code: also with that of a launcher which finds another one."""
    end = failed(exit_code=code).end(order(), "a bug")
    assert (end.command, end.exit_code) == ("finish", ends_with)


def test_a_failed_setup_is_not_retried() -> None:
    assert failed(kind="setup").final(order()) == "a failed `setup` is not retried"


def test_what_is_killed_from_outside_is_no_bug() -> None:
    killed = failed(exit_code=137, kind="signal")
    assert killed.final(order(killed.failure.to_json())) is None


def test_the_pause_grows_without_progress() -> None:
    assert [failed().delay(order(*[EARLIER] * count)) for count in (0, 1, 2, 3, 99)] == [
        SETTLE,
        FIRST_DELAY,
        2 * FIRST_DELAY,
        4 * FIRST_DELAY,
        LONGEST_DELAY,
    ]


@pytest.mark.parametrize(
    ("headway", "progress", "begins"),
    [(Headway(), None, FIRST_DELAY), (Headway(40, 5.0), 40, SETTLE), (Headway(30, 5.0), 30, FIRST_DELAY)],
    ids=["nobody counts", "further", "the same step"],
)
def test_steps_that_others_have_counted_are_progress(
    monkeypatch: pytest.MonkeyPatch, headway: Headway, progress: int | None, begins: float
) -> None:
    """A launcher that was started again knows of none; those of the other nodes say so before the next generation begins."""
    keeper, now = Keeper(), [100.0]
    monkeypatch.setattr(autonomy, "boot_time", lambda: now[0])
    mine = autonomy.Autonomy(LAUNCH, SimpleNamespace(state="failed", fields={}), keeper, None)  # type: ignore[arg-type]
    mine.failed = failed(kind="launcher", rank=None, exit_code=None, started_at=None)
    mine.failed.since = now[0]
    given = order({**EARLIER, "progress": 30})
    mine.go_on(given)
    keeper.headway = headway
    now[0] += begins - 0.01
    mine.go_on(given)
    assert keeper.proposed == []
    now[0] += 0.01
    mine.go_on(given)
    [(made, _)] = keeper.proposed
    assert made.autonomy is not None
    assert made.autonomy.failures[-1].progress == progress


def test_a_node_that_counts_has_failed_at_its_own_step() -> None:
    """Others may be ahead, and at the same step by chance as when it failed before."""
    now, earlier = failed(progress=2), {**failed().failure.to_json(), "progress": 3}
    now.learn(Headway(3, 9.0))
    assert (now.failure.progress, now.failure.ran, now.final(order(earlier))) == (2, 9.0, None)


def test_a_bug_of_a_node_that_counts_no_steps_is_none_after_steps_of_another_one() -> None:
    earlier = {**failed().failure.to_json(), "progress": 30}
    for step, bug in ((30, True), (31, False)):
        now = failed()
        now.learn(Headway(step, 5.0))
        assert (now.final(order(earlier)) is not None) == bug


def test_nothing_is_begun_beside_a_supervisor_without_a_lease_or_without_a_node() -> None:
    def waits(**how: Any) -> str | None:
        said = {"supervised": False, "has": True, "gone": set(), **how}
        gone = dict.fromkeys(said["gone"], 5.0)
        missing = LeaseSession.missing.fget(SimpleNamespace(gone=gone))  # type: ignore[attr-defined]
        session: Any = SimpleNamespace(has_lease=lambda now: said["has"], missing=missing, failed_first=None)
        return failed().waits(order(), session, said["supervised"], 0.0)

    assert waits() is None
    assert waits(supervised=True) == "leaves it to the supervisor"
    assert waits(has=False) == "has no lease, and so begins nothing"
    assert waits(gone={2, 0}) == "waits for node 0, 2, which has no lease"


def test_members_are_in_the_order_of_their_ranks() -> None:
    members = [
        {
            "node": node,
            "rank": rank,
            "roles": [role],
            "host": "a",
            "address": f"10.0.0.{node}",
            "nproc": 1,
            "ports": [7000 + node],
        }
        for node, rank, role in ((0, 2, "server"), (1, 0, "server"), (2, 1, "trainer"))
    ]
    assert Order.from_json({**ORDER, "members": members}).endpoints("server") == ["10.0.0.1:7001", "10.0.0.0:7000"]


def test_a_supervisor_sees_to_it_for_as_long_as_its_answers_are_fresh() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        lease = EtcdLease(LeaseSession(ours))
        lease.began = 100.0
        assert (lease.supervised(100.0 + UNSUPERVISED), lease.supervised(100.1 + UNSUPERVISED)) == (True, False)
        lease.supervisor = 200.0
        assert (lease.supervised(200.0 + UNSUPERVISED), lease.supervised(200.1 + UNSUPERVISED)) == (True, False)


def test_a_launcher_counts_no_lease_of_the_node_that_its_session_kept_before() -> None:
    """What was reported before the session has heard of another node may come after that."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        session = LeaseSession(ours)
        session.be(2)
        session.hear(SessionReport(100.0, "g1", {}, 12.0, node=1))
        assert not session.has_lease(100.0)
        session.hear(SessionReport(100.0, "g1", {}, 12.0, node=2))
        assert session.has_lease(100.0)


def test_with_etcd_a_job_is_over_once_all_nodes_have_ended_well_for_a_while() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        session = LeaseSession(ours)
        one = {"roles": ["trainer"], "host": "a", "address": "10.0.0.1", "nproc": 1}
        members = [{**one, "node": node, "rank": node} for node in (0, 1)]
        given = Order.from_json({**ORDER, "members": members})
        for ended, over in ((None, False), ("job-1", False), ("job-2", True)):
            session.hear(SessionReport(100.0, "job-2", {}, 12.0, order=given, ended=ended))
            assert (session.all_done(100.0), session.all_done(100.0 + ALL_TOLD)) == (False, over)
        session.hear(SessionReport(100.0, "job-3", {}, 12.0))
        assert not session.all_done(200.0)


def test_all_nodes_have_ended_well_once_all_say_so_in_the_generation_that_is_there() -> None:
    """etcd keeps that when their keys are gone with their launchers."""
    one = {"roles": ["trainer"], "host": "a", "address": "10.0.0.1", "nproc": 1}
    given = {**ORDER, "members": [{**one, "node": node, "rank": node} for node in (0, 1)]}

    def keys(*courses: NodeCourse, **more: Any) -> JobKeys:
        nodes = {f"nodes/{node}": {"course": course.to_json()} for node, course in enumerate(courses)}
        values = {"generation": given, **nodes, **more}
        found = [{"key": b64(f"/p/{name}"), "value": b64(json.dumps(value))} for name, value in values.items()]
        return JobKeys("/p", [{**item, "mod_revision": "1"} for item in found])

    ended, before = NodeCourse("job-2", None, Headway(9), True), NodeCourse("job-1", None, Headway(9), True)
    runs = NodeCourse("job-2", None, Headway(8))
    assert [keys(ended, *other).are_done for other in ((), (runs,), (before,), (ended,))] == [False] * 3 + [True]
    assert [keys(over={"generation": name}).is_over for name in ("job-1", "job-2")] == [False, True]
    given["command"] = "stop"  # somebody has ended it
    assert not keys(over={"generation": "job-2"}).is_over
