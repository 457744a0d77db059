"""Manifests: one object each, in the order in which they are applied.

Without an operator a job is an indexed Job for each role, a headless Service by which its pods have names, and ConfigMaps
with the launcher and its orders. The launchers agree among themselves on who starts what when (launcher/peers/peers.py),
since there is no supervisor in the cluster.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from hashlib import sha256

from jobctl.jobspec.plan.artefact_id import INPUTS_LABEL
from jobctl.jobspec.plan.generation import Generation
from jobctl.jobspec.plan.types import Node, Plan
from jobctl.jobspec.planner.kubernetes import main_name
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.render import operators
from jobctl.jobspec.render.autonomy import with_autonomy
from jobctl.jobspec.render.container import VERSION_LABEL, version_and_inputs
from jobctl.jobspec.render.errors import RenderError
from jobctl.jobspec.render.manifest import Object, manifest
from jobctl.jobspec.render.marks import FRAMEWORK, INPUTS, JOB, OWNER, SECRETS, SPEC, VERSION, mark
from jobctl.jobspec.render.payload import control_json, launch_json
from jobctl.jobspec.render.pod import (
    ARCHIVE,
    OWN_ADDRESS,
    Runs,
    code_name,
    labels,
    of,
    secret_name,
    security_of_pod,
    template,
)

MAX_CONFIG_MAP_BYTES = 1_000_000  # bytes of a ConfigMap: the API server takes 1 MiB with all that is around them
# How a launcher ends that was killed or told to end, and not by a failure of the job: by a signal (128 and its number), and 255
# where the node has started again, and its runtime cannot tell. A launcher itself ends the job with less than 128, and 128 is
# what cannot be started.
ENDED_FROM_OUTSIDE = (*range(129, 160), 255)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object. `secrets` are the keys that `up` adds to it; `shown` is whether people want to read it."""

    path: str
    content: bytes
    secrets: tuple[str, ...] = ()
    shown: bool = True


def manifests(plan: Plan, generation: Generation, launcher: bytes) -> Iterator[Manifest]:
    """Yield the manifests of a job. Raises RenderError for what no cluster takes."""
    for number, (one, secrets, shown) in enumerate(_objects(plan, generation, launcher), 1):
        made = _owned(plan, one)
        path = f"manifests/{number:02}-{made['kind'].lower()}-{made['metadata']['name']}.yaml"
        yield Manifest(path, manifest(made), secrets, shown)


def _objects(plan: Plan, generation: Generation, launcher: bytes) -> Iterator[tuple[Object, tuple[str, ...], bool]]:
    secrets = plan.nodes[0].launch.secrets
    if plan.code is not None:
        yield _code(plan), (), False
    if secrets:
        yield _secret(plan, secrets), secrets, True
    if of(plan).operator == "none":
        yield _config(plan, f"{plan.job}-launcher", {"launcher.py": launcher.decode()}), (), False
        yield _config(plan, plan.job, _files(plan, generation)), (), True
        yield _service(plan), (), True
        yield from ((_started(plan, made), (), True) for made in _jobs(plan))
    else:
        made = list(operators.objects(plan, lambda: _metadata(plan, plan.job)))
        yield from ((one, (), True) for one in made[:-1])
        yield _started(plan, made[-1], made[:-1]), (), True


# What all objects have in common.


def _metadata(plan: Plan, name: str) -> Object:
    cluster = of(plan)
    space = {"namespace": cluster.namespace} if cluster.namespace else {}
    return {"name": name, **space, "labels": labels(plan)}


def _owned(plan: Plan, made: Object) -> Object:
    """Return an object that says whose it is: it may outlive the one that makes pods."""
    metadata = made["metadata"]
    annotations = {mark(OWNER): plan.owner, **metadata.get("annotations", {})}
    return {**made, "metadata": {**metadata, "annotations": annotations}}


def _started(plan: Plan, main: Object, further: list[Object] | None = None) -> Object:
    """Return an object that starts the job, with what says what it was made from."""
    cluster = of(plan)
    covered = [manifest(one) for one in (*(further or ()), main)]
    covered += [launch_json(node.launch).encode() for node in plan.nodes] if cluster.operator == "none" else []
    covered += [(plan.code.version or "").encode()] if plan.code else []
    digest = sha256(b"\0".join(covered)).hexdigest()
    metadata = main["metadata"]
    told = [version_and_inputs(plan.sent, node) for node in plan.nodes]
    inputs = "\0".join(one.get(INPUTS_LABEL, "") for one in told)
    annotations = {
        mark(FRAMEWORK): plan.framework,
        mark(SPEC): digest,
        mark(INPUTS): sha256(inputs.encode()).hexdigest(),
        mark(VERSION): told[0].get(VERSION_LABEL, ""),
        **dict(cluster.annotations),
    }
    more = {**operators.queue_labels(plan), **dict(cluster.labels)}
    return {**main, "metadata": {**metadata, "labels": {**metadata["labels"], **more}, "annotations": annotations}}


def _config(plan: Plan, name: str, files: dict[str, str]) -> Object:
    size = sum(len(text.encode()) for text in files.values())
    if size > MAX_CONFIG_MAP_BYTES:
        message = f"ConfigMap {name} would have {size} bytes, and Kubernetes takes no more than {MAX_CONFIG_MAP_BYTES}"
        raise RenderError("too-large-for-kubernetes", message, "use fewer nodes, or an operator")
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(plan, name), "data": files}


def _code(plan: Plan) -> Object:
    assert plan.code is not None
    archive = plan.code.archive or ""
    if len(archive) * 3 // 4 > MAX_CONFIG_MAP_BYTES:
        message = f"the code is more than {MAX_CONFIG_MAP_BYTES} bytes when packed, which is what a ConfigMap holds"
        hint = (
            "put the code into the image, or leave out files that are not code: `code: {source: ., exclude: [data/]}`"
        )
        raise RenderError("too-large-for-kubernetes", message, hint)
    metadata = _metadata(plan, code_name(plan))
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": {ARCHIVE: archive}}


def _secret(plan: Plan, names: tuple[str, ...]) -> Object:
    """Return the Secret without its values: `up` puts them in, and nothing else ever has them."""
    metadata = {**_metadata(plan, secret_name(plan)), "annotations": {mark(SECRETS): ",".join(names)}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"}


# Without an operator.


def _files(plan: Plan, generation: Generation) -> dict[str, str]:
    launches = {_launch_file(plan, node): launch_json(node.launch) + "\n" for node in plan.nodes}
    return {"control.json": control_json(with_autonomy(plan, generation)).decode(), **launches}


def _launch_file(plan: Plan, node: Node) -> str:
    first = next(one.index for one in plan.nodes if one.role == node.role)
    return f"{node.role}-{node.index - first}.json"


def _service(plan: Plan) -> Object:
    """Return the Service by which pods have names; also before they are ready, as they are when they have met."""
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {mark(JOB): plan.job}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(plan, plan.job), "spec": spec}


def _jobs(plan: Plan) -> Iterator[Object]:
    roles = list(dict.fromkeys(node.role for node in plan.nodes))
    # Those that serve go first: trainers wait for them.
    for role in sorted(roles, key=lambda role: role == "trainer"):
        nodes = [node for node in plan.nodes if node.role == role]
        name = main_name(plan.job, role, len(roles) > 1)
        yield _job(plan, name, nodes)


def _job(plan: Plan, name: str, nodes: list[Node]) -> Object:
    runs = _runs(plan, nodes[0])
    deadline = plan.recovery.max_duration
    spec = {
        "completions": len(nodes),
        "parallelism": len(nodes),
        "completionMode": "Indexed",
        "backoffLimit": plan.recovery.max_restarts,
        **({"activeDeadlineSeconds": math.ceil(deadline)} if deadline else {}),
        **({"ttlSecondsAfterFinished": ttl} if (ttl := of(plan).ttl) is not None else {}),
        # A pod is started elsewhere only once the one before is known to be gone.
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": _failure_rules(runs.name)},
        "template": template(plan, nodes[0], runs, restart="Never", subdomain=plan.job),
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(plan, name), "spec": spec}


def _failure_rules(container: str) -> list[Object]:
    """Return what becomes of a pod that fails: launchers see to failed processes, and only end when no restart helps."""
    by_itself = {"containerName": container, "operator": "NotIn", "values": list(ENDED_FROM_OUTSIDE)}
    return [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": by_itself},
    ]


_LAUNCHER, _JOB, _NODE, _SECRETS = "/jobctl/launcher", "/jobctl/job", "/jobctl/node", "/jobctl/secrets"


def _runs(plan: Plan, node: Node) -> Runs:
    """Return what a pod runs: the launcher, with what it does and its place in files, by its number in the Job."""
    secrets = bool(node.launch.secrets)
    argv = (
        *(node.container.python, f"{_LAUNCHER}/launcher.py"),
        *("--control", f"{_JOB}/control.json", "--dir", _NODE),
        *("--launch", f"{_JOB}/{node.role}-$(JOB_COMPLETION_INDEX).json", "--address", f"$({OWN_ADDRESS})"),
        *(("--secrets", _SECRETS) if secrets else ()),
    )
    volumes: tuple[Object, ...] = (
        {"name": "launcher", "configMap": {"name": f"{plan.job}-launcher"}},
        {"name": "job", "configMap": {"name": plan.job}},
        {"name": "node", "emptyDir": {}},
    )
    if secrets:
        mode = _secrets_mode(security_of_pod(of(plan), node.container))
        volumes += ({"name": "secrets", "secret": {"secretName": secret_name(plan), "defaultMode": mode}},)
    places = (("launcher", _LAUNCHER), ("job", _JOB), ("node", _NODE), *((("secrets", _SECRETS),) if secrets else ()))
    return Runs(
        name="node",
        command=argv,
        volumes=volumes,
        mounts=places,
        read_only=("launcher", "job", "secrets"),
        ports=_ports(plan, node),
    )


def _ports(plan: Plan, node: Node) -> tuple[Object, ...]:
    """Return the port by which launchers agree, where it is the node's: no node then gets two pods of the job."""
    if not of(plan).host_network or node.launch.peer_port is None:
        return ()
    return ({"containerPort": node.launch.peer_port, "hostPort": node.launch.peer_port, "protocol": "UDP"},)


def _secrets_mode(context: Object) -> int:
    """Return who may read the secrets in a pod, whose files are root's: that is its processes in any case.

    A group that is given is `fsGroup`, and has the files. Without one, who the processes are is the image's business.
    """
    return 0o440 if context.get("runAsUser") == 0 or "fsGroup" in context else 0o444
