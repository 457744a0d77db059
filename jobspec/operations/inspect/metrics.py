"""Metrics of jobs that are up: from a look at their hosts, and from this machine's history."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import OperationError, UnknownJob
from jobctl.jobspec.operations.inspect.listing import KnownJobs
from jobctl.jobspec.operations.inspect.refreshed import Refreshed
from jobctl.jobspec.operations.inspect.report import story_of
from jobctl.jobspec.operations.resolve.job import job_of_name
from jobctl.jobspec.operations.resolve.running import KNOWN, directory_of_running

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.deploy.targets.sampling import HostSamplers, MachineSample
    from jobctl.jobspec.operations.inspect.listing import KnownJob
    from jobctl.jobspec.report.metrics import JobMetrics
    from jobctl.jobspec.report.report import Story

FRESH = 2.0  # seconds for which one look serves all who ask
SHARE = 400  # a story is told again after so many times as long as telling it took: that of a week takes seconds
WAIT = 1.0  # seconds for which a look waits for a story
RECENT = 1 << 16  # bytes of recorded progress, far more than a minute has


class MetricsSource:
    """Looks at jobs, and keeps the connections to their hosts open for the next look.

    `chosen` are names of jobs; None: all that are up, whichever these are at the time. `live`: who asks again and again
    does not wait for hosts that are silent.
    """

    def __init__(self, chosen: Sequence[str] | None, *, live: bool = False) -> None:
        self.chosen, self.clock = chosen, time.time
        self.steady = time.monotonic  # seconds, by a clock that nobody sets
        self._jobs = KnownJobs(live=live)
        self._live = live
        self._samplers: dict[str, HostSamplers] = {}
        self._stories: dict[str, Refreshed[Story | None]] = {}
        self._lock = threading.Lock()
        self._last: tuple[float, str] | None = None

    def text(self) -> str:
        """Return the metrics of now. Several threads may ask: the hosts are asked once."""
        from jobctl.jobspec.deploy.targets.sampling import MachineSample
        from jobctl.jobspec.report.metrics import metrics_text

        with self._lock:
            now = self.clock()
            if self._last is None or not 0 <= now - self._last[0] < FRESH:
                here = MachineSample()
                directories = self._directories()
                self._forget({directory.name for directory in directories})
                jobs = zip(directories, self._jobs.look_at_all(directories), strict=True)
                found = [self._job(directory, job, now, here) for directory, job in jobs]
                self._last = now, metrics_text(one for one in found if one is not None)
            return self._last[1]

    def close(self) -> None:
        """Let go of all connections."""
        self._forget(set())

    def _forget(self, names: set[str]) -> None:
        """Let go of the connections of all jobs but `names`: the others are not up any more."""
        for name in self._samplers.keys() - names:
            self._samplers.pop(name).close()
        for name in self._stories.keys() - names:
            del self._stories[name]
        self._jobs.drop_others(names)

    def _directories(self) -> list[JobDir]:
        if self.chosen is None:
            return self._jobs.directories()
        return [job_of_name(name) for name in self.chosen]

    def _job(self, directory: JobDir, job: KnownJob, now: float, here: MachineSample) -> JobMetrics | None:
        """Return what is known of a job, None of one that is not up, or that this version cannot read."""
        from jobctl.jobspec.deploy.model.observed import phase
        from jobctl.jobspec.deploy.store.history import read_progress
        from jobctl.jobspec.deploy.targets.sampling import HostSamplers, sample_hosts
        from jobctl.jobspec.report.metrics import JobMetrics

        if not job.about:
            return None
        plan = directory.plan()
        known = (job.name, plan.framework if plan else None, job.about.get("target"), now)
        if job.handle is None or job.observed is None or not job.answered:
            self._jobs.drop(job.name)  # it is reached in another way, perhaps
            return JobMetrics(*known, None, "unknown")
        observed = job.observed
        hosts = sorted({node.host for node in observed.members if node.reachable and node.host})
        samplers = self._samplers.setdefault(job.name, HostSamplers(live=self._live))
        samples = sample_hosts(job.handle, hosts, samplers, here)
        progress = read_progress(directory.progress, RECENT)
        return JobMetrics(*known, observed, phase(observed)[0], self._story(directory), progress, samples)

    def _story(self, directory: JobDir) -> Story | None:
        """Return the story of a job; who asks again and again gets it as it was told last."""

        def tell() -> Story | None:
            with suppress(OperationError):
                return story_of(directory)
            return None

        if not self._live:
            return tell()
        told = self._stories.setdefault(directory.name, Refreshed(tell, lambda: self.steady(), SHARE))
        return told.get(WAIT)[0]


def metrics_of(jobs: Sequence[str], *, live: bool = False) -> MetricsSource:
    """Return the source of metrics of some jobs, each once, by name or spec file; of all that are up if none is named.

    Raises Refused for a job that is not known here.
    """
    try:
        names = dict.fromkeys(directory_of_running(job).name for job in jobs)
    except UnknownJob as unknown:  # nobody can name hosts
        raise UnknownJob(unknown.message, KNOWN) from unknown
    return MetricsSource(list(names) or None, live=live)
