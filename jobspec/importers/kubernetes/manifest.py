"""Manifests of Kubernetes: PaddleJob of paddle-operator, PyTorchJob and PaddleJob of Kubeflow.

A pod is read as the `docker run` that would start its container: what that means is known already. What only a cluster has
goes to the block `kubernetes`, so that the spec's manifests are again those that were read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import yaml

from jobctl.jobspec.importers.draft import Draft, Found, ImportProblem
from jobctl.jobspec.importers.escaping import literal
from jobctl.jobspec.importers.kubernetes import leftover, pods
from jobctl.jobspec.importers.kubernetes.document import Document, at
from jobctl.jobspec.importers.kubernetes.leftover import is_ours
from jobctl.jobspec.importers.names import job_name
from jobctl.jobspec.importers.notes import to_check
from jobctl.jobspec.importers.shell.script import Command
from jobctl.jobspec.importers.values import seconds, whole_number
from jobctl.jobspec.records import dataclass

Json: TypeAlias = Mapping[str, Any]

# Labels and annotations that are not the user's.
_NOT_TOLD = ("jobctl.", "app.kubernetes.io/managed-by", "kubectl.kubernetes.io/")
NAME_LABEL, COMPONENT_LABEL = "app.kubernetes.io/name", "app.kubernetes.io/component"


@dataclass(frozen=True, slots=True)
class ManifestKind:
    """A kind of jobs: how its operator is called in the spec, and where its replicas are."""

    operator: str
    framework: str
    replicas: Callable[[Document], dict[str, Document]]


def _paddle_operator(spec: Document) -> dict[str, Document]:
    return {name: spec[name] for name in ("worker", "ps") if spec.get(name)}


def _kubeflow(key: str) -> Callable[[Document], dict[str, Document]]:
    # Those of the master go first: it is the one that has rank 0.
    return lambda spec: {name: spec[key][name] for name in ("Master", "Worker") if at(spec, key, name)}


KINDS = {
    ("batch.paddlepaddle.org", "PaddleJob"): ManifestKind("paddle-operator", "paddle", _paddle_operator),
    ("kubeflow.org", "PaddleJob"): ManifestKind("kubeflow", "paddle", _kubeflow("paddleReplicaSpecs")),
    ("kubeflow.org", "PyTorchJob"): ManifestKind("kubeflow", "torch", _kubeflow("pytorchReplicaSpecs")),
}


_NO_ETCD = (
    "not carried over: elastic (no variable says which etcd: name it, `etcd: {endpoints: [HOST:2379]}`; "
    "without one jobctl itself starts again what fails, as `recovery` says)"
)


@dataclass(frozen=True, slots=True)
class ManifestJob:
    """A job as a manifest says it: the command of its first pod, and what else there is to say of the job."""

    name: str
    framework: str
    command: Command
    draft: Draft
    elastic: bool = False  # whether it asks paddle-operator for fault tolerance, or a range

    def completed(self, job: Found) -> Found:
        """Return the job that the command is, with what the manifest says above it."""
        fields, remarks = {**job.fields}, self.draft.remarks
        for key, value in self.draft.fields.items():
            before = fields.get(key)
            # A range in the variables says more than the number of pods.
            if key == "nodes" and isinstance(before, tuple) and before[0] != before[1]:
                continue
            if key == "devices" and value == "cpu" and isinstance(before, str) and ":" in before:
                count = before.partition(":")[2]  # the launcher says how many processes
                value = f"cpu:{count}"
                if count != "1":
                    remarks = {**remarks, key: f"no device is asked for: {count} processes in each pod"}
            if key == "secrets":  # those of the cluster, and those whose values the manifest has
                value = tuple(dict.fromkeys((*value, *(before if isinstance(before, tuple) else ()))))
            both = isinstance(value, dict) and isinstance(before, dict)
            fields[key] = {**before, **value} if both and isinstance(before, dict) else value
        settled = {key: text for key, text in job.remarks.items() if key not in self.draft.fields}
        notes = tuple(dict.fromkeys((*self.draft.notes, *job.notes, *_filled_in(fields), *self._processes(job))))
        if self.elastic and not fields.get("etcd"):
            notes = (*notes, _NO_ETCD)
        return replace(job, fields=fields, remarks={**settled, **remarks}, notes=notes, hosts=(), missing=0)

    def _processes(self, job: Found) -> Iterator[str]:
        """Yield a note where the command starts more than one process, and not as many as a pod has devices."""
        both = [fields.get("devices") for fields in (job.fields, self.draft.fields)]
        said, there = (one.partition(":")[2] if isinstance(one, str) else "" for one in both)
        if said not in ("", "1", there) and there:
            yield to_check(f"{said} processes a node on {there} devices: jobctl starts one on each device")


# What operators tell each pod, so that Kubernetes fills it in.
_OPERATORS_OWN = re.compile(r"\$\$\((MASTER_ADDR|MASTER_PORT|WORLD_SIZE|RANK|TRAINING_ROLE|(?:PET|PADDLE)_\w+)\)")


def _filled_in(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield a note on each variable of the operator's that a program is given as an argument, or by another variable."""
    words = [*(fields.get("args") or ()), *(fields.get("command") or ()), *(fields.get("env") or {}).values()]
    for name in dict.fromkeys(name for word in words for name in _OPERATORS_OWN.findall(str(word))):
        yield to_check(
            f"`$({name})` stays as it is: the operator fills it in for each pod, and jobctl does not;"
            f" have the program read `{name}`, or what jobctl calls it"
        )


def read(text: str, line: int) -> ManifestJob:
    """Return the job in a file of manifests. Raises ImportProblem."""
    made = list(_objects(text))
    known = [(one, kind) for one in made if (kind := _kind(one)) is not None]
    if not known:
        found = ", ".join(dict.fromkeys(str(one.get("kind")) for one in made)) or "nothing"
        hint = "a PaddleJob or a PyTorchJob is imported; of anything else its container's command: jobctl import -- COMMAND"
        raise ImportProblem(f"no job is known in these manifests: there is {found}", hint, line)
    made_of, kind = known[0]
    job, draft = Document(made_of), Draft()
    for other in made:
        if other is not made_of and not is_ours(other):
            draft.drop(f"{other.get('kind')} {at(other, 'metadata', 'name')}", "one job is imported, nothing else")
    try:
        return _job(job, kind, draft)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise ImportProblem(
            f"this is no {made_of.get('kind')} that an operator would take: {_why(error)}", None, line
        ) from error
    except RecursionError as error:
        raise ImportProblem("this YAML refers to itself, or is nested too deeply", None, line) from error


def _why(error: Exception) -> str:
    """Return what is wrong with a manifest in which something was looked for where it has to be."""
    match error:
        case KeyError():
            return f"there is no `{error.args[0]}`"
        case IndexError():
            return "a list is empty in which something has to be"
        case AttributeError() | TypeError():
            return "something is of another kind there, a list in place of a mapping, say"
        case _:
            return str(error)


class _Loader(yaml.CSafeLoader):
    """Reads scalars as Kubernetes does: `2:4` and `2026-01-01` are texts there, no number to the base 60 and no date."""


def _number_or_text(loader: _Loader, node: yaml.ScalarNode) -> Any:
    how = loader.construct_yaml_int if node.tag.endswith(":int") else loader.construct_yaml_float
    return node.value if ":" in node.value else how(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _number_or_text)
_Loader.add_constructor("tag:yaml.org,2002:float", _number_or_text)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: node.value)


def _objects(text: str) -> Iterator[Json]:
    try:
        documents = list(yaml.load_all(text, _Loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        why = getattr(error, "problem", None) or "it cannot be read"
        raise ImportProblem(f"this is no YAML: {why}", None, mark.line + 1 if mark else None) from error
    for document in documents:
        if isinstance(document, dict):
            made = document.get("items") if document.get("kind") == "List" else [document]
            yield from (one for one in made or () if isinstance(one, dict)) if isinstance(made, list) else ()


def _kind(made: Json) -> ManifestKind | None:
    return KINDS.get((str(made.get("apiVersion", "")).partition("/")[0], str(made.get("kind"))))


def _job(job: Document, kind: ManifestKind, draft: Draft) -> ManifestJob:
    spec, ours = job["spec"], is_ours(job)
    replicas = kind.replicas(spec)
    if not replicas:
        raise KeyError("replicas")
    name = str(at(job, "metadata", "name") or "")
    draft.set("name", job_name(name))
    draft.set("kubernetes.operator", kind.operator)
    draft.put("kubernetes.namespace", at(job, "metadata", "namespace"))
    first = replicas.get("worker") or next(iter(replicas.values()))
    for key in ("labels", "annotations"):
        for where in (at(job, "metadata", key), at(first, "template", "metadata", key)):
            _told(draft, key, where or {}, ours)
    _counts(draft, kind, spec, replicas)
    _policies(draft, spec, replicas)
    if ours:
        _undo(draft)
    pod = first["template"]["spec"]
    pods.place(draft, pod, ours)
    command = pods.command(draft, pod)
    _processes(draft, spec)
    elastic = bool(spec.get("elastic"))
    leftover.tell(
        draft, job, {role: one.path for role, one in replicas.items()}, first.path, pods.container_of(pod).path
    )
    return ManifestJob(job_name(name), kind.framework, command, draft, elastic)


def _told(draft: Draft, key: str, given: Json, ours: bool) -> None:
    """Put labels or annotations into the draft: the spec's are those of the job's object and of its pods."""
    for name, value in given.items():
        text = literal("" if value is None else str(value))
        if ours and name in (NAME_LABEL, COMPONENT_LABEL):
            continue
        if name.startswith(_NOT_TOLD):
            if not ours and not name.startswith("kubectl."):
                draft.drop(f"{key[:-1]} {name}={value}", "jobctl sets its own")
            continue
        before = (draft.get(f"kubernetes.{key}") or {}).get(name)
        if before not in (None, text):
            draft.drop(f"{key[:-1]} {name}={value} of the pods", "in the spec it is the same for the job and its pods")
        else:
            draft.set(f"kubernetes.{key}", {**(draft.get(f"kubernetes.{key}") or {}), name: text})


def _undo(draft: Draft) -> None:
    """Take back what `render` has done to numbers: each pod's restarts count, and all pods restart together."""
    restarts, nodes = draft.get("recovery.max_restarts"), draft.get("nodes")[1]
    if restarts and draft.get("nodes")[0] == nodes:
        draft.set("recovery.max_restarts", (restarts - 1) // nodes)


def _number(value: Any) -> int:
    return whole_number(str(value))


# How many.


def _counts(draft: Draft, kind: ManifestKind, spec: Document, replicas: Mapping[str, Document]) -> None:
    numbers = {role: _number(one.get("replicas", 1)) for role, one in replicas.items()}
    if heter := spec.get("heter"):
        heter.settle()
        draft.drop("heter", "there are no heterogeneous parameter servers in jobctl")
    if "ps" in numbers:
        draft.set("mode", "ps")
        nodes = numbers.get("worker", 1)
        ps = {"servers": numbers["ps"], "trainers": nodes, "gloo": _number(spec.get("withGloo") or 0)}
        draft.set("ps", {key: value for key, value in ps.items() if value})
        draft.set("nodes", (nodes, nodes))
        return
    nodes = sum(numbers.values())
    draft.set("nodes", (nodes, nodes))
    if elastic := spec.get("elasticPolicy"):
        _elastic(draft, kind, elastic, nodes)


def _elastic(draft: Draft, kind: ManifestKind, elastic: Document, nodes: int) -> None:
    if kind.framework != "torch":
        elastic.settle()
        draft.drop("elasticPolicy", "the operator does not heed it")
        return
    most = _number(elastic.get("maxReplicas") or elastic.get("minReplicas") or nodes)
    draft.set("nodes", (_number(elastic.get("minReplicas") or most), most))
    draft.put("recovery.max_restarts", elastic.get("maxRestarts"))


def _policies(draft: Draft, spec: Document, replicas: Mapping[str, Document]) -> None:
    draft.put("kubernetes.clean_pod_policy", spec.get("cleanPodPolicy"))
    draft.put("kubernetes.intranet", spec.get("intranet"))
    run = spec.get("runPolicy") or {}
    clean = run.get("cleanPodPolicy")
    draft.put("kubernetes.clean_pod_policy", clean if clean != "None" else None)
    budget = run.get("backoffLimit")
    if {one.raw.get("restartPolicy") for one in replicas.values()} == {"Never"}:  # others are noted
        budget = 0
    if budget is not None and draft.get("recovery.max_restarts") is None:
        draft.set("recovery.max_restarts", _number(budget))
    if (ttl := run.get("ttlSecondsAfterFinished")) is not None:
        draft.set("kubernetes.ttl_seconds_after_finished", _number(ttl))
    if deadline := run.get("activeDeadlineSeconds"):
        draft.set("recovery.max_duration", seconds(str(_number(deadline))))
    pods_needed = draft.get("nodes")[0] + (draft.get("ps.servers") or 0)
    for scheduling in (spec.get("schedulingPolicy") or {}, run.get("schedulingPolicy") or {}):
        draft.put("kubernetes.queue", scheduling.get("queue"))
        draft.put("kubernetes.priority_class", scheduling.get("priorityClass"))
        if scheduling.get("minAvailable") not in (None, pods_needed):
            draft.drop(
                f"minAvailable={scheduling['minAvailable']}", f"a job waits for all that it needs: {pods_needed}"
            )


def _processes(draft: Draft, spec: Document) -> None:
    """Heed how many processes a PyTorchJob starts in each pod where its launcher is not told otherwise."""
    said, devices = spec.get("nprocPerNode"), draft.get("devices")
    if said in (None, "auto", "gpu"):
        return
    number = str(said)
    if number.isdigit() and isinstance(devices, str) and devices.partition(":")[0] == "cpu":
        draft.set("devices", f"cpu:{number}")
    elif devices is None or str(devices).partition(":")[2] != number:
        draft.drop(f"nprocPerNode={said}", "jobctl starts a process on each device")
