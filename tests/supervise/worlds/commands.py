"""What commands do in a simulated world (world.py): `restart`, `stop`, and `up` of a job that is another one than before.

Any of them may be killed in the middle.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from jobctl.jobspec.deploy.apply.reconcile import half_is_silent
from jobctl.jobspec.deploy.model.control import Control, JobResult, newest

from .supervisors import Supervisor, state_of
from .world import STEPS_ASIDE, Host, Sim


class Command(Supervisor):
    """What `restart`, `stop` and `up` do from any machine, also where another one supervises the job: at once, on the hosts that answer.

    Its clock is ahead of the others' by `skew` seconds. Something kills it once it has told so many hosts (`killed_after`).
    """

    def __init__(self, sim: Sim, machine: str, skew: float = 0.0, killed_after: int | None = None) -> None:
        super().__init__(sim, machine)
        self.skew, self.left = skew, killed_after
        self.reached = {name: sim.is_whole(machine, name) and host.acts for name, host in sim.hosts.items()}
        reached = [host for name, host in sim.hosts.items() if self.reached[name]]
        self.control = newest(Control(g, host.ledger) for host in reached for g in host.generations())

    def restart(self) -> bool:
        """Begin a generation with a budget of its own; say whether enough nodes are there."""
        if self.standing.overruled_by(self.control.generation) is not None:
            return False
        return self.up()

    def change(self, homes: dict[int, str]) -> bool:
        """Make the job one of other nodes by `up`, as its machine alone knows; leave a supervisor there."""
        state = state_of(self.machine)
        before = self.sim.plans.get(state)
        self.sim.plans[state] = dict(homes)
        if self.up():
            self.sim.heirs[self.machine] = self.sim.now + STEPS_ASIDE
            return True
        self.sim.plans[state] = before if before is not None else dict(self.control.placement)
        return False

    def up(self) -> bool:
        """Begin a generation of what the job is on its machine; say whether enough nodes are there."""
        before, begun = self.control.generation, self.sim.restarts
        if before is None or half_is_silent(self.observe(before)):
            return False
        homes = {node: self.control.placement.get(node, home) for node, home in self.plan.items()}
        away = frozenset(node for node, home in homes.items() if not self.reached[home])
        ledger = self.control.ledger.renewed(self.sim.now + self.skew, None, None)
        self.begin(homes, away, ledger, "a command")
        return self.sim.restarts > begun

    def stop(self) -> bool:
        """End all processes; say whether somebody has heard that."""
        if self.control.generation is None:
            return False
        ledger = replace(self.control.ledger, result=JobResult("stopped", "stopped by the user", self.sim.now))
        self.control = Control(self.control.generation.told("stop", 0.0), ledger)
        self.hand_over()
        return True

    def begin_change(self, replaces: Collection[str] = ()) -> bool:
        """Do the first half of a change: stop what runs, and replace launchers of hosts. Say whether it came to that."""
        before = self.control.generation
        if before is None or self.control.ordered_to_end or half_is_silent(self.observe(before)):
            return False
        self.control = Control(before.told("stop", 0.0, for_change=True), self.control.ledger)
        self.hand_over()
        for name, host in self.sim.hosts.items():
            here = {launcher.node for launcher in host.launchers}
            if self.reached[name] and name in replaces:
                host.remove(here)
                host.launchers += [self.sim.launcher(host, node) for node in sorted(here)]
        return True

    def send(self, host: Host) -> None:
        """Give ledger and generation to a host, unless something has killed this command by now."""
        if self.left is not None and self.left <= 0:
            return
        self.left = None if self.left is None else self.left - 1
        super().send(host)
