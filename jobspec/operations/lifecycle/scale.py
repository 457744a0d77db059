"""`scale`: the same job, with another number of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.operations.lifecycle.applying import while_others_change
from jobctl.jobspec.operations.lifecycle.base import ScaleRequest
from jobctl.jobspec.operations.lifecycle.open import running_job
from jobctl.jobspec.operations.resolve.job import Reached, job_of_name
from jobctl.jobspec.operations.resolve.names import name_of
from jobctl.jobspec.operations.resolve.ownership import refuse_other_folder
from jobctl.jobspec.operations.unsupported import refuse_unsupported

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Handle
    from jobctl.jobspec.operations.lifecycle.base import Applied, UpOptions
    from jobctl.jobspec.operations.reporter import Reporter


def scale_job(
    job: str | None, count: int, reached: Reached, options: UpOptions, reporter: Reporter
) -> tuple[Handle, Applied]:
    """Give the job `count` nodes; everything else is as it was started."""
    return while_others_change(lambda: _scale(job, count, reached, options, reporter))


def _scale(
    job: str | None, count: int, reached: Reached, options: UpOptions, reporter: Reporter
) -> tuple[Handle, Applied]:
    name = name_of(job)
    directory = job_of_name(name)
    about = directory.about()
    if about is None:
        raise Refused(f"job `{name}` is not up", "`jobctl up` starts it")
    refuse_unsupported(about.get("target"), "scale")
    refuse_other_folder(directory, job, options.take_over)
    found = running_job(job, reached)
    done = found.scale(ScaleRequest(job, count, reached, options), reporter)
    return found.handle, done
