"""Jobs that run: which one is meant, and where its traces are."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import UnknownJob
from jobctl.jobspec.operations.resolve.job import (
    AS_STARTED,
    DEFAULT_SPEC,
    Reached,
    is_spec_file,
    job_of_name,
)
from jobctl.jobspec.operations.resolve.names import name_of
from jobctl.jobspec.operations.targets.choose import names_cluster, target_of
from jobctl.jobspec.operations.targets.table import finder_of, found_in_spec
from jobctl.jobspec.spec.targets import PlaceKind, traits_of

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle
    from jobctl.jobspec.deploy.store.jobdir import JobDir

KNOWN = "`jobctl list` shows the jobs that are known, `jobctl up` starts one"


def find_running(job: str | None, reached: Reached = AS_STARTED, name: str | None = None) -> tuple[PlaceKind, Handle]:
    """Return where a job is that is up, or was and left a trace, and the job. Raises Refused for one that is not known.

    `name` is its name, if JOB need not tell it: what came by a descriptor is not read again then.
    """
    from jobctl.jobspec.spec.reading.source import is_descriptor

    reached = reached_by_default(job, reached, name)
    directory = directory_of_running(job, reached, name)
    target = target_of(directory, reached)
    anywhere = reached.hosts is None and not names_cluster(reached)
    spec = Path(job or DEFAULT_SPEC)
    is_file = (job is None or is_spec_file(job)) and not (name is not None and is_descriptor(spec))
    if anywhere and directory.job_record() is None and is_file:
        found = found_in_spec(spec, directory, reached)
        if found is not None:
            return found
    return traits_of(target).place, finder_of(target).known(directory, reached)


def running_handle(job: str | None, reached: Reached = AS_STARTED) -> Handle:
    """Return what a job is looked at through, for those who do not change it: they need not load what changes jobs."""
    return find_running(job, reached)[1]


def reached_by_default(job: str | None, reached: Reached, name: str | None = None) -> Reached:
    """Return `reached` with the user's default hosts file, for a job of which there is no trace here."""
    from jobctl.jobspec.operations.resolve.settings import default_hosts, has_defaults

    if reached.hosts is not None or names_cluster(reached) or not has_defaults(os.environ):
        return reached
    if job_of_name(name or name_of(job, reached)).is_known():
        return reached
    return replace(reached, hosts=default_hosts().value)


def directory_of_running(job: str | None, reached: Reached = AS_STARTED, name: str | None = None) -> JobDir:
    """Return the directory of a job that is up, or was and left a trace. Raises Refused for one that is not known."""
    name = name or name_of(job, reached)
    directory = job_of_name(name)
    named = job is not None and not is_spec_file(job)
    anywhere = reached.hosts is None and not names_cluster(reached)
    if named and anywhere and directory.job_record() is None and not directory.is_known():
        raise UnknownJob(
            f"no job `{name}` is known here",
            f"it may run on hosts that jobctl cannot know here: `--hosts hosts.txt` names them; {KNOWN}",
        )
    return directory
