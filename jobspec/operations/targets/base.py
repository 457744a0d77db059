"""One protocol for how jobs of a target are found, planned and checked. `JobOnTarget` has what is done with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle
    from jobctl.jobspec.deploy.model.finding import Finding
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.operations.reporter import Reporter
    from jobctl.jobspec.operations.resolve.job import Compiled, Reached, Where
    from jobctl.jobspec.plan.types import Plan
    from jobctl.jobspec.spec.fitness_mode import FitnessMode


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What is checked: a job, or without one what `where` names. `deep` and `fitness` are as `check` has them."""

    compiled: Compiled | None
    where: Where
    reached: Reached
    deep: bool = False
    fitness: FitnessMode = "off"


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A command that runs with what the processes of `node` of a job would have (None: of the first one), without the job."""

    compiled: Compiled
    node: str | None
    argv: Sequence[str]
    reached: Reached


class JobFinder(Protocol):
    """Where the jobs of one place are: hosts or this machine, a cluster, Slurm."""

    def known(self, directory: JobDir, reached: Reached) -> Handle:
        """Return what a job is looked at through: where it was started, or where `reached` says."""

    def homes(self, directory: JobDir) -> list[str]:
        """Return the places where `up` has noted here that a job is, by the names of `Handle.places`; none if it is not known."""

    def in_spec(self, spec: Path, directory: JobDir, reached: Reached) -> Handle | None:
        """Return a job of which there is no trace here, if its spec alone says that it is in this place."""

    def planned(self, compiled: Compiled, reached: Reached) -> tuple[Plan, Handle]:
        """Return the plan of a compiled job with its nodes where they are now, and the job. Raises Refused or HostsFailed."""

    def check(self, request: CheckRequest) -> tuple[Sequence[Finding], tuple[str, ...]]:
        """Return whether the place is fit, and the names of what was checked."""

    def run(self, request: RunRequest, reporter: Reporter) -> int:
        """Run a command without the job, and return its exit code.

        Raises Refused, UnsupportedOnTarget, HostsFailed, or CommandNotRun if it does not begin.
        """
