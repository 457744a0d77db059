"""Jobs as a supervisor observes them: builders that name only what differs."""

from __future__ import annotations

from dataclasses import replace

from jobctl.jobspec.deploy.model.control import Control, Ledger
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode
from jobctl.jobspec.plan.generation import Generation, Member, RendezvousPoint
from jobctl.jobspec.plan.recovery import Failure, Recovery
from tests.tools.failures import failed

NOW = 1000.0
POLICY = Recovery(
    max_restarts=3,
    window=None,
    on_host_loss="wait",
    host_timeout=30.0,
    wait_timeout=None,
    max_duration=None,
    rules=(),
)


def failure(**changes: object) -> Failure:
    """A process of rank 1 that ended with code 7 at step 50 of generation 1."""
    said = {"log": "workerlog.0", "tail": ("boom",)}
    return failed(**{"at": 990.0, "host": "localhost", "exit_code": 7, "progress": 50, "ran": 20.0, **said, **changes})


def node(index: int, state: str = "running", **changes: object) -> ObservedNode:
    """A node of generation 1 whose launcher lives."""
    base = ObservedNode(index, "trainer", "localhost", "running", launcher=100 + index, generation=1, progress=50)
    return replace(base, state=state, **changes)  # type: ignore[arg-type]


def job(*nodes: ObservedNode, number: int = 1, command: str = "run", ledger: Ledger | None = None) -> Observed:
    """A job of these nodes, all of them members of generation `number`."""
    members = tuple(Member(n.node, n.node, ("trainer",), n.host, f"127.0.0.{n.node + 2}", 1) for n in nodes)
    meeting = RendezvousPoint("127.0.0.2", 20000, f"job-{number}")
    generation = Generation("job", "job-1", number, command, 0.0, members, meeting, None)  # type: ignore[arg-type]
    return Observed(Control(generation, ledger or Ledger(900.0)), nodes, supervised=True)
