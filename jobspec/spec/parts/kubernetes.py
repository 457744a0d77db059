"""The block `kubernetes`, and the parts of a pod that it takes as Kubernetes' API has them."""

# Without `from __future__ import annotations`: pydantic would have to compile each of them again.

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from jobctl.jobspec.spec import canonical as short
from jobctl.jobspec.spec.base import Part
from jobctl.jobspec.spec.cluster_names import (
    Amount,
    Key,
    LabelValue,
    Namespace,
    ObjectName,
    OwnKey,
    QueueName,
    ResourceName,
)
from jobctl.jobspec.spec.parts.pod import Affinity, PodSecurityContext, SecurityContext
from jobctl.jobspec.spec.scalars import Bool, Form, Int, Text, at_least, bad


class Toleration(Part):
    """A taint that pods tolerate, as in Kubernetes."""

    key: Key | None = Field(
        default=None, description="The key of the taint. Default: every key.", examples=["nvidia.com/gpu"]
    )
    operator: Literal["Exists", "Equal"] | None = Field(
        default=None,
        description="How to compare: `Exists` matches every value, `Equal` matches `value`. Default: `Equal` if there is a `value`, `Exists` if not.",
        examples=["Exists"],
    )
    value: LabelValue | None = Field(default=None, description="The value of the taint.", examples=["training"])
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="The effect of the taint. Default: every effect.", examples=["NoSchedule"]
    )

    @model_validator(mode="after")
    def _compares_something(self) -> Self:
        if self.operator == "Exists" and self.value is not None:
            raise bad("bad-value", "`Exists` asks for no value", "leave out `operator`, or `value`")
        if self.key is None and (self.operator == "Equal" or self.value is not None):
            raise bad("bad-value", "a value of which key?", "name the taint's `key`")
        return self


class Kubernetes(Part):
    """Options for target `kubernetes`."""

    operator: Literal["paddle-operator", "kubeflow", "trainer", "none"] = Field(
        default="none",
        description="The operator whose resources are created. `none` creates indexed Jobs, for any cluster.",
        examples=["kubeflow"],
    )
    # Which cluster it is makes no other job of it, so it is not in the spec's hash.
    context: Text | None = Field(
        default=None,
        exclude=True,
        description="The context of the kubeconfig. Default: its current context.",
        examples=["training-cluster"],
    )
    namespace: Namespace | None = Field(
        default=None, description="The namespace. Default: the context's namespace.", examples=["research"]
    )
    clean_pod_policy: Text | None = Field(
        default=None,
        description="What happens to pods that have ended. Each operator has its own values. Default: the operator's.",
        examples=["Running"],
    )
    intranet: (
        Annotated[Text, Form("`PodIP`, `Service` or `Host`", {"type": "string", "enum": ["PodIP", "Service", "Host"]})]
        | None
    ) = Field(
        default=None,
        description="How the pods of paddle-operator reach each other: `PodIP`, `Service` or `Host`. Default: the operator's.",
        examples=["PodIP"],
    )
    queue: QueueName | None = Field(default=None, description="The queue of Volcano or Kueue.", examples=["team-a"])
    priority_class: ObjectName | None = Field(
        default=None, description="The priority class of the pods.", examples=["high"]
    )
    service_account: ObjectName | None = Field(
        default=None, description="The service account of the pods. Default: the namespace's.", examples=["trainer"]
    )
    image_pull_secrets: Annotated[
        tuple[ObjectName, ...],
        BeforeValidator(short.words, json_schema_input_type=ObjectName | list[ObjectName]),
        Form("string, or list of strings"),
    ] = Field(default=(), description="Secrets of the cluster for pulling the image.", examples=[["registry"]])
    node_selector: dict[Key, LabelValue] = Field(
        default_factory=dict, description="Run only on nodes with these labels.", examples=[{"gpu": "a100"}]
    )
    tolerations: tuple[Toleration, ...] = Field(
        default=(),
        description="Taints that the pods tolerate.",
        examples=[[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]],
    )
    affinity: Affinity | None = Field(
        default=None,
        description="Which nodes and pods attract the job's pods or repel them, as in a pod's `affinity`.",
        examples=[
            {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}
                        ]
                    }
                }
            }
        ],
    )
    host_network: Bool = Field(
        default=False, description="Whether pods use the network of their node.", examples=[True]
    )
    pod_security_context: PodSecurityContext | None = Field(
        default=None,
        description="The pod's `securityContext`. `container.user` also sets the user.",
        examples=[{"fsGroup": 1000}],
    )
    security_context: SecurityContext | None = Field(
        default=None,
        description="The `securityContext` of each container.",
        examples=[{"allowPrivilegeEscalation": False}],
    )
    automount_service_account_token: Bool | None = Field(
        default=None,
        description="Whether pods get a token for the API server. Default: `true` if `service_account` is set, `false` if not.",
        examples=[True],
    )
    ttl_seconds_after_finished: Annotated[Int, AfterValidator(at_least(0, "`ttl_seconds_after_finished`"))] | None = (
        Field(
            default=None,
            description="How many seconds after its end the cluster removes the job. Default: never.",
            examples=[86400],
        )
    )
    resource_name: ResourceName | None = Field(
        default=None,
        description="The resource that stands for a device. Default: the usual one for the kind of device.",
        examples=["nvidia.com/mig-1g.10gb"],
    )
    resources: dict[ResourceName, Amount] = Field(
        default_factory=dict,
        description="Further resources of each pod.",
        examples=[{"rdma/hca_shared_devices_a": "1"}],
    )
    checkpoint_claim: ObjectName | None = Field(
        default=None,
        description="The persistent volume claim that holds the checkpoints. Default: the directory of the same path on each node.",
        examples=["checkpoints"],
    )
    labels: dict[OwnKey, LabelValue] = Field(
        default_factory=dict,
        description="Further labels of the job's main object and its pods.",
        examples=[{"team": "vision"}],
    )
    annotations: dict[OwnKey, Text] = Field(
        default_factory=dict,
        description="Further annotations of the job's main object and its pods.",
        examples=[{"example.com/owner": "ml@example.com"}],
    )
