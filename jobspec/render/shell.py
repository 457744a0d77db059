"""Shell scripts: `local` starts the launcher itself, `ssh` starts it with `docker run`."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256

from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.sent import Sent
from jobctl.jobspec.plan.types import Container, Mount, Node, Pairs, Plan, Service
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.render import container
from jobctl.jobspec.render.environment import shell_template
from jobctl.jobspec.render.errors import RenderError
from jobctl.jobspec.render.quote import Rendered, mount_option

Option = tuple[str, ...]  # one option of `docker run`: its words


def local_script(plan: Plan, node: Node) -> bytes:
    """Return the script that becomes the launcher of `node` on this machine, without a container."""
    text = shell_template("local.sh.j2").render(
        environment=[f"{name}={value}" for name, value in node.container.env],
        launch=container.launch_variable(node.launch),
        python=node.container.python,
        directory=container.node_directory(node.index),
        secrets=node.launch.has_secrets,
    )
    return _encode(text)


def local_service_script(service: Service) -> bytes:
    """Return the script that becomes `service` on this machine, without a container."""
    path = dict(service.container.env)[service.data_variable].removeprefix(service.data)
    text = shell_template("local_service.sh.j2").render(
        environment=[f"{n}={value}" for n, value in service.container.env if n != service.data_variable],
        variable=service.data_variable,
        path=f"/{service.name}{path}",
        command=service.command,
    )
    return _encode(text)


def local_hash(script: bytes, plan: Plan | None) -> str:
    """Return what identifies a launcher on this machine: its script, and the checkpoint directory, which that does not name."""
    checkpoint = plan.checkpoint.dir if plan and plan.checkpoint else ""
    return sha256(script + b"\0" + os.fsencode(checkpoint)).hexdigest()[:16]


def local_service_hash(script: bytes) -> str:
    """Return what identifies a service on this machine: its script."""
    return sha256(script).hexdigest()[:16]


def ssh_script(plan: Plan, node: Node | Service) -> bytes:
    """Return the script that starts the container of `node` with the host's Docker Engine.

    Raises RenderError for what `docker run` cannot say.
    """
    text = _run(plan, node)
    labels = _uncovered_labels(plan, node, text)
    start = shell_template("ssh_start.sh.j2").render(
        name=node.container.name,
        labels=[f"{name}={value}" for name, value in labels],
        hash=container.id_of(labels).hash,
        directory=node.name if isinstance(node, Service) else container.node_directory(node.index),
    )
    return _encode(text + start)


def ssh_id(plan: Plan, node: Node | Service) -> ArtefactId:
    """Return what identifies the artefact of `node`, as its script has it."""
    return container.id_of(_uncovered_labels(plan, node, _run(plan, node)))


def _uncovered_labels(plan: Plan, node: Node | Service, text: str) -> Pairs:
    return container.uncovered_labels(Sent() if isinstance(node, Service) else plan.sent, node, text)


def _run(plan: Plan, node: Node | Service) -> str:
    """Return the first part of the script: the arguments of `docker run`, up to the labels its hash does not cover."""
    if isinstance(node, Service):
        return _run_service(node)
    return shell_template("ssh.sh.j2").render(
        options=list(_own_options(node)),
        own_mounts=[_below_work(mount) for mount in container.node_mounts(node)],
        alike=_alike(plan.sent, container.alike(node.container), node.launch.workdir, node.launch.has_secrets),
        launch=container.launch_variable(node.launch),
        rdma=container.wants_rdma(node.container),
        image=node.container.image,
        command=container.command(node.container, node.launch.has_secrets, bool(node.launch.spare)),
    )


def _run_service(service: Service) -> str:
    alike = shell_template("ssh_alike.sh.j2").render(
        job_mounts=(),
        options=list(_options(container.alike(service.container))),
        user=container.user(service.container),
        workdir=None,
        escape_hatch=(),
    )
    return shell_template("ssh.sh.j2").render(
        options=list(_own_options(service)),
        own_mounts=[_below_work(container.service_mount(service))],
        alike=Rendered(alike),
        launch=None,
        rdma=False,
        image=service.container.image,
        command=service.command,
    )


def look_script(plan: Plan, node: Node, name: str, work: str, command: tuple[str, ...], look: Look) -> bytes:
    """Return a script that runs `command` in a container like that of `node`, called `name`, and removes it.

    `work` is the job's work directory on the host.
    """
    sent = plan.sent if look.place else Sent()
    mounts = node.container.mounts if look.mounts else ()
    given = replace(container.alike(node.container), pull="never", mounts=mounts, restart="no")
    labels = (("jobctl.job", plan.job), ("jobctl.role", "look"), ("jobctl.owner", plan.owner))
    text = shell_template("look.sh.j2").render(
        work=work,
        rdma=container.wants_rdma(given),
        flags=look.flags,
        options=[
            ("--name", name),
            ("--hostname", node.container.hostname),
            *_each("--add-host", container.own_name(node)),
            *_each("--label", [f"{key}={value}" for key, value in labels]),
        ],
        alike=_looking(sent, given, node, look.place),
        image=node.container.image,
        command=command,
    )
    return _encode(text)


@dataclass(frozen=True, slots=True)
class Look:
    """What a container for a look around has of the job's: the user's mounts, and code, data and secrets if it has a `place`.

    That is its folder below the work directory, where code and secrets are. It may change the file of its secrets.
    """

    mounts: bool = True
    place: str = ""
    flags: tuple[str, ...] = ()


def _looking(sent: Sent, given: Container, node: Node, place: str) -> Rendered:
    mounts = container.job_mounts(sent, bool(place and node.launch.secrets))
    text = shell_template("ssh_alike.sh.j2").render(
        job_mounts=[
            _below_work(_in_place(mount, place)) for mount in mounts if mount.source not in ("launcher.py", "run")
        ],
        options=list(_options(given)),
        user=container.user(given),
        workdir=node.launch.workdir if place else None,
        escape_hatch=given.options,
    )
    return Rendered(text)


def _in_place(mount: Mount, place: str) -> Mount:
    if mount.source.startswith("../"):  # data, which all share
        return mount
    return replace(mount, source=f"{place}/{mount.source}", read_only=mount.read_only and mount.source != "secrets")


def _own_options(node: Node | Service) -> Iterator[Option]:
    yield ("--name", node.container.name)
    yield ("--hostname", node.container.hostname)
    yield from _each("--add-host", container.own_name(node))
    yield from _each("--label", [f"{name}={value}" for name, value in container.labels(node)])


@lru_cache(maxsize=16)
def _alike(sent: Sent, given: Container, workdir: str | None, secrets: bool) -> Rendered:
    """Return the part of a script that is the same on all nodes with containers like `given`."""
    text = shell_template("ssh_alike.sh.j2").render(
        job_mounts=[_below_work(mount) for mount in container.job_mounts(sent, secrets)],
        options=list(_options(given)),
        user=container.user(given),
        workdir=workdir,
        escape_hatch=given.options,
    )
    return Rendered(text)


def _options(given: Container) -> Iterator[Option]:
    yield ("--network", "host")
    yield ("--init",)
    yield ("--restart", given.restart)
    yield ("--stop-timeout", str(math.ceil(given.stop_grace)))
    yield ("--pull", container.pull(given))
    yield ("--entrypoint", "")
    yield from _each("--env", container.variables(given))
    yield from _each("--mount", map(container.mount, container.host_mounts(given)))
    yield from _resources(given)
    yield ("--log-driver", "json-file")
    yield from _each("--log-opt", [f"{name}={value}" for name, value in container.LOG_OPTIONS])


def _resources(given: Container) -> Iterator[Option]:
    gpus = container.gpus(given)
    if gpus is not None:
        yield ("--gpus", f'"device={",".join(gpus)}"' if gpus else "all")
    yield from _each("--device", container.devices(given))
    yield from _each("--group-add", container.groups(given))
    yield from _each("--cap-add", given.cap_add)
    for name, soft, hard in container.limits(given):
        value = f"{name}={soft}:{hard}"
        yield ("--ulimit", Rendered(f'"{value}"') if isinstance(soft, Rendered) else value)
    single = (
        ("--runtime", given.runtime),
        ("--shm-size", given.shm_size),
        ("--memory", given.memory),
        ("--cpus", given.cpus),
    )
    yield from ((name, str(value)) for name, value in single if value is not None)


def _each(name: str, values: Iterable[str]) -> Iterator[Option]:
    return ((name, value) for value in values)


def _below_work(mount: Mount) -> str:
    """Return what follows the work directory's path, which only the script knows, in a mount below it."""
    read_only = (("readonly", ""),) if mount.read_only else ()
    return f'{mount.source}",{mount_option((("target", mount.target), *read_only))}'


def _encode(script: str) -> bytes:
    try:
        return script.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        text = script[error.start : error.end]
        raise RenderError("not-text", f"{text!r} is half of a character: no file or process can hold it") from None
