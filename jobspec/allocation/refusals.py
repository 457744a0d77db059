"""Machines that answer, and cannot start the launcher of their node: the node moves, or is tried again, or the job fails.

Or a rule has a node leave its machine: it moves, or begins again there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, Optional, Set, Tuple

    from jobctl.jobspec.allocation.places import RunnerState
    from jobctl.jobspec.allocation.record import Record
    from jobctl.jobspec.allocation.size import JobSize
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 60.0  # seconds before a machine is tried again; doubled each time
# What engines, shells and the kernel say where another try says the same, as long as nobody changes job or machines.
_LASTING = re.compile(
    "no such file|not found|no such image|image not known|manifest unknown|unknown (shorthand )?(flag|option)"
    "|invalid (argument|option|value|reference)|unrecognized option|unresolvable CDI|can't cd|no such device",
    re.IGNORECASE,
)


class Refusals:
    """What is done about nodes whose machines cannot start them. `tries`: how often one is tried again in a row."""

    def __init__(self, size: JobSize, record: Record, tries: int) -> None:
        self.size, self.places, self.record, self.tries = size, size.places, record, tries
        self.counted: Set[Tuple[int, int]] = set()  # the nodes and turns that were judged
        self.count: Dict[int, int] = {}  # how often in a row each node could not be started
        self.again: Dict[int, float] = {}  # when those are tried again that can go nowhere else
        self.problem: Optional[str] = None  # why the job cannot go on

    def look(self, now: float) -> bool:
        """Have nodes move or begin again, and write down why; say whether the job cannot go on."""
        places = self.places
        for node in [node for node in places.at if places.said(node).get("begun")]:
            self.count.pop(node, None)
            places.at[node].refused = places.at[node].refusal = None
            places.at[node].excluded = False
        for node, words in sorted(places.refused(now).items()):
            turn = node, places.turns[node]
            if turn not in self.counted:
                self.counted.add(turn)
                host, told = places.at[node].host, self.judge(node, words, now)
                self.record.event("host-failed", told, node=node, host=host)
            elif now >= self.again.get(node, now) and self.problem is None:
                self.try_again(node, now)
        return self.problem is not None

    def judge(self, node: int, words: str, now: float) -> str:
        """Decide about a node that could not be started just now; return what has happened, and what is done."""
        places, runner = self.places, self.places.at[node]
        runner.refused, runner.refusal, runner.excluded = now, words, bool(places.said(node).get("excluded"))
        if runner.excluded:
            return self.exclude(node, now)
        count = self.count[node] = self.count.get(node, 0) + 1
        happened = "%s cannot start node %d: %s" % (runner.host, node, words)
        free = places.free(now, runner.slot)
        if self.is_hopeless(runner.slot):
            self.problem = "%s; nor can any other machine of the allocation" % happened
            return self.problem
        if self.size.without_lost(now) is not None:
            return happened
        if count > self.tries:
            self.problem = "%s; it was tried %d times (`recovery.max_restarts`)" % (happened, count)
            return self.problem
        if free:
            places.put(node, free[0])
            return "%s; the node moves to %s" % (happened, free[0].host)
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (count - 1))
        self.again[node] = now + pause
        return "%s; no other machine is free, so it is tried again in %g s" % (happened, pause)

    def exclude(self, node: int, now: float) -> str:
        """Have a node leave its machine, if another one is free, or the job can do without it; return what is done."""
        there, happened = self.places.at[node], "a rule excludes %s" % self.places.at[node].host
        if self.size.without_lost(now) is not None:
            return happened
        self.try_again(node, now)
        here = self.places.at[node]
        if here is there:
            return "%s, and no other machine is free: node %d begins again there" % (happened, node)
        return "%s: node %d moves to %s" % (happened, node, here.host)

    def is_hopeless(self, slot: int) -> bool:
        """Say whether all machines have refused, for reasons that another try does not change."""
        said = [runner.refusal for runner in self.places.runners.values() if runner.slot == slot]
        return all(words is not None and _LASTING.search(words) for words in said)

    def try_again(self, node: int, now: float) -> None:
        """Try a node again: of the machines that it may have, on the one that has refused longest ago."""
        self.again.pop(node, None)
        there = self.places.at[node]
        able = [there, *self.places.free(now, there.slot, refusing=True)]
        self.places.put(node, min(able, key=_refused))

    def forget(self) -> None:
        """Begin to count again: a person wants the job to begin again."""
        self.count, self.again = {}, {}


def _refused(runner: RunnerState) -> float:
    return -1.0 if runner.refused is None else runner.refused
