"""What the probe measured, and the speed that follows from it.

A host that has a machine for itself is measured by the clock on the wall: other work that runs there slows a job too.
Test hosts may share one machine, and take its cores from each other. What such a host waits for a core that others have
is not its fault, and is left out. Time that it did not run while cores were idle counts: only a quota does that. A quota
that its control group tells of counts too, even where others left it less than that. How fast a core is counts as the
same for hosts of one machine: what differs there is due to what else runs on the core's sibling, unless it is a lot. How
fast memory is counts as the same in any case, as it is the same memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from statistics import median
from typing import Any

from jobctl.jobspec.deploy.model.untrusted import Json
from jobctl.jobspec.records import dataclass

ROUNDS_DIGEST = ("sha256", b"jobctl", b"fitness", 5000)  # what the probe computes in `compute`
SURE, SAMPLE_TOLERANCE = 3, 0.05  # samples of a host that differ by no more than this part of them: it is not chance
# Times that a disk may look faster for the wait for a core, which is less than what is certain (rounds.py)
MAX_DISK_FACTOR = 5
# Below what is usual on a machine, down to which a host's core counts as fast as any other.
NOISE: Mapping[str, float] = {"all cores": 0.25, "memory of the host": 1.0}


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

    @property
    def speed(self) -> float:
        """The work in a second, by the clock on the wall."""
        return self.work / self.wall

    @property
    def by_core(self) -> float:
        """The work in a second of one core."""
        return self.work / self.cpu

    @property
    def share(self) -> float:
        """How many cores the host could have used, if other hosts had left it all that it may use."""
        waited = max(0.0, self.wall * self.workers - self.cpu)
        return min(self.workers * self.cpu / (self.cpu + min(waited, self.idle)), max(self.cores, 0.01))

    @property
    def ran(self) -> bool:
        """Whether the host ran on all cores all the time, which none with less than nine tenths of them does."""
        return self.cpu > self.wall * self.workers * (1 - SAMPLE_TOLERANCE)


@dataclass
class SharedCores:
    """What hosts of one machine have measured of one thing, so far."""

    noise: float = NOISE["all cores"]
    seen: dict[str, list[Sample]] = field(default_factory=dict)  # by host

    def speeds(self, samples: Mapping[str, Sample]) -> dict[str, float]:
        """Add samples; return the work in a second of each host so far, as if it had the machine for itself.

        All hosts are weighed again each time. How fast a core is changes from one moment to the next, and a host that was
        measured in a good moment would look faster than the others, whose moment has passed.
        """
        for host, sample in samples.items():
            self.seen.setdefault(host, []).append(sample)
        own = self._by_core()
        usual = median(own.values())
        return {
            host: _share(seen) * (usual if own[host] > usual * (1 - self.noise) else own[host])
            for host, seen in self.seen.items()
        }

    def steady(self, host: str) -> bool:
        """Say whether more samples of a host would say nothing else: it ran on all cores, or had the same share of them often.

        Where its cores themselves look slow, more samples may still say that they are not.
        """
        seen = self.seen.get(host, ())
        shares = [sample.share for sample in seen][-SURE:]
        alike = len(shares) == SURE and min(shares) > max(shares) * (1 - SAMPLE_TOLERANCE)
        if not alike and not any(sample.ran for sample in seen):
            return False
        own = self._by_core()
        return own[host] > median(own.values()) * (1 - self.noise)

    def _by_core(self) -> dict[str, float]:
        return {host: median(sample.by_core for sample in seen) for host, seen in self.seen.items()}


def _share(seen: Sequence[Sample]) -> float:
    """Return the usual share of several samples, or that of those in which the host ran on all cores: that was no luck."""
    return median([sample.share for sample in seen if sample.ran] or [sample.share for sample in seen])


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
    names = {
        "gemm": "matrix products",
        "memory": "memory of the device",
        "copy": "copies to the device",
        "back": "copies from the device",
    }
    found: dict[str, dict[str, float]] = {}
    for one in said["devices"]:
        for key, metric in names.items():
            if key in one:
                found.setdefault(metric, {})[str(one["device"])] = float(one[key])
        if "together" in one:  # how fast the slowest was, times their number
            found["all devices together"] = {"": float(one["together"]) * len(said["devices"])}
    return found


def storage_speed(said: Json, what: str, *, shared: bool) -> float:
    """Return how many MB a second were read or written; where cores are shared, without the wait for one of them.

    The disk may have worked during that wait, so it is not left out whole: a host that waited would look ten times as fast
    as one that did not.
    """
    took = float(said[f"{what}_seconds"])
    if shared:
        took = max(took / MAX_DISK_FACTOR, took - float(said[f"{what}_waited"]))
    return float(said["bytes"]) / 1e6 / max(took, 1e-6)


def transfer_speed(receiver: Json, sender: Json, *, shared: bool) -> float:
    """Return at how many Mbit/s data went from one host to another.

    Where cores are shared, TCP knows best: it measures how fast data arrives while there is any to send, whether or not
    the two processes have a core. Where the sender had no core so often that TCP does not know either, the clock on the
    wall counts: the link is that fast at least. An old kernel never tells.
    """
    if shared and float(sender["rate"]) > 0:
        return 8e-6 * float(sender["rate"])
    shared = shared and not sender["tells"]
    return 8e-6 * float(receiver["bytes"]) / max(transfer_seconds(receiver, sender, shared=shared), 1e-6)


def transfer_seconds(receiver: Json, sender: Json, *, shared: bool) -> float:
    """Return how long data took from one host to another.

    Where cores are shared, time in which one of the two waited for a core is left out; what they had to do for it
    remains, and the time in which both waited for the network. It is too short where a buffer was sent meanwhile.
    """
    took = float(receiver["seconds"])
    if not shared:
        return took
    waited = float(receiver["waited"]) + float(sender["waited"])
    return max(float(receiver["worked"]), float(sender["worked"]), took - waited)
