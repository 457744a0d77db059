"""What a Kubernetes cluster is asked for, out of the spec: pods instead of hosts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobctl.jobspec.plan.types import ClusterOptions, HostRef, Toleration
from jobctl.jobspec.planner.context import Request
from jobctl.jobspec.planner.placement import Place, Task

if TYPE_CHECKING:
    from jobctl.jobspec.spec.base import Part
    from jobctl.jobspec.spec.model import Spec
    from jobctl.jobspec.spec.parts.kubernetes import Kubernetes
    from jobctl.jobspec.spec.parts.kubernetes import Toleration as Given

# The names that device plugins give their devices: https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/ and
# the vendors' plugins.
_DEVICES = {
    "cpu": "cpu",
    "gpu": "nvidia.com/gpu",
    "xpu": "kunlunxin.com/xpu",
    "npu": "huawei.com/Ascend910",
    "dcu": "hygon.com/dcu",
}


def cluster_of(spec: Spec) -> ClusterOptions:
    """Return what the spec's block `kubernetes` asks for; without one, what any cluster can do."""
    given = spec.kubernetes or _empty()
    return ClusterOptions(
        operator=given.operator,
        namespace=given.namespace,
        clean_pod_policy=given.clean_pod_policy,
        intranet=given.intranet,
        queue=given.queue,
        priority_class=given.priority_class,
        service_account=given.service_account,
        image_pull_secrets=given.image_pull_secrets,
        node_selector=tuple(sorted(given.node_selector.items())),
        tolerations=tuple(map(_toleration, given.tolerations)),
        device=given.resource_name or _DEVICES[spec.devices.kind],
        resources=tuple(sorted(given.resources.items())),
        checkpoint_claim=given.checkpoint_claim,
        labels=tuple(sorted(given.labels.items())),
        annotations=tuple(sorted(given.annotations.items())),
        gloo=spec.ps.gloo if spec.ps else None,
        affinity=_as_api(given.affinity),
        host_network=given.host_network,
        pod_security=_as_api(given.pod_security_context),
        security=_as_api(given.security_context),
        token=_token(given),
        ttl=given.ttl_seconds_after_finished,
    )


def _as_api(given: Part | None) -> dict[str, Any] | None:
    """Return a part of a pod as the API has it: the keys of the spec, and nothing else."""
    return given.model_dump(mode="json", exclude_none=True) if given is not None else None


def _token(given: Kubernetes) -> bool | None:
    """Return whether pods get a token for the API server: nothing in them needs it unless an account was chosen for them."""
    if given.automount_service_account_token is None:
        return None if given.service_account else False
    return given.automount_service_account_token


def _empty() -> Kubernetes:
    from jobctl.jobspec.spec.parts.kubernetes import Kubernetes

    return Kubernetes()


def has_operator(cluster: ClusterOptions | None) -> bool:
    """Say whether an operator starts the processes, and not jobctl's launcher; on hosts it is always that."""
    return cluster is not None and cluster.operator != "none"


def uses_etcd(cluster: ClusterOptions, spec: Spec) -> bool:
    """Say whether Paddle's launchers keep in etcd, under an operator, who takes part.

    Those of a range do; below paddle-operator also those of a fixed number of nodes, of which one that fails comes
    back, where the spec names an etcd. One that jobctl starts on hosts is not there.
    """
    if spec.framework != "paddle" or not has_operator(cluster):
        return False
    named = spec.etcd is not None and bool(spec.etcd.endpoints)
    return spec.nodes.elastic or (named and cluster.operator == "paddle-operator" and spec.ps is None)


def _toleration(given: Given) -> Toleration:
    operator = given.operator or ("Exists" if given.value is None else "Equal")
    return Toleration(given.key, operator, given.value, given.effect)


def pod(job: str, role: str, number: int, several: bool) -> HostRef:
    """Return where pod `number` of a role runs: its host name, and the name by which the others reach it.

    Pods of an indexed Job are called after it, below the job's headless service. Jobs with roles have a Job for each.
    """
    name = f"{main_name(job, role, several)}-{number}"
    return HostRef(name, f"{name}.{job}")


def main_name(job: str, role: str, several: bool) -> str:
    """Return the name of the Job of a role."""
    return f"{job}-{role}" if several else job


def tasks_in_pods(request: Request) -> list[Task]:
    """Return a pod for each node; in jobs with roles, one for each process of a role that has a total."""
    roles = request.roles
    tasks = []
    for role in roles:
        # Where roles have totals, a trainer takes one device, however many its node would have on hosts.
        slots = (0,) if role.total is not None and request.spec.devices.count is None else None
        nproc = None if role.total is None else 1
        for number in range(request.most if role.total is None else role.total):
            host = pod(request.spec.name, role.name, number, len(roles) > 1)
            tasks.append(Task(role.name, Place(host, slots, None), nproc))
    return tasks
