"""What a launcher does about failures where no supervisor handles them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.autonomy import Autonomy
from jobctl.jobspec.launcher.failure import Failure, fenced
from jobctl.jobspec.launcher.processes import boot_time
from jobctl.jobspec.launcher.run import FAILED_GRACE

if TYPE_CHECKING:
    from typing import Callable, List, Optional

    from jobctl.jobspec.launcher.agent import Launcher
    from jobctl.jobspec.launcher.autonomy import OrderKeeper
    from jobctl.jobspec.launcher.order import Member, Order


class SelfRecovery:
    """Acts for a launcher on what launchers agree on. `supervised`: see Autonomy."""

    def __init__(self, launcher: Launcher, keeper: OrderKeeper, supervised: Optional[Callable[[float], bool]]) -> None:
        self.launcher = launcher
        self.autonomy = Autonomy(launcher.launch, launcher.report, keeper, supervised)

    def act(self) -> Optional[int]:
        """Do what is due; return an exit code when it is time to go."""
        launcher, report = self.launcher, self.launcher.report
        members = launcher.session.members if launcher.session is not None else None
        if members is not None and members.again and report.state in ("running", "succeeded"):
            self.fail_for_restarted(members.again)
        newest = launcher.orders.order
        self.autonomy.go_on(newest if newest is not None and report.is_of(newest) else None)
        return 0 if members is not None and report.state == "succeeded" and members.all_done else None

    def fail_for_restarted(self, members: List[int]) -> None:
        """End a generation that has lost `members`: their launchers were started again and do not remember it."""
        self.launcher.end_processes(FAILED_GRACE)
        nodes = ", ".join(map(str, members))
        failure = Failure("launcher", None, None, None, None, time.time())
        self.launcher.fail(failure, "the launcher of node %s was started again" % nodes)

    def go_on_in(self, order: Order, member: Member) -> None:
        """Begin a generation of launchers with the lease that there is. One that is over does not come back with it."""
        launcher = self.launcher
        if launcher.lease.generation == order.lease and launcher.lease.held(boot_time()):
            launcher.pending = order, member
            launcher.links.begin_generation()
            launcher.say(state="waiting", reason=None)
            return
        launcher.say(generation=order.number)
        if launcher.lease.generation == order.lease:
            launcher.fail(fenced(), launcher.lease.why_over())
        else:  # that lease was another launcher's
            launcher.fail(Failure("launcher", None, None, None, None, time.time()), "its launcher was started again")

    def explain(self, text: str) -> None:
        """Say in the report what a failed node waits for."""
        failed = self.autonomy.failed
        if failed is not None:
            self.launcher.say(reason="%s; %s" % (failed.failure.reason, text))
