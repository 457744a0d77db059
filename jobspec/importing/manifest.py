"""Manifests of Kubernetes: PaddleJob of paddle-operator, PyTorchJob and PaddleJob of Kubeflow.

A pod is read as the `docker run` that would start its container: what that means is known already. What only a cluster has
goes to the block `kubernetes`, so that the spec's manifests are again those that were read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import yaml

from jobctl.jobspec.importing.found import Draft, Found, ImportProblem
from jobctl.jobspec.importing.names import job_name
from jobctl.jobspec.importing.shell import Command
from jobctl.jobspec.importing.values import seconds
from jobctl.jobspec.importing.words import literal
from jobctl.jobspec.spec.parts import ENV_NAME

Json: TypeAlias = Mapping[str, Any]

# Which resource is which kind of devices; those that are not the kind's usual one are said in the spec.
_DEVICES = {
    "nvidia.com/gpu": "gpu",
    "amd.com/gpu": "gpu",
    "kunlunxin.com/xpu": "xpu",
    "hygon.com/dcu": "dcu",
    "huawei.com/Ascend910": "npu",
}
_UNUSUAL = {"amd.com/gpu"}
_OURS = "JOBCTL_"
# Labels and annotations that are not the user's.
_NOT_TOLD = ("jobctl.", "app.kubernetes.io/managed-by", "kubectl.kubernetes.io/")
_MARGIN = 5  # seconds that pods, like containers, get more than the processes in them
_NO_COMMAND = ("python3", "train.py")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of jobs: how its operator is called in the spec, and where its replicas are."""

    operator: str
    framework: str
    replicas: Callable[[Json], dict[str, Json]]


def _paddle_operator(spec: Json) -> dict[str, Json]:
    return {name: spec[name] for name in ("worker", "ps", "heter") if spec.get(name)}


def _kubeflow(key: str) -> Callable[[Json], dict[str, Json]]:
    # Those of the master go first: it is the one that has rank 0.
    return lambda spec: {name: spec[key][name] for name in ("Master", "Worker") if spec.get(key, {}).get(name)}


KINDS = {
    ("batch.paddlepaddle.org", "PaddleJob"): Kind("paddle-operator", "paddle", _paddle_operator),
    ("kubeflow.org", "PaddleJob"): Kind("kubeflow", "paddle", _kubeflow("paddleReplicaSpecs")),
    ("kubeflow.org", "PyTorchJob"): Kind("kubeflow", "torch", _kubeflow("pytorchReplicaSpecs")),
}


@dataclass(frozen=True, slots=True)
class Manifest:
    """A job as a manifest says it: the command of its first pod, and what else there is to say of the job."""

    name: str
    framework: str
    command: Command
    draft: Draft

    def completed(self, job: Found) -> Found:
        """Return the job that the command is, with what the manifest says above it."""
        fields = {**job.fields}
        for key, value in self.draft.fields.items():
            before = fields.get(key)
            # A range in the variables says more than the number of pods.
            if key == "nodes" and isinstance(before, tuple) and before[0] != before[1]:
                continue
            if key == "devices" and value == "cpu" and isinstance(before, str) and ":" in before:
                value = f"cpu:{before.partition(':')[2]}"  # the launcher says how many processes
            both = isinstance(value, dict) and isinstance(before, dict)
            fields[key] = {**before, **value} if both and isinstance(before, dict) else value
        settled = {key: text for key, text in job.remarks.items() if key not in self.draft.fields}
        notes = tuple(dict.fromkeys((*self.draft.notes, *job.notes)))
        return replace(job, fields=fields, remarks={**settled, **self.draft.remarks}, notes=notes, hosts=(), missing=0)


def read(text: str, line: int) -> Manifest:
    """Return the job in a file of manifests. Raises ImportProblem."""
    made = list(_objects(text))
    known = [(one, kind) for one in made if (kind := _kind(one)) is not None]
    if not known:
        found = ", ".join(dict.fromkeys(str(one.get("kind")) for one in made)) or "nothing"
        hint = "a PaddleJob or a PyTorchJob is imported; of anything else its container's command: jobctl import -- COMMAND"
        raise ImportProblem(f"no job is known in these manifests: there is {found}", hint, line)
    job, kind = known[0]
    draft = Draft()
    for other in made:
        if other is not job and not _is_ours(other):
            draft.drop(f"{other.get('kind')} {_at(other, 'metadata', 'name')}", "one job is imported, nothing else")
    try:
        return _job(job, kind, draft)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise ImportProblem(
            f"this is no {job.get('kind')} that an operator would take: {_why(error)}", None, line
        ) from error


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


def _objects(text: str) -> Iterator[Json]:
    try:
        documents = list(yaml.load_all(text, yaml.CSafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        why = getattr(error, "problem", None) or "it cannot be read"
        raise ImportProblem(f"this is no YAML: {why}", None, mark.line + 1 if mark else None) from error
    for document in documents:
        if isinstance(document, dict):
            made = document.get("items") if document.get("kind") == "List" else [document]
            yield from (one for one in made or () if isinstance(one, dict)) if isinstance(made, list) else ()


def _kind(made: Json) -> Kind | None:
    return KINDS.get((str(made.get("apiVersion", "")).partition("/")[0], str(made.get("kind"))))


def _is_ours(made: Json) -> bool:
    """Say whether an object is one of those that `render` makes beside the job."""
    return bool(_at(made, "metadata", "labels", "app.kubernetes.io/managed-by") == "jobctl")


def _at(made: Any, *path: str) -> Any:
    """Return what is at a path, None if there is nothing."""
    for key in path:
        made = made.get(key) if isinstance(made, Mapping) else None
    return made


def _job(job: Json, kind: Kind, draft: Draft) -> Manifest:
    spec = job["spec"]
    replicas = kind.replicas(spec)
    if not replicas:
        raise KeyError("replicas")
    name = str(_at(job, "metadata", "name") or "")
    draft.set("name", job_name(name))
    draft.set("kubernetes.operator", kind.operator)
    _set(draft, "kubernetes.namespace", _at(job, "metadata", "namespace"))
    for key, values in (
        ("labels", _at(job, "metadata", "labels")),
        ("annotations", _at(job, "metadata", "annotations")),
    ):
        told = {name: literal(str(value)) for name, value in (values or {}).items() if not name.startswith(_NOT_TOLD)}
        _set(draft, f"kubernetes.{key}", told)
    _counts(draft, kind, spec, replicas)
    _policies(draft, spec)
    if _is_ours(job):
        _undo(draft)
    first = replicas.get("worker") or next(iter(replicas.values()))
    template = first["template"]
    pod = template["spec"]
    _placement(draft, pod, _is_ours(job))
    command = _command(draft, pod)
    for role, other in replicas.items():
        if other is not first and _alike(_at(other, "template", "spec")) != _alike(pod):
            draft.check(f"`{role}` has other containers than the rest: the job's nodes are all like the first")
    return Manifest(job_name(name), kind.framework, command, draft)


def _alike(pod: Json) -> list[Json]:
    """Return the containers of a pod, without what jobctl tells them of their role."""
    variables = [[v for v in one.get("env") or () if v["name"] != "JOBCTL_ROLE"] for one in pod["containers"]]
    return [{**one, "env": kept} for one, kept in zip(pod["containers"], variables, strict=True)]


def _undo(draft: Draft) -> None:
    """Take back what `render` has done to numbers: each pod's restarts count, and all pods restart together."""
    restarts, nodes = draft.get("recovery.max_restarts"), draft.get("nodes")[1]
    if restarts and draft.get("nodes")[0] == nodes:
        draft.set("recovery.max_restarts", restarts // nodes)


def _number(value: Any) -> int:
    if not re.fullmatch(r"[0-9]+", str(value)):
        raise ValueError(f"`{value}` is no number")
    return int(value)


# How many.


def _counts(draft: Draft, kind: Kind, spec: Json, replicas: Mapping[str, Json]) -> None:
    numbers = {role: _number(one.get("replicas", 1)) for role, one in replicas.items()}
    elastic = spec.get("elasticPolicy") or {}
    if numbers.get("heter"):
        draft.drop("heter", "there are no heterogeneous parameter servers in jobctl")
    if "ps" in numbers:
        draft.set("mode", "ps")
        nodes = numbers.get("worker", 1)
        ps = {"servers": numbers["ps"], "trainers": nodes, "gloo": _number(spec.get("withGloo") or 0)}
        draft.set("ps", {key: value for key, value in ps.items() if value})
        draft.set("nodes", (nodes, nodes))
        return
    nodes = sum(numbers.values())
    if kind.framework == "torch" and elastic.get("maxReplicas"):
        draft.set("nodes", (_number(elastic.get("minReplicas") or 1), _number(elastic["maxReplicas"])))
        _set(draft, "recovery.max_restarts", elastic.get("maxRestarts"))
        return
    if elastic:
        draft.drop("elasticPolicy", "the operator does not heed it")
    draft.set("nodes", (nodes, nodes))


def _policies(draft: Draft, spec: Json) -> None:
    _set(draft, "kubernetes.clean_pod_policy", spec.get("cleanPodPolicy"))
    _set(draft, "kubernetes.intranet", spec.get("intranet"))
    run = spec.get("runPolicy") or {}
    clean = run.get("cleanPodPolicy")
    _set(draft, "kubernetes.clean_pod_policy", clean if clean != "None" else None)
    if run.get("backoffLimit") is not None and draft.get("recovery.max_restarts") is None:
        draft.set("recovery.max_restarts", _number(run["backoffLimit"]))
    if run.get("activeDeadlineSeconds"):
        draft.set("recovery.max_duration", seconds(str(_number(run["activeDeadlineSeconds"]))))
    if run.get("ttlSecondsAfterFinished") is not None:
        draft.drop("ttlSecondsAfterFinished", "`jobctl down` removes what is left")
    scheduling = {**(spec.get("schedulingPolicy") or {}), **(run.get("schedulingPolicy") or {})}
    _set(draft, "kubernetes.queue", scheduling.get("queue"))
    _set(draft, "kubernetes.priority_class", scheduling.get("priorityClass"))


def _set(draft: Draft, path: str, value: Any) -> None:
    """Put a value there, if there is one."""
    if value not in (None, "", {}, ()):
        draft.set(path, literal(value) if isinstance(value, str) else value)


# Where.

# What pods have a place for in the spec, or what jobctl does by itself.
_POD = {
    *("containers", "initContainers", "volumes", "nodeSelector", "tolerations", "imagePullSecrets", "serviceAccountName"),
    *("serviceAccount", "priorityClassName", "runtimeClassName", "securityContext", "terminationGracePeriodSeconds"),
    *("restartPolicy", "enableServiceLinks", "schedulerName", "subdomain", "hostNetwork", "dnsPolicy", "activeDeadlineSeconds"),
}  # fmt: skip


def _placement(draft: Draft, pod: Json, ours: bool) -> None:
    _set(draft, "kubernetes.service_account", pod.get("serviceAccountName") or pod.get("serviceAccount"))
    secrets = tuple(literal(one["name"]) for one in pod.get("imagePullSecrets") or ())
    _set(draft, "kubernetes.image_pull_secrets", secrets)
    _set(draft, "kubernetes.node_selector", {k: literal(str(v)) for k, v in (pod.get("nodeSelector") or {}).items()})
    _set(draft, "kubernetes.tolerations", tuple(map(_toleration, pod.get("tolerations") or ())))
    _set(draft, "kubernetes.priority_class", pod.get("priorityClassName"))
    _set(draft, "container.runtime", pod.get("runtimeClassName"))
    if pod.get("activeDeadlineSeconds") and draft.get("recovery.max_duration") is None:
        draft.set("recovery.max_duration", seconds(str(_number(pod["activeDeadlineSeconds"]))))
    grace = _number(pod.get("terminationGracePeriodSeconds") or 0) - (_MARGIN if ours else 0)
    if grace > 0:
        draft.set("stop_grace_period", seconds(str(grace)))
    for key in sorted(set(pod) - _POD):
        draft.drop(f"{key} of the pods", "it has no place in the spec")
    for one in pod.get("initContainers") or ():
        if not _unpacks_code(pod, one):
            draft.drop(f"init container {one.get('name')}", "do it beforehand, or in `setup`")
    for one in pod["containers"][1:]:
        draft.drop(f"container {one.get('name')}", "a node of a job is one container")


def _toleration(given: Json) -> dict[str, str]:
    kept = {key: literal(str(given[key])) for key in ("key", "operator", "value", "effect") if given.get(key)}
    usual = "Equal" if "value" in kept else "Exists"
    return {key: value for key, value in kept.items() if not (key == "operator" and value == usual)}


# The container, as `docker run` would start it.


_GOES_ON = '\nexec "$@"'
_OWN_WORDS = 4  # before a trainer's: the interpreter, -c, what it runs, and how long that waits (render/operators.py)


def _is_waiting(argv: Sequence[Any]) -> bool:
    """Say whether jobctl itself has put something before a trainer's command, which the spec then needs no more."""
    return len(argv) > _OWN_WORDS and argv[1] == "-c" and str(argv[2]).startswith("# jobctl: ")


def _after_setup(draft: Draft, given: list[Any]) -> list[Any]:
    """Return a command without what jobctl itself puts around it, so that `setup` runs first (render/operators.py)."""
    if len(given) < 5 or [given[0], given[1], given[3]] != ["/bin/sh", "-ec", "sh"]:
        return given
    text = str(given[2]).replace("$$", "$")
    if not text.endswith(_GOES_ON):
        return given
    draft.set("setup", (literal(text.removesuffix(_GOES_ON)),))
    return given[4:]


def _command(draft: Draft, pod: Json) -> Command:
    container = pod["containers"][0]
    given = [word for key in ("command", "args") for word in _list(container, key)]
    given = _after_setup(draft, given)
    argv = list(_words(given[_OWN_WORDS:] if _is_waiting(given) else given))
    if not argv:
        argv = list(_NO_COMMAND)
        draft.remarks["script"] = "put what the image runs by itself here: the manifest names no command"
    elif not container.get("command"):
        draft.check("the manifest has arguments and no command: what the image runs by itself goes before them")
    options = [*_identity(pod, container), *_limits(draft, container), *_mounts(draft, pod, container)]
    if container.get("imagePullPolicy") in ("Always", "Never"):
        options.append(("--pull", container["imagePullPolicy"].lower()))
    if container.get("workingDir") and draft.get("code") is None:
        options.append(("--workdir", container["workingDir"]))
    options += [("--env", f"{name}={value}") for name, value in _variables(draft, container)]
    words = [f"{name}={literal(value)}" for name, value in options]
    run = ("docker", "run", *words, literal(str(container["image"])), *argv)
    return Command(run, source=" ".join(argv))


def _list(container: Json, key: str) -> list[Any]:
    words = container.get(key) or []
    if not isinstance(words, list):
        raise ValueError(f"`{key}` is no list of words")
    return words


def _words(values: Iterable[Any]) -> Iterator[str]:
    """Yield words; `$$` is a dollar to Kubernetes too, and `$(VAR)` is one that it fills in."""
    for value in values:
        yield literal(str(value).replace("$$", "$"))


def _variables(draft: Draft, container: Json) -> Iterator[tuple[str, str]]:
    for variable in container.get("env") or ():
        name, source = variable["name"], variable.get("valueFrom") or {}
        if name.startswith(_OURS) or _at(source, "fieldRef"):
            continue  # what jobctl, or whoever knows the pod's place, tells its processes anyway
        if not re.fullmatch(ENV_NAME, name):
            draft.drop(name, "no shell knows such a variable, and neither does the spec")
        elif _at(source, "secretKeyRef"):
            draft.add("secrets", name)
            draft.check(f"the value of {name} is in a Secret of the cluster: export it before `jobctl up`")
        elif source:
            draft.drop(name, "its value is in the cluster: say it in `env`")
        elif "$(" in (value := str(variable.get("value") or "")).replace("$$", ""):
            draft.drop(f"{name}={value}", "what Kubernetes fills in is not known here")
        else:
            yield name, value.replace("$$", "$")
    for one in container.get("envFrom") or ():
        where = _at(one, "configMapRef", "name") or _at(one, "secretRef", "name")
        draft.drop(f"envFrom {where}", "its variables are in the cluster: say them in `env`, or in `secrets`")


def _identity(pod: Json, container: Json) -> Iterator[tuple[str, str]]:
    who = {**(pod.get("securityContext") or {}), **(container.get("securityContext") or {})}
    if who.get("runAsUser") is not None:
        group = who.get("runAsGroup")
        yield "--user", f"{who['runAsUser']}:{group}" if group is not None else str(who["runAsUser"])
    for capability in _at(who, "capabilities", "add") or ():
        yield "--cap-add", capability


def _limits(draft: Draft, container: Json) -> Iterator[tuple[str, str]]:
    found = {**(_at(container, "resources", "requests") or {}), **(_at(container, "resources", "limits") or {})}
    found = {name: amount for name, amount in found.items() if name not in _DEVICES or str(amount) != "0"}
    kinds = [name for name in found if name in _DEVICES]
    if kinds:
        draft.set("devices", f"{_DEVICES[kinds[0]]}:{found[kinds[0]]}")
        if kinds[0] in _UNUSUAL:
            draft.set("kubernetes.resource_name", kinds[0])
    elif not any("/" in name for name in found):
        draft.set("devices", "cpu", "no device is asked for: one process in each pod")
    for name, amount in found.items():
        if name == "cpu":
            yield "--cpus", f"{_cores(str(amount)):g}"
        elif name == "memory":
            yield "--memory", _size(str(amount))
        elif name not in kinds[:1]:
            _set(draft, "kubernetes.resources", {**(draft.get("kubernetes.resources") or {}), name: str(amount)})


def _cores(text: str) -> float:
    try:
        return float(text[:-1]) / 1000 if text.endswith("m") else float(text)
    except ValueError:
        raise ValueError(f"`{text}` is no number of cores") from None


# Kubernetes' powers of two, as the spec writes them; those of ten become bytes.
_UNITS = {"Ki": "k", "Mi": "m", "Gi": "g", "Ti": "t"}
_TENS = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def _size(text: str) -> str:
    if text[-2:] in _UNITS:
        return text[:-2] + _UNITS[text[-2:]]
    if text[-1:] in _TENS:
        return str(int(float(text[:-1]) * _TENS[text[-1]]))
    return text


# Volumes.


def _mounts(draft: Draft, pod: Json, container: Json) -> Iterator[tuple[str, str]]:
    volumes = {volume["name"]: volume for volume in pod.get("volumes") or ()}
    for mount in container.get("volumeMounts") or ():
        volume, target = volumes.get(mount["name"], {}), mount["mountPath"]
        if mount.get("subPath"):
            draft.check(
                f"the mount at {target} shows a part of its volume, `{mount['subPath']}`: name that in `volumes`"
            )
        if any(_unpacks_code(pod, one) for one in pod.get("initContainers") or ()) and mount["name"] == "code":
            draft.set("code", "." if target == "/workspace" else {"source": ".", "target": literal(target)})
        else:
            yield from _mount(draft, volume, target, bool(mount.get("readOnly")), _holds(container, mount))


def _holds(container: Json, mount: Json) -> bool:
    """Say whether a mount is that of the checkpoints, in a manifest of ours."""
    told = [one.get("value", "") for one in container.get("env") or () if one["name"] == "JOBCTL_CHECKPOINT_DIR"]
    return any(f"{path}/".startswith(f"{mount['mountPath']}/") for path in told)


def _mount(draft: Draft, volume: Json, target: str, read_only: bool, checkpoint: bool) -> Iterator[tuple[str, str]]:
    claim, path = _at(volume, "persistentVolumeClaim", "claimName"), _at(volume, "hostPath", "path")
    empty = volume.get("emptyDir")
    if checkpoint:
        draft.set("checkpoint", literal(target))
        _set(draft, "kubernetes.checkpoint_claim", claim)
    elif path or claim:
        yield "--volume", f"{path or claim}:{target}" + (":ro" if read_only else "")
    elif empty is not None and target == "/dev/shm":
        limit = _at(empty, "sizeLimit")
        if limit:
            yield "--shm-size", _size(str(limit))
        else:
            draft.check(
                "/dev/shm has no limit in the cluster, on hosts 64 MiB: say `resources: {shm_size: 16g}` for them"
            )
    elif empty is not None and _at(empty, "medium") == "Memory":
        yield "--mount", f"type=tmpfs,target={target}"
    else:
        kinds = ", ".join(sorted(set(volume) - {"name"})) or "nothing"
        draft.drop(f"the volume at {target} ({kinds})", "it has no place in `volumes`")


def _unpacks_code(pod: Json, container: Json) -> bool:
    """Say whether an init container is the one by which `render` brings the code."""
    names = {volume["name"] for volume in pod.get("volumes") or ()}
    return container.get("name") == "code" and {"code", "archive"} <= names
