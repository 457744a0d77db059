"""What a job asks of a cluster, read from its manifests: so many pods, with so much of each resource."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from jobctl.jobspec.deploy.kubernetes.kinds import TRAINING_RUNTIME, Object
from jobctl.jobspec.deploy.kubernetes.manifests import is_main
from jobctl.jobspec.records import dataclass


@dataclass(frozen=True, slots=True)
class Pods:
    """`count` pods that are alike: what each of them asks for (and may use at most), and where it may run."""

    count: int
    requests: Mapping[str, Decimal]
    limits: Mapping[str, Decimal]
    selector: Mapping[str, str]
    spec: Mapping[str, Any]


def pods_of(want: Sequence[Object]) -> list[Pods]:
    """Return the pods that the objects of a job will have."""
    return [pods for thing in want if is_main(thing) for pods in _pods(thing["spec"], want)]


def _pods(spec: Mapping[str, Any], want: Sequence[Object]) -> Iterator[Pods]:
    """Yield the pods of a Job, of the replicas of kubeflow and paddle-operator, or of a TrainJob."""
    if "template" in spec:
        yield _alike(int(spec.get("parallelism") or spec.get("completions") or 1), spec["template"].get("spec") or {})
    for replicas in _replicas(spec):
        yield _alike(int(replicas.get("replicas") or 1), (replicas.get("template") or {}).get("spec") or {})
    if "trainer" in spec:
        yield _alike(int(spec["trainer"].get("numNodes") or 1), _run_by(spec["runtimeRef"]["name"], want))


def _run_by(name: str, want: Sequence[Object]) -> Mapping[str, Any]:
    """Return the pods of a TrainJob, as its runtime has them."""
    (runtime,) = [one for one in want if (one["kind"], one["metadata"]["name"]) == (TRAINING_RUNTIME.kind, name)]
    (job,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    pods: Mapping[str, Any] = job["template"]["spec"]["template"]["spec"]
    return pods


def _replicas(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for key in ("paddleReplicaSpecs", "pytorchReplicaSpecs"):
        yield from (spec.get(key) or {}).values()
    yield from (spec[key] for key in ("ps", "worker") if spec.get(key))


def _alike(count: int, spec: Mapping[str, Any]) -> Pods:
    requests: dict[str, Decimal] = {}
    limits: dict[str, Decimal] = {}
    for container in spec.get("containers") or ():
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}  # requests default to limits
        _add(requests, asked)
        _add(limits, resources.get("limits") or {})
    return Pods(count, requests, limits, spec.get("nodeSelector") or {}, spec)


def pods_there(pods: Sequence[Object]) -> list[Pods]:
    """Return those of `pods` that count for a quota: it forgets what has ended."""
    return [
        _alike(1, pod.get("spec") or {})
        for pod in pods
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    ]


def counted_by(quota: Mapping[str, Any], pods: Sequence[Pods]) -> list[Pods]:
    """Return those of `pods` that a quota counts: they fit all its scopes. A scope that is not known here fits none.

    https://kubernetes.io/docs/concepts/policy/resource-quotas/#quota-scopes
    """
    spec = quota.get("spec") or {}
    named = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    chosen = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return [one for one in pods if all(_fits(scope, one.spec) for scope in (*named, *chosen))]


def _fits(scope: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    """Say whether pods are within one scope of a quota."""
    match scope.get("scopeName"):
        case "Terminating":
            return "activeDeadlineSeconds" in spec
        case "NotTerminating":
            return "activeDeadlineSeconds" not in spec
        case "BestEffort":
            return not _asks_for_any(spec)
        case "NotBestEffort":
            return _asks_for_any(spec)
        case "PriorityClass":
            name, values = spec.get("priorityClassName"), scope.get("values") or ()
            fits = {"In": name in values, "NotIn": name not in values, "Exists": bool(name), "DoesNotExist": not name}
            return fits.get(str(scope.get("operator")), False)
        case _:
            return False


def _asks_for_any(spec: Mapping[str, Any]) -> bool:
    """Say whether a container asks for processors or memory: that alone makes its pod more than `BestEffort`."""
    every = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    named = [name for one in every for amounts in (one.get("resources") or {}).values() for name in amounts or ()]
    return "cpu" in named or "memory" in named


def _add(sums: dict[str, Decimal], more: Mapping[str, Any]) -> None:
    from kubernetes.utils.quantity import parse_quantity

    for name, amount in more.items():
        sums[name] = sums.get(name, Decimal(0)) + parse_quantity(amount)


def totals(pods: Sequence[Pods]) -> dict[str, Decimal]:
    """Return what all pods ask for, by the names that quotas have for it."""
    found: dict[str, Decimal] = {"pods": Decimal(sum(one.count for one in pods))}
    found["count/pods"] = found["pods"]
    for one in pods:
        for prefix, amounts in (("requests.", one.requests), ("limits.", one.limits)):
            for name, amount in amounts.items():
                key = f"{prefix}{name}"
                found[key] = found.get(key, Decimal(0)) + amount * one.count
    # Of these a quota may leave out that it means requests.
    found |= {name: found[f"requests.{name}"] for name in ("cpu", "memory") if f"requests.{name}" in found}
    return found
