"""A pod, read as the `docker run` that would start its container: what that means is known already."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from jobctl.jobspec.importers.draft import Draft
from jobctl.jobspec.importers.escaping import literal
from jobctl.jobspec.importers.kubernetes.document import Document, at
from jobctl.jobspec.importers.kubernetes.references import References
from jobctl.jobspec.importers.shell.script import Command
from jobctl.jobspec.importers.values import seconds, whole_number
from jobctl.jobspec.spec.names import ENV_NAME
from jobctl.jobspec.spec.parts.pod import Affinity, PodSecurityContext, SecurityContext
from jobctl.jobspec.spec.reference import models_in

_OURS = "JOBCTL_"
_MARGIN = 5  # seconds that pods, like containers, get more than the processes in them
_NO_COMMAND = ("python3", "train.py")
# What a pod is told of its place: jobctl tells each process its own.
_TOLD = ("POD_IP", "POD_NAME")

# What jobctl sets by itself (frameworks/paddle_variables.py), so that a spec need not.
_SET_ANYHOW = {("FLAGS_tcp_store_using_libuv", "0")}

# Which resource is which kind of devices; those that are not the kind's usual one are said in the spec.
_DEVICES = {
    "nvidia.com/gpu": "gpu",
    "amd.com/gpu": "dcu",
    "kunlunxin.com/xpu": "xpu",
    "hygon.com/dcu": "dcu",
    "huawei.com/Ascend910": "npu",
}
_UNUSUAL = {"amd.com/gpu"}

# Where.


def container_of(pod: Document) -> Document:
    """Return the container that trains: operators know it by its name, paddle-operator takes the first."""
    containers = pod["containers"]
    named = [one for one in containers if one.get("name") in ("pytorch", "paddle")]
    trains: Document = (named or containers)[0]
    return trains


def place(draft: Draft, pod: Document, ours: bool) -> None:
    """Put into the draft where pods run, and for how long."""
    names = [pod.get("serviceAccountName"), pod.get("serviceAccount")]
    draft.put("kubernetes.service_account", next(filter(None, names), None))
    secrets = tuple(literal(one["name"]) for one in pod.get("imagePullSecrets") or ())
    draft.put("kubernetes.image_pull_secrets", secrets)
    draft.put("kubernetes.node_selector", {k: literal(str(v)) for k, v in (pod.get("nodeSelector") or {}).items()})
    draft.put("kubernetes.tolerations", tuple(map(_toleration, pod.get("tolerations") or ())))
    draft.put("kubernetes.priority_class", pod.get("priorityClassName"))
    draft.put("kubernetes.affinity", _kept(pod.get("affinity"), Affinity))
    token = pod.get("automountServiceAccountToken")
    if token is not None and (token or draft.get("kubernetes.service_account")):
        draft.set("kubernetes.automount_service_account_token", token)
    if pod.get("hostNetwork"):
        draft.set("kubernetes.host_network", True)
        if pod.raw.get("dnsPolicy") == "ClusterFirstWithHostNet":
            pod.get("dnsPolicy")
    draft.put("container.runtime", pod.get("runtimeClassName"))
    deadline = whole_number(str(pod.get("activeDeadlineSeconds") or 0))
    if deadline and draft.get("recovery.max_duration") is None:
        draft.set("recovery.max_duration", seconds(str(deadline)))
    grace = whole_number(str(pod.get("terminationGracePeriodSeconds") or 0)) - (_MARGIN if ours else 0)
    if grace > 0:
        draft.set("stop_grace_period", seconds(str(grace)))
    for one in pod.get("initContainers") or ():
        if not _unpacks_code(pod, one):
            draft.drop(f"init container {one.get('name')}", "do it before `up`, or in `setup`")
        one.settle()
    trains = container_of(pod)
    for one in pod["containers"]:
        if one.path != trains.path:
            draft.drop(f"container {one.get('name')}", "a node of a job is one container")
            one.settle()


def _kept(value: Any, form: object) -> Any:
    """Return what the spec has a place for of a part of a pod; keys that it does not know stay unread."""
    if isinstance(value, Document):
        model = next(models_in(form), None)
        if model is not None:
            fields = model.model_fields
            return {name: _kept(value[name], fields[name].annotation) for name in value if name in fields}
        return {name: _kept(value[name], str) for name in value}
    if isinstance(value, tuple):
        return tuple(_kept(one, form) for one in value)
    return literal(value) if isinstance(value, str) else value


def _toleration(given: Document) -> dict[str, str]:
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


def command(draft: Draft, pod: Document) -> Command:
    """Return the command of a pod as the `docker run` that starts its container."""
    container = container_of(pod)
    given = [word for key in ("command", "args") for word in _list(container, key)]
    given = _after_setup(draft, given)
    references = References(container)
    argv = list(_words(draft, references, given[_OWN_WORDS:] if _is_waiting(given) else given))
    if not argv:
        argv = list(_NO_COMMAND)
        draft.remarks["script"] = "put what the image runs by itself here: the manifest names no command"
    elif not container.get("command"):
        draft.check("the manifest has arguments and no command: what the image runs by itself goes before them")
    _security(draft, pod, container)
    options = [*_identity(pod, container), *_limits(draft, container), *_mounts(draft, pod, container)]
    if container.get("imagePullPolicy") in ("Always", "Never"):
        options.append(("--pull", container["imagePullPolicy"].lower()))
    folder = container.get("workingDir")
    if folder and draft.get("code") is None:
        options.append(("--workdir", folder))
    options += [("--env", f"{name}={value}") for name, value in _variables(draft, container, references)]
    words = [f"{name}={literal(value)}" for name, value in options]
    run = ("docker", "run", *words, literal(str(container["image"])), *argv)
    return Command(run, source=" ".join(argv))


def _list(container: Document, key: str) -> Sequence[Any]:
    words = container.get(key) or []
    if not isinstance(words, list | tuple):
        raise ValueError(f"`{key}` is not a list of words")
    return words


def _words(draft: Draft, references: References, values: Iterable[Any]) -> Iterator[str]:
    """Yield words as Kubernetes makes them; what it puts into them that is not known here is noted."""
    for value in values:
        filled = references.fill_in(value)
        for name, why in filled.left.items():
            draft.check(
                f"`$({name})` stays in the command: what Kubernetes fills in {why};"
                " put it in, or have the program read the variable"
            )
        yield literal(filled.text)


def _variables(draft: Draft, container: Document, references: References) -> Iterator[tuple[str, str]]:
    for variable, filled in zip(container.get("env") or (), references.values, strict=True):
        variable.settle()
        name, source = variable["name"], variable.get("valueFrom") or {}
        if name.startswith(_OURS) or name in _TOLD:
            continue
        if not re.fullmatch(ENV_NAME, name):
            draft.drop(name, "no shell knows such a variable, and neither does the spec")
        elif at(source, "secretKeyRef"):
            draft.add("secrets", name)
            draft.check(f"the value of {name} is in a Secret of the cluster: export it before `jobctl up`")
        elif field := at(source, "fieldRef", "fieldPath"):
            draft.drop(
                name, f"only a pod has its `{field}`; jobctl tells each process its place: `JOBCTL_NODE` and more"
            )
        elif source:
            draft.drop(name, "its value is in the cluster: say it in `env`")
        elif why := next(iter(filled.left.values()), None):
            draft.drop(f"{name}={variable['value']}", f"what Kubernetes fills in {why}")
        elif (name, filled.text) not in _SET_ANYHOW:
            yield name, filled.text
    for one in container.get("envFrom") or ():
        one.settle()
        where = at(one, "configMapRef", "name") or at(one, "secretRef", "name")
        draft.drop(f"envFrom {where}", "its variables are in the cluster: say them in `env`, or in `secrets`")


def _identity(pod: Document, container: Document) -> Iterator[tuple[str, str]]:
    user = _said(pod, container, "runAsUser")
    if user is not None:
        group = _said(pod, container, "runAsGroup")
        yield "--user", f"{user}:{group}" if group is not None else str(user)
    for capability in at(container, "securityContext", "capabilities", "add") or ():
        yield "--cap-add", capability


def _security(draft: Draft, pod: Document, container: Document) -> None:
    """Put into the draft what security contexts say beside what `container` has a place for."""
    of_pod = _kept(pod.get("securityContext"), PodSecurityContext) or {}
    own = _kept(container.get("securityContext"), SecurityContext) or {}
    if "runAsUser" in of_pod or "runAsUser" in own:
        group = _said(pod, container, "runAsGroup")
        if group is not None and of_pod.get("fsGroup") == group:
            del of_pod["fsGroup"]  # as it is where `container.user` names a group
        of_pod, own = ({k: v for k, v in one.items() if k not in ("runAsUser", "runAsGroup")} for one in (of_pod, own))
    capabilities = {key: value for key, value in own.pop("capabilities", {}).items() if key != "add"}
    if own.get("privileged") is False:
        del own["privileged"]
    draft.put("kubernetes.pod_security_context", of_pod)
    draft.put("kubernetes.security_context", {**own, **({"capabilities": capabilities} if capabilities else {})})


def _said(pod: Document, container: Document, key: str) -> Any:
    """Return what the container's security context says, otherwise what the pod's says."""
    said = [at(one, "securityContext", key) for one in (container, pod)]
    return next((value for value in said if value is not None), None)


def _limits(draft: Draft, container: Document) -> Iterator[tuple[str, str]]:
    found = _amounts(container, "limits")
    for name, amount in _amounts(container, "requests").items():
        if name in _DEVICES or "/" in name:
            found.setdefault(name, amount)  # of these a pod gets what it asks for
        elif found.get(name) != amount:
            draft.drop(f"requests of {name}: {amount}", "the spec knows limits only: `resources`")
    kinds = [name for name in found if name in _DEVICES]
    if kinds:
        draft.set("devices", f"{_DEVICES[kinds[0]]}:{found[kinds[0]]}")
        if kinds[0] in _UNUSUAL:
            draft.set("kubernetes.resource_name", kinds[0])
    elif not any("/" in name for name in found):
        draft.set("devices", "cpu", "no device is asked for: one process in each pod")
    for name, amount in found.items():
        if name == "cpu":
            yield "--cpus", f"{_cores(amount):g}"
        elif name == "memory":
            yield "--memory", _size(amount)
        elif name not in kinds[:1]:
            draft.put("kubernetes.resources", {**(draft.get("kubernetes.resources") or {}), name: amount})


def _amounts(container: Document, key: str) -> dict[str, str]:
    found = {name: str(amount) for name, amount in (at(container, "resources", key) or {}).items()}
    return {name: amount for name, amount in found.items() if name not in _DEVICES or amount != "0"}


def _cores(text: str) -> float:
    try:
        return float(text[:-1]) / 1000 if text.endswith("m") else float(text)
    except ValueError:
        raise ValueError(f"`{text}` is not a number of cores") from None


# Kubernetes' powers of two, as the spec writes them; all else becomes bytes.
_UNITS = {"Ki": "k", "Mi": "m", "Gi": "g", "Ti": "t"}
_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18, "Pi": 2**50, "Ei": 2**60}
_QUANTITY = re.compile(r"\+?(\d+\.?\d*|\.\d+)(?:([eE][+-]?\d{1,3})|([KMGTPE]i|[mkMGTPE])?)")


def _size(text: str) -> str:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"`{text}` is not an amount of memory")
    number, exponent, unit = match[1], match[2] or "", match[3] or ""
    if unit in _UNITS:
        return number + _UNITS[unit]
    if unit == "m":
        exponent, unit = "e-3", ""
    return str(int(Decimal(number + exponent) * _FACTORS[unit]))


# Volumes.


def _mounts(draft: Draft, pod: Document, container: Document) -> Iterator[tuple[str, str]]:
    volumes = {volume["name"]: volume for volume in pod.get("volumes") or ()}
    unpacks = any(_unpacks_code(pod, one) for one in pod.get("initContainers") or ())
    for mount in container.get("volumeMounts") or ():
        volume, target = volumes.get(mount["name"], Document({})), mount["mountPath"]
        if mount.get("subPath"):
            draft.check(
                f"the mount at {target} shows a part of its volume, `{mount['subPath']}`: name that in `volumes`"
            )
        if unpacks and mount["name"] == "code":
            draft.set("code", "." if target == "/workspace" else {"source": ".", "target": literal(target)})
            mount.settle()
            volume.settle()
            volumes["archive"].settle()
        else:
            yield from _mount(draft, volume, mount, _holds(container, mount))


def _holds(container: Document, mount: Document) -> bool:
    """Say whether a mount is that of the checkpoints, in a manifest of jobctl's."""
    told = [one.get("value", "") for one in container.get("env") or () if one["name"] == "JOBCTL_CHECKPOINT_DIR"]
    return any(f"{path}/".startswith(f"{mount['mountPath']}/") for path in told)


def _mount(draft: Draft, volume: Document, mount: Document, checkpoint: bool) -> Iterator[tuple[str, str]]:
    target = mount["mountPath"]
    claim, path = at(volume, "persistentVolumeClaim", "claimName"), at(volume, "hostPath", "path")
    told = [mount.get("readOnly"), at(volume, "persistentVolumeClaim", "readOnly")]
    empty = volume.get("emptyDir")
    if checkpoint:
        draft.set("checkpoint", literal(target))
        draft.put("kubernetes.checkpoint_claim", claim)
    elif path or claim:
        yield "--volume", f"{path or claim}:{target}" + (":ro" if any(told) else "")
    elif empty is not None and target == "/dev/shm":
        if limit := at(empty, "sizeLimit"):  # without one it is as large as jobctl makes it
            yield "--shm-size", _size(str(limit))
        volume.settle()
    elif empty is not None and at(empty, "medium") == "Memory":
        yield "--mount", f"type=tmpfs,target={target}"
    else:
        kinds = ", ".join(sorted(set(volume) - {"name"})) or "nothing"
        draft.drop(f"the volume at {target} ({kinds})", "it has no place in `volumes`")
        volume.settle()
        mount.settle()


def _unpacks_code(pod: Document, container: Document) -> bool:
    """Say whether an init container is the one by which `render` brings the code."""
    names = {volume["name"] for volume in pod.get("volumes") or ()}
    return container.get("name") == "code" and {"code", "archive"} <= names
