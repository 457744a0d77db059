"""One protocol for a job on any target, and what its operations take and return."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.changes import Changed
    from jobctl.jobspec.deploy.apply.deployer import Breakable, Deployer, Enterable, Failures, Handle, RuntimeInputs
    from jobctl.jobspec.deploy.apply.reconcile import Step
    from jobctl.jobspec.operations.inspect.status import JobState
    from jobctl.jobspec.operations.reporter import Reporter
    from jobctl.jobspec.operations.resolve.job import Compiled, Reached
    from jobctl.jobspec.plan.types import Plan


@dataclass(frozen=True, slots=True)
class UpOptions:
    """How a job is brought up. `start` is what processes get, where it is not this environment and the secrets of now."""

    fresh: bool = False
    supervise: bool = True
    check: bool = True
    break_lock: bool = False
    recreate: bool = False
    take_over: bool = False
    start: RuntimeInputs | None = None


@dataclass(frozen=True, slots=True)
class JobRequest:
    """How a running job is changed. `grace`: seconds that processes get to end, default as the spec says.

    `lost`: hosts that are gone for good. If they do not answer, `down` gives up what is there.
    """

    grace: float | None = None
    break_lock: bool = False
    take_over: bool = False
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScaleRequest:
    """How many nodes a job gets, and how it is changed on the way. `job` and `reached` are as the user named them."""

    job: str | None
    count: int
    reached: Reached
    options: UpOptions


class JobChange(Protocol):
    """What an operation is about to do, wherever the job runs."""

    @property
    def changed(self) -> tuple[Changed, ...]:
        """The keys of the spec that are not as what runs was started with."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, none if nothing has to change."""

    @property
    def phase(self) -> str:
        """How the job stands."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What `up` did: its steps, and the hosts of the job that did not do their part."""

    plan: Plan
    steps: tuple[Step, ...]
    failed: Failures
    ready: bool  # whether a generation of the job is under way
    held: bool = False  # whether a change was not made, and what ran before runs on
    supervised: bool = True  # whether a supervisor makes that change later
    changed: tuple[Changed, ...] | None = None  # keys of the spec that are not as the job was started with

    @property
    def homes(self) -> frozenset[str]:
        """All hosts of the job."""
        return frozenset(node.host.name for node in self.plan.nodes)

    @property
    def code(self) -> int:
        """0 if all hosts did their part, 3 if none did, 4 if some did, or something is left to do.

        That is a change which a supervisor makes later, or what has to be done before training begins.
        """
        if not self.failed:
            return 4 if self.held or not self.ready else 0
        return 3 if self.homes <= set(self.failed) and not (self.held and self.supervised) else 4


@dataclass(frozen=True, slots=True)
class Up:
    """What `up` did, and how the job was then."""

    applied: Applied
    state: JobState


@dataclass(frozen=True, slots=True)
class Stopped:
    """What `stop` did. `already`: nothing, as the job had ended in `phase`. `failures` are the hosts of nodes that do not answer.

    `left` are the nodes that have been told, and have not ended in time.
    """

    phase: str
    already: bool = False
    logs: Path | None = None
    failures: Failures = field(default_factory=dict)
    left: tuple[str, ...] = ()

    def unfinished(self, job: str) -> tuple[str, str] | None:
        """Return what has not ended, or may not have, and what to do about it, in words; None if all has."""
        if not self.left and self.failures:
            where = ", ".join(sorted(self.failures))
            hint = (
                f"processes there end by themselves, at the latest after `host_timeout`; `jobctl status {job}` shows it"
            )
            return f"job `{job}` is {self.phase}, and whether it has ended on {where} is not known", hint
        if not self.left:
            return None
        ended = f"{', '.join(self.left)} {'has' if len(self.left) == 1 else 'have'} not ended in time"
        hint = f"`jobctl status {job}` shows when that is so; `jobctl down {job}` ends whatever runs"
        return f"job `{job}` is told to stop, but {ended}", hint


@dataclass(frozen=True, slots=True)
class Restarted:
    """What `restart` did: whether the job begins again, and the hosts that did not do their part."""

    begins: bool
    failed: Failures = field(default_factory=dict)


class JobOnTarget(Protocol):
    """One job where it runs. On hosts or this machine it is a `HostsJob`, in a cluster a `ClusterJob`, in Slurm a `SlurmJob`."""

    @property
    def handle(self) -> Handle:
        """What the job is looked at, read, entered and taken down through."""

    def deployer(self, command: str) -> Deployer:
        """Return the deployer, through which jobctl recovers the job. Raises UnsupportedOnTarget if somebody else does."""

    def breakable(self) -> Breakable:
        """Return what a drill breaks something through. Raises UnsupportedOnTarget where there are no drills."""

    def enterable(self) -> Enterable:
        """Return what SSH clients enter. Raises UnsupportedOnTarget where they cannot."""

    def change(self, compiled: Compiled, options: UpOptions) -> JobChange:
        """Return what `up` would do now."""

    def up(self, compiled: Compiled, options: UpOptions, reporter: Reporter) -> Applied:
        """Start the job, or change it to what its plan says."""

    def scale(self, request: ScaleRequest, reporter: Reporter) -> Applied:
        """Give the job another number of nodes. Raises UnsupportedOnTarget where somebody else decides it.

        `handle` is then what the job is looked at through with that many nodes.
        """

    def stop(self, request: JobRequest, reporter: Reporter) -> Stopped:
        """End all processes, and keep everything in place."""

    def restart(self, node: str | None, request: JobRequest, reporter: Reporter) -> Restarted:
        """Begin a new generation, whatever runs; with `node`, that node's launcher begins again too."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A compiled job, its plan with the nodes where they are now, and the job on its target."""

    compiled: Compiled
    plan: Plan
    job: JobOnTarget

    def change(self, options: UpOptions) -> JobChange:
        """Return what `up` would do now."""
        return self.job.change(self.compiled, options)

    def up(self, options: UpOptions, reporter: Reporter) -> Applied:
        """Start the job, or change it to what its plan says. Raises Refused if its code or an env file is missing."""
        from jobctl.jobspec.operations.resolve.job import refuse_missing_files

        refuse_missing_files(self.compiled)
        return self.job.up(self.compiled, options, reporter)
