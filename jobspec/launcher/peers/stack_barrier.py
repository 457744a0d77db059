"""All nodes of a job that hangs write their stacks before any of them ends its processes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.peers.messages import StacksMessage
from jobctl.jobspec.launcher.run.stacks import Stacks

if TYPE_CHECKING:
    from jobctl.jobspec.launcher.node.agent import Launcher
    from jobctl.jobspec.launcher.run.run import Run
BARRIER = 10.0  # seconds that the launchers of a job that hangs wait for each other's stacks
UNANSWERED = 1.0  # seconds after which they do not wait for one that has not answered at all


class StackBarrier:
    """A barrier: all nodes of a job that hangs write the stacks of their processes before any of them ends its own.

    The launcher that has detected the hang asks the others, and they join. Each reports its level: HELD when the
    processes that die of writing their stacks are stopped (SIGSTOP), WRITTEN when all stacks are in its report. Nobody
    waits for a node whose processes make progress, or that does not answer.
    """

    BEGUN, HELD, WRITTEN = 1, 2, 3
    REPEAT = 0.25  # seconds

    def __init__(self, launcher: Launcher, run: Run) -> None:
        self.launcher, self.run, self.links = launcher, run, launcher.links
        self.limit = min(run.hang.limit(), run.hang.told)
        self.began = time.monotonic()
        members = run.order.of_role("trainer")
        self.others = {m.node for m in members if m.node in launcher.links.peers}

    def hold(self) -> None:
        """Write the stacks of this node, and wait for those of the others; the processes end afterwards."""
        self.reach(self.BEGUN)
        stacks = Stacks(self.run, self.launcher.pause)
        stacks.look()
        if not self.launcher.goes_on_alone:
            stacks.freeze()
        self.reach(self.HELD)
        self.wait_for(self.HELD)
        if self.launcher.goes_on_alone:
            stacks.freeze()
        stacks.abort()
        self.run.look()
        self.launcher.say(processes=self.run.processes, stacks_written=True)
        self.reach(self.WRITTEN)
        self.wait_for(self.WRITTEN)

    def show(self) -> None:
        """Write the stacks of this node, whose processes go on."""
        self.links.level = self.BEGUN
        Stacks(self.run, self.launcher.pause).look()
        self.run.look()
        self.launcher.say(processes=self.run.processes, stacks_written=True)
        self.reach(self.WRITTEN)
        self.links.level, self.links.shown = 0, time.monotonic()

    def reach(self, level: int) -> None:
        """Tell all others how far this node is."""
        self.links.level = level
        self.links.say_stacks(self.others, StacksMessage(level, self.limit, asks=level == self.BEGUN))

    def wait_for(self, level: int) -> None:
        """Return when all others are as far, or cannot be waited for."""
        asked = 0.0
        while self.launcher.signal is None:
            now = time.monotonic()
            late = {node for node in self.others if self.links.hung.get(node, 0) < level}
            if now - self.began > UNANSWERED:
                late &= set(self.links.hung)
            if not late or now - self.began > BARRIER:
                return
            if now - asked > self.REPEAT:
                asked = now
                self.links.say_stacks(late, StacksMessage(self.links.level, self.limit, asks=True))
            if not self.launcher.pause(0.01):
                return
