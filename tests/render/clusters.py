"""Jobs for a cluster: the examples below each operator that runs them, and specs that say all there is to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.planner import job as planner
from jobctl.jobspec.planner.context import Context
from jobctl.jobspec.spec.checks.targets import check_target
from jobctl.jobspec.spec.load import Loaded, load_spec, load_text

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/job.yaml"))
OPERATORS = ("none", "paddle-operator", "kubeflow", "trainer")
# An elastic Paddle job needs an etcd that runs in the cluster.
OTHERWISE = {("paddle-resnet-elastic", "paddle-operator"): ("etcd={endpoints: [etcd:2379]}",)}


def refusals(loaded: Loaded) -> str:
    """Return the codes of the errors by which `validate` refuses a spec for a cluster, nothing if it takes it."""
    found = [*loaded.diagnostics, *check_target(loaded, "kubernetes")]
    return " ".join(sorted({one.code for one in found if one.severity == "error"}))


def planned(loaded: Loaded) -> Plan | None:
    """Return the plan of a spec for a cluster, None where `validate` refuses it. Its code is said to be empty."""
    if loaded.spec is None or refusals(loaded):
        return None
    plan = planner.plan(loaded.spec, (), Context("kubernetes", "/home/ada/job", "ada@desk", "0.1.0"))
    return plan if plan.code is None else replace(plan, code=replace(plan.code, version="0" * 16, archive="H4sIAA=="))


def example(name: str, operator: str) -> Loaded:
    """Return an example under an operator."""
    overrides = (f"kubernetes.operator={operator}", *OTHERWISE.get((name, operator), ()))
    return load_spec(ROOT / "examples" / name / "job.yaml", environ={}, overrides=overrides)


def of_text(text: str) -> Plan:
    """Return the plan of a spec that `validate` accepts."""
    loaded = load_text(Path("job.yaml"), text, environ={})
    plan = planned(loaded)
    assert plan is not None, [*loaded.diagnostics, *check_target(loaded, "kubernetes")]
    return plan


EVERYTHING = """\
name: everything
framework: FRAMEWORK
image: registry.example.com/team/train:1.0
pull: always
script: train.py
args: ["--price=$$(HOME)", "$$$$", "no", "0755", "1e3", "line\\nfeed"]
setup: [pip install -e ., "echo $${HOME}"]
code: {source: ., target: /workspace}
nodes: 2
devices: DEVICE
checkpoint: {dir: /checkpoints/everything, per_job: true}
recovery: {max_restarts: 2, max_duration: 2h}
stop_grace_period: 90s
volumes:
  - /data/sets:/data:ro
  - cache:/root/.cache
  - {type: tmpfs, target: /scratch}
env: {LR: "0.1", MODE: "no", TEXT: "a $$(b) $$$$(c) $${d}"}
secrets: [WANDB_API_KEY, HF_TOKEN]
resources: {shm_size: 16g, memory: 64g, cpus: 7.5}
network: {interface: eth0}
container: {user: "1000:1001", python: /opt/conda/bin/python, runtime: nvidia, cap_add: [IPC_LOCK]}
kubernetes:
  operator: OPERATOR
  namespace: research
  queue: long
  priority_class: high
  service_account: trainer
  image_pull_secrets: [registry]
  node_selector: {zone: "1"}
  tolerations:
    - {key: gpu, effect: NoSchedule}
    - {key: team, value: vision}
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
          - matchExpressions: [{key: zone, operator: In, values: [a, b]}]
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
        - {weight: 50, podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {team: other}}}}
  host_network: true
  pod_security_context: {runAsNonRoot: true, supplementalGroups: [2000], seccompProfile: {type: RuntimeDefault}}
  security_context: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seLinuxOptions: {level: "s0:c1"}}
  automount_service_account_token: false
TTL  resource_name: example.com/card
  resources: {rdma/hca_shared_devices_a: "1"}
  checkpoint_claim: checkpoints
  labels: {team: vision, sidecar.istio.io/inject: "false"}
  annotations: {example.com/cost: "42"}
"""


def everything(operator: str, framework: str, device: str = "gpu:2") -> Plan:
    """Return the plan of a job that uses each key that means something in a cluster."""
    ttl = "  ttl_seconds_after_finished: 3600\n" if operator in ("none", "kubeflow") else ""
    text = (
        EVERYTHING.replace("TTL", ttl)
        .replace("OPERATOR", operator)
        .replace("FRAMEWORK", framework)
        .replace("DEVICE", device)
    )
    return of_text(text)


MINDSPORE = """\
name: lenet
framework: mindspore
image: mindspore:1
module: lenet
nodes: 2
devices: npu:8
checkpoint: /checkpoints/lenet
"""
SERVED = """\
name: served
framework: FRAMEWORK
mode: ps
image: train:1
script: /train.py
ps: {servers: 2, trainers: 3}
devices: gpu
checkpoint: /checkpoints/served
kubernetes: {operator: OPERATOR, intranet: INTRANET, clean_pod_policy: Always}
"""
SERVED_ALONE = SERVED.replace("kubernetes: {operator: OPERATOR, intranet: INTRANET, clean_pod_policy: Always}\n", "")
PER_NODE = """\
name: anything
framework: torch
image: train:1
command: [./run.sh, --fast]
per: node
nodes: 2
devices: dcu:4
checkpoint: /checkpoints/anything
"""
COMMAND = """\
name: anything
framework: FRAMEWORK
image: train:1
command: [./run.sh, --fast]
nodes: 1
devices: xpu:4
recovery: {max_restarts: 0}
kubernetes: {operator: OPERATOR}
"""


@cache
def cases() -> Mapping[str, Plan]:
    """Return the plans of which the manifests are recorded."""
    pairs = [(name, operator) for name in EXAMPLES for operator in OPERATORS]
    examples = {f"{name}-{operator}": planned(example(name, operator)) for name, operator in pairs}
    return {
        **{name: plan for name, plan in examples.items() if plan is not None},
        "everything-none": everything("none", "torch"),
        "everything-paddle-operator": everything("paddle-operator", "paddle"),
        "everything-kubeflow-torch": everything("kubeflow", "torch"),
        "everything-kubeflow-paddle": everything("kubeflow", "paddle"),
        "everything-trainer": everything("trainer", "torch"),
        "mindspore-none": of_text(MINDSPORE),
        "served-none-torch": of_text(SERVED_ALONE.replace("FRAMEWORK", "torch")),
        "served-paddle-operator": of_text(
            SERVED.replace("FRAMEWORK", "paddle").replace("OPERATOR", "paddle-operator").replace("INTRANET", "Host")
        ),
        "per-node-none": of_text(PER_NODE),
        "command-kubeflow-torch": of_text(COMMAND.replace("FRAMEWORK", "torch").replace("OPERATOR", "kubeflow")),
        "command-kubeflow-paddle": of_text(COMMAND.replace("FRAMEWORK", "paddle").replace("OPERATOR", "kubeflow")),
    }
