"""The user's own credentials for registries. They may be with a helper, a program of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jobctl.jobspec.deploy.model.errors import HostError


@contextmanager
def reading_credentials(host: str, image: str) -> Iterator[None]:
    """Have what goes wrong while they are read for an image on `host` become a HostError, and no failure of its engine."""
    from docker.errors import DockerException

    try:
        yield
    except DockerException as error:
        message = f"cannot use your Docker credentials for `{image}`: {error}"
        raise HostError(host, "bad-credentials", message, "`docker login` here") from error
