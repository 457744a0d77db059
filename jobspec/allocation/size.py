"""How many nodes a job has in its allocation: a fixed number, or, of an elastic job, as many as there are machines for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.allocation.messages import MARGIN

if TYPE_CHECKING:
    from typing import Dict, Optional

    from jobctl.jobspec.allocation.places import Places, RunnerState
    from jobctl.jobspec.launcher.files import Json
GATHER = 20.0  # seconds after which the job begins without machines that it can do without
STEADY = 10.0  # seconds for which a machine has to answer before the job grows onto it


class JobSize:
    """Decides with how many nodes the job begins, and when an elastic one shrinks or grows."""

    def __init__(self, places: Places, settings: Json) -> None:
        self.places = places
        self.most = max(list(places.slots).count(slot) for slot in places.slots)  # machines that the job can use
        self.least = int(settings["min_nodes"])
        self.spares = int(settings["spares"])
        self.shrinks = bool(settings["shrinks"])
        self.timeout = float(settings["host_timeout"]) + MARGIN
        self.possible: Optional[float] = None  # since when the job could grow

    def first(self, now: float, waited: float) -> int:
        """Return with how many machines the job begins now, 0 if it waits for more."""
        ready = len(self.places.ready(now))
        if ready < len(self.places.hosts) and (waited <= GATHER or ready < self.least):
            return 0
        return min(self.most, max(self.least, ready - self.spares))

    def without_lost(self, now: float) -> Optional[Dict[int, RunnerState]]:
        """Return where nodes shall be without those that are lost or cannot start, None if the job stays as it is."""
        lost = {*self.places.lost(now, self.timeout), *self.places.refused(now)}
        left = {node: runner for node, runner in self.places.at.items() if node not in lost}
        if self.least == self.most or not lost or self.places.free(now, 0) or not self.shrinks:
            return None
        return left if len(left) >= self.least else None

    def change(self, now: float) -> Optional[Dict[int, RunnerState]]:
        """Return where the nodes of an elastic job shall be, None if it stays as it is."""
        if self.least == self.most:
            return None
        at, free = self.places.at, self.places.free(now, 0)
        more = min(len(free) - self.spares, self.most - len(at))
        if self.places.lost(now, self.timeout) or self.places.refused(now) or more <= 0:
            self.possible = None
            return self.without_lost(now)
        self.possible = now if self.possible is None else self.possible
        if now - self.possible < STEADY:
            return None
        self.possible = None
        return {**at, **dict(zip(self.places.missing(), free[:more]))}
