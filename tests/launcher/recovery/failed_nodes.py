"""A node that has failed, and orders that tell of failures before that: builders that name only what differs."""

from __future__ import annotations

from typing import Any

from jobctl.jobspec.launcher.failure import Failure
from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.recovery.autonomy import FailedNode
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
    return Order.from_json({**ORDER, "autonomy": known})
