"""Which processes need longer than the others in each step, so that all wait for them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from jobctl.jobspec.deploy.model.observed import ObservedNode

SLOWER = 1.2  # times the median, from which on a process is named
FEWEST = 2  # processes of a role, of which one can be slower than usual


@dataclass(frozen=True, slots=True)
class Straggler:
    """The slowest process of a node: its rank, its own seconds in each step at least, and the median of its role."""

    node: int
    rank: int
    host: str
    seconds: float
    median: float

    def __str__(self) -> str:
        share = f"{self.seconds / self.median:.1f} times the median"
        return f"rank {self.rank} needs {self.seconds:.3g} s for its part of each step, {share} ({self.median:.3g} s)"


def stragglers(nodes: Sequence[ObservedNode]) -> list[Straggler]:
    """Return the nodes that make the others wait, at most one process of each.

    A process tells how long it needs by itself; the launcher passes on the shortest of the last steps. So a process that
    is named was slower in each of them. Times with the wait for others would be the same for all.
    """
    found = []
    for role in dict.fromkeys(node.role for node in nodes):
        mine = [node for node in nodes if node.role == role and node.state == "running"]
        told = [_told(node) for node in mine]
        every = [seconds for known in told for seconds, _ in known]
        if len(every) < FEWEST or not all(told):
            continue  # the median of the first nodes that tell would be another
        usual = median(every)
        if usual <= 0:
            continue  # no launcher says so, but anything in a container can write reports
        for node, known in zip(mine, told, strict=True):
            seconds, rank = max(known)
            if seconds > SLOWER * usual:
                found.append(Straggler(node.node, rank, node.host, seconds, usual))
    return found


def _told(node: ObservedNode) -> list[tuple[float, int]]:
    """Return own seconds and rank of the processes of a node that tell them."""
    return [(process.own_seconds, process.rank) for process in node.processes if process.own_seconds is not None]
