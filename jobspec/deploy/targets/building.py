"""The image that a job has built: by which engine, and whether anybody has it already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from jobctl.jobspec.deploy.host.engine import Engine
from jobctl.jobspec.deploy.images.build import build_image, remove_name
from jobctl.jobspec.deploy.images.copy import HERE, ImageSources
from jobctl.jobspec.deploy.images.processors import made_for
from jobctl.jobspec.deploy.model.engine_kind import processor_name, runs
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.store.dockerfile import images, text_of
from jobctl.jobspec.deploy.targets.host_fleet import HostFleet
from jobctl.jobspec.deploy.transport.fanout import fan_out
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.plan.sent import Build
from jobctl.jobspec.plan.types import Plan


def build(fleet: HostFleet, plan: Plan, say: Callable[[str], None]) -> None:
    """Have the image of a plan built, unless a host of the job or this machine has it for the hosts. Raises DeployError."""
    made = plan.build
    if made is None:
        return
    sources = ImageSources(job for name, job in fleet.host_jobs.items() if name not in fleet.down)
    processors = _processors(fleet, plan)
    is_there = False
    for name in sources.have(made.image):
        other = _for_another(processors, sources.engine_of(name), made.image)
        if other is None:
            is_there = True
        elif len(set(processors.values())) > 1:  # some need what others cannot use
            raise other
        else:  # built for other hosts: these would get it from there
            say(f"{name} has {made.image} for another processor: it loses that name")
            _free_name(sources.engine_of(name), plan, made.image)
    if not is_there:
        engine = _builder(fleet, made)
        build_image(engine, made, plan.job, say)
        if (other := _for_another(processors, engine, made.image)) is not None:
            remove_name(engine, made.image)
            raise other
    _give_plain_name(fleet, made)


def _give_plain_name(fleet: HostFleet, made: Build) -> None:
    """Have the engine that builds also call the image by the name that the spec has for it, as Compose does.

    Also if the image was there, since that name may be another version's by now. It is for people, so nothing fails
    without it: the builder need not answer where somebody else has the image.
    """
    repository, _, tag = made.image.rpartition(":")
    name = tag.rpartition("-")[0] or "latest"
    with suppress(DeployError, OSError):
        names = {f"{repository}:{name}", repository} if name == "latest" else {f"{repository}:{name}"}
        bases = images(text_of(Path(made.dockerfile).read_bytes()), made.args)
        if not names & set(bases):  # the next build would begin with what this one made
            with _builder(fleet, made).asked() as client:
                client.tag(made.image, repository, name)


def _free_name(engine: Engine, plan: Plan, image: str) -> None:
    """Take its name away from an image that is for another processor. Raises HostError, also if containers use it."""
    try:
        remove_name(engine, image)
    except HostError as error:
        if error.code != "engine-refused":
            raise
        message = (
            f"its {image} is for another processor than the hosts have, and containers there use it: {error.cause}"
        )
        hint = f"`jobctl down {plan.job}` first, or remove those containers"
        raise HostError(error.host, "build-processor", message, hint) from error


def _for_another(processors: Mapping[str, str], engine: Engine, image: str) -> HostError | None:
    """Return the error of a host that has another processor than an engine's image is for, None if there is none."""
    there = made_for(engine, image) or ""
    for name, found in sorted(processors.items()):
        if not runs(found, there):
            message = f"the image that {engine.transport.host} has is for {there}, and this host has {found}"
            hint = f"`build: {{on: {name}}}` builds on such a host, or name the platform after FROM"
            return HostError(name, "build-processor", message, hint)
    return None


def _processors(fleet: HostFleet, plan: Plan) -> dict[str, str]:
    """Return the processors of the hosts of nodes, as far as they tell."""
    homes = {node.host.name for node in plan.nodes} - set(fleet.down)
    return {name: found for name, found in fan_out(homes, lambda name: _processor(fleet, name)).done.items() if found}


def _processor(fleet: HostFleet, name: str) -> str:
    """Return the processor of a host, as images call it; nothing where its engine does not say."""
    engine = fleet.host_jobs[name].engine
    with engine.asked() as client:
        return processor_name(engine.answer(client.info(), dict))


def _builder(fleet: HostFleet, made: Build) -> Engine:
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
