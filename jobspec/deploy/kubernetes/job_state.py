"""How a job in a cluster stands, from its pods and the objects that they are made of.

Pure. An operator's own words about the job decide how it stands; pods say how each node does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobctl.jobspec.deploy.kubernetes.kinds import PADDLE_JOB, Object, is_suspended, key_of, labels_of
from jobctl.jobspec.deploy.kubernetes.pods import Pod, parse_pod
from jobctl.jobspec.deploy.model.control import Control, Ledger
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode, Phase
from jobctl.jobspec.plan.recovery import Failure
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.render.marks import OWNER, QUEUE_LABEL, ROLE, annotation_of, label_of

_ORDER = ("trainer", "server", "scheduler")  # of nodes, where no plan says another

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
# What conditions of Jobs, kubeflow's jobs and TrainJobs mean where they are true. From 1.31 on, a Job has `Complete` or `Failed`
# only when its last pod has ended, which on a node that is off takes for ever; it has the other two once its end is certain.
_CONDITIONS: dict[str, Phase] = {
    "Complete": "succeeded",
    "Succeeded": "succeeded",
    "Failed": "failed",
    "SuccessCriteriaMet": "succeeded",
    "FailureTarget": "failed",
    "Restarting": "restarting",
}

NO_POD = "no pod has been made yet"


def observe(mains: Sequence[Object], pods: Sequence[Object], plan: Plan | None) -> Observed:
    """Return a job as its objects tell: `mains` are what its pods were made of."""
    seen = [parse_pod(pod) for pod in pods]
    nodes = nodes_of(seen, plan if mains else None)
    verdict = _verdict(mains, nodes, plan)
    if verdict[0] == "succeeded":  # operators remove pods that have done their work
        nodes = [
            replace(node, state="exited", reason="its pod was removed") if _is_gone(node) else node for node in nodes
        ]
    failures = tuple(_failures(seen, nodes)) if verdict[0] == "failed" else ()
    control = Control(None, Ledger(0.0, failures=failures))
    return Observed(control, tuple(nodes), supervised=None, owners=owners_of(mains), verdict=verdict)


def owners_of(things: Iterable[Object]) -> frozenset[str]:
    """Return the owners of objects: until 0.2 only objects that make pods name theirs."""
    return frozenset(filter(None, (annotation_of(thing, OWNER) for thing in things)))


def numbers(pods: Sequence[Pod], plan: Plan | None) -> Mapping[tuple[str, int], int]:
    """Return the job's node numbers by role and number within it: as the plan has them, otherwise role after role."""
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
                process_restarts=pod.restarts + len(before),
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


def _is_gone(node: ObservedNode) -> bool:
    return node.container is None


def _verdict(mains: Sequence[Object], nodes: Sequence[ObservedNode], plan: Plan | None) -> tuple[Phase, str | None]:
    """Return how the job stands: as its operator says, as far as that says anything, otherwise as its pods do."""
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
    stopped = [(main, why) for main, (phase, why) in zip(mains, told, strict=True) if phase == "stopped"]
    if not stopped:
        return _under_way(told, nodes, plan)
    if all(phase in ("stopped", "succeeded") for phase, _ in told):
        return "stopped", stopped[0][1]
    return "degraded", "; ".join(f"{key_of(main)}: {why}" for main, why in stopped)  # a `stop` was cut off


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
        return ("stopped" if is_stopped(main) else "starting"), f"it is suspended{f': {words}' if words else ''}"
    return phase, _words(true[found]) if found else None


def is_stopped(main: Object) -> bool:
    """Say whether somebody has suspended an object. Kueue suspends what waits in its queue: that is no end."""
    return is_suspended(main) and QUEUE_LABEL not in labels_of(main)


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
    again = any(node.process_restarts for node in nodes)
    return ("restarting" if again else "starting"), "; ".join(words[:3]) or None


def is_over(main: Object) -> bool:
    """Say whether a controller will do no more about its object."""
    return said_of(main)[0] in ("succeeded", "failed")
