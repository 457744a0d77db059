"""Jobs that are down, as this machine's history has them: how each ended, and what proves that it is down."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jobctl.jobspec.deploy.store import events
from jobctl.jobspec.deploy.store.files import remove_file, remove_parts
from jobctl.jobspec.deploy.store.jobdir import CHANNELS, FILES_OF_JOB, SSH, JobDir, known_jobs
from jobctl.jobspec.deploy.store.lock import read_holder
from jobctl.jobspec.records import dataclass

# Events of a job that comes up, runs, or is taken down: the last of these has to be a `down`.
EVENTS_OF_LIFE = ("up", "step", "generation-begun", "supervisor-started", "down")


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job without `job.json`: it was taken down, unless `doubt` says why nobody can tell.

    `phase` is how it had ended by then, `since` when it was taken down, `size` how many bytes its history has.
    """

    job: JobDir
    framework: str | None
    target: str | None
    phase: str
    since: float | None
    size: int
    outputs: bool
    doubt: str | None = None


def past_jobs(state: Path) -> Iterator[PastJob]:
    """Yield the jobs that left something here and are not known as up, in order of their names. Raises OSError as `known_jobs`."""
    up = {job.name for job in known_jobs(state)}
    for root in sorted((state / "jobs").glob("*/")):
        job = JobDir(root)
        if job.name not in up and _left_something(job):
            yield past_job(job)


def _left_something(job: JobDir) -> bool:
    """Say whether there is more than the lock of a command that found no job, such as a `stop` of one never started."""
    try:
        return any(path != job.lock for path in job.root.iterdir()) or bool(read_holder(job.lock))
    except FileNotFoundError:  # that command has ended, and removed the folder
        return False


def past_job(job: JobDir) -> PastJob:
    """Return what the history says of a job that is not known as up."""
    try:
        told, _ = events.read(job.events)
    except OSError as error:
        return PastJob(job, None, None, "stopped", None, 0, True, f"cannot read {error.filename}: {error.strerror}")
    ups = [event for event in told if event["event"] == "up"]
    end = _last_down(told)
    about = ups[-1] if ups else {}
    return PastJob(
        job,
        _word(about.get("framework")),
        _word(about.get("target")),
        (end and _word(end.get("phase"))) or "stopped",
        end["time"] if end else None,
        sum(_sizes(job.root)),
        any(True for _ in job.history.glob("*/outputs/*")),
        _doubt(job, told, end),
    )


def left_elsewhere(job: JobDir) -> tuple[str, ...]:
    """Return the hosts of the job that its last `down` from here did not know how to reach; none if it came up since."""
    end = _last_down(events.read(job.events)[0]) or {}
    return tuple(host for host in end.get("elsewhere") or () if isinstance(host, str))


def _last_down(told: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the `down` with which a history ends, None if something of the job was told after it."""
    ends = [event for event in told if event["event"] in EVENTS_OF_LIFE]
    return ends[-1] if ends and ends[-1]["event"] == "down" else None


def _word(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _doubt(job: JobDir, told: list[dict[str, Any]], end: Mapping[str, Any] | None) -> str | None:
    """Return why nobody can tell from here that a job is down, None if its history proves that."""
    if (holder := read_holder(job.lock)) or (holder := read_holder(job.supervisor_lock)):
        return f"`{holder.get('command')}` (pid {holder.get('pid')}) is at work on it"
    left = [name for name in (*FILES_OF_JOB, CHANNELS) if (job.root / name).exists()]
    if left:
        return f"its {left[0]} is still there"
    if job.host.exists():
        return "its work directory is still there"
    if end is None:
        return "its history does not say that it was taken down" if told else "it has no history"
    if end.get("failed"):
        return f"something of it is left on {', '.join(map(str, end['failed']))}"
    return None


def _sizes(root: Path) -> Iterator[int]:
    for folder, _, names in os.walk(root):
        for name in names:
            with contextlib.suppress(OSError):
                yield os.lstat(os.path.join(folder, name)).st_size


def remove(job: JobDir) -> list[str]:
    """Remove the history of a job, and return the names of files that are not part of it: these stay. Raises OSError."""
    if job.history.is_dir() and not job.history.is_symlink():
        shutil.rmtree(job.history)
    ours = (job.events, job.collected, job.progress, job.lock, job.supervisor_lock, job.supervisor_log)
    for path in (*ours, job.outbox, job.outbox_lock, *(job.root / name for name in SSH)):
        remove_file(path)
    for name in (*FILES_OF_JOB, CHANNELS):
        remove_parts(job.root / name)
    others = sorted(path.name for path in job.root.iterdir())
    if not others:
        job.root.rmdir()
    return others
