"""Failures for tests: what a test does not name is that of any process that ends badly, or of any host that is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jobctl.jobspec.plan.recovery import Failure

PROCESS = Failure(
    generation=1,
    at=5.0,
    node=1,
    host="h1",
    rank=1,
    exit_code=1,
    kind="exit",
    progress=7,
    ran=60.0,
)
WHOLE_NODE = replace(PROCESS, rank=None, exit_code=None, progress=None, ran=0.0)


def failed(**changes: Any) -> Failure:
    """Return the failure of rank 1 on node 1, which ended with code 1 at step 7 after a minute, with these changes."""
    return replace(PROCESS, **changes)


def lost(**changes: Any) -> Failure:
    """Return the loss of a host, h1 with node 1, with these changes."""
    made = replace(WHOLE_NODE, **{"kind": "host", **changes})
    return replace(made, reason=f"{made.host} is lost") if made.reason is None else made


def dead_launcher(**changes: Any) -> Failure:
    """Return the failure of node 1 on h1 whose launcher is gone, with these changes."""
    return replace(WHOLE_NODE, **{"kind": "launcher", **changes})
