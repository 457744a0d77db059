"""`scale`: the same job, with another number of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.operations.lifecycle.base import JobRequest, ScaleRequest
from jobctl.jobspec.operations.lifecycle.open import change_job
from jobctl.jobspec.operations.resolve.job import AS_STARTED, Reached, Where, job_of_name
from jobctl.jobspec.operations.resolve.names import name_of
from jobctl.jobspec.operations.targets.choose import choose_target, target_of
from jobctl.jobspec.operations.unsupported import refuse_unsupported

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle
    from jobctl.jobspec.operations.lifecycle.base import Applied, JobOnTarget, UpOptions
    from jobctl.jobspec.operations.reporter import Reporter


def scale_job(
    job: str | None, count: int, reached: Reached, options: UpOptions, reporter: Reporter
) -> tuple[Handle, Applied]:
    """Give the job `count` nodes; everything else is as it was started, except the hosts if `reached` names a file."""
    name = name_of(job)
    directory = job_of_name(name)
    about = directory.job_record()
    if about is None:
        raise Refused(f"job `{name}` is not up", "`jobctl up` starts it")
    refuse_unsupported(about.get("target"), "scale")
    choose_target(Where(target_of(directory, AS_STARTED), reached.hosts))  # which may take no hosts

    def change(found: JobOnTarget) -> tuple[Handle, Applied]:
        done = found.scale(ScaleRequest(job, count, reached, options), reporter)
        return found.handle, done  # of that many nodes

    return change_job(job, reached, JobRequest(take_over=options.take_over), change)
