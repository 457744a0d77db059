"""How long and how often a fitness check measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.fitness_mode import FitnessMode


@dataclass(frozen=True, slots=True)
class Effort:
    """Seconds of each measurement, and how many rounds there are."""

    compute: float  # several periods of a control group's quota, which are 0.1 s
    memory: float
    link: float
    device: float
    matrix: int
    bytes: int  # that are written to storage, at most
    storage: float
    rounds: int
    again: int  # more rounds for hosts that look unfit

    @property
    def turn(self) -> Effort:
        """That of a host that takes turns with others of its machine: shorter, or the turns of all take too long."""
        compute, memory, link = self.compute / 2, self.memory / 2, self.link / 2
        return replace(self, compute=compute, memory=memory, link=link, storage=self.storage / 20)


EFFORTS: Mapping[FitnessMode, Effort] = {
    "quick": Effort(0.4, 0.1, 0.25, 0.2, 4096, 32 << 20, 2.0, rounds=2, again=4),
    "full": Effort(1.0, 0.5, 2.0, 1.0, 8192, 256 << 20, 10.0, rounds=4, again=4),
}
