"""How a job ends, on hosts and on this machine: jobctl tells all launchers, waits for them, and removes what is left."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from jobctl.jobspec.deploy.apply.deployer import AllUnreachable, Failures, Verb
from jobctl.jobspec.deploy.model.errors import DeployError, may_be_gone
from jobctl.jobspec.deploy.model.observed import MAX_NAMED_NODES, Observed, ObservedNode
from jobctl.jobspec.deploy.store.archive import free_folder
from jobctl.jobspec.deploy.store.webhooks import tells
from jobctl.jobspec.deploy.targets.background import end_supervisor
from jobctl.jobspec.deploy.targets.fleet import Fleet
from jobctl.jobspec.deploy.targets.job_on_host import J, JobOnHost

# Seconds between two looks, and for how many seconds it looks that often
FAST_POLL_INTERVAL, FAST_POLL_SECONDS = 0.02, 1.0
TOLD_AT_MOST = 3  # times that launchers are told to end
LAUNCHER_END_MARGIN = 2.0  # seconds, beyond the grace of its processes, that a launcher takes to do as it is told


class Commanded(Protocol):
    """A job whose launchers follow commands. `pause`: seconds between two looks at what it waits for."""

    pause: float
    tell: Callable[[str], None]

    def observe(self) -> Observed:
        """Read what runs now."""

    def command(self, verb: Verb, grace: float) -> None:
        """Tell all launchers to `stop` (and stay), also as a `pause`, or to `finish` (and exit)."""


def stop_processes(job: Commanded, grace: float, verb: Verb = "stop") -> None:
    """End all processes of a job, at the same time on all nodes; the launchers stay.

    With etcd, launchers may begin a generation just as they are told to stop the previous one. They are told again then.
    """
    for _ in range(TOLD_AT_MOST):
        job.command(verb, grace)
        if _wait(job, _has_ended, grace, _runs):
            return


def end_processes(job: Commanded, grace: float) -> float:
    """End all processes while all launchers stay; return the grace of what still runs then.

    A launcher that has ended answers no other one any more. Without answers, the lease of a node that saves for longer
    than `host_timeout` would end, and its processes with it.
    """
    began, observed = time.monotonic(), job.observe()
    generation = observed.control.generation
    saves_alone = generation is not None and len(generation.members) > 1 and grace > generation.lease_limit
    if saves_alone and any(node.alive and not _has_ended(node) for node in observed.nodes):
        stop_processes(job, grace)
    return max(grace - (time.monotonic() - began), min(grace, LAUNCHER_END_MARGIN))


def _has_ended(node: ObservedNode) -> bool:
    return node.state not in ("starting", "running")


def wait_for_launchers(job: Commanded, grace: float) -> None:
    """Wait until no launcher lives, as long as launchers take at most."""
    _wait(job, lambda node: not node.alive, grace)


def wait_for_nodes(job: Commanded, grace: float) -> None:
    """Wait until all nodes have ended, as long as launchers take at most; engines start the launchers again."""
    _wait(job, lambda node: node.state in ("exited", "failed", "fenced"), grace)


def leave_alone(host_job: JobOnHost, why: DeployError) -> bool:
    """Do nothing on a host that could not be locked. Raises `why`."""
    raise why


def take_down(
    fleet: Fleet[J],
    finish: Callable[[], None],
    erase: Callable[[J, Path], bool],
    gather: Callable[[], None],
    end_unlocked: Callable[[J, DeployError], bool] = leave_alone,
) -> tuple[Path | None, Failures]:
    """End everything by `finish`, and have each host that is locked `erase` all of the job; return where its logs went.

    `gather` collects what launchers have told people up to their end, if they do: nobody tells that again.

    `erase` moves the logs of a host into a folder, and says whether there were any. `end_unlocked` ends what runs on a host that
    answers, but could not be locked for a reason, and returns False; it raises the reason if files are left. Raises LockLost.
    """
    into = free_folder(fleet.job.history)
    end_supervisor(fleet.job)
    with contextlib.suppress(AllUnreachable):
        finish()
        if fleet.plan is not None and tells(fleet.plan):
            gather()
    fleet.check_here()  # this process may have been stopped while it waited: then another has brought the job up again
    not_locked = fleet.not_locked()

    def end(host_job: J) -> bool:
        why = not_locked.get(host_job.host.name)
        return erase(host_job, into) if why is None else end_unlocked(host_job, why)

    silent = {host: error for host, error in not_locked.items() if may_be_gone(error)}
    outcome = fleet.on_each([host for host in fleet.host_jobs if host not in silent], end)
    collected = into if into.exists() and any(outcome.done.values()) else None
    fleet.check_here()
    return collected, {**silent, **fleet.failures(outcome)}


def _runs(observed: Observed) -> bool:
    """Say whether launchers know of nothing newer than an order to run."""
    generation = observed.control.generation
    return generation is not None and generation.command == "run"


def _wait(
    job: Commanded,
    done: Callable[[ObservedNode], bool],
    grace: float,
    overruled: Callable[[Observed], bool] = lambda observed: False,
) -> bool:
    """Wait until `done` is true of every node that lives, as long as launchers take at most; say whether it was not `overruled`."""
    began = time.monotonic()
    deadline = began + grace + LAUNCHER_END_MARGIN
    while waited := _waited(observed := job.observe(), done):
        left = deadline - time.monotonic()
        if overruled(observed):
            return False
        if left <= 0:
            return True
        job.tell(waits_for(waited, left - LAUNCHER_END_MARGIN))
        # Most processes end at once, and a change keeps all from training
        soon = time.monotonic() - began < FAST_POLL_SECONDS
        time.sleep(min(FAST_POLL_INTERVAL, job.pause) if soon else job.pause)
    return True


def _waited(observed: Observed, done: Callable[[ObservedNode], bool]) -> list[ObservedNode]:
    return [node for node in observed.nodes if node.reachable and node.alive and not done(node)]


def waits_for(nodes: Sequence[ObservedNode], grace: float) -> str:
    """Say for which nodes it waits until they have ended, and how long their processes still get."""
    named = [f"node {node.node} on {node.host}" for node in nodes[:MAX_NAMED_NODES]]
    more = f" and {len(nodes) - MAX_NAMED_NODES} more" if len(nodes) > MAX_NAMED_NODES else ""
    then = f"SIGKILL in {grace:.0f} s" if grace > 0 else "SIGKILL was sent"
    return f"waiting for {', '.join(named)}{more} to end; {then}"
