"""The image that a spec has built: its name, and which files its engine does not get."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import HostsFailed, Refused
from jobctl.jobspec.operations.resolve.code import no_code, say_left_out
from jobctl.jobspec.spec.targets import traits_of

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Deployer
    from jobctl.jobspec.operations.reporter import Reporter
    from jobctl.jobspec.operations.resolve.job import Compiled
    from jobctl.jobspec.plan.sent import Build
    from jobctl.jobspec.plan.types import Plan


def build_of_job(compiled: Compiled) -> Build | None:
    """Return what the image of a job is built from, None if jobctl does not build it: only hosts get it."""
    from jobctl.jobspec.planner.code import build_of

    builds = traits_of(compiled.target).takes_hosts
    build = build_of(compiled.spec, str(compiled.directory)) if builds else None
    if build is None:
        return None
    return with_withheld(build, compiled.path, compiled.hosts_path)


def with_withheld(build: Build, path: Path, hosts: Path | None) -> Build:
    """Return `build` with the files of the spec's folder that belong to no image."""
    return replace(build, withheld=(*build.withheld, *no_code(path, hosts)))


def built_image(compiled: Compiled) -> str | None:
    """Return the name of the image that a job has built, None if none is. Its tag tells the content.

    Nobody is asked for that: it follows from files of this machine. Raises Refused if they are not there.
    """
    spec, build = compiled.spec, build_of_job(compiled)
    if build is None:
        return None
    from jobctl.jobspec.deploy.model.errors import DeployError
    from jobctl.jobspec.deploy.store.build_context import context_of
    from jobctl.jobspec.planner.code import tagged

    try:
        return tagged(spec.image or spec.name, context_of(build, spec.name).version(build))
    except DeployError as error:
        raise Refused(error.message, error.hint) from error


def say_not_built(compiled: Compiled, reporter: Reporter) -> None:
    """Tell which files of the build's folder its engine does not get."""
    build = build_of_job(compiled)
    if build is None:
        return
    from jobctl.jobspec.deploy.model.errors import DeployError
    from jobctl.jobspec.deploy.store.build_context import context_of

    try:
        left_out = context_of(build, compiled.spec.name).left_out
    except DeployError:
        return  # whoever plans the job says so
    say_left_out(left_out, reporter, "not in the build", "a line such as `!NAME` in .dockerignore takes a file back")


def have_built(deployer: Deployer, plan: Plan, reporter: Reporter) -> None:
    """Have the image of a plan built, where it is not there yet. Raises HostsFailed; nothing was changed then."""
    from jobctl.jobspec.deploy.model.errors import DeployError

    try:
        deployer.build(plan, reporter.say)
    except DeployError as error:
        between = "\n" if "\n" in error.message else "; "
        raise HostsFailed(f"{error.message}{between}nothing was changed", error.hint, kind=error.code) from error
