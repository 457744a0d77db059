"""`scale`: `up` of the same job, with another number of nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.operations.lifecycle.open import planned_job, running_job
from jobctl.jobspec.operations.resolve.drift import compiled_as_started, say_drift
from jobctl.jobspec.operations.resolve.job import Reached, Where, as_started, check, compiled_of, job_of_name
from jobctl.jobspec.operations.resolve.names import name_of
from jobctl.jobspec.operations.resolve.ownership import refuse_other_folder, refuse_superseded
from jobctl.jobspec.operations.unsupported import refuse_unsupported
from jobctl.jobspec.spec.targets import traits_of

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle
    from jobctl.jobspec.operations.lifecycle.base import Applied, JobOnTarget, UpOptions
    from jobctl.jobspec.operations.reporter import Reporter


def scale_job(
    job: str | None, count: int, reached: Reached, options: UpOptions, reporter: Reporter
) -> tuple[Handle, Applied]:
    """Bring the job up with `count` nodes; everything else is as it was started."""
    from jobctl.jobspec.deploy.model.observed import SETTLED, phase

    name = name_of(job)
    directory = job_of_name(name)
    about = directory.about()
    if about is None:
        raise Refused(f"job `{name}` is not up", "`jobctl up` starts it")
    refuse_unsupported(about.get("target"), "scale")
    refuse_other_folder(directory, job, options.take_over)
    if traits_of(str(about.get("target"))).in_allocation:
        found = running_job(job, reached)
        return found.handle, _in_allocation(found, count, options, reporter)
    compiled = compiled_as_started(name) or compiled_of(check(job, about.get("set"), as_started(job, Where())))
    say_drift(directory, reporter)
    planned = planned_job(compiled, reached, count)
    deployer = planned.job.deployer("scale")
    observed = deployer.observe()
    refuse_superseded(deployer, observed, options.take_over)
    now, _ = phase(observed)
    if now in SETTLED:
        raise Refused(f"job `{name}` is {now}: there is nothing to scale", "`jobctl up` starts it")
    return deployer, planned.up(replace(options, start=deployer.started_with()), reporter)


def _in_allocation(job: JobOnTarget, count: int, options: UpOptions, reporter: Reporter) -> Applied:
    """Have the allocation of a job go on with `count` nodes: it has its machines already."""
    from jobctl.jobspec.operations.lifecycle.in_allocation import SlurmJob

    assert isinstance(job, SlurmJob)
    return job.scale(count, options, reporter)
