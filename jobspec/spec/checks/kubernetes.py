"""The rules of target `kubernetes`: what nobody does in a cluster, and what a pod cannot say. Rows, as in `rules`."""

from __future__ import annotations

import re

from jobctl.jobspec.spec.checkpoint_volume import is_in_a_volume
from jobctl.jobspec.spec.checks.rules import ERROR, WARNING, CheckRule, has_recovery_key, is_elastic, operator_of
from jobctl.jobspec.spec.model import Spec


def _managed(spec: Spec) -> bool:
    return operator_of(spec) != "none"


def _regroups(spec: Spec) -> bool:
    """Say whether Paddle's launchers keep in etcd, under an operator, who takes part: as `planner.kubernetes.uses_etcd`."""
    if spec.etcd is None or spec.framework != "paddle" or spec.mode != "collective":
        return False
    fixed = operator_of(spec) == "paddle-operator" and bool(spec.etcd.endpoints)
    return fixed or (_managed(spec) and is_elastic(spec))


def _is_left_out(spec: Spec) -> bool:
    """Say whether a managed etcd would give a fixed number of nodes fault tolerance if it ran in the cluster."""
    paddle = operator_of(spec) == "paddle-operator" and spec.framework == "paddle" and spec.mode == "collective"
    return paddle and spec.etcd is not None and spec.etcd.managed is not None and not is_elastic(spec)


def _is_said(spec: Spec, key: str) -> bool:
    """Say whether the user has written a key of `kubernetes`."""
    return spec.kubernetes is not None and getattr(spec.kubernetes, key) not in (None, False)


def _names_a_user_twice(spec: Spec) -> bool:
    given = spec.kubernetes
    said = (given.pod_security_context, given.security_context) if given else ()
    return spec.container.user is not None and any(
        one is not None and (one.runAsUser is not None or one.runAsGroup is not None) for one in said
    )


def _asks_for_nothing(spec: Spec) -> bool:
    """Say whether pods without devices say not even how much memory or time they need."""
    own = spec.kubernetes.resources if spec.kubernetes else {}
    return spec.devices.kind == "cpu" and spec.resources.cpus is None and spec.resources.memory is None and not own


def _needs_a_path(spec: Spec) -> bool:
    """Say whether the checkpoints are in a folder of each node, which nobody makes."""
    if spec.checkpoint is None or (spec.kubernetes and spec.kubernetes.checkpoint_claim):
        return False
    return not is_in_a_volume(spec)


# The operator and the framework for which a range of nodes works.
_ELASTIC = {("kubeflow", "torch"), ("paddle-operator", "paddle")}

# fmt: off
RULES: tuple[CheckRule, ...] = (
    CheckRule("operator-range", ERROR, ("nodes",),
         lambda s: is_elastic(s) and (operator_of(s), s.framework) not in _ELASTIC,
         "nobody in the cluster decides which nodes of a range take part",
         "give one number; or use `operator: kubeflow` with torch, `paddle-operator` with paddle"),
    CheckRule("operator-per-node", ERROR, ("per",), lambda s: s.per == "node" and _managed(s),
         "an operator tells each pod its place in its own way, which `per: node` does not know",
         "use `kubernetes: {operator: none}`"),
    CheckRule("operator-launcher", ERROR, ("paddle", "launcher"),
         lambda s: s.paddle and s.mode == "collective" and s.paddle.launcher == "legacy" and _managed(s),
         "an operator tells pods their place as Paddle's own launcher wants it, not a trainer without one",
         "use `kubernetes: {operator: none}`, or leave it out", at_key=True),
    CheckRule("operator-recovery", WARNING, ("recovery", "hang_timeout"),
         lambda s: _managed(s) and s.recovery.hang_timeout is not None,
         "under an operator nobody looks for hangs", "`kubernetes: {operator: none}` does", at_key=True),
    CheckRule("operator-recovery", WARNING, ("recovery", "rules"), lambda s: _managed(s) and s.recovery.rules,
         "under an operator nobody applies these rules", "`kubernetes: {operator: none}` does", at_key=True),
    CheckRule("operator-recovery", WARNING, ("recovery", "standby"),
         lambda s: _managed(s) and has_recovery_key(s, "standby") and s.recovery.standby is not None,
         "under an operator no processes wait with the framework imported", "`kubernetes: {operator: none}` has them", at_key=True),
    CheckRule("operator-recovery", WARNING, ("recovery", "rules"),
         lambda s: not _managed(s) and any(rule.event for rule in s.recovery.rules),
         "in a cluster nobody moves a node that is only slow", "drain the cluster's node", at_key=True),
    CheckRule("operator-recovery", WARNING, ("recovery", "max_restarts"),
         lambda s: operator_of(s) == "paddle-operator" and not _regroups(s)
         and has_recovery_key(s, "max_restarts") and s.recovery.max_restarts,
         "below paddle-operator a pod that fails ends the job, unless Paddle's launchers meet through an etcd",
         "name one, `etcd: {endpoints: [etcd:2379]}`; or `kubernetes: {operator: none}` restarts it", at_key=True),
    CheckRule("operator-recovery", WARNING, ("recovery", "host_timeout"),
         lambda s: _managed(s) and has_recovery_key(s, "host_timeout"),
         "under an operator the cluster decides when a node is lost", at_key=True),
    CheckRule("operator-recovery", WARNING, ("recovery", "window"), lambda s: s.recovery.window is not None,
         "in a cluster all restarts of a run count", at_key=True),
    CheckRule("operator-recovery", WARNING, ("recovery", "wait_timeout"), lambda s: s.recovery.wait_timeout is not None,
         "in a cluster pods wait as long as it takes", "`recovery.max_duration` ends the job", at_key=True),
    CheckRule("operator-recovery", WARNING, ("recovery", "on_host_loss"), lambda s: s.recovery.on_host_loss not in (None, "replace"),
         "in a cluster a lost pod is made again elsewhere, or as its operator does", at_key=True),
    CheckRule("outputs-not-kept", WARNING, ("outputs",), lambda s: s.outputs and s.code is not None,
         "what is written in a pod is gone with it: nothing keeps or fetches these", "write to a volume"),
    CheckRule("operator-port", WARNING, ("rendezvous", "port"), lambda s: _managed(s) and s.rendezvous.port is not None,
         "the operator chooses the port by which nodes meet", at_key=True),
    CheckRule("kubernetes-devices", ERROR, ("devices",),
         lambda s: s.devices.kind != "cpu" and s.devices.count is None and s.devices.ids is None and s.mode != "ps",
         "a pod has to ask for a number of devices", "write `gpu:8`"),
    CheckRule("kubernetes-ids", WARNING, ("devices", "ids"), lambda s: s.devices.ids is not None,
         "the cluster chooses which devices of a node a pod gets: of these only the number counts"),
    CheckRule("kubernetes-etcd", ERROR, ("etcd",), lambda s: s.etcd and s.etcd.managed and _managed(s) and is_elastic(s),
         "no etcd is started in the cluster", "name one that runs there: `etcd: {endpoints: [etcd:2379]}`"),
    CheckRule("kubernetes-etcd", WARNING, ("etcd",), _is_left_out,
         "no etcd is started in the cluster, and this job goes without one: a pod that fails ends it",
         "with one that runs there Paddle's launchers go on: `etcd: {endpoints: [etcd:2379]}`", at_key=True),
    CheckRule("kubernetes-etcd", WARNING, ("etcd",), lambda s: s.etcd and not _regroups(s) and not _is_left_out(s),
         "this etcd is not used in a cluster: launchers there agree among themselves, or an operator takes care of them", at_key=True),
    CheckRule("kubernetes-user", ERROR, ("container", "user"),
         lambda s: not re.fullmatch(r"root|[0-9]+(:[0-9]+)?", s.container.user or "root"),
         "who this is, no node of the cluster knows", "write `UID:GID` in numbers"),
    CheckRule("not-in-kubernetes", ERROR, ("container", "options"), lambda s: s.container.options,
         "Kubernetes does not know options of Docker", "leave them out", at_key=True),
    CheckRule("not-in-kubernetes", ERROR, ("container", "devices"), lambda s: s.container.devices,
         "a pod gets no device files of its node", "ask for the device's resource: `kubernetes: {resources: {rdma/hca: 1}}`",
         at_key=True),
    CheckRule("kubernetes-ulimits", WARNING, ("resources", "ulimits"), lambda s: s.resources.ulimits,
         "a pod has the limits that its node's engine gives to all", at_key=True),
    CheckRule("operator-unused", ERROR, ("kubernetes", "ttl_seconds_after_finished"),
         lambda s: operator_of(s) in ("paddle-operator", "trainer") and _is_said(s, "ttl_seconds_after_finished"),
         "a PaddleJob of paddle-operator and a TrainJob stay until somebody removes them",
         "leave it out: `jobctl down` removes the job; operators `none` and `kubeflow` know such a time", at_key=True),
    CheckRule("operator-policy", ERROR, ("kubernetes", "intranet"),
         lambda s: s.kubernetes and s.kubernetes.host_network and s.kubernetes.intranet not in (None, "Host"),
         "this `intranet` uses other addresses than the nodes', which does not work with `host_network`",
         "with `host_network` leave it out: it is `Host` then"),
    CheckRule("two-users", ERROR, ("container", "user"), _names_a_user_twice,
         "a security context of `kubernetes` names the user too", "say it in one of the two places"),
    CheckRule("no-requests", WARNING, ("devices",), _asks_for_nothing,
         "pods ask for neither cores nor memory: the cluster crowds them onto any node, and ends them first when it is short",
         "say what one needs: `resources: {cpus: 4, memory: 16g}`"),
    CheckRule("node-path", WARNING, ("checkpoint",), _needs_a_path,
         "the checkpoints are in this folder of each node (`hostPath`): where it is not there, pods do not start",
         "mount shared storage there on all nodes, or name a claim: `kubernetes: {checkpoint_claim: NAME}`"),
    CheckRule("kubernetes-checkpoint", WARNING, ("checkpoint", "shared"),
         lambda s: _needs_a_path(s) and s.checkpoint and not s.checkpoint.shared,
         "the cluster may start a pod again on another node, which lacks what it has saved: it begins from zero there",
         "name a claim, which goes with it: `kubernetes: {checkpoint_claim: NAME}`, or share the checkpoint"),
)
# fmt: on
