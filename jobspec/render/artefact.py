"""Plan to artefacts: the bytes that are sent. What `render` prints is what `up` sends.

Artefacts are made one after the other, so that ten thousand hosts need little more memory than one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.generation import Generation
from jobctl.jobspec.plan.types import Node, Plan, Service
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.render.compose import compose_file, service_id
from jobctl.jobspec.render.container import node_directory
from jobctl.jobspec.render.environment import compose_template, shell_template
from jobctl.jobspec.render.launcher import launcher
from jobctl.jobspec.render.payload import control_json, launch_json
from jobctl.jobspec.render.shell import (
    local_hash,
    local_script,
    local_service_hash,
    local_service_script,
    ssh_id,
    ssh_script,
)
from jobctl.jobspec.spec.targets import TargetName

__all__ = [
    "COMPOSE_FILE",
    "Artefact",
    "control_json",
    "folder",
    "ids",
    "launch_json",
    "launcher",
    "read_templates",
    "render",
    "service_ids",
    "spare_ids",
]


COMPOSE_FILE = "compose.yaml"
_OWNERS = 0o700  # of what has the values of `env`: it starts containers, and none of them reads it


@dataclass(frozen=True, slots=True)
class Artefact:
    """One file to send: `path` is relative, with `/`; `mode` holds permission bits.

    `secrets` are the keys of a Kubernetes Secret whose values only `up` puts in, in memory. `shown` is whether people
    want to read it: not the launcher, not packed code.
    """

    path: str
    content: bytes
    mode: int
    secrets: tuple[str, ...] = ()
    shown: bool = True


def render(plan: Plan, generation: Generation) -> Iterator[Artefact]:
    """Yield what `up` sends: the launcher and the control file once, then a folder per host; to a cluster, manifests;
    to Slurm, a batch script and what that needs.

    Deterministic. Raises RenderError, while iterating, for what the plan's target cannot express.
    """
    yield from RENDERERS[plan.target](plan, generation)


def read_templates(target: TargetName) -> None:
    """Read the templates of a target now: otherwise `render` does at its first use, when others may have to wait for it."""
    read, names = _TEMPLATES.get(target, (shell_template, ()))
    for name in names:
        read(name)


def service_ids(plan: Plan) -> dict[str, ArtefactId]:
    """Return what identifies the artefact of each service, by the service's name."""
    id_of = _IDS.get(plan.target, _compose_id)
    return {service.name: id_of(plan, service) for service in plan.services}


def spare_ids(plan: Plan) -> dict[str, ArtefactId]:
    """Return what identifies the artefact of each hot spare, by the name of its host."""
    id_of = _IDS.get(plan.target, _compose_id)
    return {node.host.name: id_of(plan, node) for node in plan.spares}


def ids(plan: Plan) -> dict[int, ArtefactId]:
    """Return what identifies each node's artefact, as labels of its container have it."""
    id_of = _IDS.get(plan.target, _compose_id)
    return {node.index: id_of(plan, node) for node in plan.nodes}


def _local_files(plan: Plan, generation: Generation) -> Iterator[Artefact]:
    yield from _of_all_hosts(generation)
    yield from _scripts(plan, local_script)
    yield from _service_scripts(plan, lambda plan, service: local_service_script(service))


def _ssh_files(plan: Plan, generation: Generation) -> Iterator[Artefact]:
    yield from _of_all_hosts(generation)
    yield from _scripts(plan, ssh_script)
    yield from _service_scripts(plan, ssh_script)


def _of_all_hosts(generation: Generation) -> Iterator[Artefact]:
    yield Artefact("launcher.py", launcher(), 0o755, shown=False)
    yield Artefact("control.json", control_json(generation), 0o644)


def _manifests(plan: Plan, generation: Generation) -> Iterator[Artefact]:
    from jobctl.jobspec.render.kubernetes import manifests

    for one in manifests(plan, generation, launcher()):
        yield Artefact(one.path, one.content, 0o644, one.secrets, one.shown)


def _allocation(plan: Plan, generation: Generation) -> Iterator[Artefact]:
    from jobctl.jobspec.render.slurm import slurm_files

    for one in slurm_files(plan, generation):
        yield Artefact(one.path, one.content, one.mode, shown=one.shown)


def _scripts(plan: Plan, script: Callable[[Plan, Node], bytes]) -> Iterator[Artefact]:
    for node in (*plan.nodes, *plan.spares):
        yield Artefact(f"{folder(node.host.name)}/{node_directory(node.index)}.sh", script(plan, node), _OWNERS)


def _service_scripts(plan: Plan, script: Callable[[Plan, Service], bytes]) -> Iterator[Artefact]:
    for service in plan.services:
        yield Artefact(f"{folder(service.host.name)}/{service.name}.sh", script(plan, service), _OWNERS)


def _compose_files(plan: Plan, generation: Generation) -> Iterator[Artefact]:
    yield from _of_all_hosts(generation)
    nodes = _by_host((*plan.nodes, *plan.spares))
    services: dict[str, list[Service]] = {}
    for service in plan.services:
        services.setdefault(service.host.name, []).append(service)
    for host in dict.fromkeys([*nodes, *services]):
        content = compose_file(plan, nodes.get(host, ()), services.get(host, ()))
        yield Artefact(f"{folder(host)}/{COMPOSE_FILE}", content, _OWNERS & 0o666)


def _local_id(plan: Plan, one: Node | Service) -> ArtefactId:
    if isinstance(one, Service):
        return ArtefactId(local_service_hash(local_service_script(one)))
    return ArtefactId(local_hash(local_script(plan, one), plan))


def _compose_id(plan: Plan, one: Node | Service) -> ArtefactId:
    return service_id(plan.sent, one)


RENDERERS: Mapping[TargetName, Callable[[Plan, Generation], Iterator[Artefact]]] = {
    "local": _local_files,
    "compose": _compose_files,
    "ssh": _ssh_files,
    "kubernetes": _manifests,
    "slurm": _allocation,
}
_IDS: Mapping[TargetName, Callable[[Plan, Node | Service], ArtefactId]] = {"local": _local_id, "ssh": ssh_id}
_TEMPLATES: Mapping[TargetName, tuple[Callable[[str], object], tuple[str, ...]]] = {
    "local": (shell_template, ("local.sh.j2", "local_service.sh.j2")),
    "compose": (compose_template, ("compose.yaml.j2", "service.yaml.j2", "service_alike.yaml.j2")),
    "ssh": (shell_template, ("ssh.sh.j2", "ssh_alike.sh.j2", "ssh_start.sh.j2")),
}


def _by_host(nodes: Iterable[Node]) -> dict[str, list[Node]]:
    """Group nodes by host, hosts in the order of their first node."""
    hosts: dict[str, list[Node]] = {}
    for node in nodes:
        hosts.setdefault(node.host.name, []).append(node)
    return hosts


_UNSAFE = re.compile(r"[^A-Za-z0-9._-]|\A[.-]")
_TAKEN = ("launcher.py", "control.json")


def folder(host: str) -> str:
    """Return the folder of `host` among the artefacts: its name, what is no plain character percent-encoded."""
    name = _UNSAFE.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), host)
    return f"%{ord(name[0]):02X}{name[1:]}" if name in _TAKEN else name
