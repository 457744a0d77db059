"""Preflight of a cluster: does it answer, does it serve the job's kinds, may we, and is there room?

Each check is a row of a table and yields findings like those about hosts (docs/check.md has a section for each code).
Anything outside of the namespace that jobctl may not look at is `skipped` and not held against the cluster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from jobctl.jobspec.deploy.check.survey import of_error
from jobctl.jobspec.deploy.kubernetes.api import Api
from jobctl.jobspec.deploy.kubernetes.asked import Pods, counted_by, pods_of, pods_there, totals
from jobctl.jobspec.deploy.kubernetes.kinds import (
    CLAIM,
    DEPLOYMENT,
    EVENT,
    JOB,
    KUBEFLOW_PADDLE_JOB,
    NAMESPACE,
    NODE,
    PADDLE_JOB,
    POD,
    PYTORCH_JOB,
    QUOTA,
    REVIEW,
    SECRET,
    TRAIN_JOB,
    Kind,
    Object,
    labels_of,
)
from jobctl.jobspec.deploy.kubernetes.manifests import is_main
from jobctl.jobspec.deploy.kubernetes.mirror import find_all_of
from jobctl.jobspec.deploy.kubernetes.problems import ApiError, Call
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.render.marks import QUEUE_LABEL

# Whose objects they are, where its deployment usually runs, and how that is told which namespace to watch.
_OPERATORS: dict[Kind, tuple[str, str, str, str]] = {
    PADDLE_JOB: ("paddle-operator", "paddle-system", "paddle-controller-manager", "--namespace"),
    KUBEFLOW_PADDLE_JOB: ("the training operator", "kubeflow", "training-operator", "--namespace"),
    PYTORCH_JOB: ("the training operator", "kubeflow", "training-operator", "--namespace"),
    TRAIN_JOB: ("the trainer", "kubeflow-system", "kubeflow-trainer-controller-manager", "--namespace"),
}
_INSTALL = {
    PADDLE_JOB: "kubectl apply -f the v1 CRD and operator of github.com/PaddleFlow/paddle-operator",
    KUBEFLOW_PADDLE_JOB: "kubectl apply -k github.com/kubeflow/training-operator, overlay standalone, v1.9",
    PYTORCH_JOB: "kubectl apply -k github.com/kubeflow/training-operator, overlay standalone, v1.9",
    TRAIN_JOB: "install Kubeflow Trainer v2",
}
_VERSION = re.compile(r"v?(\d+)\.(\d+)")
# The oldest version that will do, and why: with an operator, and (True) for Jobs of ours.
_NEEDED = {
    False: (
        (1, 16),
        "the first with server-side apply and v1 CRDs",
        "docs/check.md says how paddle-operator's v1beta1 manifests and `jobctl render` do there",
    ),
    True: (
        (1, 29),
        "the first that creates a pod again only after the previous one is gone",
        "name an operator that runs there: `kubernetes.operator`",
    ),
}
CHANGED = ("get", "list", "create", "patch", "delete")  # verbs for what `up` applies and `down` removes

Found = Iterator[Finding]


class ClusterPreflight:
    """The checks of one namespace for one job (no plan: for none in particular)."""

    def __init__(self, api: Api, name: str, plan: Plan | None, want: Sequence[Object] | None) -> None:
        self.api, self.name, self.plan, self.want = api, name, plan, list(want or ())

    def run(self) -> list[Finding]:
        """Look at everything; without an answer to the first question there is nothing else to ask."""
        first = list(self._answers())
        if any(finding.verdict == "error" for finding in first):
            return first
        return [*first, *(finding for check, look in self._table() for finding in self._careful(check, look))]

    def _table(self) -> list[tuple[str, Callable[[], Found]]]:
        return [
            ("namespace", self._namespace),
            ("crd", self._served),
            ("rights", self._rights),
            ("operator", self._operators),
            ("references", self._references),
            ("quota", self._quota),
            ("capacity", self._capacity),
        ]

    def _careful(self, check: str, look: Callable[[], Found]) -> Found:
        """Yield the findings of a check; what may not be looked at is skipped, any other error is a finding."""
        try:
            yield from look()
        except ApiError as error:
            if error.status == 403:
                yield Finding(self.name, check, "skipped", f"cannot be looked at: {error.cause}")
            else:
                yield of_error(self.name, check, error)
        except DeployError as error:
            yield of_error(self.name, check, error)

    def _ok(self, check: str, message: str) -> Finding:
        return Finding(self.name, check, "ok", message)

    # Is it there?

    def _answers(self) -> Found:
        try:
            version = str(self.api.raw("/version").get("gitVersion", "of an unknown version"))
        except DeployError as error:
            yield of_error(self.name, "api", error)
            return
        numbers = _VERSION.match(version)
        (major, minor), why, hint = _NEEDED[JOB in self._kinds()]
        if numbers and (int(numbers[1]), int(numbers[2])) < (major, minor):
            message = f"Kubernetes {version} is older than {major}.{minor}, {why}"
            yield Finding(self.name, "api", "error", message, "cluster-too-old", hint)
        else:
            yield self._ok("api", f"Kubernetes {version} answers")

    def _namespace(self) -> Found:
        found = self.api.find(NAMESPACE, self.api.namespace)
        if found is None:
            message = f"there is no namespace `{self.api.namespace}`"
            hint = f"`kubectl create namespace {self.api.namespace}`, or name another: `--namespace`, `kubernetes.namespace`"
            yield Finding(self.name, "namespace", "error", message, "namespace-missing", hint)
        elif (found.get("status") or {}).get("phase") == "Terminating":
            message = f"the namespace `{self.api.namespace}` is being removed"
            yield Finding(self.name, "namespace", "error", message, "namespace-terminating", "name another")
        else:
            yield self._ok("namespace", f"there is a namespace {self.api.namespace}")

    def _kinds(self) -> list[Kind]:
        """Return the kinds that the job's pods are made of."""
        return list(dict.fromkeys(self.api.kind_of(thing) for thing in self.want if is_main(thing)))

    def _served(self) -> Found:
        for kind in self._kinds():
            if kind is JOB:
                continue
            if any(resource["kind"] == kind.kind for resource in self.api.served(kind)):
                yield self._ok("crd", f"{kind.api_version} {kind.kind} is served")
                continue
            others = self._other_versions(kind)
            if others:
                yield Finding(
                    self.name,
                    "crd",
                    "error",
                    f"the cluster serves {kind.kind} as {', '.join(others)}, and not as {kind.version}",
                    "crd-version",
                    f"its operator is older than what jobctl writes for: {_INSTALL[kind]}; or `kubernetes.operator: none`",
                )
            else:
                message = f"the cluster has no {kind.api_version} {kind.kind}: its operator is not installed"
                hint = f"{_INSTALL[kind]}; or `kubernetes.operator: none`, which needs none"
                yield Finding(self.name, "crd", "error", message, "crd-missing", hint)

    def _other_versions(self, kind: Kind) -> list[str]:
        """Return the versions of a kind's group in which the cluster serves it."""
        try:
            versions = [version["version"] for version in self.api.raw(f"/apis/{kind.group}").get("versions") or ()]
        except ApiError as error:
            if error.status == 404:
                return []
            raise
        found = [Kind(kind.group, version, kind.kind, kind.plural) for version in versions if version != kind.version]
        return [one.version for one in found if any(r["kind"] == kind.kind for r in self.api.served(one))]

    # May we?

    def _rights(self) -> Found:
        try:
            missing = [call for call in self._needed() if not self._may(call)]
        except ApiError as error:
            if error.status not in (403, 404, 405):
                raise
            # Whoever may do something need not be allowed to ask whether: the job's own requests will tell.
            message = f"the API server does not answer permission queries: {error.cause}"
            yield Finding(self.name, "rights", "skipped", message)
            return
        if not missing:
            yield self._ok("rights", f"all that jobctl does in namespace {self.api.namespace} is allowed")
            return
        told: dict[str, list[str]] = {}
        for call in missing:
            told.setdefault(call.resource, []).append(call.verb)
        words = "; ".join(f"{', '.join(verbs)} {resource}" for resource, verbs in told.items())
        hint = "docs/kubernetes-client.md has a Role with all that is needed"
        message = f"these rights are missing in namespace {self.api.namespace}: {words}"
        yield Finding(self.name, "rights", "error", message, "right-missing", hint)

    def _needed(self) -> list[Call]:
        """Return what jobctl asks of the API from `up` to `down`."""
        inside = self.api.namespace
        kinds = list(dict.fromkeys(self.api.kind_of(thing) for thing in self.want)) or [JOB]
        changed = [Call(verb, kind, inside) for kind in kinds for verb in CHANGED]
        looked = [Call("watch", kind, inside) for kind in kinds if kind in self._kinds() or not self.want]
        pods = [Call(verb, POD, inside) for verb in ("get", "list", "watch", "delete")]
        # A command in a pod begins with a GET that becomes a websocket; newer clusters want `create` for it too.
        commands = [Call(verb, POD, inside, subresource="exec") for verb in ("get", "create")]
        within = [Call("get", POD, inside, subresource="log"), *commands]
        events = [Call(verb, EVENT, inside) for verb in ("list", "watch")]
        return [*changed, *looked, *pods, *within, *events]

    def _may(self, call: Call) -> bool:
        attributes = {
            "namespace": call.namespace,
            "verb": call.verb,
            "group": call.kind.group,
            "version": call.kind.version,
            "resource": call.kind.plural,
            **({"subresource": call.subresource} if call.subresource else {}),
        }
        review = {"apiVersion": REVIEW.api_version, "kind": REVIEW.kind, "spec": {"resourceAttributes": attributes}}
        return bool((self.api.create(REVIEW, review).get("status") or {}).get("allowed"))

    # Does anybody see to it?

    def _operators(self) -> Found:
        for kind in self._kinds():
            if kind not in _OPERATORS:
                continue
            who, home, name, flag = _OPERATORS[kind]
            there = Api(self.api.client, self.api.context, home)
            found = [one for one in there.find_all(DEPLOYMENT)[0] if name in one["metadata"]["name"]]
            if not found:
                yield Finding(
                    self.name, "operator", "skipped", f"{who} does not run in namespace {home}, but may elsewhere"
                )
                continue
            yield self._watches(found[0], who, home, flag)

    def _watches(self, deployment: Object, who: str, home: str, flag: str) -> Finding:
        watched = _flag(deployment, flag)
        if watched and watched != self.api.namespace:
            return Finding(
                self.name,
                "operator",
                "error",
                f"{who} watches namespace {watched} only: nobody would make pods in {self.api.namespace}",
                "operator-elsewhere",
                f"`--namespace {watched}`, or take `{flag}` from its deployment in {home}",
            )
        if not (deployment.get("status") or {}).get("readyReplicas"):
            message = f"{who} does not run: its deployment in {home} has no pod that is ready"
            hint = f"`kubectl -n {home} describe deployment {deployment['metadata']['name']}`"
            return Finding(self.name, "operator", "error", message, "operator-not-ready", hint)
        return self._ok("operator", f"{who} runs and watches {watched or 'all namespaces'}")

    # Is there what pods need?

    def _references(self) -> Found:
        """Look whether what pods name is there: claims, and secrets that are not made by `up`."""
        made = {thing["metadata"]["name"] for thing in self.want if thing["kind"] == SECRET.kind}
        missing = [
            f"{kind.kind} {name}"
            for kind, name in dict.fromkeys(_references(pods_of(self.want)))
            if not (kind is SECRET and name in made) and self.api.find(kind, name) is None
        ]
        if missing:
            message = f"pods need what is not there: {', '.join(missing)}"
            yield Finding(self.name, "references", "error", message, "object-missing", "create it in that namespace")
        elif self.want:
            yield self._ok("references", "all that pods name is there")

    def _quota(self) -> Found:
        wanted = pods_of(self.want)
        quotas, _ = self.api.find_all(QUOTA)
        # What a job that is up has already, it does not need once more: its pods go before others are made.
        there = pods_there(self._pods_there()) if quotas else []
        short = [
            words
            for quota in quotas
            if (counted := counted_by(quota, wanted))
            for words in _exceeded(quota, totals(counted), totals(counted_by(quota, there)))
        ]
        if short:
            hint = "ask for a larger quota, or end other jobs; the pods that do not fit are not made"
            yield Finding(self.name, "quota", "error", "; ".join(short), "quota-exceeded", hint)
        elif self.want:
            yield self._ok("quota", f"{len(quotas)} quotas leave room" if quotas else "there is no quota")

    def _pods_there(self) -> list[Object]:
        return find_all_of(self.api, POD, self.plan.job) if self.plan else []

    def _capacity(self) -> Found:
        if not self.want:
            return
        nodes, _ = self.api.find_all(NODE)
        usable = [node for node in nodes if not (node.get("spec") or {}).get("unschedulable")]
        # Kueue adds to the tolerations of what waits in its queues, as its flavors say.
        queued = any(QUEUE_LABEL in labels_of(thing) for thing in self.want)
        for pods in pods_of(self.want):
            chosen = [node for node in usable if _has_labels(node, pods) and (queued or _lets_in(node, pods))]
            room = sum(_room(node, pods) for node in chosen)
            each = ", ".join(f"{name}: {amount.normalize():f}" for name, amount in pods.requests.items()) or "nothing"
            if room < pods.count:
                message = f"the cluster's nodes have room for {room} of {pods.count} pods that ask for {each}"
                hint = (
                    "they wait until nodes are added; `kubectl describe nodes` shows what nodes have (Allocatable), "
                    "and whom they keep off (Taints): `kubernetes.tolerations`"
                )
                yield Finding(self.name, "capacity", "warning", message, "capacity-short", hint)
            else:
                yield self._ok("capacity", f"empty nodes have room for {pods.count} pods that ask for {each}")


def _flag(deployment: Object, flag: str) -> str | None:
    """Return what a deployment's container is given as `flag`, None if it is not."""
    for container in deployment["spec"]["template"]["spec"].get("containers") or ():
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        for word, following in zip(words, [*words[1:], ""], strict=True):
            if word == flag:
                return str(following) or None
            if word.startswith(f"{flag}="):
                return str(word.partition("=")[2]) or None
    return None


def _references(pods: Sequence[Pods]) -> Iterator[tuple[Kind, str]]:
    for one in pods:
        for volume in one.spec.get("volumes") or ():
            if "persistentVolumeClaim" in volume:
                yield CLAIM, volume["persistentVolumeClaim"]["claimName"]
            if "secret" in volume and not volume["secret"].get("optional"):
                yield SECRET, volume["secret"]["secretName"]
        for secret in one.spec.get("imagePullSecrets") or ():
            yield SECRET, secret["name"]


def _exceeded(quota: Object, asked: dict[str, Decimal], has: dict[str, Decimal]) -> Iterator[str]:
    from kubernetes.utils.quantity import parse_quantity

    status = quota.get("status") or {}
    hard, used = status.get("hard") or {}, status.get("used") or {}
    for name, limit in hard.items():
        need = asked.get(name)
        left = parse_quantity(limit) - parse_quantity(used.get(name, 0)) + has.get(name, Decimal(0))
        if need is not None and need > left:
            words = f"{name}: the job asks for {need.normalize():f}, and {max(left, Decimal(0)).normalize():f} of {limit} are left"
            yield f"quota {quota['metadata']['name']}: {words}"


def _has_labels(node: Object, pods: Pods) -> bool:
    """Say whether a node has the labels that pods want."""
    labels = labels_of(node)
    return all(labels.get(key) == value for key, value in pods.selector.items())


def _lets_in(node: Object, pods: Pods) -> bool:
    """Say whether a node does not keep pods off."""
    return all(_is_let_in(pods, taint) for taint in (node.get("spec") or {}).get("taints") or ())


def _is_let_in(pods: Pods, taint: Mapping[str, str]) -> bool:
    """Say whether a taint lets pods in. Some clusters let those tolerate a taint with a device's name that ask for the device.

    https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
    """
    if taint.get("effect") == "PreferNoSchedule" or taint["key"] in pods.requests:
        return True
    return any(
        toleration.get("key") in (None, taint["key"])
        and toleration.get("effect") in (None, taint.get("effect"))
        and (toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""))
        for toleration in pods.spec.get("tolerations") or ()
    )


def _room(node: Object, pods: Pods) -> int:
    """Return how many of these pods an empty node could hold."""
    from kubernetes.utils.quantity import parse_quantity

    has: dict[str, Any] = (node.get("status") or {}).get("allocatable") or {}
    counts = [int(parse_quantity(has.get(name, 0)) // amount) for name, amount in pods.requests.items() if amount]
    counts.append(int(parse_quantity(has.get("pods", 110))))
    return min(counts)
