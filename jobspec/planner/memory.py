"""How large a container's /dev/shm may get."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobctl.jobspec.spec.model import Spec

# An engine gives 64 MiB, and the workers of a data loader or NCCL die of it. This is a cap: nothing is taken before it is
# used. A host with less memory is no trouble. There memory is the limit, as it is for a pod.
SHM_SIZE = 64 << 30

_SHM = PurePosixPath("/dev/shm")
_OWN = ("private", "shareable")  # the modes of `--ipc` in which a container has a /dev/shm of its own


def shared_memory(spec: Spec, by_engine: bool) -> int | None:
    """Return the cap on /dev/shm in bytes; None where it is not for an engine to set."""
    if spec.resources.shm_size is not None or not by_engine:
        return spec.resources.shm_size
    mounted = any(PurePosixPath(volume.target) == _SHM for volume in spec.volumes)
    return None if mounted or any(_decides(*pair) for pair in _pairs(spec.container.options)) else SHM_SIZE


def _decides(name: str, value: str) -> bool:
    """Say whether an option of `docker run` says what is at /dev/shm. Podman refuses a size beside some of them."""
    if name in ("--tmpfs", "--mount", "--volume", "-v"):
        return str(_SHM) in value
    return name == "--shm-size" or (name == "--ipc" and value not in _OWN)


def _pairs(options: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each option with its value, which may be the next word."""
    for option, following in zip_longest(options, options[1:], fillvalue=""):
        name, equals, value = option.partition("=")
        yield name, value if equals else following
