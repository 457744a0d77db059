"""How a job is, read from what really runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Failures, Handle
    from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode, Phase
    from jobctl.jobspec.deploy.store.jobdir import JobDir


@dataclass(frozen=True, slots=True)
class JobState:
    """How a job was when it was looked at: whether it is `over`, and which hosts are `unreachable`, and why."""

    name: str
    phase: Phase
    reason: str | None
    over: bool
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


def state_of(handle: Handle, observed: Observed) -> JobState:
    """Return how a job was when it was observed."""
    from jobctl.jobspec.deploy.model.observed import phase

    now, reason = phase(observed)
    return JobState(handle.job.name, now, reason, ended(handle, observed), observed, handle.failures)


def observe(handle: Handle) -> Observed:
    """Observe the job; where no host answers, that nothing is known is what there is to tell."""
    from jobctl.jobspec.deploy.apply.deployer import AllUnreachable

    try:
        return handle.observe()
    except AllUnreachable as nothing:
        return nothing.observed


def look_on(handle: Handle) -> None:
    """Let no look at the job wait for a host that is silent. Only a job on hosts has some: nothing is imported for others."""
    look_at_hosts = getattr(handle, "look_on", None)
    if look_at_hosts is not None:
        look_at_hosts()


def restarts(observed: Observed, node: ObservedNode | None = None) -> int:
    """Return how often the processes (those of `node`) were started again because of failures."""
    generation, failures = observed.control.generation, observed.control.ledger.failures
    together = sum(1 for f in failures if generation is not None and not f.alone and f.generation < generation.number)
    if node is None:
        return together
    return together + node.process_restarts + sum(1 for f in failures if f.alone and f.node == node.node)


def ended(handle: Handle, observed: Observed) -> bool:
    """Say whether the job has ended; one that a command has stopped to change it, and is at work on, has not."""
    from jobctl.jobspec.deploy.model.observed import SETTLED, phase
    from jobctl.jobspec.deploy.store.lock import read_holder

    now, _ = phase(observed)
    control = observed.control
    ordered = control.generation is not None and control.generation.command != "run"
    # In a cluster, a job whose objects another command replaces has none for a moment.
    remade = observed.verdict is not None and observed.slurm is None
    if now == "stopped" and ((ordered and control.ledger.result is None) or remade):
        # The command may have completed the change, and left, since the job was observed: only a second look tells. And
        # the next command may be in the midst of a change then: of another generation.
        if read_holder(handle.job.lock):
            return False
        again = observe(handle)
        return again.control.generation == control.generation and phase(again)[0] in SETTLED
    return now in SETTLED


def is_written(directory: JobDir) -> bool:
    """Say whether someone goes on writing the job's history here: the supervisor, or a command at work."""
    from jobctl.jobspec.deploy.store.lock import read_holder

    return bool(read_holder(directory.supervisor_lock) or read_holder(directory.lock))


def tail_of(observed: Observed) -> list[str]:
    """Return the last lines of whatever failed last, below a line that says where they are from; none if none failed."""
    failures = observed.control.ledger.failures
    if not failures:
        return []
    failure = failures[-1]
    # Launchers tell each other of a failure without these lines: then the report of the node that failed has them.
    reported = (node.failure for node in observed.nodes if node.node == failure.node and node.failure is not None)
    tail = failure.tail or next((one.tail for one in reported if one.generation == failure.generation), ())
    if not tail:
        return []
    return [f"last lines of node {failure.node}, {failure.log}:", *(f"  {line}" for line in tail)]
