"""What `jobctl stop`, `restart`, `scale` and `drill` leave for the coordinator of an allocation that runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.system.files import read_json, write_json
from jobctl.jobspec.launcher.system.processes import boot_time

if TYPE_CHECKING:
    from typing import Optional

    from jobctl.jobspec.allocation.coordinator import Coordinator
    from jobctl.jobspec.launcher.system.files import Json
PLAYED = 30.0  # seconds beyond `host_timeout` for which a drill plays that a machine is lost


class UserOrders:
    """Follows each order once, whichever allocation of the job sees it first: it may come as one ends, or begins."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.path = os.path.join(coordinator.work, "run", "order.json")
        self.followed: Optional[str] = None  # the id of the last one

    def begin(self) -> None:
        """Follow the order that is there, unless an allocation before has."""
        start = self.coordinator.generations.start
        there = (read_json(self.path) or {}).get("id")
        # `up` removes the last order as it submits. After an allocation of an earlier version, nobody knows.
        self.followed = start.get("followed", None if start.get("fresh_budget") else there)
        self.coordinator.generations.note(followed=self.followed)
        self.read()

    def read(self) -> None:
        """Follow the order that was left, and note that for `jobctl` and the allocations that follow."""
        order = read_json(self.path)
        if order is None or order["id"] == self.followed:
            return
        self.followed = order["id"]
        coordinator, noted = self.coordinator, {"followed": order["id"]}
        if order["command"] == "restart":
            fresh = bool(order.get("fresh") or coordinator.generations.start.get("fresh"))
            noted.update(fresh_budget=True, fresh=fresh)
        elif order["command"] == "scale":
            noted.update(nodes=order["nodes"])
        coordinator.generations.note(**noted)
        if order["command"] == "stop":
            coordinator.settings["stop_grace"] = order.get("grace", coordinator.settings["stop_grace"])
            coordinator.stop("user", "stopped by the user")
        elif order["command"] == "drill":
            until = boot_time() + coordinator.settings["host_timeout"] + PLAYED
            coordinator.places.play_lost(order["host"], until)
        elif order["command"] == "scale":
            coordinator.size.ask(order["nodes"])
        if order["command"] == "restart" or order.get("sent"):
            self.restart(order)

    def restart(self, order: Json) -> None:
        """Have all launchers end, and begin again where they are once the last one has ended.

        One that had not ended yet would begin the new generation, and end in the middle of it: that counts as a failure.
        Where none has begun, or all are told to end already, the next generation is what was asked for. With an order to
        scale, they begin again with what was sent before it, on as many machines as there are for it now.
        """
        coordinator, sizes = self.coordinator, order["command"] == "scale"
        if order.get("sent"):  # with what a generation begins: `jobctl` may wait no more, or be gone
            write_json(os.path.join(coordinator.work, "run", "sent.json"), order["sent"])
        why = "`jobctl up --fresh`" if order.get("fresh") else "`jobctl %s`" % order["command"]
        coordinator.record.event("restart", "all nodes begin again: %s" % why)
        coordinator.refusals.forget()
        coordinator.generations.cause = why
        if coordinator.places.at and coordinator.stopping is None and coordinator.resizing is None:
            at = coordinator.size.change(boot_time()) if sizes else None
            coordinator.resizing = dict(coordinator.places.at) if at is None else at
