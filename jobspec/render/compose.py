"""Compose files: one for each host, a service for each of its nodes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.sent import Sent
from jobctl.jobspec.plan.types import Container, Mount, Node, Pairs, Plan, Service
from jobctl.jobspec.render import container
from jobctl.jobspec.render.environment import compose_template
from jobctl.jobspec.render.options import Keys, service_keys
from jobctl.jobspec.render.quote import Rendered
from jobctl.jobspec.spec.durations import for_go

# Who `self` is, only the host knows; whoever runs Compose there says so.
_SELF = Rendered("${JOBCTL_USER:?set it to the UID:GID that the job runs as}")

# Whether there are RDMA devices, only the host knows, too; Compose has no other way to leave a device out.
_RDMA = Rendered("${JOBCTL_INFINIBAND:-/dev/null}")


def compose_file(plan: Plan, nodes: Iterable[Node], services: Iterable[Service] = ()) -> bytes:
    """Return the compose file of the host where `nodes` and `services` run. Raises RenderError for what Compose cannot say."""
    nodes = tuple(nodes)
    mounts = {mount for node in nodes for mount in container.host_mounts(node.container)}
    text = compose_template("compose.yaml.j2").render(
        project=f"jobctl-{plan.job}",
        services=[*map(_own_service, services), *(_service(plan.sent, node) for node in nodes)],
        volumes=sorted({mount.source for mount in mounts if _is_named(mount)}),
    )
    return text.encode()


def service_id(sent: Sent, node: Node | Service) -> ArtefactId:
    """Return what identifies the artefact of `node`."""
    return container.id_of((_own_service(node) if isinstance(node, Service) else _service(sent, node))[1])


def _own_service(service: Service) -> tuple[Rendered, Pairs]:
    """Return what starts a service of the job, up to the labels that its hash does not cover, and those."""
    values = _values(Sent(), container.alike(service.container), None, secrets=False)
    alike = compose_template("service_alike.yaml.j2").render(
        {**values, "job_mounts": (), "command": service.command},
    )
    text = compose_template("service.yaml.j2").render(
        name=service.name,
        container=service.container,
        pull=container.pull(service.container),
        extra_hosts=container.own_name(service),
        own_mounts=(container.service_mount(service),),
        alike=Rendered(alike),
        launch=None,
        labels=container.labels(service),
    )
    return Rendered(text), container.uncovered_labels(Sent(), service, text)


def _is_named(mount: Mount) -> bool:
    return mount.kind == "volume" and bool(mount.source)


def _service(sent: Sent, node: Node) -> tuple[Rendered, Pairs]:
    """Return the service of `node`, up to the labels that its hash does not cover, and those."""
    added = _added(service_keys(node.container.options), "extra_hosts")
    text = compose_template("service.yaml.j2").render(
        name=container.node_directory(node.index),
        container=node.container,
        pull=container.pull(node.container),
        extra_hosts=tuple(dict.fromkeys(container.own_name(node) + added)),
        own_mounts=container.node_mounts(node),
        alike=_alike(
            sent,
            container.alike(node.container),
            node.launch.workdir,
            node.launch.has_secrets,
            bool(node.launch.spare),
        ),
        launch=container.launch_variable(node.launch),
        labels=container.labels(node),
    )
    return Rendered(text), container.uncovered_labels(sent, node, text)


@lru_cache(maxsize=16)
def _alike(sent: Sent, given: Container, workdir: str | None, secrets: bool, spare: bool) -> Rendered:
    """Return the part of a service that is the same on all nodes with containers like `given`."""
    values = {**_values(sent, given, workdir, secrets), "command": container.command(given, secrets, spare)}
    return Rendered(compose_template("service_alike.yaml.j2").render(values))


def _values(sent: Sent, given: Container, workdir: str | None, secrets: bool) -> dict[str, Any]:
    options = service_keys(given.options)
    user = container.user(given)
    return {
        "container": given,
        "job_mounts": container.job_mounts(sent, secrets),
        "host_mounts": container.host_mounts(given),
        "workdir": workdir,
        "user": _SELF if user == "self" else user,
        "devices": container.devices(given) + ((_RDMA,) if container.wants_rdma(given) else ()),
        "groups": tuple(dict.fromkeys(container.groups(given) + _added(options, "group_add"))),
        "gpus": container.gpus(given),
        "limits": container.limits(given),
        "grace": for_go(given.stop_grace),
        "log_options": container.LOG_OPTIONS,
        "options": [(key, value) for key, value in options.items() if key not in _MERGED],
        "variables": container.variables(given),
    }


# Keys of the options that jobctl itself adds to.
_MERGED = ("extra_hosts", "group_add")


def _added(options: Keys, key: str) -> tuple[str, ...]:
    value = options.get(key, ())
    return value if isinstance(value, tuple) else ()
