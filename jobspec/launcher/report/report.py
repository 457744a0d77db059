"""The file in which a launcher reports its node."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.records import changed
from jobctl.jobspec.launcher.report.node_report import DECLARED_DEAD, ENDED, LauncherProcess, NodeReport
from jobctl.jobspec.launcher.report.progress import Headway
from jobctl.jobspec.launcher.system.files import is_removed, read_json, write_json
from jobctl.jobspec.launcher.system.processes import boot_time, start_ticks

if TYPE_CHECKING:
    from typing import List, Optional, Tuple, Unpack

    from jobctl.jobspec.launcher.order.launch import Launch
    from jobctl.jobspec.launcher.order.order import Order
    from jobctl.jobspec.launcher.report.node_report import ReportChanges, StandbyState
    from jobctl.jobspec.launcher.system.files import Json

WRITTEN_AGAIN = 2.0  # seconds after which a report that could not be written is written again
LAST_STATE = "last-state.json"
STARTED_AGAIN = "its launcher was started again"
# Last states of a launcher whose processes have ended with it, or with its engine.
HAVE_RUN = ("setup", "running", "stopped")


def last_report(folder: str) -> Json:
    """Return what the last launcher in this folder has reported: its last change of state if the report itself is damaged."""
    path = os.path.join(folder, "report.json")
    last = read_json(path)
    if last is None and os.path.lexists(path):
        last = read_json(os.path.join(folder, LAST_STATE))
    return last or {}


class Report:
    """The report of one launcher: it replaces that of the launcher before, and goes on from its generation.

    A launcher that its engine has started again keeps how the generation ended, if it had. A deployer that starts one
    says so first, and wants the node to begin again.

    A power cut may leave a file empty that was replaced in the last half minute, as on XFS, and a report is replaced with
    each step. So its last change of state is in another file, too, which is on the disk by then: a launcher that knew
    of no order would begin one that all others have left.
    """

    def __init__(self, launch: Launch, folder: str, guard: int, port: Optional[int], standby: StandbyState) -> None:
        self.path, self.dead = os.path.join(folder, "report.json"), os.path.join(folder, DECLARED_DEAD)
        self.last_state = os.path.join(folder, LAST_STATE)
        self.since = boot_time()  # when the state last changed
        self.unwritten: Optional[float] = None  # when it could not be written last, None where it could
        last = last_report(folder)
        self.fields = NodeReport(
            node=launch.node,
            role=launch.role,
            launcher=LauncherProcess(guard, start_ticks(guard)),
            standby=standby,
            generation=int(last.get("generation") or 0),
            epoch=float(last.get("epoch") or 0.0),
            artefact=os.environ.get("JOBCTL_ARTEFACT"),
            port=port,
            spare=bool(launch.spare),
        )
        step = last.get("progress")
        self.before = self.reached, Headway(step if isinstance(step, int) else None)  # of the launcher before this one
        # How often its processes were started again in the generation that goes on with it; a deployer counts by itself.
        counts = launch.rejoin is not None and not launch.regroups
        self.again = int(last.get("process_restarts") or 0) + (last.get("state") in HAVE_RUN) if counts else 0
        self.may_join = launch.rejoin is not None and self.again <= launch.rejoin
        # A launcher that regroups with the others ended as its node failed, to be started again and to join them.
        kept = ("succeeded", "stopped") if launch.regroups else ENDED
        with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):
            self.fields.go_on_from(last, kept)

    @property
    def state(self) -> str:
        """How the node is: waiting, setup, running, succeeded, failed, fenced or stopped."""
        return self.fields.state

    @property
    def reached(self) -> Tuple[float, int]:
        """How far this node has come: each `up` after a `down` counts generations from 1 again."""
        return self.fields.epoch, self.fields.generation

    def headway(self, order: Optional[Order], now: float) -> Headway:
        """Return how far this node has come in a generation; `now` is in seconds since the epoch."""
        if order is None or not self.is_of(order):
            return Headway()
        fields, (reached, before) = self.fields, self.before
        began = fields.started_at
        own = Headway(fields.progress, max(0.0, (fields.finished_at or now) - began) if began is not None else 0.0)
        return own.furthest(before) if reached == self.reached else own

    def has_not_begun(self, order: Order) -> bool:
        """Return whether no launcher before this one has begun `order`, the newest that there is.

        It would have reported its number then, or that of a later order, which would be the newest. Without a base, in a
        job with etcd for one, only a greater number is newer.
        """
        number = order.began, order.number
        return number > self.reached or (order.base is not None and number != self.reached)

    def is_of(self, order: Order) -> bool:
        """Return whether `order` has the current generation's number."""
        return (order.began, order.number) == self.reached

    def has_begun_base(self, order: Order) -> bool:
        """Return whether a launcher of this node has begun a generation of the lease that launchers go on with."""
        return self.reached >= (order.began, order.lease_began.number)

    def of_new_generation(self, order: Order, restarts: int) -> ReportChanges:
        """Return the fields of a generation that begins, or that has gone on while this launcher was started again."""
        again = self.again if (order.began, order.number) == self.before[0] else 0
        why: ReportChanges = {"restart_reason": STARTED_AGAIN} if again else {}
        return {
            **why,
            "generation": order.number,
            "epoch": order.began,
            "state": "setup",
            "exit_code": None,
            "reason": None,
            "started_at": time.time(),
            "finished_at": None,
            "progress": None,
            "progress_at": None,
            "stacks_written": False,
            "process_restarts": again,
            "processes": [],
            "failure": None,
            "start": None,
            "restarts": restarts,
        }

    def replaced(self) -> bool:
        """Return whether a deployer has declared this launcher dead, and starts another one in its place.

        That happens to a launcher whose engine has lost its container: an engine that is killed while it starts one
        may not remember that. The deployer names the launcher in a file that no launcher writes: it may be just about to
        write its report.
        """
        return read_json(self.dead) == self.fields.launcher.to_json()

    def write(self, **changes: Unpack[ReportChanges]) -> bool:
        """Write it with these changes; return whether the commands that watch have to hear at once.

        Writes nothing once this launcher is replaced: the report is the other launcher's then.
        """
        if self.replaced():
            return False
        before = self.summary()
        if "state" in changes:
            self.since = boot_time()
        self.fields = changed(self.fields, **changes)
        failure, late = self.fields.failure, self.unwritten is not None
        written = write_json(self.path, self.fields.to_json())
        if not written and failure is not None:
            written = write_json(self.path, changed(self.fields, failure=failure.abridged()).to_json())
        if "state" in changes:
            write_json(self.last_state, self.fields.to_json())
        self.unwritten = None if written else boot_time()
        return self.summary() != before or (late and written)

    def is_late(self) -> bool:
        """Return whether it could not be written, and it is time to try again: a node that has failed may change no more."""
        return self.unwritten is not None and boot_time() - self.unwritten >= WRITTEN_AGAIN

    def superseded(self, runs: bool) -> Optional[str]:
        """Return why another launcher of this node has to take this one's place, None if none has to.

        A launcher whose folder was removed can begin nothing more; what `runs` may go on until its end.
        """
        if self.replaced():
            return "another launcher of this node is started instead of this one: its engine lost this container"
        folder = os.path.dirname(self.path)
        if not runs and self.unwritten is not None and is_removed(folder):
            return "somebody has removed %s on the host: only a new container of this node gets a new one" % folder
        return None

    def summary(self) -> List[object]:
        """Return the fields whose changes the commands that watch hear at once; progress comes with the next tick."""
        fields = self.fields
        processes = [(p.rank, p.state, p.pid, p.where) for p in fields.processes]
        return [fields.state, fields.generation, fields.reason, fields.restarts, fields.standby.state, processes]
