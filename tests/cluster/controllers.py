"""What controllers make of the objects of a job: pods, and what each of them is told.

https://kubernetes.io/docs/concepts/workloads/controllers/job/, and the operators' sources as named in render/operators.py.
"""

from __future__ import annotations

from collections.abc import Callable

from .pods import Cluster, Made, Object, Pod


def pods_of(made: Object, cluster: Cluster) -> Made:
    """Yield the pods that an object leads to: name, template, and variables."""
    find = _MAKERS.get((made["apiVersion"].partition("/")[0], made["kind"]))
    if find is not None:
        yield from find(made, cluster)


def _indexed_job(made: Object, cluster: Cluster) -> Made:
    for index in range(made["spec"]["completions"]):
        name = f"{made['metadata']['name']}-{index}"
        yield name, made["spec"]["template"], lambda pod, index=index: {"JOB_COMPLETION_INDEX": str(index)}


def _pytorch_job(made: Object, cluster: Cluster) -> Made:
    name, replicas = made["metadata"]["name"], made["spec"]["pytorchReplicaSpecs"]
    total = sum(one["replicas"] for one in replicas.values())
    rank = 0
    for role, one in replicas.items():
        assert [c["name"] for c in one["template"]["spec"]["containers"]] == ["pytorch"]
        for index in range(one["replicas"]):
            told = {"PYTHONUNBUFFERED": "1", "WORLD_SIZE": str(total), "RANK": str(rank)}
            told |= {"MASTER_ADDR": f"{name}-master-0", "MASTER_PORT": "23456"}
            if "elasticPolicy" in made["spec"]:
                policy = made["spec"]["elasticPolicy"]
                told = {
                    "PYTHONUNBUFFERED": "1",
                    "PET_RDZV_ENDPOINT": f"{name}-worker-0:23456",
                    "PET_RDZV_BACKEND": policy["rdzvBackend"],
                    "PET_NNODES": f"{policy['minReplicas']}:{policy['maxReplicas']}",
                    "PET_MAX_RESTARTS": str(policy["maxRestarts"]),
                }
            yield f"{name}-{role.lower()}-{index}", one["template"], lambda pod, told=told: told
            rank += 1


def _kubeflow_paddle_job(made: Object, cluster: Cluster) -> Made:
    name, (one,) = made["metadata"]["name"], made["spec"]["paddleReplicaSpecs"].values()
    assert [c["name"] for c in one["template"]["spec"]["containers"]] == ["paddle"]
    for index in range(one["replicas"]):

        def told(pod: Pod, index: int = index) -> dict[str, str]:
            return {
                "PYTHONUNBUFFERED": "1",
                "PADDLE_JOB_ID": name,
                "PADDLE_NNODES": str(one["replicas"]),
                "PADDLE_MASTER": f"{pod.address if index == 0 else f'{name}-worker-0'}:36543",
            }

        yield f"{name}-worker-{index}", one["template"], told


def _paddle_operator(made: Object, cluster: Cluster) -> Made:
    name, spec = made["metadata"]["name"], made["spec"]
    roles = {"ps": "PSERVER", "worker": "TRAINER"}

    def endpoints(role: str) -> str:
        return ",".join(f"{pod.address}:36000" for pod in cluster.pods if pod.name.startswith(f"{name}-{role}-"))

    for role, training in roles.items():
        for index in range(spec.get(role, {}).get("replicas", 0)):

            def told(pod: Pod, index: int = index, training: str = training) -> dict[str, str]:
                return {
                    "POD_IP": pod.address,
                    "PADDLE_TRAINER_ID": str(index),
                    "TRAINING_ROLE": training,
                    "PADDLE_TRAINING_ROLE": training,
                    "TRAINER_PORTS_NUM": "20",
                    "PADDLE_PORT": "36000",
                    "PADDLE_PSERVERS_IP_PORT_LIST": endpoints("ps"),
                    "PADDLE_TRAINER_ENDPOINTS": endpoints("worker"),
                    "PADDLE_TRAINERS": str(spec["worker"]["replicas"]),
                    "PADDLE_TRAINERS_NUM": str(spec["worker"]["replicas"]),
                }

            yield f"{name}-{role}-{index}", spec[role]["template"], told


def _train_job(made: Object, cluster: Cluster) -> Made:
    name, trainer = made["metadata"]["name"], made["spec"]["trainer"]
    runtime = cluster.objects[made["spec"]["runtimeRef"]["kind"], made["spec"]["runtimeRef"]["name"]]
    (job,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert job["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    template = job["template"]["spec"]["template"]
    assert [c["name"] for c in template["spec"]["containers"]] == ["node"]
    for index in range(trainer["numNodes"]):
        told = {
            "PET_NNODES": str(trainer["numNodes"]),
            "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
            "PET_NODE_RANK": str(index),
            "PET_MASTER_ADDR": f"{name}-node-0-0.{name}",
            "PET_MASTER_PORT": "29500",
        }
        yield f"{name}-{job['name']}-0-{index}", template, lambda pod, told=told: told


_MAKERS: dict[tuple[str, str], Callable[[Object, Cluster], Made]] = {
    ("batch", "Job"): _indexed_job,
    ("kubeflow.org", "PyTorchJob"): _pytorch_job,
    ("kubeflow.org", "PaddleJob"): _kubeflow_paddle_job,
    ("batch.paddlepaddle.org", "PaddleJob"): _paddle_operator,
    ("trainer.kubeflow.org", "TrainJob"): _train_job,
}
