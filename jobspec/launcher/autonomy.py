"""What launchers do about a failure by themselves, where no supervisor sees to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.processes import boot_time
from jobctl.jobspec.launcher.restart_policy import Failed

if TYPE_CHECKING:
    from typing import Optional

    from jobctl.jobspec.launcher.files import Json
    from jobctl.jobspec.launcher.pipe import Kept
    from jobctl.jobspec.launcher.report import Report


class Autonomy:
    """Has the next generation begun, or the job ended, after this node has failed."""

    def __init__(self, launch: Json, report: Report, kept: Kept) -> None:
        self.launch, self.report, self.kept = launch, report, kept
        self.failed: Optional[Failed] = None

    def go_on(self, order: Optional[Json]) -> None:
        """Do what is due now; `order`: that in which the node runs, None if it runs in no such one any more."""
        now, kept = boot_time(), self.kept
        if order is None or self.report.state not in ("failed", "fenced"):
            self.failed = None
            return
        if self.failed is None:
            self.failed = Failed(self.report.fields, self.launch, now)
        failed = self.failed
        waits = failed.waits(order, kept, now)
        final = None if waits else failed.final(order)
        if final and kept.gives_up:
            kept.propose(failed.end(order, final))
        elif waits or final:
            kept.say_once(waits or "%s; waits for the supervisor" % final)
        elif now - failed.since >= failed.delay(order) and not failed.waits_for_etcd(now):
            failed.proposed = now
            kept.propose(failed.successor(order), order["rendezvous"]["id"])
