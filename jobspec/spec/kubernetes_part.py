"""The block `kubernetes`, and the parts of a pod that it takes as Kubernetes' API has them."""

# Without `from __future__ import annotations`: pydantic would have to compile each of them again.

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from jobctl.jobspec.spec import short
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
from jobctl.jobspec.spec.part import Part
from jobctl.jobspec.spec.pod_parts import Affinity, PodSecurityContext, SecurityContext
from jobctl.jobspec.spec.scalars import AnyText, Bool, Int, Text, at_least, bad


class Toleration(Part):
    """A taint that pods put up with, as in Kubernetes."""

    key: Key | None = Field(default=None, description="The taint's key; every key where it is left out.")
    operator: Literal["Exists", "Equal"] | None = Field(
        default=None, description="`Exists`, or `Equal` to `value`; default `Equal` with a value, else `Exists`."
    )
    value: LabelValue | None = Field(default=None, description="The taint's value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="The taint's effect; every effect where it is left out."
    )

    @model_validator(mode="after")
    def _compares_something(self) -> Self:
        if self.operator == "Exists" and self.value is not None:
            raise bad("bad-value", "`Exists` asks for no value", "leave out `operator`, or `value`")
        if self.key is None and (self.operator == "Equal" or self.value is not None):
            raise bad("bad-value", "a value of which key?", "name the taint's `key`")
        return self


class Kubernetes(Part):
    """Target `kubernetes` only."""

    operator: Literal["paddle-operator", "kubeflow", "trainer", "none"] = Field(
        default="none", description="Which operator's resources are written."
    )
    # Which cluster it is makes no other job of it, so it is not in the spec's hash.
    context: Text | None = Field(
        default=None, exclude=True, description="The cluster: a context of the kubeconfig; default its current one."
    )
    namespace: Namespace | None = Field(default=None, description="The namespace.")
    clean_pod_policy: Text | None = Field(default=None, description="What happens to pods that have ended.")
    intranet: Text | None = Field(default=None, description="How paddle-operator's pods reach each other.")
    queue: QueueName | None = Field(default=None, description="The queue of Volcano or Kueue.")
    priority_class: ObjectName | None = Field(default=None, description="The priority class.")
    service_account: ObjectName | None = Field(default=None, description="The service account.")
    image_pull_secrets: Annotated[
        tuple[ObjectName, ...], BeforeValidator(short.words, json_schema_input_type=str | list[str])
    ] = Field(default=(), description="Secrets for pulling the image.")
    node_selector: dict[Key, LabelValue] = Field(default_factory=dict, description="Labels of nodes to run on.")
    tolerations: tuple[Toleration, ...] = Field(default=(), description="Taints that the pods put up with.")
    affinity: Affinity | None = Field(
        default=None,
        description="Which nodes and other pods attract the pods or keep them off, as in a pod's `affinity`.",
    )
    host_network: Bool = Field(default=False, description="Whether pods have the network of their node.")
    pod_security_context: PodSecurityContext | None = Field(
        default=None, description="A pod's `securityContext`; who the processes are, `container.user` says too."
    )
    security_context: SecurityContext | None = Field(
        default=None, description="The `securityContext` of each container."
    )
    automount_service_account_token: Bool | None = Field(
        default=None,
        description="Whether pods get a token for the API server; default no, unless `service_account` is named.",
    )
    ttl_seconds_after_finished: Annotated[Int, AfterValidator(at_least(0, "`ttl_seconds_after_finished`"))] | None = (
        Field(
            default=None, description="After how many seconds the cluster removes a job that has ended; default never."
        )
    )
    resource_name: ResourceName | None = Field(
        default=None, description="The name of the device's resource, if not the usual one."
    )
    resources: dict[ResourceName, Amount] = Field(
        default_factory=dict, description="Further resources of each pod: `rdma/hca_shared_devices_a: 1`."
    )
    checkpoint_claim: ObjectName | None = Field(
        default=None,
        description="The persistent volume claim that holds the checkpoints; default the same path on each node.",
    )
    labels: dict[OwnKey, LabelValue] = Field(
        default_factory=dict, description="Further labels of the job's main object and its pods."
    )
    annotations: dict[OwnKey, AnyText] = Field(
        default_factory=dict, description="Further annotations of the job's main object and its pods."
    )
