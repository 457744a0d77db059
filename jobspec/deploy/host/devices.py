"""How many devices there are, on this machine and on others."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.transport.base import checked
from jobctl.jobspec.deploy.transport.descriptors import for_child

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.host.host_job import HostJob

# The device nodes of each kind's driver, one for each device (AMD's DCU shows as a DRM render node).
_NODES = {
    "gpu": re.compile(r"nvidia\d+"),
    "xpu": re.compile(r"xpu\d+"),
    "dcu": re.compile(r"dri/renderD\d+"),
    "npu": re.compile(r"davinci\d+"),
}
# A GPU's place, as NVIDIA's driver names it.
_BUS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", re.I)


def count_devices(kind: str) -> int | None:
    """Return how many devices of `kind` this machine has, None where none is seen (or for `cpu`).

    Below Windows GPUs have no device nodes of their own: their driver's tool knows them.
    """
    dev = Path("/dev")
    names = [path.relative_to(dev).as_posix() for path in (*dev.glob("*"), *dev.glob("dri/*"))]
    return _counts(names).get(kind) or (_told_by_driver() if kind == "gpu" else None)


def _told_by_driver() -> int | None:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        done = subprocess.run([tool, "-L"], capture_output=True, timeout=20, check=False, preexec_fn=for_child())
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.count(b"GPU ") if done.returncode == 0 else None


def devices_on(host_job: HostJob) -> Mapping[str, int]:
    """Return how many devices a host has, by kind; kinds of which it has none are left out."""
    listing = checked(host_job.transport, SCRIPTS.argv("list_devices"), "list its devices")
    return _counts(listing.decode("utf-8", "replace").split())


def _counts(names: Sequence[str]) -> Mapping[str, int]:
    found = {kind: sum(1 for name in names if pattern.fullmatch(name)) for kind, pattern in _NODES.items()}
    found["gpu"] = found["gpu"] or sum(1 for name in names if _BUS.fullmatch(name))
    return {kind: count for kind, count in found.items() if count and not (kind == "dcu" and found["gpu"])}


def all_devices(host_job: HostJob, known: Sequence[int] | None) -> list[str]:
    """Return the devices of a host: those of the hosts file, by the kind that is there, otherwise what /dev has."""
    counts = devices_on(host_job)
    if known is not None:
        kind = next(iter(counts), "device")
        return [f"{kind}:{index}" for index in known]
    return [f"{kind}:{index}" for kind, count in counts.items() for index in range(count)]
