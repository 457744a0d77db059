"""Devices: how many there are, and which of them jobs use."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.deploy.containers import labels_of
from jobctl.jobspec.deploy.transport import checked
from jobctl.jobspec.deploy.untrusted import number_in

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.site import Site

# The device nodes of each kind's driver, one for each device (AMD's DCU shows as a DRM render node).
_NODES = {
    "gpu": re.compile(r"nvidia\d+"),
    "xpu": re.compile(r"xpu\d+"),
    "dcu": re.compile(r"dri/renderD\d+"),
    "npu": re.compile(r"davinci\d+"),
}


def count_devices(kind: str) -> int | None:
    """Return how many devices of `kind` this machine has, None where none is seen (or for `cpu`).

    Below Windows GPUs have no device nodes of their own: their driver's tool knows them.
    """
    pattern = _NODES.get(kind)
    if pattern is None:
        return None
    dev = Path("/dev")
    names = [path.relative_to(dev).as_posix() for path in (*dev.glob("*"), *dev.glob("dri/*"))]
    return sum(1 for name in names if pattern.fullmatch(name)) or (_told_by_driver() if kind == "gpu" else None)


def _told_by_driver() -> int | None:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        done = subprocess.run([tool, "-L"], capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.count(b"GPU ") if done.returncode == 0 else None


def devices_in_use(site: Site) -> Mapping[str, str]:
    """Return the devices (`gpu:0`) that running containers of jobs use on a host, and whose they are (`JOB of OWNER`)."""
    return {
        device: f"{job['job']} of {job['owner'] or 'somebody'}" for job in jobs_of(site) for device in job["devices"]
    }


def jobs_of(site: Site) -> list[dict[str, Any]]:
    """Return what runs of all jobs on a host: job, node (None for a service, which has a name), owner, devices.

    Whoever else labels containers may use our words; what names no job is none of ours.
    """
    with site.engine.asked() as client:
        found = site.engine.answer(client.containers(filters={"label": "jobctl.node"}), list)
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


def all_devices(site: Site, known: Sequence[int] | None) -> list[str]:
    """Return the devices of a host: those of the hosts file, by the kind that is there, or else what /dev has."""
    listing = checked(site.transport, ["sh", "-c", "cd /dev && ls -d * dri/* 2>/dev/null; :"], "list its devices")
    names = listing.decode("utf-8", "replace").split()
    counts = {kind: sum(1 for name in names if pattern.fullmatch(name)) for kind, pattern in _NODES.items()}
    there = [(kind, count) for kind, count in counts.items() if count and not (kind == "dcu" and counts["gpu"])]
    if known is not None:
        kind = there[0][0] if there else "device"
        return [f"{kind}:{index}" for index in known]
    return [f"{kind}:{index}" for kind, count in there for index in range(count)]
