"""What a container needs to use accelerators: one table, for compose files and `docker run` alike.

GPUs go through the NVIDIA container toolkit, which maps devices and driver by itself. The others are mapped as
the vendors' documentation says for containers without a runtime of their own; no `privileged`.
"""

from __future__ import annotations

from functools import lru_cache

from jobctl.jobspec.plan.types import Devices, Mount, Pairs
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.render.errors import RenderError


@dataclass(frozen=True, slots=True)
class Access:
    """Additions to a container. `gpus` are ids for the NVIDIA toolkit, empty for all, None for no request."""

    gpus: tuple[str, ...] | None = None
    devices: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    env: Pairs = ()


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of devices; `{}` in `each` is a device's index, variables in `visible` get all indices."""

    each: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()  # of the host's driver, read-only, at the same path
    visible: tuple[str, ...] = ()


# Keyed by kind and, where a runtime changes what is needed, the runtime.
_KINDS = {
    # ROCm maps all cards through two nodes; which of them are used is said in the environment.
    ("dcu", None): _Kind(shared=("/dev/kfd", "/dev/dri"), groups=("video",), visible=("HIP_VISIBLE_DEVICES",)),
    ("xpu", None): _Kind(each=("/dev/xpu{}",), shared=("/dev/xpuctrl",)),
    ("npu", None): _Kind(
        each=("/dev/davinci{}",),
        shared=("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"),
        mounts=(
            "/usr/local/Ascend/driver",
            "/usr/local/dcmi",
            "/usr/local/bin/npu-smi",
            "/etc/ascend_install.info",
            "/etc/hccn.conf",
        ),
    ),
    # The Ascend Docker Runtime maps devices and driver itself.
    ("npu", "ascend"): _Kind(visible=("ASCEND_VISIBLE_DEVICES",)),
}


@lru_cache(maxsize=256)
def access(devices: Devices, runtime: str | None) -> Access:
    """Return what a container with `devices` needs. Raises RenderError where their indices are not known."""
    if devices.kind == "cpu":
        return Access()
    if devices.kind == "gpu":
        return Access(gpus=tuple(map(str, devices.ids or ())))
    if devices.ids is None:
        raise RenderError(
            "devices-unknown",
            f"which devices of kind `{devices.kind}` a host has is not known, and each must be named to a container",
            f"say `devices: {devices.kind}:8` in the spec or `slots=8` in the hosts file",
        )
    return _access(_KINDS.get((devices.kind, runtime)) or _KINDS[devices.kind, None], devices.ids)


def _access(kind: _Kind, ids: tuple[int, ...]) -> Access:
    visible = ",".join(map(str, ids))
    return Access(
        devices=(*(pattern.format(i) for i in ids for pattern in kind.each), *kind.shared),
        groups=kind.groups,
        mounts=tuple(Mount("bind", path, path, read_only=True) for path in kind.mounts),
        env=tuple((name, visible) for name in kind.visible),
    )
