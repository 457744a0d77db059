"""Images without a registry: an engine that has an image saves it, and a host's engine loads the layers that it lacks.

The bytes go through this machine, and are stored nowhere on the way. Engines write an image as a tar of blobs; since Docker
25 a layer that is stored as a plain tar has its diffID as the blob's name, so that it can be left out where the other
engine has that layer and all below it. An engine that stores compressed layers names them otherwise: then all is sent.
"""

from __future__ import annotations

import tarfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from jobctl.jobspec.deploy.host.engine import Engine, patient
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.scripts.frames import PIECE
from jobctl.jobspec.deploy.host.scripts.saved_image import without_layers
from jobctl.jobspec.deploy.images.processors import made_for
from jobctl.jobspec.deploy.images.room import bytes_missing, check_room
from jobctl.jobspec.deploy.model.engine_kind import runs
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.model.untrusted import texts
from jobctl.jobspec.deploy.transport.fanout import fan_out
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.launcher.telling.words import megabytes

COPIES = 2  # that one engine saves at the same time
TOLD = 0.5  # seconds between two words on how far a copy is
HERE = "this machine"
PODMANS = "localhost/"  # what Podman puts before the names of images that no registry has


class NotSaved(Exception):
    """The engine that has the image could not save it."""


class ImageSources:
    """The engines that images can be copied from: those of a job's hosts, and this machine's.

    They are asked once for an image, before any host pulls it. A host that has received the image hands it on.
    """

    def __init__(self, host_jobs: Iterable[HostJob]) -> None:
        self._engines = {host_job.host.name: host_job.engine for host_job in host_jobs}
        if not any(isinstance(engine.transport, LocalTransport) for engine in self._engines.values()):
            self._engines[HERE] = Engine(LocalTransport(HERE))
        self._found: dict[str, dict[str, str]] = {}  # by image and name: which processor it is for there
        self._current: dict[str, set[str]] = {}
        self._busy: Counter[str] = Counter()
        self._changed = threading.Condition()

    def have(self, image: str, processor: str = "") -> list[str]:
        """Return the names of those that have an image, for that `processor` if it is given.

        None have an image that is named by its digest.
        """
        if "@" in image:  # an image that is loaded has no name of that kind
            return []
        with self._changed:
            if image not in self._found:
                seen = fan_out(self._engines, lambda name: made_for(self._engines[name], image)).done
                self._found[image] = {name: found for name, found in seen.items() if found is not None}
            return [name for name, found in self._found[image].items() if runs(processor, found)]

    def engine_of(self, name: str) -> Engine:
        """Return one of the engines."""
        return self._engines[name]

    def received(self, image: str, host_job: HostJob) -> None:
        """Take note that a host has an image by now, and for which processor. Raises HostError."""
        made = made_for(host_job.engine, image)
        if made is not None:
            with self._changed:
                self._found.setdefault(image, {})[host_job.host.name] = made

    def note_current(self, image: str, hosts: Iterable[str]) -> None:
        """Take note that hosts have what the registry gives under this name."""
        with self._changed:
            self._current.setdefault(image, set()).update(hosts)

    def is_current(self, image: str, host: str | None = None) -> bool:
        """Say whether a host, or any, is known to have what the registry gives under this name."""
        with self._changed:
            hosts = self._current.get(image, set())
            return bool(hosts) if host is None else host in hosts

    def copy(self, host_job: HostJob, image: str) -> bool:
        """Copy an image to a host; say whether anybody had it for its processor. Raises HostError if the host cannot take it."""
        me, processor = host_job.host.name, host_job.engine.kind().processor
        while (source := self._take(me, image, processor)) is not None:
            try:
                _copy(source, self._engines[source], host_job, image)
            except (NotSaved, DeployError) as error:
                if isinstance(error, DeployError) and getattr(error, "host", None) != source:
                    raise
                with self._changed:
                    self._found[image].pop(source, None)
            else:
                with self._changed:  # it is for the same processor as where it comes from
                    self._found[image][me] = self._found[image].get(source, processor)
                return True
            finally:
                with self._changed:
                    self._busy[source] -= 1
                    self._changed.notify_all()
        return False

    def _take(self, me: str, image: str, processor: str) -> str | None:
        """Return the least busy engine that has the image, once it has a turn; None if none has it."""
        self.have(image)
        with self._changed:
            while others := [name for name in self.have(image, processor) if name != me]:
                least = min(others, key=lambda name: self._busy[name])
                if self._busy[least] < COPIES:
                    self._busy[least] += 1
                    return least
                self._changed.wait()
            return None


def layers_of(engine: Engine, image: str) -> tuple[str, ...] | None:
    """Return the diffIDs of an image's layers, the lowest first; None if the engine has no such image."""
    from docker.errors import ImageNotFound

    with engine.asked() as client:
        try:
            data = engine.answer(client.inspect_image(image), dict)
        except ImageNotFound:
            return None
    return texts((data.get("RootFS") or {}).get("Layers"))


def give_name(engine: Engine, image: str, layers: Sequence[str]) -> tuple[str, ...] | None:
    """Give an image with these layers its name, where the engine has just loaded it under the one that Podman has for it.

    What no registry has bears the name `localhost/…` there. Podman finds it by the short name too, Docker Engine does not.
    Return the layers of what bears the name then, None if nothing does.
    """
    from docker.utils import parse_repository_tag

    other, found = f"{PODMANS}{image}", layers_of(engine, image)
    if found is not None or layers_of(engine, other) != tuple(layers):
        return found
    repository, tag = parse_repository_tag(image)
    with engine.asked() as client:
        client.tag(other, repository, tag or "latest")
        client.remove_image(other)  # the name only: the image has another one
    return layers_of(engine, image)


def layers_there(engine: Engine) -> list[tuple[str, ...]]:
    """Return the layers of each image that an engine has; none where it would not load an image that lacks some."""
    if not engine.kind().loads_parts:
        return []
    with engine.asked() as client:
        return [layers_of(engine, str(found["Id"])) or () for found in client.images()]


def shared_layers(wanted: Sequence[str], there: Iterable[Sequence[str]]) -> frozenset[str]:
    """Return the layers of an image that need not be sent to an engine with the images `there`.

    An engine identifies a layer together with all layers below it, so only equal layers at the bottom count.
    """
    count = max((_alike(wanted, other) for other in there), default=0)
    return frozenset(wanted[:count]) - frozenset(wanted[count:])


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _copy(name: str, source: Engine, host_job: HostJob, image: str) -> None:
    """Copy an image from one engine to a host's. Raises NotSaved, or HostError of either."""
    layers = layers_of(source, image)
    if layers is None:
        raise NotSaved(image)
    shared = shared_layers(layers, layers_there(host_job.engine))
    check_room(host_job, image, bytes_missing(source, image, layers, shared))
    for left_out in dict.fromkeys((shared, frozenset[str]())):  # an engine that has lost a layer gets all of them
        error = _load(name, source, host_job, image, left_out)
        found = give_name(host_job.engine, image, layers)
        if error is None and found == layers and can_be_used(host_job, image):
            return
    message = f"cannot load image `{image}` from {name}: {error or 'it arrived incomplete'}"
    raise HostError(host_job.host.name, "image-not-loaded", message, f"try `docker save {image}` on {name}")


def _load(name: str, source: Engine, host_job: HostJob, image: str, left_out: frozenset[str]) -> str | None:
    """Save an image on one engine and load it on another meanwhile; return what that one complains of, None if nothing."""

    def pieces() -> Iterator[bytes]:
        sent, told = 0, 0.0
        for piece in without_layers(saved(source, image), left_out):
            yield piece
            sent += len(piece)
            if time.monotonic() - told > TOLD:
                told = time.monotonic()
                host_job.tell(f"{host_job.host.name} gets {image} from {name}: {megabytes(sent)}")

    with host_job.engine.asked() as client, patient(client):
        try:
            said = [line for line in client.load_image(pieces()) if isinstance(line, dict)]
        except tarfile.TarError as error:
            raise NotSaved(image) from error
    return next((str(line["error"]) for line in said if "error" in line), None)


def name_to_save(source: Engine, image: str) -> str:
    """Return what an engine is asked for: it would save all tags of a name that has none."""
    from docker.utils import parse_repository_tag

    latest = f"{image}:latest"
    return image if parse_repository_tag(image)[1] or layers_of(source, latest) is None else latest


def saved(source: Engine, image: str) -> Iterator[bytes]:
    """Yield the image as its engine saves it. Raises NotSaved: to the engine that loads it, other errors would be its own."""
    whole = name_to_save(source, image)
    try:
        with source.asked() as client, patient(client):
            # Not by the SDK's `get_image`, which takes every connection for one of SSH, also that to this machine's engine.
            response = client._get(client._url("/images/{0}/get", whole), stream=True)
            client._raise_for_status(response)
            yield from response.iter_content(PIECE, False)
    except HostError as error:
        raise NotSaved(image) from error


def can_be_used(host_job: HostJob, image: str) -> bool:
    """Say whether a container can be made of an image: an engine may list one that lacks layers."""
    from docker.errors import APIError, ImageNotFound

    with host_job.engine.asked() as client:
        try:
            made = client.create_container(image, ["true"])
        except (APIError, ImageNotFound):
            return False
        client.remove_container(made["Id"], force=True)
    return True
