"""Every way in which a cluster is not fit for a job, against a server that is so."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.kubernetes.asked import Pods
from jobctl.jobspec.deploy.kubernetes.preflight import ClusterPreflight, _lets_in
from tests.kube.conftest import SPEC
from tests.kube.server import ApiServer
from tests.kube.store import CORE, OLD_PADDLE, PADDLE
from tests.kube.world import World

CHECK = ("check", "--target", "kubernetes", "-o", "json")
PADDLE_SPEC = """\
name: resnet
framework: paddle
image: paddle:3
module: train
nodes: 2
checkpoint: /ck
kubernetes: {operator: paddle-operator}
"""


def findings(ran: Any, verdict: str) -> list[tuple[str, str | None, str]]:
    return [(f["check"], f["code"], f["message"]) for f in ran.json["findings"] if f["verdict"] == verdict]


def test_all_is_well(jobctl: Any, api: ApiServer) -> None:
    ran = jobctl(*CHECK)
    assert (ran.code, ran.json["ok"]) == (0, True)
    assert [(f["host"], f["check"], f["verdict"]) for f in ran.json["findings"]] == [
        ("test/ml", "api", "ok"),
        ("test/ml", "namespace", "ok"),
        ("test/ml", "rights", "ok"),
        ("test/ml", "references", "ok"),
        ("test/ml", "quota", "ok"),
        ("test/ml", "capacity", "ok"),
    ]


def test_a_cluster_is_checked_without_a_job(jobctl: Any, api: ApiServer, here: Path) -> None:
    (here / "job.yaml").unlink()
    ran = jobctl("check", "--context", "test", "-o", "json")
    assert (ran.code, findings(ran, "error")) == (0, [])


@pytest.mark.parametrize(
    ("served", "code", "message"),
    [
        (
            CORE,
            "crd-missing",
            "the cluster has no batch.paddlepaddle.org/v1 PaddleJob: its operator is not installed",
        ),
        ((*CORE, OLD_PADDLE), "crd-version", "the cluster serves PaddleJob as v1beta1, and not as v1"),
    ],
)
def test_kinds_that_are_not_served(jobctl: Any, api: ApiServer, served: Any, code: str, message: str) -> None:
    api.store.served = list(served)
    Path("job.yaml").write_text(PADDLE_SPEC)
    ran = jobctl(*CHECK)
    assert (ran.code, findings(ran, "error")) == (3, [("crd", code, message)])


@pytest.mark.parametrize(
    ("version", "spec", "wrong"),
    [
        ("v1.29.0", SPEC, []),
        (
            "v1.28.9-gke.1",
            SPEC,
            ["is older than 1.29, the first that creates a pod again only after the previous one is gone"],
        ),
        ("v1.28.9-gke.1", PADDLE_SPEC, []),
        ("v1.15.12", PADDLE_SPEC, ["is older than 1.16, the first with server-side apply and v1 CRDs"]),
    ],
)
def test_clusters_that_are_too_old(jobctl: Any, api: ApiServer, version: str, spec: str, wrong: list[str]) -> None:
    api.backend.version = version
    Path("job.yaml").write_text(spec)
    told = [("api", "cluster-too-old", f"Kubernetes {version} {why}") for why in wrong]
    assert findings(jobctl(*CHECK), "error") == told


def _operator(api: ApiServer, args: list[str], ready: int = 1) -> None:
    name = "paddle-controller-manager"
    container = {"name": "manager", "command": ["/manager"], "args": args}
    deployment = {
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"containers": [container]}}},
        "status": {"readyReplicas": ready},
    }
    api.store.put(api.served("Deployment"), "paddle-system", deployment)


@pytest.mark.parametrize(
    ("args", "ready", "wrong"),
    [
        (["--leader-elect"], 1, []),
        (["--namespace=ml"], 1, []),
        (
            ["--leader-elect", "--namespace", "paddle-system"],
            1,
            [
                (
                    "operator",
                    "operator-elsewhere",
                    "paddle-operator watches namespace paddle-system only: nobody would make pods in ml",
                )
            ],
        ),
        (
            [],
            0,
            [
                (
                    "operator",
                    "operator-not-ready",
                    "paddle-operator does not run: its deployment in paddle-system has no pod that is ready",
                )
            ],
        ),
    ],
)
def test_operators(jobctl: Any, api: ApiServer, args: list[str], ready: int, wrong: list[Any]) -> None:
    assert PADDLE in api.store.served
    _operator(api, args, ready)
    Path("job.yaml").write_text(PADDLE_SPEC)
    assert findings(jobctl(*CHECK), "error") == wrong


def test_namespaces(jobctl: Any, api: ApiServer) -> None:
    ran = jobctl(*CHECK, "-n", "typo")
    assert findings(ran, "error")[0] == ("namespace", "namespace-missing", "there is no namespace `typo`")
    api.store.put(api.served("Namespace"), "", {"metadata": {"name": "ml"}, "status": {"phase": "Terminating"}})
    ran = jobctl(*CHECK)
    assert findings(ran, "error")[0][1] == "namespace-terminating"


def test_rights(jobctl: Any, api: ApiServer) -> None:
    api.denied |= {("get", "pods/exec"), ("create", "pods/exec"), ("delete", "jobs"), ("patch", "jobs")}
    message = "these rights are missing in namespace ml: patch, delete jobs.batch; get, create pods/exec"
    assert findings(jobctl(*CHECK), "error") == [("rights", "right-missing", message)]


@pytest.mark.parametrize("operator", ["none", "trainer"])
def test_what_pods_name_has_to_be_there(jobctl: Any, api: ApiServer, operator: str) -> None:
    asked = f"operator: {operator}, image_pull_secrets: [registry], checkpoint_claim: disk"
    Path("job.yaml").write_text(f"{SPEC}kubernetes: {{{asked}}}\n")
    message = "pods need what is not there: Secret registry, PersistentVolumeClaim disk"
    wrong = findings(jobctl(*CHECK), "error")
    assert [(check, code) for check, code, _ in wrong] == [("references", "object-missing")]
    assert set(wrong[0][2].partition(": ")[2].split(", ")) == set(message.partition(": ")[2].split(", "))


@pytest.mark.parametrize("status", [403, 404, 405])
def test_a_server_that_says_nothing_of_rights_refuses_nothing(jobctl: Any, api: ApiServer, status: int) -> None:
    api.fail("create", "selfsubjectaccessreviews", status, times=10_000)
    ran = jobctl(*CHECK)
    told = [message for check, _, message in findings(ran, "skipped") if check == "rights"]
    assert (ran.code, ran.json["ok"], len(told)) == (0, True, 1)
    assert "operator" not in str(ran.json["findings"])


def test_quota(jobctl: Any, api: ApiServer) -> None:
    Path("job.yaml").write_text(SPEC + "devices: gpu:8\n")
    quota = {
        "metadata": {"name": "gpus"},
        "status": {"hard": {"requests.nvidia.com/gpu": "16", "pods": "50"}, "used": {"requests.nvidia.com/gpu": "8"}},
    }
    api.create("ResourceQuota", quota)
    message = "quota gpus: requests.nvidia.com/gpu: the job asks for 16, and 8 of 16 are left"
    assert findings(jobctl(*CHECK), "error") == [("quota", "quota-exceeded", message)]


def test_a_quota_of_other_pods_refuses_no_job(jobctl: Any, api: ApiServer) -> None:
    """That of another priority class is used up, and more than that."""
    Path("job.yaml").write_text(SPEC + "devices: gpu:8\n")
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    hard = {"requests.nvidia.com/gpu": "0", "pods": "1"}
    quota = {
        "metadata": {"name": "high"},
        "spec": {"hard": hard, "scopeSelector": {"matchExpressions": [scope]}},
        "status": {"hard": hard, "used": {"pods": "2"}},
    }
    api.create("ResourceQuota", quota)
    assert findings(jobctl(*CHECK), "error") == []
    [(_, code, _)] = findings(jobctl(*CHECK, "--set", "kubernetes.priority_class=high"), "error")
    assert code == "quota-exceeded"


def test_a_job_that_is_up_needs_no_second_share_of_a_quota(jobctl: Any, world: World, api: ApiServer) -> None:
    Path("job.yaml").write_text(SPEC + "devices: gpu:8\n")
    assert jobctl("up", "--target", "kubernetes").code == 0
    used = {"requests.nvidia.com/gpu": "16", "pods": "2"}
    quota = {"metadata": {"name": "gpus"}, "status": {"hard": {"requests.nvidia.com/gpu": "16"}, "used": used}}
    api.create("ResourceQuota", quota)
    assert findings(jobctl(*CHECK), "error") == []
    assert jobctl("up", "--set", "args=[--more]").code == 0
    message = "quota gpus: requests.nvidia.com/gpu: the job asks for 24, and 16 of 16 are left"
    assert findings(jobctl(*CHECK, "--set", "nodes=3"), "error") == [("quota", "quota-exceeded", message)]


@pytest.mark.parametrize(
    ("more", "room"), [("operator: none", 3), ("operator: trainer", 3), ("operator: trainer, node_selector: {a: b}", 0)]
)
def test_capacity(jobctl: Any, api: ApiServer, more: str, room: int) -> None:
    text = SPEC.replace("nodes: 2", "nodes: 4")
    Path("job.yaml").write_text(f"{text}devices: gpu:8\nkubernetes: {{{more}}}\n")
    ran = jobctl(*CHECK)
    message = f"the cluster's nodes have room for {room} of 4 pods that ask for nvidia.com/gpu: 8"
    assert (ran.code, findings(ran, "warning")) == (0, [("capacity", "capacity-short", message)])


TAINT = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("taint", "tolerations", "let_in"),
    [
        (TAINT, [], False),
        (TAINT, [{"key": "dedicated", "operator": "Exists"}], True),
        (TAINT, [{"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"}], True),
        (TAINT, [{"key": "dedicated", "operator": "Equal", "value": "web"}], False),
        (TAINT, [{"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}], False),
        (TAINT, [{"operator": "Exists"}], True),
        ({**TAINT, "effect": "PreferNoSchedule"}, [], True),
        ({"key": "nvidia.com/gpu", "effect": "NoSchedule"}, [], True),  # some clusters have pods tolerate it
    ],
)
def test_nodes_that_keep_pods_off_have_no_room_for_them(taint: Any, tolerations: list[Any], let_in: bool) -> None:
    node = {"metadata": {}, "spec": {"taints": [taint]}}
    gpus = {"nvidia.com/gpu": Decimal(8)}
    assert _lets_in(node, Pods(1, gpus, gpus, {}, {"tolerations": tolerations})) is let_in


@pytest.mark.parametrize(("labels", "room"), [({}, False), ({"kueue.x-k8s.io/queue-name": "team"}, True)])
def test_a_queue_may_have_nodes_that_keep_other_pods_off(labels: dict[str, str], room: bool) -> None:
    """The flavors of Kueue have tolerations, which it gives to the pods that it lets begin."""
    pod = {"containers": [{"name": "trainer", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}
    job: Any = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "labels": labels}}
    job["spec"] = {"parallelism": 1, "template": {"spec": pod}}
    node = {"metadata": {"name": "n"}, "spec": {"taints": [TAINT]}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}
    api: Any = SimpleNamespace(find_all=lambda kind: ([node], ""))
    preflight = ClusterPreflight(api, "cluster", None, [job])
    assert [finding.code != "capacity-short" for finding in preflight._capacity()] == [room]


def test_what_may_not_be_looked_at_is_skipped(jobctl: Any, api: ApiServer) -> None:
    api.denied |= {("list", "nodes"), ("get", "namespaces"), ("list", "resourcequotas")}
    ran = jobctl(*CHECK)
    assert (ran.code, [check for check, _, _ in findings(ran, "skipped")]) == (0, ["namespace", "quota", "capacity"])
