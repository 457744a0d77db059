"""Manifests, whole: files of `tests/golden/kubernetes`, renewed with `--update-golden`; and what holds for all."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
import yaml

from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.render.errors import RenderError
from jobctl.jobspec.render.launcher import launcher
from jobctl.jobspec.render.manifest import escaped, manifest
from tests.render.clusters import EXAMPLES, OPERATORS, everything, example, of_text, refusals

from .manifests import CASES, HERE, artefacts, check_core, objects, templates

GOLDEN = HERE.parent / "golden" / "kubernetes"


@pytest.mark.parametrize("name", CASES)
def test_renders_as_recorded(name: str, request: pytest.FixtureRequest) -> None:
    found = {one.path.removeprefix("manifests/"): one.content.decode() for one in artefacts(CASES[name]) if one.shown}
    folder = GOLDEN / name
    if request.config.getoption("--update-golden"):
        for old in folder.glob("*"):
            old.unlink()
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in found.items():
            (folder / path).write_text(text)
    assert found == {path.name: path.read_text() for path in folder.iterdir()}


def test_every_recorded_case_is_rendered() -> None:
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted(CASES)


def test_every_example_is_a_case_below_each_operator_or_is_refused_with_the_reason() -> None:
    framework, mode, nodes = "operator-framework", "operator-mode", "operator-range"
    refused = {name: {o: refusals(example(name, o)) for o in OPERATORS} for name in EXAMPLES}
    assert {name: tuple(found.values()) for name, found in refused.items()} == {
        #                        none   paddle-operator         kubeflow   trainer
        "jax-digits":            ("",    framework,              framework, framework),
        "mindspore-lenet":       ("",    framework,              framework, framework),
        "paddle-resnet":         ("",    "",                     "",        framework),
        "paddle-resnet-elastic": (nodes, "", f"kubernetes-etcd {nodes}", f"kubernetes-etcd {framework} {nodes}"),
        "paddle-resnet-static":  ("",    "",                     "",        framework),
        "paddle-wide-deep":      ("",    "",                     mode,      f"{framework} {mode}"),
        "torch-elastic":         (nodes, f"{framework} {nodes}", "",        nodes),
        "torch-resnet":          ("",    framework,              "",        ""),
        "torch-wide-deep":       ("",    framework,              mode,      mode),
    }  # fmt: skip
    taken = {f"{name}-{o}" for name, found in refused.items() for o, codes in found.items() if not codes}
    assert taken == {case for case in CASES if case.startswith(tuple(EXAMPLES))}


# What holds for all.


@pytest.mark.parametrize(
    ("code", "fails"),
    [(1, True), (3, True), (127, True), (128, True), (135, False), (137, False), (143, False), (255, False)],
)
def test_only_what_a_launcher_itself_ends_with_fails_the_job_at_once(code: int, fails: bool) -> None:
    """With 255 a container ends whose node has started again: the Job controller then starts the pod elsewhere."""
    (job,) = [one for one in objects(CASES["jax-digits-none"]) if one["kind"] == "Job"]
    (rule,) = [one for one in job["spec"]["podFailurePolicy"]["rules"] if one["action"] == "FailJob"]
    asked = rule["onExitCodes"]
    assert ((code in asked["values"]) == (asked["operator"] == "In")) is fails
    assert (asked["values"] == sorted(set(asked["values"])), len(asked["values"]) <= 255) == (True, True)


@pytest.mark.parametrize("name", CASES)
def test_names_labels_and_order(name: str) -> None:
    plan = CASES[name]
    made = objects(plan)
    for number, (artefact, one) in enumerate(zip(artefacts(plan), made, strict=True), 1):
        assert artefact.path == f"manifests/{number:02}-{one['kind'].lower()}-{one['metadata']['name']}.yaml"
        labels = one["metadata"]["labels"]
        assert (labels["app.kubernetes.io/managed-by"], labels["jobctl.dev/job"]) == ("jobctl", plan.job)
        assert one["metadata"].get("namespace") == (plan.cluster.namespace if plan.cluster else None)
        for template in templates(one):
            own = template["metadata"]["labels"]
            assert (own["jobctl.dev/job"], own["jobctl.dev/role"] in ("trainer", "server", "scheduler")) == (
                plan.job,
                True,
            )
            assert {c["imagePullPolicy"] for c in template["spec"]["containers"]} <= {"IfNotPresent", "Always"}
    mains = [one for one in made if "jobctl.dev/spec" in one["metadata"].get("annotations", {})]
    assert [one["metadata"]["annotations"]["jobctl.dev/framework"] for one in mains] == [plan.framework] * len(mains)
    roles = {node.role for node in plan.nodes}
    alone = plan.cluster is not None and plan.cluster.operator == "none"
    names = {f"{plan.job}-{role}" for role in roles} if alone and len(roles) > 1 else {plan.job}
    assert {one["metadata"]["name"] for one in mains} == names
    assert made[-1] in mains


def test_volumes_are_there_and_mounted_once() -> None:
    for plan in CASES.values():
        for template in (found for one in objects(plan) for found in templates(one)):
            spec = template["spec"]
            names = [volume["name"] for volume in spec.get("volumes", ())]
            assert len(names) == len(set(names))
            used = set()
            for container in [*spec["containers"], *spec.get("initContainers", ())]:
                places = [mount["mountPath"] for mount in container.get("volumeMounts", ())]
                assert len(places) == len(set(places))
                used |= {mount["name"] for mount in container.get("volumeMounts", ())}
            assert used == set(names)


MOUNTS = """\
name: a
framework: torch
image: i
script: /t.py
checkpoint: {dir: /data/ck, per_job: true}
volumes: [/data:/data, /dev/shm:/dev/shm]
resources: {shm_size: 1g}
recovery: {max_duration: 500ms}
kubernetes: {checkpoint_claim: disk}
"""


def test_the_users_own_mounts_are_neither_doubled_nor_taken_for_the_checkpoints() -> None:
    spec = objects(of_text(MOUNTS))[-1]["spec"]
    pod = spec["template"]["spec"]
    check_core(objects(of_text(MOUNTS))[-1])
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in pod["containers"][0]["volumeMounts"]}
    assert (len(volumes), len(mounts)) == (len(pod["volumes"]), len(pod["containers"][0]["volumeMounts"]))
    assert {path: mounts[path] for path in ("/data", "/data/ck", "/dev/shm")} == {
        "/data": {"name": "volume-0", "hostPath": {"path": "/data"}},
        "/data/ck": {"name": "checkpoint", "persistentVolumeClaim": {"claimName": "disk"}},
        "/dev/shm": {"name": "volume-1", "hostPath": {"path": "/dev/shm"}},
    }
    assert spec["activeDeadlineSeconds"] == 1  # none at all would be over at once


@pytest.mark.parametrize("written", ["/ck", "/ck/"])
def test_a_volume_for_the_checkpoint_is_mounted_once(written: str) -> None:
    text = f"name: a\nframework: torch\nimage: i\nscript: /t.py\ncheckpoint: {written}\nvolumes: ['/ck:/ck']\n"
    pod = objects(of_text(text))[-1]["spec"]["template"]["spec"]
    mounted = [one["mountPath"] for one in pod["containers"][0]["volumeMounts"]]
    assert [path for path in mounted if path.startswith("/ck")] == ["/ck"]


@pytest.mark.parametrize("restarts", [1, 3])
def test_kubeflows_operator_lets_all_pods_restart_as_often_as_the_spec_says(restarts: int) -> None:
    """It fails the job once all restarts of containers are as many as its limit (`PastBackoffLimit` of its pkg/core/job.go)."""
    plan = CASES["torch-resnet-kubeflow"]
    plan = replace(plan, recovery=replace(plan.recovery, max_restarts=restarts))
    limit, pods = objects(plan)[-1]["spec"]["runPolicy"]["backoffLimit"], len(plan.nodes)
    assert (restarts * pods < limit, restarts * pods + 1 >= limit) == (True, True)


@pytest.mark.parametrize(
    ("framework", "operator"), [("torch", "kubeflow"), ("torch", "trainer"), ("paddle", "kubeflow")]
)
def test_below_an_operator_the_interface_is_told_and_an_etcd_that_nobody_uses_is_not(
    framework: str, operator: str
) -> None:
    text = (
        f"name: a\nframework: {framework}\nimage: i\nscript: /t.py\nnodes: 2\netcd: {{managed: {{}}}}\n"
        f"network: {{interface: eth1}}\nenv: {{GLOO_SOCKET_IFNAME: eth2}}\nkubernetes: {{operator: {operator}}}\n"
    )
    pod = next(found for one in reversed(objects(of_text(text))) for found in templates(one))
    told = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
    assert (told["NCCL_SOCKET_IFNAME"], told["GLOO_SOCKET_IFNAME"]) == ("eth1", "eth2")
    assert "etcd" not in json.dumps(pod)


def test_no_secret_value_can_be_in_a_manifest() -> None:
    made = artefacts(everything("none", "torch"))
    assert [(one.path, one.secrets) for one in made if one.secrets] == [
        ("manifests/02-secret-everything-secrets.yaml", ("WANDB_API_KEY", "HF_TOKEN"))
    ]
    (secret,) = [one for one in objects(everything("none", "torch")) if one["kind"] == "Secret"]
    assert "data" not in secret
    assert "stringData" not in secret


@pytest.mark.parametrize(
    ("user", "mode"), [(None, 0o444), ("1000", 0o444), ("root", 0o440), ("1000:1001", 0o440), ("0:0", 0o440)]
)
def test_whoever_the_processes_are_they_can_read_the_secrets(user: str | None, mode: int) -> None:
    """The files are root's and, where it is known, of the group of the processes."""
    who = f'container: {{user: "{user}"}}\n' if user else ""
    made = objects(of_text(f"name: a\nframework: torch\nimage: i\nscript: /t.py\nsecrets: [TOKEN]\n{who}"))
    (volume,) = [one for one in made[-1]["spec"]["template"]["spec"]["volumes"] if one["name"] == "secrets"]
    assert volume["secret"]["defaultMode"] == mode


def hashes(plan: Plan) -> list[str]:
    annotations = [one["metadata"].get("annotations", {}) for one in objects(plan)]
    return [found["jobctl.dev/spec"] for found in annotations if "jobctl.dev/spec" in found]


@pytest.mark.parametrize("operator", ["none", "kubeflow", "trainer"])
def test_hash_follows_what_is_started_and_nothing_else(operator: str) -> None:
    before = everything(operator, "torch")
    assert before.code is not None
    assert hashes(everything(operator, "torch")) == hashes(before)
    assert hashes(replace(before, code=replace(before.code, version="1" * 16))) != hashes(before)
    node = before.nodes[0]
    slower = replace(node, container=replace(node.container, env=(("LR", "0.2"),)))
    assert hashes(replace(before, nodes=(slower, *before.nodes[1:]))) != hashes(before)
    other = replace(node, launch=replace(node.launch, command=("python3", "other.py")))
    assert hashes(replace(before, nodes=(other, *before.nodes[1:]))) != hashes(before)


def test_the_launcher_is_sent_as_it_is_installed() -> None:
    (made,) = [one for one in objects(everything("none", "torch")) if one["metadata"]["name"].endswith("-launcher")]
    assert made["data"] == {"launcher.py": launcher().decode()}


@pytest.mark.parametrize("devices", ["gpu", "gpu:1", "gpu:2", '{kind: gpu, ids: "0-1"}'])
def test_a_trainer_is_a_pod_with_one_device_however_many_a_host_would_give(devices: str) -> None:
    text = f"name: a\nframework: torch\nimage: i\nscript: /t.py\ndevices: {devices}\n"
    made = objects(of_text(f"{text}mode: ps\nps: {{servers: 1, trainers: 2}}\n"))
    limits = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]["containers"][0].get("resources", {}).get("limits")
        for one in made
        if one["kind"] == "Job"
    }
    assert limits == {"a-server": None, "a-trainer": {"nvidia.com/gpu": "1"}}


def test_capabilities_are_called_as_the_api_calls_them() -> None:
    """Docker takes `CAP_SYS_PTRACE` as well; a node of a cluster makes `CAP_CAP_SYS_PTRACE` of it, which is none."""
    text = MOUNTS + "container: {cap_add: [CAP_SYS_PTRACE, ipc_lock, NET_RAW]}\n"
    (container,) = objects(of_text(text))[-1]["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"] == {"capabilities": {"add": ["SYS_PTRACE", "IPC_LOCK", "NET_RAW"]}}


@pytest.mark.parametrize("operator", OPERATORS)
def test_what_unpacks_the_code_names_cores_and_memory_as_well(operator: str) -> None:
    """A quota of either refuses a pod in which one container does not; of other resources, one is enough."""
    plan = everything(operator, "paddle" if operator == "paddle-operator" else "torch")
    assert plan.cluster is not None
    said = (("cpu", "4"), ("memory", "16Gi"), ("rdma/hca", "1"))
    made = objects(replace(plan, cluster=replace(plan.cluster, resources=said)))
    pods = [template["spec"] for one in made for template in templates(one)]
    assert pods
    assert all("rdma/hca" in pod["containers"][0]["resources"]["limits"] for pod in pods)
    assert [pod["initContainers"][0]["resources"] for pod in pods] == [
        {"limits": {"cpu": "4", "memory": "16Gi"}} for _ in pods
    ]


def test_code_that_is_too_large_is_refused() -> None:
    plan = everything("none", "torch")
    assert plan.code is not None
    with pytest.raises(RenderError) as caught:
        artefacts(replace(plan, code=replace(plan.code, archive="A" * 1_400_000)))
    assert caught.value.code == "too-large-for-kubernetes"


def test_a_job_that_is_too_large_is_refused() -> None:
    plan = of_text("name: huge\nframework: torch\nimage: i\nscript: t.py\nnodes: 2000\n")
    with pytest.raises(RenderError) as caught:
        artefacts(plan)
    assert caught.value.code == "too-large-for-kubernetes"


# What Kubernetes reads.


def expanded(text: str) -> str:
    """Fill in `$(VAR)` as Kubernetes does, where no variable is set: `$$` is a dollar."""
    return re.sub(r"\$\$|\$\([^)]*\)|\$.?", lambda match: "$" if match[0] == "$$" else match[0], text)


@pytest.mark.parametrize("text", ["", "$", "$$", "$(A)", "$$(A)", "a $b $(c", "$$$", "${X}", "100$", "$($$(", "$)$$a"])
def test_a_value_arrives_as_it_was(text: str) -> None:
    assert expanded(escaped(text)) == text
    assert "$(A)" not in re.sub(r"\$\$", "", escaped(text))


@pytest.mark.parametrize(
    "value",
    ["", "y", "no", "null", "~", "1e3", "0755", "22:22", "a: b", "- a", "a\nb\n", "a\n", "\n", " a\n", "a\n b\n\n", "\ta\n",
     "é☃\U0001f600", "\x85", "#", "a #b", "a\r\nb\n", "trailing \n", "{}", "*a", "yes", "nan", "a:", "1.10"],
)  # fmt: skip
def test_yaml_is_read_back_unchanged(value: str) -> None:
    made = {"text": value, value or "empty": [value, {"a-key": value}, [], {}], "n": 1, "b": True}
    text = manifest(made)
    assert yaml.load(text, yaml.CSafeLoader) == made
    # Readers of YAML 1.2 go by fewer words, so what 1.1 takes for text is text to them.
    from ruamel.yaml import YAML

    assert YAML(typ="safe", pure=True).load(text.decode()) == made


FIXED = """\
name: fixed
framework: paddle
image: train:1
script: train.py
code: {source: ., target: /workspace}
nodes: 2
devices: cpu:2
checkpoint: /checkpoints
etcd: {endpoints: [etcd:2379]}
recovery: {max_restarts: 5}
kubernetes: {operator: paddle-operator}
"""


def test_fault_tolerance_of_a_fixed_number_of_nodes_goes_through_etcd() -> None:
    """As Paddle's documents recommend: paddle-operator starts a pod again, and its launcher finds the others in etcd."""
    (job,) = [one for one in objects(of_text(FIXED)) if one["kind"] == "PaddleJob"]
    assert (job["spec"]["elastic"], job["spec"]["worker"]["replicas"]) == (2, 2)
    (container,) = job["spec"]["worker"]["template"]["spec"]["containers"]
    told = {one["name"]: one.get("value") for one in container["env"]}
    expected = {"PADDLE_MASTER": "etcd://ETCD:2379", "PADDLE_NNODES": "2", "PADDLE_ELASTIC_LEVEL": "1"}
    assert {name: told.get(name) for name in expected} == expected
    assert (told["PADDLE_MAX_RESTART"], "PADDLE_ELASTIC_TIMEOUT" in told) == ("5", False)


def test_below_an_operator_paddle_waits_for_nodes_as_long_as_the_spec_says() -> None:
    text = FIXED.replace("nodes: 2", 'nodes: "2:4"\npaddle: {elastic_timeout: 89.5s}')
    (job,) = [one for one in objects(of_text(text)) if one["kind"] == "PaddleJob"]
    (container,) = job["spec"]["worker"]["template"]["spec"]["containers"]
    assert {"name": "PADDLE_ELASTIC_TIMEOUT", "value": "90"} in container["env"]


@pytest.mark.parametrize("etcd", ["", "etcd: {managed: {}}\n"])
def test_a_fixed_number_of_nodes_goes_without_an_etcd_of_its_own(etcd: str) -> None:
    """An etcd that jobctl starts on hosts is not in the cluster: the same job.yaml is fit for both."""
    made = objects(of_text(FIXED.replace("etcd: {endpoints: [etcd:2379]}\n", etcd)))
    (job,) = [one for one in made if one["kind"] == "PaddleJob"]
    assert "elastic" not in job["spec"]
    assert "etcd" not in str(made)
