"""Devices: how many there are, and which of them jobs use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

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
    """Return how many devices of `kind` this machine has, None where none is seen (or for `cpu`)."""
    pattern = _NODES.get(kind)
    if pattern is None:
        return None
    dev = Path("/dev")
    names = [path.relative_to(dev).as_posix() for path in (*dev.glob("*"), *dev.glob("dri/*"))]
    return sum(1 for name in names if pattern.fullmatch(name)) or None


def devices_in_use(site: Site) -> Mapping[str, str]:
    """Return the devices (`gpu:0`) that running containers of jobs use on a host, and whose they are (`JOB of OWNER`)."""
    try:
        found = site.client.containers(filters={"label": "jobctl.devices"})
    except Exception as error:
        raise site.engine_failed(error) from error
    used = {}
    for container in found:
        labels = container["Labels"]
        for device in labels["jobctl.devices"].split(","):
            used[device] = f"{labels.get('jobctl.job')} of {labels.get('jobctl.owner')}"
    return used
