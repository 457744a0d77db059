"""What `jobctl stop`, `restart`, `scale` and `drill` leave for the coordinator of an allocation that runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.files import read_json
from jobctl.jobspec.launcher.processes import boot_time

if TYPE_CHECKING:
    from typing import Optional

    from jobctl.jobspec.allocation.coordinator import Coordinator
    from jobctl.jobspec.launcher.files import Json
PLAYED = 30.0  # seconds beyond `host_timeout` for which a drill plays that a machine is lost


class UserOrders:
    """Follows each order once. One that is there when the allocation begins was meant for another."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.path = os.path.join(coordinator.work, "run", "order.json")
        self.followed: Optional[str] = None  # the id of the last one

    def begin(self) -> None:
        """Take note of the order that is there."""
        self.followed = (read_json(self.path) or {}).get("id")

    def read(self) -> None:
        """Follow the order that was left."""
        order = read_json(self.path)
        if order is None or order["id"] == self.followed:
            return
        self.followed = order["id"]
        coordinator = self.coordinator
        if order["command"] == "stop":
            coordinator.stop("user", "stopped by the user")
        elif order["command"] == "drill":
            until = boot_time() + coordinator.settings["host_timeout"] + PLAYED
            coordinator.places.play_lost(order["host"], until)
        elif order["command"] == "scale":
            coordinator.size.ask(order["nodes"])
            coordinator.generations.note(nodes=order["nodes"])
        elif order["command"] == "restart" and coordinator.places.at and coordinator.stopping is None:
            self.restart(order)

    def restart(self, order: Json) -> None:
        """Have all launchers end, and begin again where they are once the last one has ended.

        One that had not ended yet would begin the new generation, and end in the middle of it: that counts as a failure.
        """
        coordinator, fresh = self.coordinator, bool(order.get("fresh"))
        why = "`jobctl up --fresh`" if fresh else "`jobctl restart`"
        coordinator.record.event("restart", "all nodes begin again: %s" % why)
        coordinator.generations.note(fresh_budget=True, fresh=fresh)
        coordinator.refusals.forget()
        if coordinator.resizing is None:
            coordinator.resizing = dict(coordinator.places.at)
