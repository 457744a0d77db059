"""What the probe measured, and the speed that follows from it.

A host that has a machine for itself is measured by the clock on the wall: other work that runs there slows a job too.
Test hosts may share one machine, and take its cores from each other. What such a host waits for a core that others have
is not its fault, and is left out. Time that it did not run while cores were idle counts: only a quota does that. A quota
that its control group tells of counts too, even where others left it less than that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobctl.jobspec.deploy.model.untrusted import Json

ROUNDS_DIGEST = ("sha256", b"jobctl", b"fitness", 5000)  # what the probe computes in `compute`


@dataclass(frozen=True, slots=True)
class Sample:
    """What several processes of a host did in a window of time; `cpu` and `idle` are sums over processes and over cores.

    `cores` is how many the host may use: not a whole number where it has a quota.
    """

    work: float
    wall: float
    cpu: float
    idle: float
    workers: int
    cores: float

    def speed(self, *, shared: bool) -> float:
        """Return the work in a second. `shared`: other hosts use the same cores."""
        if not shared:
            return self.work / self.wall
        waited = max(0.0, self.wall * self.workers - self.cpu)
        running = self.work * self.workers / (self.cpu + min(waited, self.idle))
        return min(running, self.work / self.cpu * max(self.cores, 0.01))


def sample_of(data: Mapping[str, Any]) -> Sample:
    """Return a sample from what a probe said. Raises ValueError for anything else."""
    try:
        work, wall, cpu, idle = (float(data[name]) for name in ("work", "wall", "cpu", "idle"))
        made = Sample(work, wall, cpu, idle, int(data["workers"]), float(data["cores"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"it is not a sample: {data!r}") from error
    if made.work <= 0 or made.wall <= 0 or made.cpu <= 0 or made.workers < 1:
        raise ValueError(f"it is not a sample: {data!r}")
    return made


def device_values(said: Json) -> dict[str, dict[str, float]]:
    """Return what a probe measured of devices, by metric and device; "" is all of the host."""
    names = {"gemm": "matrix products", "memory": "memory of the device", "copy": "copies to the device"}
    found: dict[str, dict[str, float]] = {}
    for one in said["devices"]:
        for key, metric in names.items():
            if key in one:
                found.setdefault(metric, {})[str(one["device"])] = float(one[key])
        if "together" in one:  # how fast the slowest was, times their number
            found["all devices together"] = {"": float(one["together"]) * len(said["devices"])}
    return found


def storage_speed(said: Json, what: str, *, shared: bool) -> float:
    """Return how many MB a second were read or written; where cores are shared, without the wait for one of them."""
    took = float(said[f"{what}_seconds"])
    if shared:
        took = max(took / 10, took - float(said[f"{what}_waited"]))
    return float(said["bytes"]) / 1e6 / max(took, 1e-6)
