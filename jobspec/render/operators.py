"""Jobs of operators: PaddleJob of paddle-operator, PyTorchJob and PaddleJob of Kubeflow, TrainJob of Kubeflow Trainer.

What an operator tells each pod, in variables, fills the slots of the plan that otherwise our launcher fills; `$(VAR)` in
arguments and variables is filled in by Kubernetes. Which variables those are: paddle-operator's controllers/paddlejob_helper.go,
the training-operator's pkg/controller.v1/{pytorch,paddlepaddle}/envvar.go of v1.9, the trainer's
pkg/runtime/framework/plugins/torch/torch.go of v2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from jobctl.jobspec.plan.types import Node, Plan, Slot, SlotName, Value
from jobctl.jobspec.render.manifest import Object, escaped
from jobctl.jobspec.render.marks import QUEUE_LABEL
from jobctl.jobspec.render.pod import REFERENCE, Runs, labels, of, resources, template

Fills = Mapping[SlotName, str]

# What pods of each operator are told.
_TOLD: Mapping[str, Fills] = {
    "paddle-operator": {"address": REFERENCE},
    "kubeflow": {
        "node_rank": "$(RANK)",
        "master_addr": "$(MASTER_ADDR)",
        "master_port": "$(MASTER_PORT)",
        "address": REFERENCE,
    },
    "trainer": {
        "node_rank": "$(PET_NODE_RANK)",
        "master_addr": "$(PET_MASTER_ADDR)",
        "master_port": "$(PET_MASTER_PORT)",
        "address": REFERENCE,
    },
}
# Kubeflow's webhook and defaults go by these names of containers.
_CONTAINERS = {"paddle-operator": "paddle", "trainer": "node"}
_WORD = "process", "process_script"  # slots that run a process under our launcher's care; without it there is none


def objects(plan: Plan, metadata: Callable[[], Object]) -> Iterator[Object]:
    """Yield the objects that start the job, the main one last. `metadata` is that of the main object."""
    yield from _OBJECTS[of(plan).operator](plan, metadata)


def _paddle_operator(plan: Plan, metadata: Callable[[], Object]) -> Iterator[Object]:
    cluster = of(plan)
    counts = {role: [node for node in plan.nodes if node.role == role] for role in ("server", "trainer")}
    # Its launchers keep in etcd who takes part: it starts a pod that fails again, and tells it nothing of the others.
    elastic = {"elastic": plan.max_nodes} if plan.nodes[0].launch.etcd else {}
    names = {"server": "ps", "trainer": "worker"}

    def pod(node: Node) -> Object:
        # A PaddleJob has no deadline of its own.
        return template(plan, node, runs(plan, node), deadline=plan.recovery.max_duration)

    replicas = {
        names[role]: {"replicas": len(nodes), "template": pod(nodes[0])} for role, nodes in counts.items() if nodes
    }
    spec = {
        **({"withGloo": cluster.gloo} if cluster.gloo is not None else {}),
        **elastic,
        **({"intranet": intranet} if (intranet := "Host" if cluster.host_network else cluster.intranet) else {}),
        **({"cleanPodPolicy": cluster.clean_pod_policy} if cluster.clean_pod_policy else {}),
        **_scheduling(plan),
        **replicas,
    }
    yield {"apiVersion": "batch.paddlepaddle.org/v1", "kind": "PaddleJob", "metadata": metadata(), "spec": spec}


def _scheduling(plan: Plan) -> Object:
    """Return the policy of Volcano, by whose queues both operators go: all pods start together or none."""
    cluster = of(plan)
    if not cluster.queue:
        return {}
    least = plan.min_nodes if plan.elastic else len(plan.nodes)
    priority = {"priorityClass": cluster.priority_class} if cluster.priority_class else {}
    return {"schedulingPolicy": {"minAvailable": least, "queue": cluster.queue, **priority}}


# Kubeflow's training operator. By framework: the kind, the key of its replicas, the name of its containers, and the replica
# of which there is one.
_KUBEFLOW = {
    "torch": ("PyTorchJob", "pytorchReplicaSpecs", "pytorch", "Master"),
    "paddle": ("PaddleJob", "paddleReplicaSpecs", "paddle", None),
}
# What the container that trains is called in any pod; without an operator it is `node`.
CONTAINERS = frozenset({"node", *_CONTAINERS.values(), *(container for _, _, container, _ in _KUBEFLOW.values())})


def _kubeflow(plan: Plan, metadata: Callable[[], Object]) -> Iterator[Object]:
    kind, key, container, master = _KUBEFLOW[plan.framework]
    node, count = plan.nodes[0], len(plan.nodes)
    restart = "OnFailure" if plan.recovery.max_restarts else "Never"
    pod = template(plan, node, replace(runs(plan, node), name=container))
    first = int(master is not None and not plan.elastic)
    counts = [*([(master, 1)] if master and first else []), *([("Worker", count - first)] if count > first else [])]
    spec = {
        **({"elasticPolicy": _elastic_policy(plan)} if plan.elastic else {}),
        "runPolicy": _run_policy(plan),
        key: {name: {"replicas": number, "restartPolicy": restart, "template": pod} for name, number in counts},
    }
    yield {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": metadata(), "spec": spec}


def _elastic_policy(plan: Plan) -> Object:
    return {
        "minReplicas": plan.min_nodes,
        "maxReplicas": plan.max_nodes,
        "maxRestarts": plan.recovery.max_restarts,
        "rdzvBackend": "c10d",
    }


def _run_policy(plan: Plan) -> Object:
    cluster, recovery = of(plan), plan.recovery
    clean = cluster.clean_pod_policy or "None"
    deadline = {"activeDeadlineSeconds": math.ceil(recovery.max_duration)} if recovery.max_duration else {}
    # It counts the restarts of all pods, and when one fails all of them start again. The job fails as soon as their number
    # reaches the limit, which is therefore one more than all restarts that it may have.
    budget = {"backoffLimit": recovery.max_restarts * len(plan.nodes) + 1} if recovery.max_restarts else {}
    ttl = {"ttlSecondsAfterFinished": cluster.ttl} if cluster.ttl is not None else {}
    return {"cleanPodPolicy": clean, **ttl, **deadline, **budget, **_scheduling(plan)}


# Kubeflow Trainer: a runtime of the job's own, since a TrainJob alone has no place for volumes or secrets.

_GROUP = "trainer.kubeflow.org"
_ANCESTOR = f"{_GROUP}/trainjob-ancestor-step"


def _trainer(plan: Plan, metadata: Callable[[], Object]) -> Iterator[Object]:
    node, count, recovery = plan.nodes[0], len(plan.nodes), plan.recovery
    made = runs(plan, node)
    own = {name: value for name, value in metadata().items() if name in ("name", "namespace")}
    job = {
        "name": _CONTAINERS["trainer"],
        "template": {
            "metadata": {"labels": {_ANCESTOR: "trainer"}},
            # JobSet begins all pods anew when one fails, so that none has to be restarted by itself.
            "spec": {"backoffLimit": 0, "template": template(plan, node, made, restart="Never")},
        },
    }
    jobset = {"failurePolicy": {"maxRestarts": recovery.max_restarts}, "replicatedJobs": [job]}
    yield {
        "apiVersion": f"{_GROUP}/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {**own, "labels": labels(plan)},
        "spec": {"mlPolicy": {"numNodes": count, "torch": {}}, "template": {"spec": jobset}},
    }
    limits = resources(of(plan), node.container)
    yield {
        "apiVersion": f"{_GROUP}/v1alpha1",
        "kind": "TrainJob",
        "metadata": metadata(),
        "spec": {
            "runtimeRef": {"apiGroup": _GROUP, "kind": "TrainingRuntime", "name": plan.job},
            **({"activeDeadlineSeconds": math.ceil(recovery.max_duration)} if recovery.max_duration else {}),
            "trainer": {
                "numNodes": count,
                "numProcPerNode": node.launch.nproc,
                **({"resourcesPerNode": limits} if limits else {}),
            },
        },
    }


def queue_labels(plan: Plan) -> Object:
    """Return the label by which Kueue queues jobs that have no field of their own for it."""
    cluster = of(plan)
    return {QUEUE_LABEL: cluster.queue} if cluster.queue and cluster.operator in ("none", "trainer") else {}


_OBJECTS: Mapping[str, Callable[[Plan, Callable[[], Object]], Iterator[Object]]] = {
    "paddle-operator": _paddle_operator,
    "kubeflow": _kubeflow,
    "trainer": _trainer,
}


# What a pod runs.


def runs(plan: Plan, node: Node) -> Runs:
    """Return what the pod of `node` runs where an operator tells it its place."""
    launch, operator = node.launch, of(plan).operator
    fills: Fills = {
        **_TOLD[operator],
        "nnodes": str(len(plan.nodes)),
        "rdzv_id": plan.job,
        "etcd_job": f"{plan.job}.{plan.spec_hash[:8]}.",
    }
    words = [value for value in launch.start if not (isinstance(value, Slot) and value.slot in _WORD)]
    command = [_fill(value, fills) for value in words]
    # Launchers take a script itself, and start it with the interpreter that runs them.
    script = any(isinstance(value, Slot) and value.slot == "process_script" for value in launch.start)
    argv = [*command, *map(escaped, _without_interpreter(launch.command) if script else launch.command)]
    argv = [*_setup(launch.setup), *argv]
    env = {name: _fill(value, fills) for name, value in launch.env}
    return Runs(
        name=_CONTAINERS.get(operator, ""),
        command=tuple(argv[:1]),
        args=tuple(argv[1:]),
        env=tuple({**_about(plan, node), **env}.items()),
        secret_env=launch.secrets,
        workdir=launch.workdir,
    )


def _without_interpreter(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command as such a launcher takes it: `python -u train.py` is `train.py`."""
    return command[2:] if command[1:2] == ("-u",) and command[2].endswith(".py") else command


def _fill(value: Value, fills: Fills) -> str:
    return fills[value.slot] if isinstance(value, Slot) else escaped(value)


def _setup(commands: tuple[str, ...]) -> tuple[str, ...]:
    """Return what runs the setup commands first, in the same container."""
    if not commands:
        return ()
    text = "\n".join([*commands, 'exec "$@"'])
    return ("/bin/sh", "-ec", escaped(text), "sh")


def _about(plan: Plan, node: Node) -> Object:
    """Return the variables that our launcher tells its processes, as far as they are the same all the time."""
    checkpoint = {"JOBCTL_CHECKPOINT_DIR": escaped(plan.checkpoint.dir)} if plan.checkpoint else {}
    return {"JOBCTL_JOB": plan.job, "JOBCTL_RUN_ID": plan.run_id, "JOBCTL_ROLE": node.role, **checkpoint}
