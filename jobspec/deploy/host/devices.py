"""Devices: how many there are, and which of them jobs use."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.deploy.host.containers import labels_of
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.untrusted import number_in
from jobctl.jobspec.deploy.transport.base import checked

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.host.host_job import HostJob

# The device nodes of each kind's driver, one for each device (AMD's DCU shows as a DRM render node).
_NODES = {
    "gpu": re.compile(r"nvidia\d+"),
    "xpu": re.compile(r"xpu\d+"),
    "dcu": re.compile(r"dri/renderD\d+"),
    "npu": re.compile(r"davinci\d+"),
}
_BUS = re.compile(
    r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", re.I
)  # a GPU's place, as NVIDIA's driver names it


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
        done = subprocess.run([tool, "-L"], capture_output=True, timeout=20, check=False)
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


def devices_in_use(host_job: HostJob) -> Mapping[str, str]:
    """Return the devices (`gpu:0`) that running containers of jobs use on a host, and whose they are (`JOB of OWNER`)."""
    return {
        device: f"{job['job']} of {job['owner'] or 'somebody'}"
        for job in jobs_of(host_job)
        for device in job["devices"]
    }


def jobs_of(host_job: HostJob) -> list[dict[str, Any]]:
    """Return what runs of all jobs on a host: job, node (None for a service, which has a name), owner, devices.

    Other programs may use the same labels; a container that names no job is not jobctl's.
    """
    with host_job.engine.asked() as client:
        found = host_job.engine.answer(client.containers(filters={"label": "jobctl.node"}), list)
    jobs = [_job(labels) for labels in map(labels_of, found) if labels.get("jobctl.job")]
    return sorted(jobs, key=lambda job: (job["job"], job["node"] is None, job["node"] or 0, job["name"] or ""))


def _job(labels: Mapping[str, str]) -> dict[str, Any]:
    node = number_in(labels.get("jobctl.node"))
    return {
        "job": labels["jobctl.job"],
        "node": node,
        "name": labels.get("jobctl.node") if node is None else None,
        "owner": labels.get("jobctl.owner"),
        "devices": [device for device in labels.get("jobctl.devices", "").split(",") if device],
    }


def all_devices(host_job: HostJob, known: Sequence[int] | None) -> list[str]:
    """Return the devices of a host: those of the hosts file, by the kind that is there, otherwise what /dev has."""
    counts = devices_on(host_job)
    if known is not None:
        kind = next(iter(counts), "device")
        return [f"{kind}:{index}" for index in known]
    return [f"{kind}:{index}" for kind, count in counts.items() for index in range(count)]
