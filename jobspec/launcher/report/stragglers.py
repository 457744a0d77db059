"""Which processes need longer than the others in each step, so that all wait for them. Pure, and one for all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.records import record

if TYPE_CHECKING:
    from typing import List, Mapping
SLOWER = 1.2  # times the median, from which on a process is named
FEWEST = 2  # processes of a role, of which one can be slower than usual


@record
class SlowProcess:
    """The slowest process of a node: its rank, its own seconds in each step at least, and the median of its role."""

    node: int
    rank: int
    seconds: float
    median: float


def slow_processes(told: Mapping[int, Mapping[int, float]]) -> List[SlowProcess]:
    """Return the nodes of one role that make the others wait, at most one process of each.

    `told` has for each node, by its number, how many seconds its processes need by themselves, by their ranks; nothing
    is known until all have told some: the median of the first ones would be another.
    """
    every = sorted(seconds for paces in told.values() for seconds in paces.values())
    if len(every) < FEWEST or not all(told.values()):
        return []
    usual = (every[(len(every) - 1) // 2] + every[len(every) // 2]) / 2
    found = []
    for node, paces in told.items():
        seconds, rank = max((seconds, rank) for rank, seconds in paces.items())
        if usual > 0 and seconds > SLOWER * usual:
            found.append(SlowProcess(node, rank, seconds, usual))
    return found
