"""Images on hosts: pulled through the host's engine with the user's own credentials, which are stored nowhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from jobctl.jobspec.deploy.host.engine import patient
from jobctl.jobspec.deploy.host.handing_on import ARRIVING
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.images.copy import ImageSources
from jobctl.jobspec.deploy.images.credentials import reading_credentials
from jobctl.jobspec.deploy.images.processors import misfit
from jobctl.jobspec.deploy.model.control import Image
from jobctl.jobspec.deploy.model.engine_kind import CONTENT, image_content, processor_name, runs
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.untrusted import texts
from jobctl.jobspec.plan.types import Container


def ensure(host_job: HostJob, container: Container, sources: ImageSources, found: Image | None = None) -> Image:
    """Have the container's image on the host, as its `pull` says; return what its name means there. Raises HostError.

    `found` is what the name means there, if that was looked at.
    An engine among the `sources` that has the image comes before the registry, except with `pull: always`, and except
    where one of them has just pulled it: then the registry comes first, since handing on has failed. An image for another
    processor counts as missing, except with `pull: never`.
    """
    image = container.image
    found = found or look(host_job, image, fit=container.pull != "never")
    if container.pull == "always":
        if found is None or not sources.is_current(image, host_job.host.name):
            pull(host_job, image)
            found = look(host_job, image)
    elif found is None:
        found = _fetch(host_job, container, sources)
    if found is None:
        raise missing(host_job.host.name, image, sources.have(image))
    return found


def _fetch(host_job: HostJob, container: Container, sources: ImageSources) -> Image | None:
    """Bring an image that is not there, by one way or the other; None if no way has it. Raises HostError."""
    image, in_vain = container.image, list[HostError]()
    ways: list[Callable[[], object]] = [lambda: sources.copy(host_job, image)]
    if container.pull == "missing":
        ways.insert(0 if sources.is_current(image) else 1, lambda: pull(host_job, image))
    for way in ways:
        try:
            way()
            if (found := look(host_job, image, fit=True)) is not None:
                host_job.remove([str(host_job.own / ARRIVING)])  # what it may have got of it from other hosts
                return found
        except HostError as error:
            in_vain.append(error)
            if way is not ways[-1]:
                host_job.tell(f"{error.message}: jobctl tries another way")
    if (found := look(host_job, image)) is not None:  # for another processor, which the host may emulate
        host_job.tell(f"{host_job.host.name}: its image `{image}` {misfit(host_job.engine, image)}")
        return found
    if in_vain:
        raise in_vain[0]
    return None


def missing(host: str, image: str, others: Sequence[str] = ()) -> HostError:
    """Return the error for a host that cannot get an image; `others` have it, for another processor."""
    nobody = "nor has another host of the job or this machine's engine"
    return HostError(
        host,
        "image-missing",
        f"it has no image `{image}`, {f'and {others[0]} has it for another processor' if others else nobody}",
        "`docker load` it on one of them, or let jobctl pull it: `pull: missing`",
    )


def common_image(found: Iterable[Image]) -> Image | None:
    """Return what an image's name means on several hosts, None for no host."""
    every = list(found)
    if not every:
        return None
    ids = sorted({image_id for image in every for image_id in image.ids})
    return Image(every[0].name, tuple(ids), tuple(sorted({digest for image in every for digest in image.digests})))


def pinned_image(host_job: HostJob, container: Container, pinned: Image | None) -> str | None:
    """Return what to start instead of the container's image so that it is the `pinned` one, None if it is as it is.

    The name may mean something newer on the host by now, or nothing; the image is pulled by its digest where it is not
    there. Raises HostError where it cannot be had.
    """
    if pinned is None or pinned.name != container.image:
        return None
    now = look(host_job, container.image)
    if now is not None and set(now.ids) & set(pinned.ids):
        return None
    for reference in (*(one for one in pinned.ids if not one.startswith(CONTENT)), *pinned.digests):
        if look(host_job, reference) is not None:
            return reference
    for digest in pinned.digests if container.pull != "never" else ():
        pull(host_job, digest)
        return digest
    raise HostError(
        host_job.host.name,
        "image-missing",
        f"it has not the image that `{container.image}` meant at `up`",
        "`docker load` it there, or `jobctl up` with the image that the name means now",
    )


def look(host_job: HostJob, image: str, *, fit: bool = False) -> Image | None:
    """Return what a name (or id, or digest) of an image means on the host, None if nothing.

    To `fit`, it has to be for the host's processor.
    """
    from docker.errors import ImageNotFound

    def refused(words: str) -> HostError:
        return HostError(host_job.host.name, "bad-image", f"`{image}`: {words}")

    with host_job.engine.asked(refused) as client:
        try:
            data = host_job.engine.answer(client.inspect_image(image), dict)
        except ImageNotFound:
            return None
    if fit and not runs(host_job.engine.kind().processor, processor_name(data)):
        return None
    return Image(image, (str(data.get("Id")), image_content(data)), texts(data.get("RepoDigests")))


def digest_in_registry(host_job: HostJob, image: str) -> str:
    """Ask the registry, through the host's engine, what an image's name means there. Raises HostError if it gives none."""
    with host_job.engine.asked(partial(_refused, host_job, image)) as client:
        told = client.inspect_distribution(image, auth_config=_credentials(host_job, image))
    return str((host_job.engine.answer(told, dict).get("Descriptor") or {}).get("digest"))


def _credentials(host_job: HostJob, image: str) -> dict[str, str] | None:
    """Return the user's own credentials for the image's registry, None if there are none."""
    from docker.auth import load_config, resolve_repository_name
    from docker.utils import parse_repository_tag

    with reading_credentials(host_job.host.name, image):
        registry, _ = resolve_repository_name(parse_repository_tag(image)[0])
        found: dict[str, str] | None = load_config().resolve_authconfig(registry)
    return found or None


def pull(host_job: HostJob, image: str) -> None:
    """Have a host's engine pull an image. Raises HostError."""
    from docker.utils import parse_repository_tag

    repository, tag = parse_repository_tag(image)
    credentials = _credentials(host_job, image)
    progress = PullProgress()
    with host_job.engine.asked(partial(_refused, host_job, image)) as client, patient(client):
        for line in client.pull(repository, tag=tag or "latest", stream=True, decode=True, auth_config=credentials):
            if "error" in line:
                raise _refused(host_job, image, str(line["error"]))
            if progress.add(line):
                host_job.tell(f"{host_job.host.name} pulls {image}: {progress}")


class PullProgress:
    """How far a pull is, added up over the layers that the engine has told of."""

    def __init__(self) -> None:
        self._layers: dict[str, tuple[int, int]] = {}

    def add(self, line: Mapping[str, Any]) -> bool:
        """Take note of a line of the engine's; say whether it tells anything new."""
        layer, detail = line.get("id"), line.get("progressDetail") or {}
        before = dict(self._layers)
        if layer is not None and line.get("status") == "Downloading" and detail.get("total"):
            self._layers[layer] = (int(detail.get("current", 0)), int(detail["total"]))
        elif layer in self._layers and line.get("status") in ("Download complete", "Pull complete"):
            total = self._layers[layer][1]
            self._layers[layer] = (total, total)
        return self._layers != before

    def __str__(self) -> str:
        done, total = (sum(layer[part] for layer in self._layers.values()) for part in (0, 1))
        return f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"


_DNS = "the host cannot resolve the registry's name: is it right, and in its DNS? `docker load` needs no registry"
_NET = "can the host reach the registry? `docker load` needs none"
_LOGIN = "`docker login` here: your credentials are used, not the host's"

# Signs in an engine's words, in this order: a way that is cut is not an answer of a registry.
_CAUSES = (
    ("no space left", "disk-full", "make room where Docker keeps its data (`docker system df`)"),
    ("no such host", "registry-unreachable", _DNS),
    ("server misbehaving", "registry-unreachable", _DNS),
    ("name resolution", "registry-unreachable", _DNS),
    ("dial tcp: lookup ", "registry-unreachable", _DNS),
    ("dial tcp ", "registry-unreachable", _NET),
    ("connection refused", "registry-unreachable", _NET),
    ("connection reset", "registry-unreachable", _NET),
    ("unreachable", "registry-unreachable", _NET),
    ("no route to host", "registry-unreachable", _NET),
    ("timeout", "registry-unreachable", _NET),
    ("denied", "image-refused", f"is the name right? {_LOGIN}"),
    ("no basic auth credentials", "image-refused", _LOGIN),
    ("authentication required", "image-refused", _LOGIN),
    ("unauthorized", "image-refused", _LOGIN),
    ("manifest unknown", "image-unknown", "is the tag right?"),
    ("not found", "image-unknown", "is the name right?"),
)


def _refused(host_job: HostJob, image: str, text: str) -> HostError:
    """Return what an engine's words about an image mean; the image's own name in them says nothing about it."""
    words = text.replace(image, "").lower()
    for sign, code, hint in _CAUSES:
        if sign in words:
            return HostError(host_job.host.name, code, f"cannot pull `{image}`: {text}", hint)
    return HostError(host_job.host.name, "cannot-pull", f"cannot pull `{image}`: {text}", "try `docker pull` there")
