"""The jobs that are known here, and those on hosts."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import closing
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from jobctl.jobspec.operations.errors import OperationError, Refused
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Failures, Handle
    from jobctl.jobspec.deploy.host.host_job import HostJob
    from jobctl.jobspec.deploy.model.errors import DeployError
    from jobctl.jobspec.deploy.model.observed import Observed
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.deploy.store.past import PastJob
    from jobctl.jobspec.operations.resolve.job import Reached

T = TypeVar("T")
MAX_LOOKS = 8  # jobs that are looked at side by side: sshd refuses some of more than 10 logins that begin at once


@dataclass(frozen=True, slots=True)
class KnownJob:
    """A job that is up: how it was started, and how it is. Where that cannot be seen, `error` says why.

    `answered`: whether at least one of its hosts did.
    """

    name: str
    about: dict[str, Any] = field(default_factory=dict)
    handle: Handle | None = None
    observed: Observed | None = None
    error: OperationError | DeployError | None = None
    answered: bool = True


class KnownJobs:
    """The jobs that were started here and are up, to be looked at again and again.

    Connections to their hosts stay open between two looks. Several threads may look at several jobs, one at each. `live`:
    no look waits for a host that is silent.
    """

    def __init__(self, *, live: bool = False) -> None:
        self._live = live
        self._handles: dict[str, tuple[object, Handle]] = {}
        self._slots = threading.BoundedSemaphore(MAX_LOOKS)

    def directories(self) -> list[JobDir]:
        """Return the directories of the jobs that are up, in order of their names."""
        from jobctl.jobspec.deploy.store import jobdir

        return list(jobdir.known_jobs(jobdir.state_dir(os.environ)))

    def look(self, directory: JobDir) -> KnownJob:
        """Return how a job is now. One that is not up has neither a handle nor an error."""
        return _observed(self._opened(directory))

    def look_at_all(self, directories: Sequence[JobDir]) -> Iterator[KnownJob]:
        """Yield how jobs are now, in order: they are looked at side by side, for the hosts of several may be silent."""
        # One after the other: what a kubeconfig runs for a cluster may ask a person for something.
        opened = [self._opened(directory) for directory in directories]
        looks = [self.begin(partial(_observed, job)) for job in opened]
        try:
            for look in looks:
                yield look.result()
        finally:
            for left in looks:
                left.cancel()
            wait(looks)  # each job is looked at once at a time

    def begin(self, look: Callable[[], T]) -> Future[T]:
        """Begin a look beside others, once fewer than MAX_LOOKS go on. A command that ends does not wait for it."""
        begun: Future[T] = Future()

        def work() -> None:
            with self._slots:
                if not begun.set_running_or_notify_cancel():
                    return
                try:
                    begun.set_result(look())
                except BaseException as error:
                    begun.set_exception(error)

        # The threads of an executor are waited for where the process ends.
        threading.Thread(target=work, daemon=True, name="look").start()
        return begun

    def _opened(self, directory: JobDir) -> KnownJob:
        """Return a job as it was started; nobody has looked at it yet."""
        from jobctl.jobspec.deploy.model.errors import DeployError

        job = KnownJob(directory.name)
        try:
            about = directory.job_record()
            if about is None:
                return job
            job = replace(job, about=about)
            return replace(job, handle=self.handle(directory))
        except (OperationError, DeployError, OSError) as error:  # its context has gone from the kubeconfig, say
            return _unseen(job, error)

    def handle(self, directory: JobDir) -> Handle:
        """Return the handle of a job: that of the last look, unless the job was brought up again since then."""
        from jobctl.jobspec.operations.targets.table import known_handle

        stamp, kept = directory.stamp(), self._handles.get(directory.name)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        self.drop(directory.name)
        handle = known_handle(directory)
        if self._live:
            from jobctl.jobspec.operations.inspect.status import look_on

            look_on(handle)
        self._handles[directory.name] = stamp, handle
        return handle

    def drop(self, name: str) -> None:
        """Let go of the connections of a job: the next look makes others."""
        kept = self._handles.pop(name, None)
        if kept is not None and self._live:  # a connection that is being made cannot be closed before that has failed
            threading.Thread(target=kept[1].close, daemon=True, name="close").start()
        elif kept is not None:
            kept[1].close()

    def drop_others(self, names: Collection[str]) -> None:
        """Let go of the connections of all jobs but `names`."""
        for name in self._handles.keys() - set(names):
            self.drop(name)

    def close(self) -> None:
        """Let go of all connections."""
        self.drop_others(())


def _observed(job: KnownJob) -> KnownJob:
    """Return how a job is now that can be reached."""
    from jobctl.jobspec.deploy.apply.deployer import AllUnreachable
    from jobctl.jobspec.deploy.model.errors import DeployError

    if job.handle is None:
        return job
    try:
        return replace(job, observed=job.handle.observe())
    except AllUnreachable as nothing:
        return replace(job, observed=nothing.observed, answered=False)
    except (OperationError, DeployError, OSError) as error:
        return _unseen(job, error)


def _unseen(job: KnownJob, error: OperationError | DeployError | OSError) -> KnownJob:
    """Return a job that cannot be seen, and why."""
    if isinstance(error, OSError):  # its files belong to another user, say: the other jobs are seen all the same
        error = Refused(f"cannot read {error.filename}: {error.strerror}", "it may be another user's")
    return replace(job, handle=None, error=error, answered=False)


def known_jobs() -> Iterator[KnownJob]:
    """Yield the jobs that were started here and are up."""
    with closing(KnownJobs()) as jobs:
        yield from jobs.look_at_all(jobs.directories())


def jobs_that_are_down() -> Iterator[PastJob]:
    """Yield the jobs that are not known as up, as far as this machine has a history of them."""
    from jobctl.jobspec.deploy.store import jobdir, past

    yield from past.past_jobs(jobdir.state_dir(os.environ))


@dataclass(frozen=True, slots=True)
class HostJobs:
    """The jobs on one host, all of its devices, and those that no job has."""

    host: str
    jobs: Sequence[dict[str, Any]]
    devices: Sequence[str]
    free: Sequence[str]


def hosts_of_file(hosts: Path, reached: Reached) -> dict[str, HostJob]:
    """Return the hosts of a hosts file by name, to look at them without a job. Raises Refused."""
    from jobctl.jobspec.deploy.model.inventory import Inventory
    from jobctl.jobspec.deploy.targets.hosts import Hosts
    from jobctl.jobspec.operations.resolve.job import Where, job_of_name, known_hosts
    from jobctl.jobspec.operations.resolve.planning import ssh_options
    from jobctl.jobspec.operations.targets.choose import NO_JOB

    reach = Inventory(known_hosts(Where(hosts=hosts)), ssh_options(reached.ssh_config, reached.accept_new, None))
    return dict(Hosts(job_of_name("list"), NO_JOB, reach).host_jobs)


def jobs_on_hosts(hosts: Path, reached: Reached) -> tuple[list[HostJobs], Failures]:
    """Return the jobs on hosts with their owners and devices, and the hosts that do not answer."""
    from jobctl.jobspec.deploy.transport.fanout import failures_of, fan_out

    host_jobs = list(hosts_of_file(hosts, reached).values())
    outcome = fan_out(host_jobs, _on_host)
    return [outcome.done[host_job] for host_job in host_jobs if host_job in outcome.done], failures_of(outcome)


def _on_host(host_job: HostJob) -> HostJobs:
    from jobctl.jobspec.deploy.host.devices import all_devices
    from jobctl.jobspec.deploy.host.devices_in_use import jobs_of

    jobs = jobs_of(host_job)
    used = {device for job in jobs for device in job["devices"]}
    host = host_job.host
    known = host.devices if host.devices is not None else tuple(range(host.slots)) if host.slots is not None else None
    every = all_devices(host_job, known)
    free = [device for device in every if device.partition(":")[2] not in {d.partition(":")[2] for d in used}]
    return HostJobs(host.name, jobs, every, free)
