"""Parts of a pod as Kubernetes' API has them, under its own names: what fits into a manifest fits into the spec.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/. Values are the API server's to check; what
is checked here is what it would drop without a word under an operator: keys, kinds of values, and words.
"""

# Without `from __future__ import annotations`: pydantic would have to compile each of them again.

from typing import Literal

from pydantic import Field

from jobctl.jobspec.spec.base import Part
from jobctl.jobspec.spec.scalars import Bool, Int, Text

Some = tuple[Text, ...] | None


class NodeExpression(Part):
    """What a label or field of a node is to be."""

    key: Text = Field(description="The label.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = Field(description="How it is compared.")
    values: Some = Field(default=None, description="With what.")


class NodeTerm(Part):
    """What a node is to be like: all of it."""

    matchExpressions: tuple[NodeExpression, ...] | None = Field(default=None, description="Its labels.")
    matchFields: tuple[NodeExpression, ...] | None = Field(default=None, description="Its fields: `metadata.name`.")


class NodeTerms(Part):
    """Which nodes will do: one of these terms is enough."""

    nodeSelectorTerms: tuple[NodeTerm, ...] = Field(description="The terms.")


class PreferredNodes(Part):
    """Nodes that are preferred."""

    weight: Int = Field(description="How much, 1 to 100.")
    preference: NodeTerm = Field(description="Which.")


class NodeAffinity(Part):
    """Which nodes attract pods."""

    requiredDuringSchedulingIgnoredDuringExecution: NodeTerms | None = Field(default=None, description="Only these.")
    preferredDuringSchedulingIgnoredDuringExecution: tuple[PreferredNodes, ...] | None = Field(
        default=None, description="Rather these."
    )


class LabelExpression(Part):
    """What a label is to be."""

    key: Text = Field(description="The label.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(description="How it is compared.")
    values: Some = Field(default=None, description="With what.")


class LabelSelector(Part):
    """Which objects, by their labels."""

    matchLabels: dict[str, Text] | None = Field(default=None, description="Labels that they have.")
    matchExpressions: tuple[LabelExpression, ...] | None = Field(default=None, description="What labels are to be.")


class PodTerm(Part):
    """Which pods, and what counts as being in the same place as they are."""

    topologyKey: Text = Field(description="The label of nodes that makes a place: `kubernetes.io/hostname`.")
    labelSelector: LabelSelector | None = Field(default=None, description="Which pods.")
    namespaces: Some = Field(default=None, description="In which namespaces; default the job's.")
    namespaceSelector: LabelSelector | None = Field(default=None, description="In which namespaces, by their labels.")
    matchLabelKeys: Some = Field(default=None, description="Labels in which they are like the job's pods.")
    mismatchLabelKeys: Some = Field(default=None, description="Labels in which they are not.")


class PreferredPods(Part):
    """Pods whose place is preferred."""

    weight: Int = Field(description="How much, 1 to 100.")
    podAffinityTerm: PodTerm = Field(description="Which.")


class PodAffinity(Part):
    """Which pods attract those of the job, or keep them off."""

    requiredDuringSchedulingIgnoredDuringExecution: tuple[PodTerm, ...] | None = Field(
        default=None, description="Only there."
    )
    preferredDuringSchedulingIgnoredDuringExecution: tuple[PreferredPods, ...] | None = Field(
        default=None, description="Rather there."
    )


class Affinity(Part):
    """A pod's `affinity`."""

    nodeAffinity: NodeAffinity | None = Field(default=None, description="Which nodes attract the pods.")
    podAffinity: PodAffinity | None = Field(default=None, description="Which pods attract them.")
    podAntiAffinity: PodAffinity | None = Field(default=None, description="Which pods keep them off.")


class Profile(Part):
    """A profile of seccomp or AppArmor."""

    type: Literal["RuntimeDefault", "Localhost", "Unconfined"] = Field(description="Its owner.")
    localhostProfile: Text | None = Field(default=None, description="The node's profile, of type `Localhost`.")


class SeLinux(Part):
    """A context of SELinux."""

    user: Text | None = Field(default=None, description="The user.")
    role: Text | None = Field(default=None, description="The role.")
    type: Text | None = Field(default=None, description="The type.")
    level: Text | None = Field(default=None, description="The level.")


class Sysctl(Part):
    """A parameter of the kernel."""

    name: Text = Field(description="Its name.")
    value: Text = Field(description="Its value.")


class Identity(Part):
    """What a pod and a container can both say of themselves."""

    runAsUser: Int | None = Field(default=None, description="The user's number.")
    runAsGroup: Int | None = Field(default=None, description="The group's number.")
    runAsNonRoot: Bool | None = Field(default=None, description="Whether it does not start as root.")
    seccompProfile: Profile | None = Field(default=None, description="Which system calls there are.")
    appArmorProfile: Profile | None = Field(default=None, description="What AppArmor allows.")
    seLinuxOptions: SeLinux | None = Field(default=None, description="What SELinux allows.")


class PodSecurityContext(Identity):
    """A pod's `securityContext`."""

    fsGroup: Int | None = Field(default=None, description="The group that volumes' files get.")
    fsGroupChangePolicy: Literal["OnRootMismatch", "Always"] | None = Field(
        default=None, description="When they get it."
    )
    supplementalGroups: tuple[Int, ...] | None = Field(default=None, description="Further groups.")
    supplementalGroupsPolicy: Literal["Merge", "Strict"] | None = Field(
        default=None, description="Whether the image's groups count too."
    )
    sysctls: tuple[Sysctl, ...] | None = Field(default=None, description="Parameters of the kernel.")


class Capabilities(Part):
    """Capabilities beside the usual ones."""

    add: Some = Field(default=None, description="Further ones; `container.cap_add` says the same.")
    drop: Some = Field(default=None, description="Those that are taken away: `[ALL]`.")


class SecurityContext(Identity):
    """A container's `securityContext`."""

    allowPrivilegeEscalation: Bool | None = Field(default=None, description="Whether processes can gain privileges.")
    capabilities: Capabilities | None = Field(default=None, description="Capabilities.")
    privileged: Bool | None = Field(default=None, description="Whether it is as root on the node.")
    procMount: Literal["Default", "Unmasked"] | None = Field(default=None, description="What /proc shows.")
    readOnlyRootFilesystem: Bool | None = Field(default=None, description="Whether the image cannot be written to.")
