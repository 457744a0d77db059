"""Containers in an allocation of Slurm: what starts a node's container with one of four engines, and where its image is.

Inside it, the job's directory has the path that it has on the nodes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from jobctl.jobspec.plan.types import Mount, Plan
from jobctl.jobspec.render import container
from jobctl.jobspec.render.environment import shell_template
from jobctl.jobspec.render.quote import Rendered, mount_option

Words = tuple[str, ...]  # one option: its words
IMAGES = ".images"  # beside the directories of jobs, which share it; no job has such a name
_SUFFIX = {"podman": ".tar", "docker": ".tar", "apptainer": ".sif", "enroot": ".sqsh"}


def container_script(plan: Plan, *, look: bool = False) -> bytes:
    """Return the script that fetches the image, and starts, enters and removes the container of a node.

    With `look` it starts a command in such a container, in place of the launcher.
    """
    assert plan.slurm is not None
    engine, node = plan.slurm.container, plan.nodes[0]
    options = {"podman": _podman, "docker": _docker, "apptainer": _apptainer, "enroot": _enroot}[engine](plan)
    template = "slurm_engine.sh.j2" if engine in ("podman", "docker") else f"slurm_{engine}.sh.j2"
    text = shell_template(template).render(
        engine=engine,
        title=Rendered(engine.capitalize()),
        work=plan.slurm.work,
        image=node.container.image,
        source=_source(engine, node.container.image),
        name=f"jobctl-{plan.job}",
        options=list(options),
        python=node.container.python,
        secrets=bool(node.launch.secrets),
        user=container.user(node.container) or "self",
        rdma=container.wants_rdma(node.container),
        gpus=container.gpus(node.container) is not None,
        environ=variables_of(plan) != {},
        look=look,
        workdir=node.launch.workdir,
    )
    return text.encode(errors="surrogateescape")


def variables_of(plan: Plan) -> dict[str, str]:
    """Return the variables that containers get."""
    pairs = (one.partition("=") for one in container.variables(plan.nodes[0].container))
    return {name: value for name, _, value in pairs}


def environ_file(plan: Plan) -> bytes:
    """Return the file of these variables: in command lines, everybody on the machine would read them."""
    return json.dumps(variables_of(plan), indent=2).encode() + b"\n"


def image_settings(plan: Plan) -> dict[str, Any]:
    """Return what the coordinator has to know of the image: its name, its file, and whether that has to be fetched."""
    assert plan.slurm is not None
    engine, image, pull = plan.slurm.container, plan.nodes[0].container.image, plan.nodes[0].container.pull
    if image.startswith("/"):
        return {"name": image, "file": image, "fetch": False, "pull": pull}
    if pull == "never" and engine in ("podman", "docker"):
        return {"name": image, "file": None, "fetch": False, "pull": pull}
    # `always`: each `up` fetches it, and the allocations that follow have the same.
    top = plan.slurm.work if pull == "always" else plan.slurm.work.rpartition("/")[0]
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", image.rpartition("/")[2])[:40]
    digest = sha256(f"{engine} {image}".encode()).hexdigest()[:12]
    folder = f"{top}/image" if pull == "always" else f"{top}/{IMAGES}/{engine}-{plain}-{digest}"
    return {"name": image, "file": f"{folder}/image{_SUFFIX[engine]}", "fetch": True, "pull": pull}


def _source(engine: str, image: str) -> str:
    """Return how an engine that makes files of images names one in a registry."""
    if "://" in image or engine in ("podman", "docker"):
        return image
    if engine == "apptainer":
        return f"docker://{image}"
    first, slash, rest = image.partition("/")
    is_registry = slash and (first == "localhost" or "." in first or ":" in first)
    return f"docker://{first}#{rest}" if is_registry else f"docker://{image}"


def _mounts(plan: Plan) -> Iterator[Mount]:
    """Yield what every container has of its machine: the job's directory, the code, and what the spec says."""
    assert plan.slurm is not None
    yield Mount("bind", plan.slurm.work, plan.slurm.work)
    if plan.code:
        yield Mount("bind", f"{plan.slurm.work}/{container.code_directory(plan.code)}", plan.code.target)
    yield from container.host_mounts(plan.nodes[0].container)


# Podman and Docker.


def _engine(plan: Plan) -> Iterator[Words]:
    given = plan.nodes[0].container
    yield ("--rm",)
    yield "--network", "host"
    yield "--pull", "never"
    yield "--entrypoint", ""
    yield "--log-driver", "none"  # the launcher keeps the logs of processes
    yield "--stop-timeout", str(math.ceil(given.stop_grace))
    for mount in _mounts(plan):
        yield "--mount", container.mount(mount)
    for name, value in (("--runtime", given.runtime), ("--shm-size", given.shm_size)):
        if value is not None:
            yield name, str(value)
    for device in container.devices(given):
        yield "--device", device
    for name in given.cap_add:
        yield "--cap-add", name


def _podman(plan: Plan) -> Iterator[Words]:
    given = plan.nodes[0].container
    yield from _engine(plan)
    yield "--security-opt", "label=disable"  # SELinux would keep a container from shared storage
    if container.groups(given):
        yield "--group-add", "keep-groups"
    fixed = [limit for limit in given.ulimits if not limit.optional]
    for limit in fixed:
        yield "--ulimit", f"{limit.name}={limit.soft}:{limit.hard}"
    if not fixed:
        yield "--ulimit", "host"
    yield from ((option,) for option in given.options)


def _docker(plan: Plan) -> Iterator[Words]:
    """Yield options of Docker, whose containers are outside of the job's control group: it has to limit them itself."""
    given = plan.nodes[0].container
    yield from _engine(plan)
    for group in container.groups(given):
        yield "--group-add", group
    for limit in given.ulimits:
        if limit.soft or not limit.optional:
            yield "--ulimit", f"{limit.name}={limit.soft}:{limit.hard}"
    for name, value in (("--memory", given.memory), ("--cpus", given.cpus)):
        if value is not None:
            yield name, str(value)
    yield from ((option,) for option in given.options)


# Engines that run an image's file as plain processes of the user.


def _apptainer(plan: Plan) -> Iterator[Words]:
    given = plan.nodes[0].container
    kind = given.devices.kind
    if kind in ("gpu", "dcu"):
        yield ("--nv" if kind == "gpu" else "--rocm",)
    if given.user == "root":
        yield ("--fakeroot",)
    for mount in _mounts(plan):
        if mount.kind == "bind":
            read_only = (("ro", ""),) if mount.read_only else ()
            fields = (("type", "bind"), ("source", mount.source), ("destination", mount.target), *read_only)
            yield "--mount", mount_option(fields)
    yield from ((option,) for option in given.options)


def _enroot(plan: Plan) -> Iterator[Words]:
    given = plan.nodes[0].container
    if given.user == "root":
        yield ("--root",)
    if given.devices.kind == "gpu":  # what Enroot's hook for the driver looks at
        yield "--env", "NVIDIA_VISIBLE_DEVICES=all"
        yield "--env", "NVIDIA_DRIVER_CAPABILITIES=all"
    for mount in _mounts(plan):
        if mount.kind == "bind":
            yield "--mount", _fstab(mount)
    yield from ((option,) for option in given.options)


def _fstab(mount: Mount) -> str:
    """Return a mount as Enroot reads it: the fields of a line of fstab, with colons between them.

    Paths that it cannot say, a spec for Enroot does not have (spec/checks/slurm.py).
    """
    return f"{mount.source}:{mount.target}:none:x-create=auto,rbind{',ro' if mount.read_only else ',rw'}"
