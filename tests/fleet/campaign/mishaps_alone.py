"""What can happen to the job of a campaign while its controller is off: no command, and no supervisor that would help."""

from __future__ import annotations

import time

from tests.fleet.campaign.mishaps import Mishap, Mishaps
from tests.fleet.host import Host
from tests.tools.waiting import eventually


class MishapsAlone(Mishaps):
    """The same job, of which nobody outside its hosts can see anything. What tells of it lies on its hosts."""

    unwritable = "*/counter/node-*"  # launchers write the next generation there

    def kinds(self, *, etcd: bool) -> list[Mishap]:
        """Return all that launchers and engines get over by themselves."""
        return [
            self.process_killed,
            self.launcher_killed,
            self.container_killed,
            self.engine_restarted,
            self.power_cycled,
            self.host_lost,
            self.cable_out_for_a_moment,
            self.cable_out,
            self.rank_stands_still,
            self.two_at_once,
            self.during_a_hand_over,
            self.disk_full,
        ]

    def instant(self) -> list[Mishap]:
        """Return the faults that take no time themselves."""
        return [self.process_killed, self.launcher_killed, self.container_killed, self.blink]

    def failures(self) -> int:
        """A number that grows with each failure: it makes a generation, or has a launcher begin anew whose framework regroups."""
        if not self.regroups:
            return self.generation()
        return max((int(report["launcher"]["start_ticks"] or 0) for report in self.reports()), default=0)

    def has_made_a_step(self, node: int) -> bool:
        """Whether a node trains in this generation."""
        number = self.generation()
        return any(
            (one["node"], one["generation"]) == (node, number) and one["progress"] is not None for one in self.reports()
        )

    def container_killed(self, host: Host, node: int) -> None:
        """Kill its first process: an engine leaves a container stopped that `docker kill` has ended."""
        self.kill(
            int(host.docker("inspect", "--format", "{{.State.Pid}}", self.container(host, node), check=False) or 0)
        )

    def engine_restarted(self, host: Host, node: int) -> None:
        """End it in order: one that was killed takes it that somebody has stopped its containers, and leaves them so."""
        host.stop_engine()
        time.sleep(self.chance.uniform(0.0, 3.0))
        host.start_engine()
        host.wait_for_engine()

    def has_a_spare(self) -> bool:
        """Whether launchers can move a node: there is a spare, and most nodes have never moved."""
        terms = self.order().get("autonomy") or {}
        return bool(terms.get("spares")) and not terms.get("moved")

    def host_lost(self, host: Host, node: int) -> None:
        """Switch a host off. Without a spare its job waits for it."""
        number, moves = self.generation(), self.has_a_spare()
        host.power_off()
        if moves:
            eventually(lambda: self.moved_on(number))
            self.trains_on()
        else:
            time.sleep(self.chance.uniform(0.0, 3.0 * self.timeout))
        host.power_on()

    def cable_out(self, host: Host, node: int) -> None:
        """Cut a host off for longer than a lease."""
        number, moves = self.generation(), self.has_a_spare()
        host.pull_cable()
        if moves:
            eventually(lambda: self.moved_on(number))
        else:
            time.sleep(self.chance.uniform(self.timeout, 3.0 * self.timeout))
        host.plug_cable()
