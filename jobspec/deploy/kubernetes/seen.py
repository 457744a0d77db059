"""What runs of a job in a cluster: pods and the objects that they are made of, parsed into what all targets tell.

Pure. An operator's own words about the job decide how it stands; pods say how each node does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from jobctl.jobspec.deploy.kubernetes.kinds import (
    PADDLE_JOB,
    QUEUE_LABEL,
    Object,
    is_suspended,
    labels_of,
)
from jobctl.jobspec.deploy.model.control import Control, Ledger
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode, Phase, State
from jobctl.jobspec.plan.recovery import Failure
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.render.marks import OWNER, ROLE, annotation_of, label_of

# Where the number of a pod within its role stands: of indexed Jobs (also those of the trainer), and of kubeflow.
_INDEX_LABELS = ("batch.kubernetes.io/job-completion-index", "training.kubeflow.org/replica-index")
_REPLICA_LABEL = "training.kubeflow.org/replica-type"
_NUMBER_AT_END = re.compile(r"-(\d+)$")  # paddle-operator's pods: JOB-worker-0

# The roles of kubeflow's and paddle-operator's replicas, where a pod does not say what it is to jobctl.
_ROLE_LABELS = (_REPLICA_LABEL, "paddle-res-type")
_ROLES = {"worker": "trainer", "master": "trainer", "ps": "server"}
_ORDER = ("trainer", "server", "scheduler")  # of nodes, where no plan says another

_LAUNCHER = "/jobctl/launcher"  # where it is mounted, see render/kubernetes.py

# What phases of paddle-operator mean (PaddleJobPhase of its API).
_PADDLE: dict[str, Phase] = {
    "Starting": "starting",
    "Pending": "starting",
    "Scaling": "restarting",
    "Restarting": "restarting",
    "Running": "running",
    "Completing": "running",
    "Completed": "succeeded",
    "Succeed": "succeeded",
    "Failed": "failed",
    "Aborting": "failed",
    "Aborted": "failed",
    "Terminating": "failed",
    "Terminated": "failed",
}
# What conditions of Jobs, kubeflow's jobs and TrainJobs mean where they are true.
_CONDITIONS: dict[str, Phase] = {
    "Complete": "succeeded",
    "Succeeded": "succeeded",
    "Failed": "failed",
    "Restarting": "restarting",
}

NO_POD = "no pod has been made yet"
# Reasons why a container waits that mean that it will not start by itself, or has not before.
_BROKEN = ("CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerError")
_NORMAL = ("ContainerCreating", "PodInitializing")


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of a job, as far as it matters here. `number` is counted within its role; times are seconds."""

    name: str
    uid: str
    role: str
    number: int
    created: float
    host: str
    state: State
    container: str
    reason: str | None = None
    exit_code: int | None = None
    started_at: float | None = None
    ended_at: float = 0.0
    last_words: str = ""
    restarts: int = 0
    leaving: bool = False
    launcher: bool = False  # whether our launcher runs in it, which repeats what its processes print

    @property
    def ended(self) -> bool:
        """Whether it runs no more and never will."""
        return self.state in ("exited", "failed") and self.exit_code is not None


def observe(mains: Sequence[Object], pods: Sequence[Object], plan: Plan | None) -> Observed:
    """Return a job as its objects tell: `mains` are what its pods were made of."""
    seen = [parse_pod(pod) for pod in pods]
    nodes = nodes_of(seen, plan if mains else None)
    verdict = _verdict(mains, nodes, plan)
    if verdict[0] == "succeeded":  # operators remove pods that have done their work
        nodes = [
            replace(node, state="exited", reason="its pod was removed") if _is_gone(node) else node for node in nodes
        ]
    owners = frozenset(filter(None, (annotation_of(main, OWNER) for main in mains)))
    failures = tuple(_failures(seen, nodes)) if verdict[0] == "failed" else ()
    control = Control(None, Ledger(0.0, failures=failures))
    return Observed(control, tuple(nodes), supervised=None, owners=owners, verdict=verdict)


# Pods.


def parse_pod(pod: Object) -> Pod:
    """Return a pod as it matters here."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    main = _main_container(spec)
    told: dict[str, Any] = next((c for c in status.get("containerStatuses") or () if c["name"] == main), {})
    running, ended = _at(told, "running"), _at(told, "terminated")
    state, reason = _state(pod, told)
    last = ended or (told.get("lastState") or {}).get("terminated") or {}
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        role=role_of(pod),
        number=number_of(pod),
        created=seconds(meta.get("creationTimestamp")) or 0.0,
        host=spec.get("nodeName") or "",
        state=state,
        container=main,
        reason=reason,
        exit_code=ended.get("exitCode"),
        started_at=seconds(running.get("startedAt") or ended.get("startedAt")),
        ended_at=seconds(last.get("finishedAt")) or 0.0,
        last_words=last.get("message") or "",
        restarts=told.get("restartCount") or 0,
        leaving=meta.get("deletionTimestamp") is not None,
        launcher=_runs_launcher(spec),
    )


def role_of(pod: Object) -> str:
    """Return what a pod does in the job."""
    told = label_of(pod, ROLE)
    if told is not None:
        return told
    labels = labels_of(pod)
    named = next((labels[label] for label in _ROLE_LABELS if label in labels), "worker")
    return _ROLES.get(named.lower(), named.lower())


def number_of(pod: Object) -> int:
    """Return a pod's number within its role, as it was told, as its labels have it, or else its name."""
    labels = labels_of(pod)
    # The first worker beside a master has index 0 too, and is told that its rank is 1.
    rank = _variable(pod, "RANK") if _REPLICA_LABEL in labels else ""
    if rank.isdigit():
        return int(rank)
    for label in _INDEX_LABELS:
        if labels.get(label, "").isdigit():
            return int(labels[label])
    found = _NUMBER_AT_END.search(pod["metadata"]["name"])
    return int(found.group(1)) if found else 0


def _variable(pod: Object, name: str) -> str:
    """Return a variable of a pod's container; empty if it has none, or refers to something."""
    containers = (pod.get("spec") or {}).get("containers") or [{}]
    found = (one.get("value") for one in containers[0].get("env") or () if one["name"] == name)
    return next(found, None) or ""


def _main_container(spec: Mapping[str, Any]) -> str:
    containers = spec.get("containers") or [{"name": ""}]
    return str(containers[0]["name"])


def _runs_launcher(spec: Mapping[str, Any]) -> bool:
    containers = spec.get("containers") or [{}]
    return any(mount["mountPath"] == _LAUNCHER for mount in containers[0].get("volumeMounts") or ())


def _at(told: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return what a container's state says of being `waiting`, `running` or `terminated`; empty if it is not."""
    return (told.get("state") or {}).get(what) or {}


def _state(pod: Object, told: Mapping[str, Any]) -> tuple[State, str | None]:
    status = pod.get("status") or {}
    phase, reason = status.get("phase"), status.get("reason")
    ended, waiting = _at(told, "terminated"), _at(told, "waiting")
    if phase == "Unknown" or reason == "NodeLost" or (pod["metadata"].get("deletionTimestamp") and _is_silent(status)):
        return "lost", "its node is not heard"
    if phase == "Succeeded" or (ended and ended.get("exitCode") == 0):
        return "exited", None
    if phase == "Failed" or ended:
        return "failed", _why_failed(status, ended)
    if waiting.get("reason") in _BROKEN:
        return "failed", _said(waiting)
    if _at(told, "running"):
        return "running", None
    if not (pod.get("spec") or {}).get("nodeName"):
        return "pending", _unscheduled(status)
    return "starting", _waits(status, waiting)


def _is_silent(status: Mapping[str, Any]) -> bool:
    """Say whether a pod's node has not been heard for so long that the pod counts as not ready because of it."""
    return any(c.get("reason") in ("NodeLost", "NodeStatusUnknown") for c in status.get("conditions") or ())


def _why_failed(status: Mapping[str, Any], ended: Mapping[str, Any]) -> str:
    if status.get("reason"):  # Evicted, DeadlineExceeded, Preempted, NodeShutdown: not the container's fault
        return _said(status)
    if ended.get("reason") == "OOMKilled":
        return "it was killed because it used more memory than `resources.memory` allows"
    code = ended.get("exitCode")
    return f"it exited with code {code}" if code is not None else "failed"


def _said(told: Mapping[str, Any]) -> str:
    message = told.get("message")
    return f"{told.get('reason')}: {message}" if message else str(told.get("reason"))


def _unscheduled(status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("status") == "False" and condition.get("message"):
            return f"waits for a node of the cluster: {condition['message']}"
    return "waits for a node of the cluster"


def _waits(status: Mapping[str, Any], waiting: Mapping[str, Any]) -> str:
    for told in status.get("initContainerStatuses") or ():
        first = _at(told, "waiting")
        if first.get("reason") and first["reason"] not in _NORMAL:
            return f"waits for its container {told['name']}: {_said(first)}"
        if _at(told, "running"):
            return f"waits for its container {told['name']} to end"
    if waiting.get("reason") and waiting["reason"] not in _NORMAL:
        return f"waits: {_said(waiting)}"
    return "waits for its container"


# Nodes.


def numbers(pods: Sequence[Pod], plan: Plan | None) -> Mapping[tuple[str, int], int]:
    """Return the job's node numbers by role and number within it: as the plan has them, else role after role."""
    found: dict[tuple[str, int], int] = {}
    if plan is not None:
        counts: dict[str, int] = {}
        for node in plan.nodes:
            found[node.role, counts.get(node.role, 0)] = node.index
            counts[node.role] = counts.get(node.role, 0) + 1
    roles = sorted({pod.role for pod in pods}, key=lambda role: (_place(role), role))
    for role in roles:
        for number in sorted({pod.number for pod in pods if pod.role == role}):
            if (role, number) not in found:
                found[role, number] = max(found.values(), default=-1) + 1
    return found


def _place(role: str) -> int:
    return _ORDER.index(role) if role in _ORDER else len(_ORDER)


def newest(pods: Sequence[Pod]) -> Mapping[tuple[str, int], Pod]:
    """Return the pod that counts for each role and number: of several, the newest that is not on its way out."""
    found: dict[tuple[str, int], Pod] = {}
    for pod in sorted(pods, key=lambda pod: (not pod.leaving, pod.created, pod.name)):
        found[pod.role, pod.number] = pod
    return found


def nodes_of(pods: Sequence[Pod], plan: Plan | None) -> list[ObservedNode]:
    """Return all nodes: of those that are planned and have no pod (yet, or any more), that."""
    current = newest(pods)
    nodes = []
    for (role, number), index in sorted(numbers(pods, plan).items(), key=lambda item: item[1]):
        pod = current.get((role, number))
        if pod is None:
            nodes.append(ObservedNode(index, role, "", "pending", reason="has no pod"))
            continue
        before = [p for p in pods if (p.role, p.number) == (role, number) and p is not pod]
        nodes.append(
            ObservedNode(
                index,
                role,
                pod.host,
                pod.state,
                container=pod.name,
                reason=pod.reason,
                exit_code=pod.exit_code,
                started_at=pod.started_at,
                reachable=pod.state != "lost",
                again=pod.restarts + len(before),
            )
        )
    return nodes


def _failures(pods: Sequence[Pod], nodes: Sequence[ObservedNode]) -> Iterator[Failure]:
    """Yield what failed first, with the last words of its container, where the pod holds them."""
    failed = [pod for pod in pods if pod.state == "failed"]
    if not failed:
        return
    first = min(failed, key=lambda pod: (pod.ended_at, pod.number))
    node = next((node for node in nodes if node.container == first.name), None)
    yield Failure(
        generation=0,
        at=first.ended_at,
        node=node.node if node else first.number,
        host=first.host,
        rank=None,
        exit_code=first.exit_code,
        kind="process",
        progress=None,
        ran=max(0.0, first.ended_at - first.started_at) if first.started_at else 0.0,
        log=first.role,
        tail=tuple(first.last_words.splitlines()[-20:]),
        reason=first.reason,
        role=first.role,
    )


# The job.


def _is_gone(node: ObservedNode) -> bool:
    return node.container is None


def _verdict(mains: Sequence[Object], nodes: Sequence[ObservedNode], plan: Plan | None) -> tuple[Phase, str | None]:
    """Return how the job stands: as its operator says, as far as that says anything, else as its pods do."""
    if not mains:
        return "stopped", _why_gone(nodes, plan)
    if any(main["metadata"].get("deletionTimestamp") for main in mains):
        return "stopped", "it is being removed"
    told = [said_of(main) for main in mains]
    failed = next((said for said in told if said[0] == "failed"), None)
    if failed is not None:
        return "failed", _because(failed[1], nodes)
    trainers = [said for main, said in zip(mains, told, strict=True) if _trains(main, mains)]
    if all(phase == "succeeded" for phase, _ in trainers):
        return "succeeded", None
    stopped = next((said for said in told if said[0] == "stopped"), None)
    if stopped is not None:
        return "stopped", stopped[1]
    return _under_way(told, nodes, plan)


def _why_gone(nodes: Sequence[ObservedNode], plan: Plan | None) -> str:
    if nodes:
        return "its pods are being removed"
    ttl = plan.cluster.ttl if plan is not None and plan.cluster is not None else None
    told = "" if ttl is None else f": it is removed {ttl} s after its end (`ttl_seconds_after_finished`)"
    return f"nothing of it is in the cluster{told}"


def _trains(main: Object, mains: Sequence[Object]) -> bool:
    """Say whether a job is done when this object is: servers and schedulers only serve trainers."""
    return _role_made(main) in (None, "trainer") or all(_role_made(other) != "trainer" for other in mains)


def _role_made(main: Object) -> str | None:
    """Return the role of the pods that a Job makes; the objects of operators make several."""
    template = (main.get("spec") or {}).get("template") or {}
    return label_of(template, ROLE) if "metadata" in template else None


def said_of(main: Object) -> tuple[Phase | None, str | None]:
    """Return what a controller says of its object: the phase, if it says one, and why."""
    status = main.get("status") or {}
    if (main["apiVersion"], main["kind"]) == (PADDLE_JOB.api_version, PADDLE_JOB.kind):
        return _PADDLE.get(status.get("phase") or ""), None
    true = {c["type"]: c for c in status.get("conditions") or () if c.get("status") == "True"}
    found = next((name for name in _CONDITIONS if name in true), None)
    phase = _CONDITIONS[found] if found else None
    if is_suspended(main) and phase not in ("succeeded", "failed"):
        words = _words(true.get("Suspended") or {})
        # Kueue suspends what waits in its queue: that is no end.
        queued = QUEUE_LABEL in labels_of(main)
        return ("starting" if queued else "stopped"), f"it is suspended{f': {words}' if words else ''}"
    return phase, _words(true[found]) if found else None


def _words(condition: Mapping[str, Any]) -> str | None:
    return condition.get("message") or condition.get("reason") or None


def _because(words: str | None, nodes: Sequence[ObservedNode]) -> str:
    failed = [f"node {node.node}: {node.reason}" for node in nodes if node.state == "failed"]
    return "; ".join(filter(None, [words, *failed[:3]])) or "its operator says that it failed"


def _under_way(
    told: Sequence[tuple[Phase | None, str | None]], nodes: Sequence[ObservedNode], plan: Plan | None
) -> tuple[Phase, str | None]:
    lost = [node for node in nodes if node.state == "lost"]
    failed = [node for node in nodes if node.state == "failed"]
    going = [node for node in nodes if node.state in ("running", "exited")]
    if lost:
        return "degraded", "; ".join(f"node {node.node}: {node.reason}" for node in lost)
    if failed or any(phase == "restarting" for phase, _ in told):
        words = [f"node {node.node}: {node.reason}" for node in failed]
        return "restarting", "; ".join(words[:3]) or next((why for p, why in told if p == "restarting"), None)
    queued = next((why for phase, why in told if phase == "starting" and why), None)
    if queued:
        return "starting", queued
    if not any(node.container for node in nodes):
        return "starting", f"{NO_POD}: does its operator run, and watch this namespace?"
    needed = plan.min_nodes if plan is not None and plan.elastic else len(nodes)
    waiting = [node for node in nodes if node.state in ("pending", "starting")]
    if going and len(going) >= needed:
        return "running", None
    words = [f"node {node.node}: {node.reason}" for node in waiting]
    again = any(node.again for node in nodes)
    return ("restarting" if again else "starting"), "; ".join(words[:3]) or None


def is_over(main: Object) -> bool:
    """Say whether a controller will do no more about its object."""
    return said_of(main)[0] in ("succeeded", "failed")


def seconds(stamp: str | None) -> float | None:
    """Return the seconds since the epoch that a time of the API means."""
    return datetime.fromisoformat(stamp).timestamp() if stamp else None
