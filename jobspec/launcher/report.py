"""What a launcher says of its node, in a file that the supervisor reads."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.files import abridged, read_json, write_json
from jobctl.jobspec.launcher.processes import boot_time, start_ticks

if TYPE_CHECKING:
    from typing import Any, List, Optional

    from jobctl.jobspec.launcher.files import Json
    from jobctl.jobspec.launcher.launch import Launch
    from jobctl.jobspec.launcher.order import Order
ENDED = ("succeeded", "failed", "fenced", "stopped")  # states of a node whose processes have ended
OUTCOME = (
    "state",
    "exit_code",
    "reason",
    "started_at",
    "finished_at",
    "progress",
    "progress_at",
    "processes",
    "failure",
)


class Report:
    """The report of one launcher: it replaces that of the launcher before, and goes on from its generation.

    A launcher that its engine has started again keeps how the generation ended, if it had. A deployer that starts one
    says so in the report first, and wants the node to begin again.
    """

    def __init__(self, launch: Launch, folder: str, guard: int, port: Optional[int], standby: Json) -> None:
        self.path = os.path.join(folder, "report.json")
        self.since = boot_time()  # when the state last changed
        self._seen: Any = None  # which file lay there when this launcher last looked into it
        self._replaced = False
        last = read_json(self.path) or {}
        self.fields: Json = {
            "version": 1,
            "node": launch.node,
            "role": launch.role,
            "generation": int(last.get("generation") or 0),
            "epoch": float(
                last.get("epoch") or 0.0
            ),  # when the job was brought up from nothing: generations are counted from there
            "state": "waiting",
            "artefact": os.environ.get("JOBCTL_ARTEFACT"),  # what the deployer says it was started from
            "port": port,
            "launcher": {"pid": guard, "start_ticks": start_ticks(guard)},
            "exit_code": None,
            "reason": None,
            "started_at": None,
            "finished_at": None,
            "progress": None,
            "progress_at": None,
            "restarts": 0,
            "again": 0,  # how often processes were started again in this generation, which went on
            "because": None,  # why, the last time
            "processes": [],
            "failure": None,
            "order": None,
            "left": [],  # nodes that were elsewhere in the order before, see OldPlaces
            "standby": standby,
            "start": None,  # whether the generation was started from it, and if not, why
            "mustered": False,  # whether this node has written its stacks because the generation hangs
        }
        if not launch.has_session:
            kept = ("order", "left", *(OUTCOME if last.get("state") in ENDED else ()))
            self.fields.update({name: last.get(name, self.fields[name]) for name in kept})
        if launch.spare:
            self.fields["spare"] = True

    def __getitem__(self, key: str) -> Any:
        return self.fields[key]

    @property
    def state(self) -> str:
        """How the node is: waiting, setup, running, succeeded, failed, fenced or stopped."""
        return str(self.fields["state"])

    def is_before(self, order: Order) -> bool:
        """Return whether `order` is a generation after the current one; each `up` after a `down` counts from 1 again."""
        return (order.began, order.number) > (self["epoch"], self["generation"])

    def is_of(self, order: Order) -> bool:
        """Return whether `order` has the current generation's number."""
        return (order.began, order.number) == (self["epoch"], self["generation"])

    def has_begun_base(self, order: Order) -> bool:
        """Return whether a launcher of this node has begun a generation of the lease that launchers go on with."""
        return (self["epoch"], self["generation"]) >= (order.began, order.lease_began["number"])

    @staticmethod
    def of_new_generation(order: Order) -> Json:
        """Return the fields of a generation that begins."""
        return {
            "generation": order.number,
            "epoch": order.began,
            "state": "setup",
            "exit_code": None,
            "reason": None,
            "started_at": time.time(),
            "finished_at": None,
            "progress": None,
            "progress_at": None,
            "mustered": False,
            "again": 0,
            "processes": [],
            "failure": None,
            "start": None,
        }

    def replaced(self) -> bool:
        """Return whether a deployer has declared this launcher dead, and starts another one in its place.

        That happens to a launcher whose engine has lost its container: an engine that is killed while it starts one
        may not remember that. The deployer names the launcher that it replaces in the report.
        """
        if self._replaced:
            return True
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        seen = found.st_ino, found.st_mtime_ns
        if seen != self._seen:
            self._seen = seen
            self._replaced = (read_json(self.path) or {}).get("replaces") == self.fields["launcher"]
        return self._replaced

    def write(self, **changes: Any) -> bool:
        """Write it with these changes; return whether the commands that watch have to hear at once.

        Writes nothing once this launcher is replaced: the report is the other launcher's then.
        """
        if self.replaced():
            return False
        before = self.summary()
        if "state" in changes:
            self.since = boot_time()
        self.fields.update(changes)
        if not write_json(self.path, self.fields) and self.fields["failure"]:
            write_json(self.path, {**self.fields, "failure": abridged(self.fields["failure"])})
        return self.summary() != before

    def summary(self) -> List[Any]:
        """Return the fields whose changes the commands that watch hear at once; progress comes with the next tick."""
        processes = [(p["rank"], p["state"], p["pid"], p["where"]) for p in self.fields["processes"]]
        return [self.fields[key] for key in ("state", "generation", "reason", "restarts")] + processes
