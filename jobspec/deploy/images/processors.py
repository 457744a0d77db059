"""Which processors an image is for: engines take one for any, and warn at most. Its containers then end at once."""

from __future__ import annotations

from jobctl.jobspec.deploy.host.engine import Engine
from jobctl.jobspec.deploy.model.engine_kind import processor_name, runs


def made_for(engine: Engine, image: str) -> str | None:
    """Return the processor that an image of an engine is for, empty if it does not say; None if there is no such image."""
    from docker.errors import ImageNotFound

    with engine.asked() as client:
        try:
            return processor_name(engine.answer(client.inspect_image(image), dict))
        except ImageNotFound:
            return None


def misfit(engine: Engine, image: str) -> str | None:
    """Say in words that an image of an engine is for another processor than its host has; None if it is not."""
    there, has = made_for(engine, image), engine.kind().processor
    return None if there is None or runs(has, there) else f"is for {there}, and this host has {has}"
