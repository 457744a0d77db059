"""Removing the history of jobs that are down: events, progress and collected logs, nothing of a job that may be up."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.operations.resolve.job import checked_name, job_of_name
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.store.past import PastJob


@dataclass(frozen=True, slots=True)
class PruneRequest:
    """Which histories are meant: of these jobs (none: of all), down for so many seconds, with or without fetched outputs."""

    names: Sequence[str] = ()
    older_than: float = 0.0
    outputs: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """A job whose history stays, and why."""

    name: str
    reason: str


@dataclass
class Prunable:
    """The jobs whose history goes, and those whose history stays."""

    jobs: list[PastJob] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)


def find_prunable(request: PruneRequest) -> Prunable:
    """Return what `prune` would remove. Raises Refused if a job is named whose history cannot be removed."""
    from jobctl.jobspec.deploy.store.jobdir import state_dir
    from jobctl.jobspec.deploy.store.past import past_jobs

    for name in request.names:
        _refuse_up(name)
    found = Prunable()
    for past in past_jobs(state_dir(os.environ)):
        if request.names and past.job.name not in request.names:
            continue
        reason = _reason_to_keep(past, request, time.time())
        if reason is None:
            found.jobs.append(past)
        else:
            found.kept.append(Kept(past.job.name, reason))
    return found


def _refuse_up(name: str) -> None:
    """Raise Refused if a job is up, or not known at all."""
    directory = job_of_name(checked_name(name))
    if not directory.root.exists():
        raise Refused(f"no job `{name}` is known here", "`jobctl list --all` shows the jobs that are")
    if (directory.root / "job.json").exists():
        raise Refused(f"job `{name}` is up, as far as is known here", f"`jobctl down {name}` first")


def _reason_to_keep(past: PastJob, request: PruneRequest, now: float) -> str | None:
    if past.doubt is not None:
        return f"{past.doubt}; if nothing of it runs, `rm -r {past.job.root}` removes it"
    if past.outputs and not request.outputs:
        return f"outputs that `down` fetched are in {past.job.history}; `--outputs` removes them too"
    if past.since is None or now - past.since < request.older_than:
        return "it was taken down more recently than `--older-than` says"
    return None


def prune(found: Prunable) -> Prunable:
    """Remove the history of the jobs found, except of those that somebody has brought up since; return what was done."""
    from jobctl.jobspec.deploy.store.lock import JobLock, Locked
    from jobctl.jobspec.deploy.store.past import remove

    done = Prunable(kept=list(found.kept))
    for past in found.jobs:
        name = past.job.name
        try:
            with JobLock(past.job.lock).hold("prune", 0.0) as here:
                is_still_down = _is_still_down(past)
                here.check()
                others = remove(past.job) if is_still_down else None
        except Locked as locked:
            done.kept.append(Kept(name, f"it is {locked}"))
            continue
        if others is None:
            done.kept.append(Kept(name, "it has come up since"))
            continue
        done.jobs.append(past)
        if others:
            done.kept.append(Kept(name, f"{past.job.root} has files that are not jobctl's: {', '.join(others)}"))
    return done


def _is_still_down(past: PastJob) -> bool:
    """Say whether nothing has happened to a job since `past` was read; the lock, which is ours now, proves that nothing will."""
    from jobctl.jobspec.deploy.store import events
    from jobctl.jobspec.deploy.store.past import EVENTS_OF_LIFE

    if (past.job.root / "job.json").exists():
        return False
    told = [event for event in events.read(past.job.events)[0] if event["event"] in EVENTS_OF_LIFE]
    return bool(told) and told[-1]["event"] == "down" and told[-1]["time"] == past.since
