"""A cluster with somebody who plays the operators: makes pods of what is applied, and has them do as tests say."""

from __future__ import annotations

import copy
from typing import Any

from kube.server import ApiServer
from kube.store import Object, Record, stamp


class World:
    """What goes on in the namespace `ml`. With `queues`, Kueue takes what has its label."""

    def __init__(self, api: ApiServer, *, runs: bool = True) -> None:
        self.api, self.runs, self.queues = api, runs, False
        api.store.made.append(self.made)
        api.store.altered.append(self.altered)

    def made(self, record: Record) -> None:
        """Make the pods of what was created; what Kueue queues is suspended first."""
        if record.served.kind not in ("Job", "PaddleJob", "PyTorchJob", "TrainJob"):
            return
        if self.queues and "kueue.x-k8s.io/queue-name" in record.thing["metadata"]["labels"]:
            self.suspend(record, True)
            self.condition(record.served.kind, record.thing["metadata"]["name"], "Suspended", "Job suspended")
        else:
            self._pods(record)

    def suspend(self, record: Record, value: bool) -> None:
        """Suspend a Job or TrainJob, as Kueue does, or have it go on."""
        name = record.thing["metadata"]["name"]
        self.api.store.merge(record.served, "ml", name, {"spec": {"suspend": value}}, "kueue")

    def altered(self, record: Record) -> None:
        """End all pods of what was suspended; make them again where it goes on."""
        spec, name = record.thing["spec"], record.thing["metadata"]["name"]
        suspended = (spec.get("runPolicy") or spec).get("suspend")
        told = {"type": "Suspended", "status": str(bool(suspended)), "reason": "x", "message": "Job suspended"}
        self.api.store.patch(record.served, "ml", name, conditions=[told])
        if suspended:
            self.api.store.drop_owned(record)
        else:
            self._pods(record)

    def _pods(self, record: Record) -> None:
        name, spec, group = record.thing["metadata"]["name"], record.thing.get("spec", {}), record.served.group
        if record.served.kind == "Job":
            for index in range(int(spec.get("completions") or 1)):
                labels = {"batch.kubernetes.io/job-completion-index": str(index)}
                self.pod(f"{name}-{index}-abcde", spec["template"], labels, record)
        elif group == "batch.paddlepaddle.org":
            for role in ("ps", "worker"):
                for index in range(int((spec.get(role) or {}).get("replicas") or 0)):
                    self.pod(f"{name}-{role}-{index}", spec[role]["template"], {}, record)
            self.api.store.patch(record.served, record.namespace, name, phase="Starting")
        elif group == "kubeflow.org":
            self._replicas(record)
        else:
            self._train_job(record)

    def _replicas(self, record: Record) -> None:
        """Make the pods of a job of Kubeflow's: a master first, whose rank is 0; of torch all are told their rank."""
        name, spec = record.thing["metadata"]["name"], record.thing["spec"]
        replicas = spec.get("pytorchReplicaSpecs") or spec["paddleReplicaSpecs"]
        rank = 0
        for role, replica in replicas.items():
            for index in range(replica["replicas"]):
                its = {"replica-type": role.lower(), "replica-index": str(index), "job-name": name}
                labels = {f"training.kubeflow.org/{key}": value for key, value in its.items()}
                template = copy.deepcopy(replica["template"])
                if record.served.kind == "PyTorchJob":
                    template["spec"]["containers"][0].setdefault("env", []).append({"name": "RANK", "value": str(rank)})
                self.pod(f"{name}-{role.lower()}-{index}", template, labels, record)
                rank += 1

    def _train_job(self, record: Record) -> None:
        """Make the Job of a TrainJob (that of its JobSet), and that Job's pods."""
        name = record.thing["metadata"]["name"]
        runtime = self.api.store.get(
            self.api.served("TrainingRuntime"), "ml", record.thing["spec"]["runtimeRef"]["name"]
        )
        (replicated,) = runtime.thing["spec"]["template"]["spec"]["replicatedJobs"]
        count = record.thing["spec"]["trainer"]["numNodes"]
        meta = {"name": f"{name}-{replicated['name']}-0", "ownerReferences": [_owner(record)]}
        spec = {**replicated["template"]["spec"], "completions": count}
        job = self.api.store.put(self.api.served("Job"), "ml", {"metadata": meta, "spec": spec})
        self._pods(Record(self.api.served("Job"), "ml", job))

    def pod(self, name: str, template: Object, labels: dict[str, str], owner: Record) -> None:
        """Make one pod, as a controller does."""
        meta = template.get("metadata") or {}
        pod = {
            "metadata": {
                "name": name,
                "labels": {**(meta.get("labels") or {}), **labels},
                "ownerReferences": [_owner(owner)],
            },
            "spec": template["spec"],
            "status": {"phase": "Pending"},
        }
        self.api.store.put(self.api.served("Pod"), "ml", pod)
        if self.runs:
            self.run(name)

    def pods(self) -> list[Object]:
        return self.api.store.list(self.api.served("Pod"), "ml")

    def thing(self, name: str) -> Object:
        return self.api.store.get(self.api.served("Pod"), "ml", name).thing

    def run(self, name: str, restarts: int = 0) -> None:
        """Have a pod run on a node."""
        pod = self.thing(name)
        number = sorted(other["metadata"]["name"] for other in self.pods()).index(name)
        spec = {**pod["spec"], "nodeName": f"worker-{number}"}
        self.api.store.put(self.api.served("Pod"), "ml", {**pod, "spec": spec})
        self._status(name, "Running", {"running": {"startedAt": stamp()}}, restarts)

    def end(self, name: str, code: int = 0, message: str = "") -> None:
        """Have a pod end."""
        ended = {
            "exitCode": code,
            "reason": "Error" if code else "Completed",
            "finishedAt": stamp(),
            "startedAt": stamp(),
        }
        if message:
            ended["message"] = message
        self.api.end_run(name, again=False)
        told = self.thing(name)["status"]["containerStatuses"][0]
        self._status(name, "Failed" if code else "Succeeded", {"terminated": ended}, told["restartCount"])

    def restart(self, name: str) -> None:
        """Have the container of a pod begin anew, as with restartPolicy OnFailure."""
        count = self.thing(name)["status"]["containerStatuses"][0]["restartCount"]
        self.api.end_run(name, again=True)
        self._status(name, "Running", {"running": {"startedAt": stamp()}}, count + 1)

    def wait_for_scheduler(self, name: str, message: str) -> None:
        """Have no room for a pod."""
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        self.api.store.patch(self.api.served("Pod"), "ml", name, phase="Pending", conditions=[condition])

    def waiting(self, name: str, reason: str, message: str) -> None:
        """Have a pod's container not start."""
        pod = self.thing(name)
        self.api.store.put(self.api.served("Pod"), "ml", {**pod, "spec": {**pod["spec"], "nodeName": "worker-9"}})
        self._status(name, "Pending", {"waiting": {"reason": reason, "message": message}}, 0)

    def _status(self, name: str, phase: str, state: Object, restarts: int) -> None:
        container = self.thing(name)["spec"]["containers"][0]["name"]
        told = [{"name": container, "state": state, "restartCount": restarts, "containerID": "containerd://4f3c"}]
        self.api.store.patch(self.api.served("Pod"), "ml", name, phase=phase, containerStatuses=told)

    def condition(self, kind: str, name: str, condition: str, message: str = "", group: str | None = None) -> None:
        """Have a controller say how a job stands."""
        one: dict[str, Any] = {"type": condition, "status": "True", "message": message, "reason": condition}
        self.api.store.patch(self.api.served(kind, group), "ml", name, conditions=[one])

    def event(self, name: str, about: str, reason: str, message: str, count: int = 1, at: float | None = None) -> None:
        """Tell an event of a pod."""
        self.api.store.put(
            self.api.served("Event"),
            "ml",
            {
                "metadata": {"name": name},
                "involvedObject": {"kind": "Pod", "name": about},
                "reason": reason,
                "message": message,
                "type": "Warning",
                "count": count,
                "lastTimestamp": stamp(at),
                "source": {"component": "default-scheduler"},
            },
        )


def _owner(record: Record) -> Object:
    """Return what says that a controller made something for an object."""
    return {
        "apiVersion": record.served.api_version,
        "kind": record.served.kind,
        "name": record.thing["metadata"]["name"],
        "uid": record.thing["metadata"]["uid"],
        "controller": True,
    }
