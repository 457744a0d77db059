"""How a job is, as values that a program looks at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Failures, Handle
    from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode, Phase
    from jobctl.jobspec.operations.lifecycle.base import Applied


@dataclass(frozen=True, slots=True)
class JobState:
    """How a job was when it was looked at. `unreachable` says which hosts did not answer, and why."""

    name: str
    phase: Phase
    reason: str | None
    observed: Observed
    unreachable: Failures

    @property
    def nodes(self) -> tuple[ObservedNode, ...]:
        """The nodes that take part, with their processes."""
        return self.observed.members

    @property
    def generation(self) -> int | None:
        """The number of the generation that runs or ran last, None if the target has none."""
        current = self.observed.control.generation
        return current.number if current else None


@dataclass(frozen=True, slots=True)
class Up:
    """What `up` did, and how the job was then."""

    applied: Applied
    state: JobState


def state_of(handle: Handle, observed: Observed) -> JobState:
    """Return how a job was when it was observed."""
    from jobctl.jobspec.deploy.model.observed import phase

    now, reason = phase(observed)
    return JobState(handle.job.name, now, reason, observed, handle.failures)
