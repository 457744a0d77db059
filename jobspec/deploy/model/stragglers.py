"""Which processes need longer than the others in each step, so that all wait for them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from jobctl.jobspec.deploy.model.observed import ObservedNode
from jobctl.jobspec.launcher.report.stragglers import slow_processes
from jobctl.jobspec.launcher.telling.words import slowness
from jobctl.jobspec.records import dataclass


@dataclass(frozen=True, slots=True)
class Straggler:
    """The slowest process of a node: its rank, its own seconds in each step at least, and the median of its role."""

    node: int
    rank: int
    host: str
    seconds: float
    median: float

    def __str__(self) -> str:
        return slowness(self.rank, self.seconds, self.median)


def stragglers(nodes: Sequence[ObservedNode]) -> list[Straggler]:
    """Return the nodes that make the others wait, at most one process of each.

    A process tells how long it needs by itself; the launcher passes on the shortest of the last steps. So a process that
    is named was slower in each of them. Times with the wait for others would be the same for all.
    """
    found = []
    for role in dict.fromkeys(node.role for node in nodes):
        mine = {node.node: node for node in nodes if node.role == role and node.state == "running"}
        slow = slow_processes({number: _told(node) for number, node in mine.items()})
        found += [Straggler(one.node, one.rank, mine[one.node].host, one.seconds, one.median) for one in slow]
    return found


def _told(node: ObservedNode) -> dict[int, float]:
    """Return own seconds by rank, of the processes of a node that tell them."""
    return {process.rank: process.own_seconds for process in node.processes if process.own_seconds is not None}
