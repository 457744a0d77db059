"""The image that a job has built: by which engine, and whether anybody has it already."""

from __future__ import annotations

from collections.abc import Callable

from jobctl.jobspec.deploy.host.engine import Engine
from jobctl.jobspec.deploy.host.image_build import build_image
from jobctl.jobspec.deploy.host.image_copy import HERE, ImageSources
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.targets.fleet import Fleet
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.plan.sent import Build
from jobctl.jobspec.plan.types import Plan


def build(fleet: Fleet, plan: Plan, say: Callable[[str], None]) -> None:
    """Have the image of a plan built, unless a host of the job or the builder has it. Raises DeployError."""
    made = plan.build
    if made is None:
        return
    sources = ImageSources(job for name, job in fleet.host_jobs.items() if name not in fleet.down)
    if not sources.have(made.image):
        build_image(_builder(fleet, made), made, plan.job, say)


def _builder(fleet: Fleet, made: Build) -> Engine:
    """Return the engine that builds: that of `build.on`, or of this machine, for which the hosts file may name another."""
    if made.on is None or made.on == "localhost":
        here = (job.engine for job in fleet.host_jobs.values() if isinstance(job.transport, LocalTransport))
        return next(here, None) or Engine(LocalTransport(HERE))
    if made.on in fleet.down:
        raise fleet.down[made.on]
    if made.on not in fleet.host_jobs:
        message = "`build.on` names it, and it is not among the hosts of the job"
        raise HostError(made.on, "build-host", message, "name one of the hosts file that `--on` and `--exclude` leave")
    return fleet.host_jobs[made.on].engine
