"""Metrics of jobs that are up: from a look at their hosts, and from this machine's history."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import OperationError
from jobctl.jobspec.operations.inspect.report import story_of
from jobctl.jobspec.operations.resolve.job import job_of_name
from jobctl.jobspec.operations.resolve.running import directory_of_running, known_handle

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.report.metrics import JobMetrics

FRESH = 2.0  # seconds for which one look serves all who ask


class MetricsSource:
    """Looks at jobs, and keeps the connections to their hosts open for the next look.

    `chosen` are names of jobs; None: all that are up, whichever these are at the time.
    """

    def __init__(self, chosen: Sequence[str] | None, clock: Callable[[], float] = time.time) -> None:
        self.chosen, self.clock = chosen, clock
        self._handles: dict[str, tuple[object, Handle]] = {}
        self._lock = threading.Lock()
        self._last: tuple[float, str] | None = None

    def text(self) -> str:
        """Return the metrics of now. Several threads may ask: the hosts are asked once."""
        from jobctl.jobspec.report.metrics import metrics_text

        with self._lock:
            now = self.clock()
            if self._last is None or not 0 <= now - self._last[0] < FRESH:
                found = [self._job(directory, now) for directory in self._directories()]
                self._last = now, metrics_text(one for one in found if one is not None)
            return self._last[1]

    def close(self) -> None:
        """Let go of all connections."""
        for _, handle in self._handles.values():
            handle.close()
        self._handles.clear()

    def _directories(self) -> list[JobDir]:
        import os

        from jobctl.jobspec.deploy.store.jobdir import readable_jobs, state_dir

        if self.chosen is None:
            return list(readable_jobs(state_dir(os.environ)))
        return [job_of_name(name) for name in self.chosen]

    def _job(self, directory: JobDir, now: float) -> JobMetrics | None:
        """Return what is known of a job, None of one that is not up."""
        from jobctl.jobspec.deploy.apply.deployer import AllUnreachable
        from jobctl.jobspec.deploy.model.errors import DeployError
        from jobctl.jobspec.deploy.model.observed import phase
        from jobctl.jobspec.deploy.store.history import read_progress
        from jobctl.jobspec.deploy.targets.sampling import sample_hosts
        from jobctl.jobspec.report.metrics import JobMetrics

        plan, about = directory.plan(), directory.about()
        if about is None:
            return None
        known = (directory.name, plan.framework if plan else None, about.get("target"), now)
        try:
            handle = self._handle(directory)
            observed = handle.observe()
        except (AllUnreachable, DeployError, OperationError):
            self._drop(directory.name)  # it is reached in another way, perhaps
            return JobMetrics(*known, None, "unknown")
        story = None
        with suppress(OperationError):
            story = story_of(directory)
        hosts = sorted({node.host for node in observed.members if node.reachable and node.host})
        samples = sample_hosts(handle, hosts)
        return JobMetrics(*known, observed, phase(observed)[0], story, read_progress(directory.progress), samples)

    def _handle(self, directory: JobDir) -> Handle:
        """Return the handle of a job: that of the last look, unless the job was brought up again since then."""
        stamp, kept = directory.stamp(), self._handles.get(directory.name)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        self._drop(directory.name)
        handle = known_handle(directory)
        self._handles[directory.name] = stamp, handle
        return handle

    def _drop(self, name: str) -> None:
        kept = self._handles.pop(name, None)
        if kept is not None:
            kept[1].close()


def metrics_of(jobs: Sequence[str]) -> MetricsSource:
    """Return the source of metrics of some jobs, by name or spec file; of all that are up if none is named.

    Raises Refused for a job that is not known here.
    """
    return MetricsSource([directory_of_running(job).name for job in jobs] if jobs else None)
