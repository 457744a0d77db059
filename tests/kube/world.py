"""A cluster with somebody who plays the operators: makes pods of what is applied, and has them do as tests say."""

from __future__ import annotations

import copy
from typing import Any

from tests.kube.server import ApiServer
from tests.kube.store import Object, Refused, Served, stamp

MAINS = ("Job", "PaddleJob", "PyTorchJob", "TrainJob")


class World:
    """What goes on in the namespace of a test, all of it through the API. With `queues`, Kueue takes what has its label."""

    def __init__(self, api: ApiServer, *, runs: bool = True) -> None:
        self.api, self.runs, self.queues = api, runs, False
        api.made.append(self.made)
        api.altered.append(self.altered)

    def served(self, thing: Object) -> Served:
        return self.api.served(thing["kind"], thing["apiVersion"].rpartition("/")[0])

    def made(self, thing: Object) -> None:
        """Make the pods of what was created; what Kueue queues is suspended first."""
        if thing["kind"] not in MAINS:
            return
        if self.queues and "kueue.x-k8s.io/queue-name" in thing["metadata"]["labels"]:
            self.suspend(thing, True)
            self.condition(thing["kind"], thing["metadata"]["name"], "Suspended", "Job suspended")
        else:
            self._pods(thing)

    def suspend(self, thing: Object, value: bool) -> None:
        """Suspend a Job or TrainJob, as Kueue does, or have it go on."""
        name = thing["metadata"]["name"]
        self.altered(self.api.merge(self.served(thing), name, {"spec": {"suspend": value}}, "kueue"))

    def altered(self, thing: Object) -> None:
        """End all pods of what was suspended; make them again where it goes on."""
        if thing["kind"] not in MAINS or "deletionTimestamp" in thing["metadata"]:
            return
        suspended = (thing["spec"].get("runPolicy") or thing["spec"]).get("suspend")
        told = {"type": "Suspended", "status": str(bool(suspended)), "reason": "x", "message": "Job suspended"}
        self.api.status(self.served(thing), thing["metadata"]["name"], conditions=[_at(told)])
        if suspended:
            self._drop_owned(thing)
        else:
            self._pods(thing)

    def _drop_owned(self, thing: Object) -> None:
        """Remove what was made for an object, and for that."""
        uid = thing["metadata"]["uid"]
        for kind in ("Job", "Pod"):
            for other in self.api.list(kind):
                if any(owner["uid"] == uid for owner in other["metadata"].get("ownerReferences") or ()):
                    self._drop_owned(other)
                    self.api.delete(kind, other["metadata"]["name"])

    def _pods(self, thing: Object) -> None:
        name, spec, group = thing["metadata"]["name"], thing.get("spec", {}), self.served(thing).group
        if thing["kind"] == "Job":
            for index in range(int(spec.get("completions") or 1)):
                labels = {"batch.kubernetes.io/job-completion-index": str(index)}
                self.pod(f"{name}-{index}-abcde", spec["template"], labels, thing)
        elif group == "batch.paddlepaddle.org":
            for role in ("ps", "worker"):
                for index in range(int((spec.get(role) or {}).get("replicas") or 0)):
                    self.pod(f"{name}-{role}-{index}", spec[role]["template"], {}, thing)
            self.api.status(self.served(thing), name, phase="Starting")
        elif group == "kubeflow.org":
            self._replicas(thing)
        else:
            self._train_job(thing)

    def _replicas(self, thing: Object) -> None:
        """Make the pods of a job of Kubeflow's: a master first, whose rank is 0; of torch all are told their rank."""
        name, spec = thing["metadata"]["name"], thing["spec"]
        replicas = spec.get("pytorchReplicaSpecs") or spec["paddleReplicaSpecs"]
        rank = 0
        for role, replica in sorted(replicas.items()):
            for index in range(replica["replicas"]):
                its = {"replica-type": role.lower(), "replica-index": str(index), "job-name": name}
                labels = {f"training.kubeflow.org/{key}": value for key, value in its.items()}
                template = copy.deepcopy(replica["template"])
                if thing["kind"] == "PyTorchJob":
                    template["spec"]["containers"][0].setdefault("env", []).append({"name": "RANK", "value": str(rank)})
                self.pod(f"{name}-{role.lower()}-{index}", template, labels, thing)
                rank += 1

    def _train_job(self, thing: Object) -> None:
        """Make the Job of a TrainJob (that of its JobSet), and that Job's pods."""
        name = thing["metadata"]["name"]
        runtime = self.api.get("TrainingRuntime", thing["spec"]["runtimeRef"]["name"])
        (replicated,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        count = thing["spec"]["trainer"]["numNodes"]
        meta = {"name": f"{name}-{replicated['name']}-0", "ownerReferences": [_owner(thing)]}
        spec = {**replicated["template"]["spec"], "completions": count, "parallelism": count}
        self._pods(_whole(self.api.create("Job", {"metadata": meta, "spec": spec}), self.api.served("Job")))

    def pod(self, name: str, template: Object, labels: dict[str, str], owner: Object) -> None:
        """Make one pod, as a controller does. It ends at once when it is told to: no kubelet is there that would say so."""
        meta = template.get("metadata") or {}
        pod = {
            "metadata": {
                "name": name,
                "labels": {**(meta.get("labels") or {}), **labels},
                "ownerReferences": [_owner(owner)],
            },
            "spec": {**template["spec"], "terminationGracePeriodSeconds": 0},
            "status": {"phase": "Pending"},
        }
        self.api.create("Pod", pod)
        if self.runs:
            self.run(name)

    def pods(self) -> list[Object]:
        return self.api.list("Pod")

    def thing(self, name: str) -> Object:
        return self.api.get("Pod", name)

    def run(self, name: str, restarts: int = 0) -> None:
        """Have a pod run on a node."""
        number = [other["metadata"]["name"] for other in self.pods()].index(name)
        self._bind(name, f"worker-{number}")
        self._status(name, "Running", {"running": {"startedAt": stamp()}}, restarts)

    def _bind(self, name: str, node: str) -> None:
        """Choose a node for a pod, as the scheduler does."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        try:
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            self.api.ask("POST", "Pod", name, "binding", body)
        except Refused as refused:
            if refused.code != 404:
                raise
            self.api.merge("Pod", name, {"spec": {"nodeName": node}})  # this server knows no bindings

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
        self.api.status("Pod", name, phase="Pending", conditions=[condition])

    def waiting(self, name: str, reason: str, message: str) -> None:
        """Have a pod's container not start."""
        self._bind(name, "worker-9")
        self._status(name, "Pending", {"waiting": {"reason": reason, "message": message}}, 0)

    def _status(self, name: str, phase: str, state: Object, restarts: int) -> None:
        container = self.thing(name)["spec"]["containers"][0]
        told = {
            "name": container["name"],
            "state": state,
            "restartCount": restarts,
            "containerID": "containerd://4f3c",
            "image": container.get("image", ""),
            "imageID": "",
            "ready": phase == "Running",
        }
        self.api.status("Pod", name, phase=phase, containerStatuses=[told])

    def condition(self, kind: str, name: str, condition: str, message: str = "", group: str | None = None) -> None:
        """Have a controller say how a job stands."""
        one = {"type": condition, "status": "True", "message": message, "reason": condition}
        self.api.status(self.api.served(kind, group), name, conditions=[_at(one)])

    def event(self, name: str, about: str, reason: str, message: str, count: int = 1, at: float | None = None) -> None:
        """Tell an event of a pod, or of another object (`Job/NAME`)."""
        kind, _, about = about.rpartition("/")
        event = {
            "metadata": {"name": name},
            "involvedObject": {"kind": kind or "Pod", "name": about, "namespace": self.api.namespace},
            "reason": reason,
            "message": message,
            "type": "Warning",
            "count": count,
            "firstTimestamp": stamp(at),
            "lastTimestamp": stamp(at),
            "source": {"component": "default-scheduler"},
        }
        self.api.create("Event", event)


def _at(condition: dict[str, Any]) -> Object:
    """Return a condition with its time, which some kinds ask for."""
    return {**condition, "lastTransitionTime": stamp()}


def _whole(thing: Object, served: Served) -> Object:
    return {"apiVersion": served.api_version, "kind": served.kind, **thing}


def _owner(thing: Object) -> Object:
    """Return what says that a controller made something for an object."""
    return {
        "apiVersion": thing["apiVersion"],
        "kind": thing["kind"],
        "name": thing["metadata"]["name"],
        "uid": thing["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
