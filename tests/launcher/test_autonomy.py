"""What launchers decide by themselves about a failure, and in which order members are: without any process."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.launcher.autonomy import SETTLE, FailedNode
from jobctl.jobspec.launcher.failure import Failure
from jobctl.jobspec.launcher.lease import UNSUPERVISED
from jobctl.jobspec.launcher.order import Order
from jobctl.jobspec.launcher.restart_policy import FIRST_DELAY, LONGEST_DELAY
from jobctl.jobspec.launcher.session_lease import EtcdLease, LeaseSession
from tests.tools.launches import launch_of, report_of

LAUNCH = launch_of(node=1)
ORDER: dict[str, Any] = {
    "job": "job",
    "run_id": "job-1",
    "number": 2,
    "command": "run",
    "grace": 5.0,
    "members": [],
    "rendezvous": {"address": "127.0.0.1", "port": 1, "id": "job-2"},
}


def failed(**how: Any) -> FailedNode:
    """A node that has failed 5 s after its start, at no step, with code 1."""
    failure = {
        "at": 105.0,
        "rank": 1,
        "local_rank": 0,
        "exit_code": 1,
        "kind": "exit",
        "log": "workerlog.1",
        "tail": ["out of luck"],
    }
    more = {"started_at": 100.0, **{key: how.pop(key) for key in ("progress", "started_at") if key in how}}
    found = Failure.from_json({**failure, **how})
    return FailedNode(report_of(generation=2, reason="rank 1 exited with code 1", failure=found, **more), LAUNCH, 0.0)


def order(*failures: dict[str, Any], **alone: Any) -> Order:
    known = {"restarts": 3, "rules": [], "ports": [20000, 29999], "failures": list(failures), **alone}
    return Order.from_json({**ORDER, "alone": known})


EARLIER = {**failed().failure.to_json(), "generation": 1, "rank": 0, "exit_code": 7}


def test_restarts_are_used_up_at_their_number() -> None:
    assert failed().final(order(EARLIER, restarts=2)) is None
    assert failed().final(order(EARLIER, restarts=1)) == "the restarts of `recovery.max_restarts` are used up"


@pytest.mark.parametrize(
    ("how", "alone", "why"),
    [
        ({"kind": "setup"}, {}, "what cannot be started is not retried"),
        ({}, {"rules": [{"log": None, "exit": 1, "do": "fail"}]}, "a rule says not to retry here"),
        ({}, {"rules": [{"log": "of luck$", "exit": None, "do": "fail"}]}, "a rule says not to retry here"),
        ({}, {"rules": [{"log": "of luck$", "exit": None, "do": "exclude_host"}]}, "a rule says not to retry here"),
        ({}, {"rules": [{"log": "of luck$", "exit": 2, "do": "fail"}]}, None),
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
    why = "failed the same way again, before any progress" if repeated else None
    assert failed(**now).final(order(failed().failure.to_json())) == why


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


def test_nothing_is_begun_beside_a_supervisor_without_a_lease_or_without_a_node() -> None:
    def waits(**how: Any) -> str | None:
        said = {"supervised": False, "has": True, "gone": set(), **how}
        gone = dict.fromkeys(said["gone"], 5.0)
        missing = LeaseSession.missing.fget(SimpleNamespace(gone=gone))  # type: ignore[attr-defined]
        session: Any = SimpleNamespace(has_lease=lambda now: said["has"], missing=missing)
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
        lease.term.began = 100.0
        assert (lease.supervised(100.0 + UNSUPERVISED), lease.supervised(100.1 + UNSUPERVISED)) == (True, False)
        lease.supervisor = 200.0
        assert (lease.supervised(200.0 + UNSUPERVISED), lease.supervised(200.1 + UNSUPERVISED)) == (True, False)
