"""The devices of a node, out of all that says something about them: launcher, variables, `docker run`, the image."""

from __future__ import annotations

import re
from collections.abc import Mapping

from jobctl.jobspec.importers import values
from jobctl.jobspec.importers.draft import Draft
from jobctl.jobspec.importers.launchers import docker
from jobctl.jobspec.importers.start_command import StartCommand
from jobctl.jobspec.records import dataclass


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """The devices of a node, as far as a launcher says. `usual` is the kind where nothing says any.

    `native`: MindSpore's own recovery is asked for.
    """

    kind: str | None = None
    count: int | None = None
    ids: tuple[int, ...] | None = None
    usual: str = "gpu"
    native: bool = False


# Which devices processes see, and so of what kind they are. The first that is set counts.
VISIBLE: Mapping[str, str] = {
    "CUDA_VISIBLE_DEVICES": "gpu",
    "NVIDIA_VISIBLE_DEVICES": "gpu",
    "HIP_VISIBLE_DEVICES": "dcu",
    "ROCR_VISIBLE_DEVICES": "dcu",
    "XPU_VISIBLE_DEVICES": "xpu",
    "ASCEND_VISIBLE_DEVICES": "npu",
    "ASCEND_RT_VISIBLE_DEVICES": "npu",
    "NPU_VISIBLE_DEVICES": "npu",
}

# What a runtime for containers reads: numbers of the host's devices. Processes read the others: numbers of those they see.
_OF_RUNTIME = {"NVIDIA_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES"}

# What names of images say about devices.
_IMAGES = (
    (re.compile(r"paddle-(xpu|npu|dcu)\b|[-_:/.](xpu|npu|dcu)(?![a-z])"), None),
    (re.compile(r"ascend|cann"), "npu"),
    (re.compile(r"cuda|nvidia|[-_:]gpu(?![a-z])|nvcr\.io"), "gpu"),
    (re.compile(r"rocm"), "dcu"),
    (re.compile(r"[-_:]cpu(?![a-z])|(^|/)paddlepaddle/paddle:[\d.]+$"), "cpu"),
)


def image_kind(image: str) -> str | None:
    """Return the kind of device that an image is made for, None if its name does not say."""
    for pattern, kind in _IMAGES:
        if match := pattern.search(image):
            return kind or match[1] or match[2]
    return None


def _visible(
    draft: Draft, env: dict[str, str | None], asked: tuple[int, ...] | None
) -> tuple[str | None, tuple[int, ...] | None]:
    """Take the variables of visible devices out of `env`; return what the first of them says.

    In a container with the devices `asked`, they are numbered from 0 again.
    """
    found: tuple[str | None, tuple[int, ...] | None] = (None, None)
    for name, kind in VISIBLE.items():
        word = env.get(name)
        if word is None or (found[0] and name in env):
            continue
        del env[name]
        if word in ("", "-1", "none", "void", "NoDevFiles"):
            found = ("cpu", None)
        elif word == "all":
            found = (kind, None)
        elif (ids := draft.read(word, values.ids, f"{name}={word}")) is not None:
            within = asked is not None and name not in _OF_RUNTIME and max(ids) < len(asked)
            found = (kind, tuple(asked[i] for i in ids) if asked and within else asked or ids)
    return found


def _asked(draft: Draft, launch: StartCommand) -> tuple[bool, int | None, tuple[int, ...] | None]:
    """Return whether `docker run` asks for GPUs, how many and which."""
    container = launch.container
    word = container.option("--gpus") if container else None
    if word is None:
        return container is not None and container.option("--runtime") == "nvidia", None, None
    count, ids = draft.read(word, docker.gpus, f"--gpus={word}") or (None, None)
    return True, count, ids


def draft_devices(draft: Draft, devices: NodeDevices, env: dict[str, str | None], launch: StartCommand) -> None:
    """Put the devices of a node into the draft, out of all that says something about them."""
    asked, asked_count, asked_ids = _asked(draft, launch)
    seen_kind, seen_ids = _visible(draft, env, asked_ids)
    image = image_kind(launch.container.image) if launch.container else None
    kind = devices.kind or seen_kind or ("gpu" if asked else None) or image
    taken = kind is None
    kind = kind or devices.usual
    ids = _ids(draft, devices, asked_ids, seen_ids)
    count = devices.count if devices.count is not None else None if devices.ids else asked_count
    if ids is not None and kind != "cpu":
        draft.set("devices", {"kind": kind, "ids": values.span(ids)})
    else:
        number = count if count is not None else len(ids) if ids else None
        draft.set("devices", kind if number is None else f"{kind}:{number}")
    if taken and devices.native:
        draft.remarks["devices"] = "taken, as MindSpore's own recovery works on gpu only"
    elif taken:
        draft.remarks["devices"] = _TAKEN[kind]
    if devices.native and kind == "gpu":
        draft.set(
            "mindspore.recovery",
            "native",
            "MindSpore 2.5 or older, on hosts with `checkpoint`; `restart` works with all",
        )
    elif devices.native:
        draft.drop("MS_ENABLE_RECOVERY=1", "MindSpore's own recovery works on gpu only; jobctl restarts the job")


_TAKEN = {
    "cpu": "taken for mode `ps`, as nothing names devices",
    "gpu": "taken, as nothing says which kind: cpu, gpu, xpu, dcu or npu",
    "npu": "taken, as nothing says which kind: npu, gpu or cpu",
}


def _ids(
    draft: Draft, devices: NodeDevices, asked: tuple[int, ...] | None, seen: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    """Return which devices of the host: inside of a container with some of them they are numbered from 0 again."""
    if devices.ids is not None:
        return tuple(asked[i] for i in devices.ids) if asked and max(devices.ids) < len(asked) else devices.ids
    ids = seen if seen is not None else asked
    if ids is None or devices.count is None or devices.count == len(ids):
        return ids
    if devices.count > len(ids):
        draft.check(f"{devices.count} processes a node on {len(ids)} devices: jobctl starts one on each device")
        return ids
    draft.check(f"{len(ids)} devices and {devices.count} processes a node: jobctl starts one on each device")
    return ids[: devices.count]
