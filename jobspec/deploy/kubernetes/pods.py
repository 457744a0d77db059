"""A pod of a job, parsed into what matters here: its role and number, and how it stands. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jobctl.jobspec.deploy.kubernetes.kinds import Object, labels_of
from jobctl.jobspec.deploy.model.observed import State
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.render.marks import ROLE, label_of
from jobctl.jobspec.render.operators import CONTAINERS

# Where the number of a pod within its role stands: of indexed Jobs (also those of the trainer), and of kubeflow.
_INDEX_LABELS = ("batch.kubernetes.io/job-completion-index", "training.kubeflow.org/replica-index")
_REPLICA_LABEL = "training.kubeflow.org/replica-type"
_NUMBER_AT_END = re.compile(r"-(\d+)$")  # paddle-operator's pods: JOB-worker-0

# The roles of kubeflow's and paddle-operator's replicas, where a pod does not say what it is to jobctl.
_ROLE_LABELS = (_REPLICA_LABEL, "paddle-res-type")
_ROLES = {"worker": "trainer", "master": "trainer", "ps": "server"}
_LAUNCHER = "/jobctl/launcher"  # where it is mounted, see render/kubernetes.py

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
    over: bool = False  # as its node or the cluster says, which may have evicted or refused it before a container ran
    launcher: bool = False  # whether our launcher runs in it, which repeats what its processes print

    @property
    def ended(self) -> bool:
        """Whether it runs no more and never will."""
        return self.over or (self.state in ("exited", "failed") and self.exit_code is not None)


def parse_pod(pod: Object) -> Pod:
    """Return a pod as it matters here."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    main = str(_container(spec)["name"])
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
        over=status.get("phase") in ("Succeeded", "Failed"),
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
    """Return a pod's number within its role, as it is known, as its labels have it, otherwise its name."""
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
    variables = _container(pod.get("spec") or {}).get("env") or ()
    return next((one.get("value") for one in variables if one["name"] == name), None) or ""


def _container(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the container of a pod that trains. A mesh may put its own before it (Linkerd, Istio)."""
    containers: list[dict[str, Any]] = spec.get("containers") or [{"name": ""}]
    return next((one for one in containers if one["name"] in CONTAINERS), containers[0])


def _runs_launcher(spec: Mapping[str, Any]) -> bool:
    return any(mount["mountPath"] == _LAUNCHER for mount in _container(spec).get("volumeMounts") or ())


def _at(told: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return what a container's state says of being `waiting`, `running` or `terminated`; empty if it is not."""
    return (told.get("state") or {}).get(what) or {}


def _state(pod: Object, told: Mapping[str, Any]) -> tuple[State, str | None]:
    status = pod.get("status") or {}
    phase, reason = status.get("phase"), status.get("reason")
    ended, waiting = _at(told, "terminated"), _at(told, "waiting")
    if phase == "Unknown" or reason == "NodeLost" or _is_silent(status):
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
    return "starting", _waits(pod, waiting)


def _is_silent(status: Mapping[str, Any]) -> bool:
    """Say whether a pod's node is not heard: then the node controller takes back that the pod is ready, and nothing else.

    A kubelet gives a reason for it, and finds the containers not ready as well.
    """
    told = {one["type"]: one for one in status.get("conditions") or ()}
    ready, containers = (told.get(name) or {} for name in ("Ready", "ContainersReady"))
    return ready.get("status") == "False" and not ready.get("reason") and containers.get("status") == "True"


def _why_failed(status: Mapping[str, Any], ended: Mapping[str, Any]) -> str:
    if status.get("reason"):  # Evicted, DeadlineExceeded, Preempted, NodeShutdown: not the container's fault
        return _said(status)
    if ended.get("reason") == "OOMKilled":
        return "it was killed because it used more memory than `resources.memory` allows"
    code = ended.get("exitCode")
    return f"it exited with code {code}" if code is not None else _why_not_begun(status)


def _why_not_begun(status: Mapping[str, Any]) -> str:
    """Say which container before the one that trains has failed, with the cluster's words if it was not even started."""
    for told in status.get("initContainerStatuses") or ():
        ended = _at(told, "terminated")
        if ended.get("exitCode"):
            words = f": {ended['message'].strip()}" if ended.get("message") else ""
            return f"its container {told['name']} exited with code {ended['exitCode']}{words}"
    return "failed"


def _said(told: Mapping[str, Any]) -> str:
    message = told.get("message")
    return f"{told.get('reason')}: {message}" if message else str(told.get("reason"))


def _unscheduled(status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("status") == "False" and condition.get("message"):
            return f"waits for a node of the cluster: {condition['message']}"
    return "waits for a node of the cluster"


def _waits(pod: Object, waiting: Mapping[str, Any]) -> str:
    # Those that somebody put there to run beside the job (of a mesh, of a file system) do not end.
    stay = {one["name"] for one in pod["spec"].get("initContainers") or () if one.get("restartPolicy") == "Always"}
    for told in (pod.get("status") or {}).get("initContainerStatuses") or ():
        first = _at(told, "waiting")
        if first.get("reason") and first["reason"] not in _NORMAL:
            return f"waits for its container {told['name']}: {_said(first)}"
        if _at(told, "running") and told["name"] not in stay:
            return f"waits for its container {told['name']} to end"
    if waiting.get("reason") and waiting["reason"] not in _NORMAL:
        return f"waits: {_said(waiting)}"
    return "waits for its container"


def seconds(stamp: str | None) -> float | None:
    """Return the seconds since the epoch that a time of the API means."""
    return datetime.fromisoformat(stamp).timestamp() if stamp else None
