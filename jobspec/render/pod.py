"""Pods: what is alike for all operators, and without one. Each of them holds one node of the job.

Nothing here knows an operator: what its container is called, and what it runs, are arguments.
"""

from __future__ import annotations

import math
from pathlib import PurePosixPath

from jobctl.jobspec.plan.types import Checkpoint, ClusterOptions, Container, Mount, Node, Pairs, Plan
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.render.manifest import Object, escaped
from jobctl.jobspec.render.marks import COMPONENT_LABEL, JOB, MANAGED_LABEL, NAME_LABEL, ROLE, mark
from jobctl.jobspec.render.mounts import one_at_a_place

OWN_ADDRESS = "JOBCTL_ADDRESS"
REFERENCE = "$(" + OWN_ADDRESS + ")"

_SHM = "/dev/shm"
_COMPUTING = ("cpu", "memory")
ARCHIVE = "code.tgz"
_CODE = "/jobctl/code"
# Runs in the user's image, whatever Python is there; what was packed is the user's own.
_UNPACK = (
    "import sys, tarfile; tarfile.TarFile.extraction_filter = staticmethod(lambda member, path: member); "
    "tarfile.open(sys.argv[1]).extractall(sys.argv[2])"
)
_PULL = {"missing": "IfNotPresent", "always": "Always", "never": "Never"}


@dataclass(frozen=True, slots=True)
class Runs:
    """What a pod's container is called and runs.

    `command`, `args` and the values of `env` are as Kubernetes reads them, see `escaped`. `mounts` are pairs of a volume
    of `volumes` and where it is mounted.
    """

    name: str
    command: tuple[str, ...]
    args: tuple[str, ...] = ()
    env: Pairs = ()
    secret_env: tuple[str, ...] = ()
    workdir: str | None = None
    volumes: tuple[Object, ...] = ()
    mounts: Pairs = ()
    read_only: tuple[str, ...] = ()  # volumes
    ports: tuple[Object, ...] = ()


def labels(plan: Plan) -> Object:
    """Return the labels of every object of a job."""
    return {NAME_LABEL: plan.job, MANAGED_LABEL: "jobctl", mark(JOB): plan.job}


def template(
    plan: Plan,
    node: Node,
    runs: Runs,
    *,
    restart: str | None = None,
    subdomain: str | None = None,
    deadline: float | None = None,
) -> Object:
    """Return the pod template of `node`, and of those that are like it; a pod fails after `deadline` seconds."""
    cluster, given = of(plan), node.container
    mounts = [_mount(given, mount, number, plan) for number, mount in enumerate(one_at_a_place(given.mounts))]
    volumes = [*_shared_memory(given), *runs.volumes, *_code_volumes(plan), *(volume for volume, _ in mounts)]
    spec: Object = {
        **({"restartPolicy": restart} if restart else {}),
        **({"subdomain": subdomain} if subdomain else {}),
        **({"activeDeadlineSeconds": math.ceil(deadline)} if deadline else {}),
        "terminationGracePeriodSeconds": math.ceil(given.stop_grace),
        # Variables of services could be taken for Paddle's own, e.g. PADDLE_PORT for that of a service `paddle`.
        "enableServiceLinks": False,
        **_account(cluster),
        **_placement(cluster, given),
        **({"securityContext": context} if (context := security_of_pod(cluster, given)) else {}),
        **({"initContainers": [_unpacker(plan, given)]} if plan.code else {}),
        "containers": [_container(plan, given, runs, [mount for _, mount in mounts])],
        **({"volumes": volumes} if volumes else {}),
    }
    annotations = {"annotations": dict(cluster.annotations)} if cluster.annotations else {}
    told = {**labels(plan), COMPONENT_LABEL: node.role, mark(ROLE): node.role, **dict(cluster.labels)}
    return {"metadata": {"labels": told, **annotations}, "spec": spec}


def of(plan: Plan) -> ClusterOptions:
    """Return the cluster of a plan for one."""
    assert plan.cluster is not None
    return plan.cluster


def _account(cluster: ClusterOptions) -> Object:
    named: Object = {"serviceAccountName": cluster.service_account} if cluster.service_account else {}
    if cluster.token is not None:
        named["automountServiceAccountToken"] = cluster.token
    secrets = [{"name": name} for name in cluster.image_pull_secrets]
    return {**named, **({"imagePullSecrets": secrets} if secrets else {})}


def _placement(cluster: ClusterOptions, given: Container) -> Object:
    tolerations = [
        {name: value for name in ("key", "operator", "value", "effect") if (value := getattr(one, name)) is not None}
        for one in cluster.tolerations
    ]
    return {
        **({"nodeSelector": dict(cluster.node_selector)} if cluster.node_selector else {}),
        **({"tolerations": tolerations} if tolerations else {}),
        **({"affinity": cluster.affinity} if cluster.affinity else {}),
        # Names of services, too, are asked of the cluster and not of the node's resolver.
        **({"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"} if cluster.host_network else {}),
        **({"priorityClassName": cluster.priority_class} if cluster.priority_class else {}),
        **({"runtimeClassName": given.runtime} if given.runtime else {}),
    }


def security_of_pod(cluster: ClusterOptions, given: Container) -> Object:
    """Return a pod's security context; where a group is named, files of volumes become readable for it."""
    if given.user is None:
        return cluster.pod_security or {}
    user, _, group = ("0" if given.user == "root" else given.user).partition(":")
    own = {"runAsUser": int(user), **({"runAsGroup": int(group), "fsGroup": int(group)} if group else {})}
    return {**own, **(cluster.pod_security or {})}


def _security(cluster: ClusterOptions, given: Container) -> Object:
    """Return the security context of a container that trains."""
    said = cluster.security or {}
    # Docker takes either form. The API's names have no prefix: nodes add it, and leave out what they do not know then.
    own = [name.upper().removeprefix("CAP_") for name in given.cap_add]
    added = list(dict.fromkeys((*own, *((said.get("capabilities") or {}).get("add") or ()))))
    capabilities = {**(said.get("capabilities") or {}), **({"add": added} if added else {})}
    return {**said, **({"capabilities": capabilities} if capabilities else {})}


def _security_of_unpacker(cluster: ClusterOptions) -> Object:
    """Return the security context of the container that only unpacks: no more privileges than the image has."""
    said = {key: value for key, value in (cluster.security or {}).items() if key != "privileged"}
    dropped = (said.pop("capabilities", None) or {}).get("drop")
    return {**said, **({"capabilities": {"drop": dropped}} if dropped else {})}


def _container(plan: Plan, given: Container, runs: Runs, mounts: list[Object]) -> Object:
    own = [(name, place) for name, place in runs.mounts]
    code = [("code", plan.code.target)] if plan.code else []
    memory = [("dshm", _SHM)] if _shared_memory(given) else []
    mounted = [
        {"name": name, "mountPath": place, **({"readOnly": True} if name in runs.read_only else {})}
        for name, place in [*memory, *own, *code]
    ]
    uses_address = any(REFERENCE in text for text in (*runs.command, *runs.args, *(value for _, value in runs.env)))
    return {
        "name": runs.name,
        "image": given.image,
        "imagePullPolicy": _PULL[given.pull],
        "command": list(runs.command),
        **({"args": list(runs.args)} if runs.args else {}),
        **({"workingDir": runs.workdir} if runs.workdir else {}),
        **_variables(plan, given, runs, uses_address),
        **({"resources": limits} if (limits := resources(of(plan), given)) else {}),
        **({"ports": list(runs.ports)} if runs.ports else {}),
        **({"securityContext": context} if (context := _security(of(plan), given)) else {}),
        **({"volumeMounts": mounted + mounts} if mounted or mounts else {}),
    }


def _variables(plan: Plan, given: Container, runs: Runs, uses_address: bool) -> Object:
    """Return the variables; what others refer to comes first, and the user's come last."""
    own = [{"name": OWN_ADDRESS, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}] if uses_address else []
    named = {**dict(runs.env), **{name: escaped(value) for name, value in given.env}}
    secret = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret_name(plan), "key": name}}}
        for name in runs.secret_env
    ]
    variables = [*own, *({"name": name, "value": value} for name, value in named.items()), *secret]
    return {"env": variables} if variables else {}


def secret_name(plan: Plan) -> str:
    """Return the name of the Secret of a job."""
    return f"{plan.job}-secrets"


def resources(cluster: ClusterOptions, given: Container) -> Object:
    """Return what a pod may use; what it asks for is the same, as it is unless the spec says otherwise."""
    devices = {cluster.device: str(len(given.devices.ids or ()))} if given.devices.ids else {}
    found = {**_sizes(given), **devices, **dict(cluster.resources)}
    return {"limits": found} if found else {}


def _computing(cluster: ClusterOptions, given: Container) -> Object:
    """Return what a pod may use of cores and memory, wherever the spec says so; quotas of these want it of each container."""
    return {name: limit for name, limit in {**_sizes(given), **dict(cluster.resources)}.items() if name in _COMPUTING}


def _sizes(given: Container) -> Object:
    return {
        **({"cpu": f"{given.cpus:g}"} if given.cpus is not None else {}),
        **({"memory": _size(given.memory)} if given.memory is not None else {}),
    }


def _size(count: int) -> str:
    for unit, size in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if count % size == 0:
            return f"{count // size}{unit}"
    return str(count)


# Volumes.


def _shared_memory(given: Container) -> list[Object]:
    """Return the volume below /dev/shm: the 64 MiB that a pod has are too little for collectives and data loaders."""
    if any(mount.target == _SHM for mount in given.mounts):
        return []
    limit = {"sizeLimit": _size(given.shm_size)} if given.shm_size is not None else {}
    return [{"name": "dshm", "emptyDir": {"medium": "Memory", **limit}}]


def _mount(given: Container, mount: Mount, number: int, plan: Plan) -> tuple[Object, Object]:
    """Return a volume, and its mount."""
    checkpoint = plan.checkpoint is not None and mount == _of_checkpoint(given, plan.checkpoint)
    name = "checkpoint" if checkpoint else f"volume-{number}"
    read_only = {"readOnly": True} if mount.read_only else {}
    return (
        {"name": name, **_source(mount, of(plan), checkpoint)},
        {"name": name, "mountPath": mount.target, **read_only},
    )


def _of_checkpoint(given: Container, checkpoint: Checkpoint) -> Mount | None:
    """Return the mount that the checkpoints are in: of several above each other, the innermost."""
    place = PurePosixPath(checkpoint.dir)
    holding = [mount for mount in one_at_a_place(given.mounts) if place.is_relative_to(mount.target)]
    inner = max(holding, key=lambda mount: len(mount.target), default=None)
    return inner if inner is not None and inner.kind == "bind" and inner.source == inner.target else None


def _source(mount: Mount, cluster: ClusterOptions, checkpoint: bool) -> Object:
    if checkpoint and cluster.checkpoint_claim:
        return {"persistentVolumeClaim": {"claimName": cluster.checkpoint_claim}}
    if mount.kind == "bind":
        # A folder that is not there on a node is an error, as on hosts: what is made in its place is empty.
        return {"hostPath": {"path": mount.source, **({"type": "Directory"} if checkpoint else {})}}
    if mount.kind == "tmpfs":
        return {"emptyDir": {"medium": "Memory"}}
    return {"persistentVolumeClaim": {"claimName": mount.source}} if mount.source else {"emptyDir": {}}


# The user's code.


def code_name(plan: Plan) -> str:
    """Return the name of the ConfigMap that holds the user's code."""
    return f"{plan.job}-code"


def _code_volumes(plan: Plan) -> list[Object]:
    if plan.code is None:
        return []
    return [{"name": "code", "emptyDir": {}}, {"name": "archive", "configMap": {"name": code_name(plan)}}]


def _unpacker(plan: Plan, given: Container) -> Object:
    """Return the container that unpacks the code, each time a pod starts: its processes may write there."""
    assert plan.code is not None
    return {
        "name": "code",
        "image": given.image,
        "imagePullPolicy": _PULL[given.pull],
        "command": [given.python, "-c", _UNPACK, f"{_CODE}/{ARCHIVE}", escaped(plan.code.target)],
        # Namespaces with a quota refuse pods with a container that names none.
        **({"resources": {"limits": sizes}} if (sizes := _computing(of(plan), given)) else {}),
        **({"securityContext": context} if (context := _security_of_unpacker(of(plan))) else {}),
        "volumeMounts": [
            {"name": "archive", "mountPath": _CODE, "readOnly": True},
            {"name": "code", "mountPath": plan.code.target},
        ],
    }
