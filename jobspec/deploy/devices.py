"""How many devices of a kind this machine has, as far as its device nodes tell."""

from __future__ import annotations

import re
from pathlib import Path

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
