"""The etcd of a job: one that exists, or members that are started with it. Pure.

In containers the certificates are in a folder of their own.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from jobctl.jobspec.plan.generation import endpoint
from jobctl.jobspec.plan.types import ClusterOptions, Container, Devices, Etcd, HostRef, Mount, Service, Tls
from jobctl.jobspec.planner.context import Context, PlanError, Request
from jobctl.jobspec.planner.inputs import inputs_label, inputs_of_job
from jobctl.jobspec.planner.kubernetes import uses_etcd
from jobctl.jobspec.planner.placement import local_hosts
from jobctl.jobspec.spec.hosts import is_address

if TYPE_CHECKING:
    from jobctl.jobspec.spec.hosts import Host
    from jobctl.jobspec.spec.model import Spec

# 3.5.0 to 3.5.2 could lose data: https://etcd.io/docs/v3.5/op-guide/data_corruption/
IMAGE = "quay.io/coreos/etcd:v3.5.21"
STOP_GRACE = 5.0  # seconds

_CERTIFICATES = "/jobctl/etcd"
_DATA = "/etcd"


def etcd_of(spec: Spec, context: Context, members: Sequence[Service], cluster: ClusterOptions | None) -> Etcd | None:
    """Return the etcd that the launchers of a job keep their leases in, None for none.

    jobctl's own launchers in a cluster or an allocation agree among themselves; an etcd is for a framework's launchers there.
    """
    given = spec.etcd
    if given is None or context.traits.in_allocation or (cluster is not None and not uses_etcd(cluster, spec)):
        return None
    local = context.traits.is_here
    paths = _tls_files(spec)
    tls = {name: os.path.join(context.directory, path) if local else f"{_CERTIFICATES}/{name}" for name, path in paths}
    return Etcd(
        endpoints=given.endpoints or tuple(endpoint(member.host.address, member.port) for member in members),
        prefix=f"/jobctl/{context.owner}/{spec.name}",
        tls=Tls(tls.get("ca"), tls.get("cert"), tls.get("key")) if given.tls else None,
        user=given.user,
        password=given.password,
    )


def certificates(spec: Spec) -> tuple[Mount, ...]:
    """Return the mounts of the certificates that the spec names."""
    return tuple(Mount("bind", path, f"{_CERTIFICATES}/{name}", read_only=True) for name, path in _tls_files(spec))


def _tls_files(spec: Spec) -> list[tuple[str, str]]:
    tls = spec.etcd.tls if spec.etcd else None
    found = [("ca", tls.ca), ("cert", tls.cert), ("key", tls.key)] if tls else []
    return [(name, path) for name, path in found if path is not None]


def etcd_members(request: Request) -> tuple[Service, ...]:
    """Return the members of a managed etcd, each on a host of its own: where it is already, or the first that are free.

    Hosts with the role `etcd` go first. Raises PlanError where there are too few hosts.
    """
    spec, context = request.spec, request.context
    managed = spec.etcd.managed if spec.etcd else None
    if managed is None or context.traits.chooses_nodes:  # jobctl starts none in a cluster
        return ()
    homes = _homes(request.hosts, context, managed.replicas, request.placement.services)
    inputs = inputs_of_job(spec, context, homes)
    return tuple(_member(spec, context, homes, i, managed.port, inputs) for i in range(len(homes)))


def _homes(hosts: Sequence[Host], context: Context, count: int, placement: Mapping[str, str]) -> list[HostRef]:
    if context.traits.is_here:
        return list(local_hosts(count))
    order = sorted((host for host in hosts if not host.spare), key=lambda host: "etcd" not in host.roles)
    if len(order) < count:
        message = f"a managed etcd of {count} members needs as many hosts, and the hosts file has {len(order)}"
        raise PlanError("too-few-hosts", message, ("etcd", "managed", "replicas"), "add hosts, or `replicas: 1`")
    known = {host.name: host for host in order}
    kept = {i: known.pop(placement[_name(i)]) for i in range(count) if placement.get(_name(i)) in known}
    rest = iter(known.values())
    chosen = [kept[i] if i in kept else next(rest) for i in range(count)]
    return [HostRef(host.name, host.address) for host in chosen]


def _member(spec: Spec, context: Context, homes: Sequence[HostRef], number: int, port: int, inputs: str) -> Service:
    """Return one member."""
    name, home = _name(number), homes[number]
    cluster = ",".join(f"{_name(i)}=http://{endpoint(one.address, port + 1)}" for i, one in enumerate(homes))
    labels = (
        ("jobctl.job", spec.name),
        ("jobctl.node", name),
        ("jobctl.role", "etcd"),
        ("jobctl.owner", context.owner),
        ("jobctl.version", context.version),
        inputs_label(inputs, name),
    )
    managed = spec.etcd.managed if spec.etcd else None
    image = (managed.image if managed else None) or IMAGE
    container = Container(
        name=f"jobctl-{spec.name}-{name}",
        image="" if context.traits.is_here else image,
        pull=spec.pull,
        hostname=f"{spec.name}-{name}",
        python="",
        user="self",  # an image of etcd has no Python with which `down` could remove what root has written
        runtime=None,
        env=tuple(sorted(_options(spec.name, name, home, port, cluster).items())),
        labels=labels,
        mounts=(),
        devices=Devices("cpu", ()),
        extra_devices=(),
        cap_add=(),
        shm_size=None,
        memory=None,
        cpus=None,
        ulimits=(),
        options=(),
        stop_grace=STOP_GRACE,
        restart="unless-stopped",  # a member has nobody to ask, and comes back with its host
    )
    return Service(name, "etcd", home, container, ("etcd",), _DATA, "ETCD_DATA_DIR", port)


def _options(job: str, name: str, home: HostRef, port: int, cluster: str) -> dict[str, str]:
    """Return a member's settings, as variables: each of etcd's options can be one (`ETCD_…`)."""
    listen = home.address if is_address(home.address) else "0.0.0.0"  # a name is nothing that etcd could bind
    return {
        "ETCD_NAME": name,
        "ETCD_LISTEN_CLIENT_URLS": f"http://{endpoint(listen, port)}",
        "ETCD_ADVERTISE_CLIENT_URLS": f"http://{endpoint(home.address, port)}",
        "ETCD_LISTEN_PEER_URLS": f"http://{endpoint(listen, port + 1)}",
        "ETCD_INITIAL_ADVERTISE_PEER_URLS": f"http://{endpoint(home.address, port + 1)}",
        "ETCD_INITIAL_CLUSTER": cluster,
        "ETCD_INITIAL_CLUSTER_STATE": "new",
        "ETCD_INITIAL_CLUSTER_TOKEN": f"jobctl-{job}",
        # Data of a cluster with other members would make this one a member of that.
        "ETCD_DATA_DIR": f"{_DATA}/{sha256(cluster.encode()).hexdigest()[:8]}",
        "ETCD_AUTO_COMPACTION_RETENTION": "1h",
        "ETCD_LOGGER": "zap",
        # It speaks to other members alone, and engines may give each container proxies.
        "NO_PROXY": "*",
    }


def _name(number: int) -> str:
    return f"etcd-{number}"
