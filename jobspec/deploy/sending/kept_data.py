"""The data that a host keeps between jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.untrusted import as_text, number_in
from jobctl.jobspec.deploy.transport.base import checked
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.render.container import DATA

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.host.host_job import HostJob

_WALK = 600.0  # seconds without a word in which millions of files are counted, or removed


@dataclass(frozen=True, slots=True)
class KeptData:
    """A version of data on a host: its size in bytes, when it was last sent or found there, and the jobs that have it."""

    name: str
    version: str
    size: int
    last_used: float
    jobs: tuple[str, ...]

    @property
    def path(self) -> str:
        """What tells it from others on the host."""
        return f"{self.name}/{self.version}"


def kept_data(host_job: HostJob) -> list[KeptData]:
    """Return the data on a host, and the jobs whose containers have it, whether they run or not. Raises HostError."""
    told = checked(host_job.transport, SCRIPTS.argv("kept_data", _top(host_job)), "list data", timeout=_WALK)
    lines = [line.split() for line in told.decode("utf-8", "replace").splitlines()]
    rows = [line for line in lines if len(line) == 4 and None not in map(number_in, line[2:])]
    jobs = _jobs_by_path(_containers(host_job)) if rows else {}
    return [
        KeptData(name, version, int(size) * 1024, float(when), tuple(sorted(jobs.get(f"{name}/{version}", ()))))
        for name, version, size, when in rows
    ]


def remove_data(host_job: HostJob, kept: Iterable[KeptData]) -> None:
    """Remove data from a host. Raises HostError."""
    argv = SCRIPTS.argv("remove_data", _top(host_job), *(one.path for one in kept))
    checked(host_job.transport, argv, "remove data", timeout=_WALK)


def _top(host_job: HostJob) -> str:
    return str(host_job.work.parent / DATA)


def _containers(host_job: HostJob) -> list[Mapping[str, object]]:
    with host_job.engine.asked() as client:
        found = host_job.engine.answer(client.containers(all=True, filters={"label": "jobctl.job"}), list)
    return [one for one in found if isinstance(one, dict)]


def _jobs_by_path(containers: Iterable[Mapping[str, object]]) -> dict[str, set[str]]:
    """Return the jobs that mount data, by NAME/VERSION of it."""
    found: dict[str, set[str]] = {}
    for one in containers:
        labels, mounts = one.get("Labels"), one.get("Mounts")
        job = as_text(labels.get("jobctl.job")) if isinstance(labels, dict) else None
        for mount in mounts if isinstance(mounts, list) else ():
            source = as_text(mount.get("Source")) if isinstance(mount, dict) else None
            _, here, path = (source or "").rpartition(f"/{DATA}/")
            if here and job:
                found.setdefault(path, set()).add(job)
    return found
