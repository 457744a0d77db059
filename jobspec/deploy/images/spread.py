"""Bringing an image to all hosts that lack it at once: it leaves the one that has it once, and hosts hand it on.

What does not get there this way comes as before, through this machine (copy.py): where there is no Python on a host, or
no way between hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Literal

from jobctl.jobspec.deploy.host.handing_on import ArchiveSource, HandingOn
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.scripts.saved_image import without_layers
from jobctl.jobspec.deploy.images import images
from jobctl.jobspec.deploy.images.copy import (
    ImageSources,
    can_be_used,
    give_name,
    layers_of,
    layers_there,
    name_to_save,
    saved,
    shared_layers,
)
from jobctl.jobspec.deploy.images.room import bytes_missing, check_room
from jobctl.jobspec.deploy.model.control import Image
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.transport.fanout import fan_out
from jobctl.jobspec.deploy.transport.local import LocalTransport

ROUNDS = 4  # sources that are tried
MAX_REGISTRY_ASKERS = 3  # hosts that ask the registry
MAX_WASTED_BYTES = 100_000_000  # bytes that hosts may get in vain, to get the rest at once with others
ELSEWHERE = frozenset({"registry-unreachable", "disk-full"})  # where another host may pull what this one cannot
Pull = Literal["missing", "always", "never"]


class ImageSpread:
    """Brings images to those of a job's hosts that lack them. `sources` are all that may have them.

    `python` is what Python is called in the images. `keeps`: a transfer that does not end leaves what hosts have got.
    """

    def __init__(
        self, host_jobs: Iterable[HostJob], sources: ImageSources, python: str = "python3", *, keeps: bool = False
    ) -> None:
        self._python, self._keeps = python, keeps
        self._jobs = {job.host.name: job for job in host_jobs if not isinstance(job.transport, LocalTransport)}
        self._sources = sources
        self.gone: dict[str, HostError] = {}  # hosts that have stopped to answer meanwhile, or have no room
        self.found: dict[tuple[str, str], Image] = {}  # images that need not be brought to hosts, by host and name

    def bring(self, image: str, hosts: Iterable[str], pull: Pull = "missing") -> None:
        """Bring an image to `hosts`, as far as they can hand it on; nothing happens where no two machines could.

        Where only the registry has it, or is asked with `always`, one host pulls it for all.
        """
        able = [name for name in hosts if name in self._jobs]
        processors = fan_out(able, lambda name: self._jobs[name].engine.kind().processor).done
        self.found = {place: found for place, found in self.found.items() if place[1] != image}  # of another `pull`
        for processor in dict.fromkeys(processors.values()):  # hosts with another one cannot use the same
            self._bring(image, [name for name, found in processors.items() if found == processor], pull, processor)

    def _bring(self, image: str, able: Sequence[str], pull: Pull, processor: str) -> None:
        """Bring an image to hosts with the same processor."""
        fit = pull != "never"
        seen = dict(fan_out(able, lambda name: images.look(self._jobs[name], image, fit=fit)).done)
        lacking = [name for name, found in seen.items() if found is None]
        with suppress(DeployError):  # what is wrong shows where hosts get the image by themselves
            if pull == "always":
                lacking = self._outdated(image, seen, processor)
            elif (
                pull == "missing" and len(lacking) > 1 and "@" not in image and not self._sources.have(image, processor)
            ):
                self._pull(image, lacking)
                lacking = [name for name in lacking if not self._sources.is_current(image, name)]
        self.found |= {(name, image): found for name, found in seen.items() if found and name not in lacking}
        self._hand_on(image, lacking, processor)

    def _hand_on(self, image: str, lacking: list[str], processor: str) -> None:
        tried: set[str] = set()
        for _ in range(ROUNDS):
            source = self._next_source(image, tried, processor) if lacking else None
            if source is None or (source not in self._jobs and len(lacking) < 2):
                return
            tried.add(source)
            with suppress(DeployError):
                lacking = self._round(image, source, lacking)

    def _next_source(self, image: str, tried: set[str], processor: str) -> str | None:
        """Return who has the image and was not asked for it yet, a host rather than this machine; None if nobody."""
        having = self._sources.have(image, processor)
        current = [name for name in having if self._sources.is_current(image, name)]
        left = [name for name in current or having if name not in tried]
        return min(left, key=lambda name: name not in self._jobs, default=None)

    # What the registry has.

    def _outdated(self, image: str, seen: dict[str, Image | None], processor: str) -> list[str]:
        """Ask the registry once for all hosts; return those that lack what it has. Raises HostError.

        `seen` is what hosts have, and what one has after it has pulled. Each host asks by itself, and none is returned, for a
        name by digest, which loaded images do not have, where there is one host only, and where what it gives is for another
        processor, which hosts may emulate.
        """
        able = list(seen)
        if len(able) < 2 or "@" in image:
            return []
        digest = self._ask(able, lambda job: images.digest_in_registry(job, image))
        known = [name for name, found in seen.items() if found and _has_digest(found.digests, digest)]
        if known:
            self._sources.received(image, self._jobs[known[0]])
            self._sources.note_current(image, known)
        else:
            known = [self._pull(image, able)]
            seen[known[0]] = None
            seen[known[0]] = images.look(self._jobs[known[0]], image)
            if known[0] not in self._sources.have(image, processor):
                return []
        pulled = seen[known[0]]
        # One that was handed on bears no digest of the registry, but the same id.
        same = [name for name, found in seen.items() if found and pulled and found.ids == pulled.ids]
        self._sources.note_current(image, same)
        return [name for name in able if not self._sources.is_current(image, name)]

    def _pull(self, image: str, hosts: Sequence[str]) -> str:
        """Let one of the hosts pull an image; return its name. Raises HostError."""

        def pull(job: HostJob) -> str:
            job.tell(f"{job.host.name} pulls {image}, to hand it on")
            images.pull(job, image)
            return job.host.name

        name = self._ask(hosts, pull)
        self._sources.received(image, self._jobs[name])
        self._sources.note_current(image, [name])
        return name

    def _ask(self, hosts: Sequence[str], ask: Callable[[HostJob], str]) -> str:
        """Return the answer of the first host that reaches the registry. Raises HostError."""
        for name in hosts[: MAX_REGISTRY_ASKERS - 1]:
            try:
                return ask(self._jobs[name])
            except HostError as error:
                if error.code not in ELSEWHERE:
                    raise
        return ask(self._jobs[hosts[:MAX_REGISTRY_ASKERS][-1]])

    def _round(self, image: str, name: str, lacking: Sequence[str]) -> list[str]:
        """Let hosts hand an image on; return those that may get it from another source, or wait for what others lack."""
        engine = self._sources.engine_of(name)
        layers = layers_of(engine, image)
        if layers is None:
            return list(lacking)
        jobs = {host: self._jobs[host] for host in lacking}
        shared = self._shared(layers, jobs)
        shared = {host: shared.get(host, frozenset[str]()) for host in jobs}
        missing = {known: bytes_missing(engine, image, layers, known) for known in set(shared.values())}
        for host in self._without_room(image, shared, missing):
            del jobs[host], shared[host]
        if not jobs:
            return []
        lacks = {host: missing[known] for host, known in shared.items()}
        now = sent_at_once(lacks) if engine.kind().saves_parts else list(lacks)
        later = [host for host in jobs if host not in now]
        jobs = {host: jobs[host] for host in now}
        without = frozenset.intersection(*(shared[host] for host in now))
        size = missing[without] if without in missing else bytes_missing(engine, image, layers, without)
        source = self._source(image, name, without, size)
        transfer = HandingOn(image, source, jobs)
        lost = transfer.run()
        fan_out([host for host in jobs if host not in lost], lambda host: self._verify(image, layers, host))
        self.gone |= transfer.tell_lost()
        return [*later, *(host for host in lost if host not in transfer.unable | transfer.silent)]

    def _shared(self, layers: Sequence[str], jobs: Mapping[str, HostJob]) -> dict[str, frozenset[str]]:
        """Return the layers that hosts have of an image, as far as they tell."""
        return dict(fan_out(jobs, lambda host: shared_layers(layers, layers_there(jobs[host].engine))).done)

    def _without_room(
        self, image: str, shared: Mapping[str, frozenset[str]], missing: Mapping[frozenset[str], int]
    ) -> list[str]:
        """Return the hosts that have no room for the layers that they lack."""
        asked = fan_out(shared, lambda host: check_room(self._jobs[host], image, missing[shared[host]]))
        full = {host: error for host, error in asked.failed.items() if isinstance(error, HostError)}
        full = {host: error for host, error in full.items() if error.code == "disk-full"}
        self.gone |= full
        return list(full)

    def _source(self, image: str, name: str, without: frozenset[str], size: int) -> ArchiveSource:
        engine = self._sources.engine_of(name)
        whole = name_to_save(engine, image)
        return ArchiveSource(
            name,
            self._jobs.get(name),
            [*engine.command, "save", whole],
            without,
            lambda: without_layers(saved(engine, image), without),
            self._python,
            size,
            sha256(image.encode()).hexdigest()[:16] if self._keeps else "",
        )

    def _verify(self, image: str, layers: Sequence[str], host: str) -> None:
        """Take note that a host has the image; take the name away again from one that lacks a part of it."""
        job = self._jobs[host]
        found = give_name(job.engine, image, layers)
        if found == tuple(layers) and can_be_used(job, image):
            self._sources.received(image, job)
            if self._sources.is_current(image):
                self._sources.note_current(image, [host])
        elif found is not None:  # an engine may list what it cannot use
            with job.engine.asked() as client:
                client.remove_image(image, force=True)


def sent_at_once(missing: Mapping[str, int]) -> list[str]:
    """Return the hosts that get an image at once, given how many bytes each lacks: those that lack much wait for the others.

    What one host lacks passes through all that hand it on. One that lacks all would have each host get what it has already.
    """
    most = 2 * min(missing.values()) + MAX_WASTED_BYTES
    return [host for host, count in missing.items() if count <= most]


def _has_digest(digests: Iterable[str], digest: str) -> bool:
    return any(one.rpartition("@")[2] == digest for one in digests)
