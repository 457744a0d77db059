"""Images on hosts: pulled through the host's engine with the user's own credentials, which are stored nowhere."""

from __future__ import annotations

from functools import partial

from jobctl.jobspec.deploy.site import Site
from jobctl.jobspec.deploy.transport import HostError
from jobctl.jobspec.plan.types import Container

SILENCE = 600.0  # seconds without progress after which a pull is given up


def ensure(site: Site, container: Container) -> str:
    """Have the container's image on the host, as its `pull` says; return the image's id. Raises HostError."""
    image = container.image
    found = image_id(site, image)
    if container.pull == "always" or (found is None and container.pull == "missing"):
        _pull(site, image)
        found = image_id(site, image)
    if found is None:
        raise HostError(
            site.host.name,
            "image-missing",
            f"it has no image `{image}`",
            "`docker load` it there, or let jobctl pull it: `pull: missing`",
        )
    return found


def image_id(site: Site, image: str) -> str | None:
    """Return the id of an image on the host, None if it is not there."""
    from docker.errors import ImageNotFound

    def refused(words: str) -> HostError:
        return HostError(site.host.name, "bad-image", f"`{image}`: {words}")

    with site.engine.asked(refused) as client:
        try:
            return str(client.inspect_image(image)["Id"])
        except ImageNotFound:
            return None


def can_be_pulled(site: Site, image: str) -> None:
    """Ask the registry, through the host's engine, whether it would give the image. Raises HostError if not."""
    with site.engine.asked(partial(_refused, site, image)) as client:
        client.inspect_distribution(image, auth_config=_credentials(site, image))


def _credentials(site: Site, image: str) -> dict[str, str] | None:
    """Return the user's own credentials for the image's registry, None if there are none."""
    from docker.auth import load_config, resolve_repository_name
    from docker.errors import DockerException
    from docker.utils import parse_repository_tag

    try:
        registry, _ = resolve_repository_name(parse_repository_tag(image)[0])
        found: dict[str, str] | None = load_config().resolve_authconfig(registry)
    except DockerException as error:
        raise HostError(
            site.host.name,
            "bad-credentials",
            f"cannot use your Docker credentials for `{image}`: {error}",
            "`docker login` here",
        ) from error
    return found or None


def _pull(site: Site, image: str) -> None:
    from docker.utils import parse_repository_tag

    repository, tag = parse_repository_tag(image)
    credentials = _credentials(site, image)
    with site.engine.asked(partial(_refused, site, image)) as client:
        timeout, client.timeout = client.timeout, SILENCE
        try:
            for line in client.pull(repository, tag=tag or "latest", stream=True, decode=True, auth_config=credentials):
                if "error" in line:
                    raise _refused(site, image, str(line["error"]))
        finally:
            client.timeout = timeout


_CAUSES = (
    ("no space left", "disk-full", "make room where Docker keeps its data (`docker system df`)"),
    ("denied", "image-refused", "is the name right? `docker login` here: your credentials are used, not the host's"),
    ("unauthorized", "image-refused", "`docker login` here: your credentials are used, not the host's"),
    ("manifest unknown", "image-unknown", "is the tag right?"),
    ("not found", "image-unknown", "is the name right?"),
    ("no such host", "registry-unreachable", "the host cannot resolve the registry's name: is it in its DNS?"),
    ("connection refused", "registry-unreachable", "can the host reach the registry? `docker load` needs none"),
    ("timeout", "registry-unreachable", "can the host reach the registry? `docker load` needs none"),
)


def _refused(site: Site, image: str, text: str) -> HostError:
    for sign, code, hint in _CAUSES:
        if sign in text.lower():
            return HostError(site.host.name, code, f"cannot pull `{image}`: {text}", hint)
    return HostError(site.host.name, "cannot-pull", f"cannot pull `{image}`: {text}", "try `docker pull` there")
