"""The kinds of objects that jobctl reads and writes in a cluster, and where the API has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobctl.jobspec.records import dataclass

Object = dict[str, Any]  # as JSON has it


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind: `plural` is its name in paths. The core group has an empty name."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Group and version as manifests have them."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """Its name with its group, as `kubectl` takes it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def root(self) -> str:
        """The path of its group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"


POD = Kind("", "v1", "Pod", "pods")
SERVICE = Kind("", "v1", "Service", "services")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
SECRET = Kind("", "v1", "Secret", "secrets")
CLAIM = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
EVENT = Kind("", "v1", "Event", "events")
QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas")
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
NODE = Kind("", "v1", "Node", "nodes", namespaced=False)
JOB = Kind("batch", "v1", "Job", "jobs")
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
PADDLE_JOB = Kind("batch.paddlepaddle.org", "v1", "PaddleJob", "paddlejobs")
KUBEFLOW_PADDLE_JOB = Kind("kubeflow.org", "v1", "PaddleJob", "paddlejobs")
PYTORCH_JOB = Kind("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
TRAIN_JOB = Kind("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs")
TRAINING_RUNTIME = Kind("trainer.kubeflow.org", "v1alpha1", "TrainingRuntime", "trainingruntimes")
JOB_SET = Kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
POD_GROUP = Kind("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups")
REVIEW = Kind("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False)

# What a controller makes pods of.
MAIN = (JOB, PADDLE_JOB, KUBEFLOW_PADDLE_JOB, PYTORCH_JOB, TRAIN_JOB)
# What else a job may consist of. Claims are not here: checkpoints are never removed.
BESIDE = (SERVICE, CONFIG_MAP, SECRET, TRAINING_RUNTIME, POD_GROUP)
_ALL = (*MAIN, *BESIDE, JOB_SET, POD, CLAIM, EVENT, QUOTA, NAMESPACE, NODE, DEPLOYMENT, REVIEW)

# Every cluster has these; of all others, whoever may not list them is told the same as where there are none.
BUILT_IN = (JOB, SERVICE, CONFIG_MAP, SECRET, POD)


# Where objects have the switch by which their controller ends all pods, and makes them again. paddle-operator has none.
_SUSPEND: Mapping[Kind, tuple[str, ...]] = {
    JOB: ("suspend",),
    PYTORCH_JOB: ("runPolicy", "suspend"),
    KUBEFLOW_PADDLE_JOB: ("runPolicy", "suspend"),
    TRAIN_JOB: ("suspend",),
}


def suspension(thing: Mapping[str, Any], suspended: bool) -> Object | None:
    """Return what merged into an object suspends it or has it go on, None if its controller cannot."""
    path = _SUSPEND.get(known_kind(thing["apiVersion"], thing["kind"]) or POD)
    if path is None:
        return None
    value: Any = suspended
    for key in reversed(path):
        value = {key: value}
    return {"spec": value}


def is_suspended(thing: Mapping[str, Any]) -> bool:
    """Say whether an object's controller was told to let no pod of it run."""
    value: Any = thing.get("spec") or {}
    for key in _SUSPEND.get(known_kind(thing["apiVersion"], thing["kind"]) or POD, ("",)):
        value = (value or {}).get(key)
    return value is True


def known_kind(api_version: str, kind: str) -> Kind | None:
    """Return what is known of a kind, None for others."""
    return next((known for known in _ALL if (known.api_version, known.kind) == (api_version, kind)), None)


@dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """An object's place in its namespace."""

    api_version: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def key_of(thing: Mapping[str, Any]) -> ObjectKey:
    """Return the key of an object or a manifest."""
    return ObjectKey(thing["apiVersion"], thing["kind"], thing["metadata"]["name"])


def labels_of(thing: Mapping[str, Any]) -> Mapping[str, str]:
    """Return an object's labels."""
    return thing["metadata"].get("labels") or {}


def is_made_by_another(thing: Mapping[str, Any]) -> bool:
    """Say whether a controller made an object and manages it."""
    return any(owner.get("controller") for owner in thing["metadata"].get("ownerReferences") or ())
