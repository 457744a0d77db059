"""How many nodes a job has in its allocation: a fixed number, or, of an elastic job, as many as there are machines for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.allocation.messages import MARGIN

if TYPE_CHECKING:
    from typing import Dict, Optional

    from jobctl.jobspec.allocation.places import Places, RunnerState
    from jobctl.jobspec.launcher.system.files import Json
GATHER = 20.0  # seconds after which the job begins without machines that it can do without
STEADY = 10.0  # seconds for which a machine has to answer before the job grows onto it


class JobSize:
    """Decides with how many nodes the job begins, and when an elastic one shrinks or grows."""

    def __init__(self, places: Places, settings: Json, asked: Optional[int] = None) -> None:
        self.places, self.asked = places, asked  # `asked`: the most that the user wants now
        self.eager = False  # whether the user waits for it
        self.most = max(list(places.slots).count(slot) for slot in places.slots)  # machines that the job can use
        self.least = int(settings["min_nodes"])
        self.spares = int(settings["spares"])
        self.shrinks = bool(settings["shrinks"])
        self.timeout = float(settings["host_timeout"]) + MARGIN
        self.possible: Optional[float] = None  # since when the job could grow

    @property
    def limit(self) -> int:
        """How many nodes the job gets at most."""
        return self.most if self.asked is None else max(self.least, min(self.most, self.asked))

    def ask(self, count: int) -> None:
        """Have an elastic job go on with as many nodes, as soon as there are machines for them."""
        self.asked, self.eager = count, True

    def first(self, now: float, waited: float) -> int:
        """Return with how many machines the job begins now, 0 if it waits for more."""
        ready = len(self.places.ready(now))
        if ready < len(self.places.hosts) and (waited <= GATHER or ready < self.least):
            return 0
        return min(self.limit, max(self.least, ready - self.spares))

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
        more = min(len(free) - self.spares, self.limit - len(at))
        if more < 0 and len(at) > self.limit:
            return {node: at[node] for node in sorted(at)[: self.limit]}
        if self.places.lost(now, self.timeout) or self.places.refused(now) or more <= 0:
            self.possible = None
            return self.without_lost(now)
        self.possible = now if self.possible is None else self.possible
        if now - self.possible < STEADY and not self.eager:
            return None
        self.possible, self.eager = None, False
        return {**at, **dict(zip(self.places.missing(), free[:more]))}
