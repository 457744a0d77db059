"""Whether a host's engine has room for an image, found out before anything is sent."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Sequence
from hashlib import sha256

from jobctl.jobspec.deploy.host.engine import Engine
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.engine_kind import EngineKind
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.untrusted import number_in
from jobctl.jobspec.deploy.transport.base import FIRST_ANSWER
from jobctl.jobspec.launcher.telling.words import megabytes

EMPTY = f"sha256:{sha256(bytes(2 * tarfile.BLOCKSIZE)).hexdigest()}"  # the layer of a step that changed no file
TIMES = 2  # an engine that loads an image unpacks the archive first, and then each layer
CONTAINERD = "/var/lib/containerd"  # where images are if the engine leaves them to the system's containerd
HINT = "make room there (`{client} system df` shows what takes it, `{client} system prune` removes what nothing uses)"


def bytes_missing(engine: Engine, image: str, layers: Sequence[str], shared: frozenset[str]) -> int:
    """Return how many bytes the layers that are not `shared` are, unpacked; 0 if the engine that has them does not tell.

    Where it does not tell which layers are empty, it is what they are at least.
    """
    with engine.asked() as client:
        size = engine.answer(client.inspect_image(image), dict).get("Size")
        told = (client.history(image) if shared else None) or []  # null for an image without a history
    if not shared:
        return size if isinstance(size, int) else 0
    sizes = [step["Size"] for step in reversed(told) if step.get("Size")]  # steps that only set something have no layer
    filled = [layer for layer in layers if layer != EMPTY]
    if len(sizes) > len(filled):
        return 0
    if len(sizes) < len(filled):  # a step that makes a directory has a layer, and a size of 0
        return sum(sizes[sum(layer in shared for layer in filled) :])
    return sum(size for layer, size in zip(filled, sizes, strict=True) if layer not in shared)


def check_room(host_job: HostJob, image: str, missing: int) -> None:
    """Raise HostError if a host's engine has no room for so many bytes of layers."""
    if not missing:
        return
    kind = host_job.engine.kind()
    argv = SCRIPTS.argv("free", *_places(kind))
    words = host_job.transport.run(argv, timeout=FIRST_ANSWER).out.decode("utf-8", "replace").strip()
    told, _, place = words.partition(" ")
    free = number_in(told)
    # The host does not know the disk of an engine in a virtual machine.
    if free is None or free * 1024 >= TIMES * missing:
        return
    needed, there = megabytes(TIMES * missing), megabytes(free * 1024)
    message = (
        f"no room for image `{image}`: its engine needs {needed} in {place} while it loads it, and {there} are free"
    )
    raise HostError(host_job.host.name, "disk-full", message, HINT.format(client=kind.kind))


def _places(kind: EngineKind) -> list[str]:
    """Return the directories where an engine may keep layers, the likeliest first."""
    if kind.store != "containerd":
        return [kind.root]
    return [os.path.join(kind.root, "containerd", "daemon"), CONTAINERD, kind.root]
