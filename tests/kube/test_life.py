"""A job in a cluster from `up` to `down`: the real client against a server that speaks the API."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.kubernetes.cluster import Cluster
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.views import progress
from tests.kube.conftest import SPEC, need_operators
from tests.kube.server import ApiServer
from tests.kube.store import Object
from tests.kube.world import World

UP = ("up", "--target", "kubernetes")


def everywhere(test: Any) -> Any:
    """Run a test that says something of the server against all that know our Jobs."""
    return pytest.mark.real(pytest.mark.needs("jobs")(test))


@everywhere
def test_up_brings_a_job_up_and_does_nothing_the_second_time(jobctl: Any, world: World, api: ApiServer) -> None:
    first = jobctl(*UP)
    assert (first.code, first.out) == (0, "")
    assert first.err.splitlines() == [
        "create ConfigMap resnet-launcher: not there",
        "create ConfigMap resnet: not there",
        "create Service resnet: not there",
        "create Job resnet: not there",
        "job `resnet` runs: 2 nodes. See `jobctl status resnet`, `jobctl logs resnet -f`, `jobctl wait resnet`",
    ]
    assert api.names() == [
        "ConfigMap resnet",
        "ConfigMap resnet-launcher",
        "Job resnet",
        "Pod resnet-0-abcde",
        "Pod resnet-1-abcde",
        "Service resnet",
    ]
    versions = [job["metadata"]["resourceVersion"] for job in api.list("Job")]
    second = jobctl("up", "job.yaml")  # the target is remembered
    assert (second.code, second.err) == (0, "job `resnet` is running as the spec says; nothing to do\n")
    assert [job["metadata"]["resourceVersion"] for job in api.list("Job")] == versions


def test_status_has_the_keys_of_all_targets(jobctl: Any, world: World) -> None:
    jobctl(*UP)
    state = jobctl("status", "resnet", "-o", "json").json
    started = [node.pop("started_at") for node in state["nodes"]]
    assert all(time.time() - _seconds(one) < 60 for one in started)
    node: Object = {
        "node": 0,
        "role": "trainer",
        "name": None,
        "host": "worker-0",
        "state": "running",
        "reachable": True,
        "restarts": 0,
        "exit_code": None,
        "container": "resnet-0-abcde",
        "progress": None,
        "reason": None,
        "standby": {"state": "off", "reason": "no launcher has told"},
        "processes": [],
    }
    assert state == {
        "job": "resnet",
        "framework": "torch",
        "mode": "collective",
        "target": "kubernetes",
        "phase": "running",
        "reason": None,
        "generation": None,
        "supervised": None,
        "replicas": "2/2",
        "nodes": [node, {**node, "node": 1, "host": "worker-1", "container": "resnet-1-abcde"}],
        "spares": [],
    }
    assert [line.split() for line in jobctl("status", "resnet", "--wide").out.splitlines()[2:]] == [
        ["RANK", "NODE", "HOST", "STATE", "EXIT", "PID", "DEVICE"],
        ["-", "0", "worker-0", "running", "-", "-", "-"],
        ["-", "1", "worker-1", "running", "-", "-", "-"],
    ]


def _seconds(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def test_status_says_what_a_pod_waits_for(jobctl: Any, api: ApiServer) -> None:
    world = World(api, runs=False)
    labels = {"jobctl.dev/job": "resnet"}
    template = {
        "metadata": {"labels": {**labels, "jobctl.dev/role": "trainer"}},
        "spec": {"containers": [{"name": "node", "image": "busybox"}], "restartPolicy": "Never"},
    }
    job = {"metadata": {"name": "resnet", "labels": labels}, "spec": {"completions": 2, "template": template}}
    world.made(api.create("Job", job))
    world.run("resnet-0-abcde")
    world.wait_for_scheduler("resnet-1-abcde", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    ran = jobctl("status", "job.yaml", "-n", api.namespace)
    assert (ran.code, ran.out.splitlines()[:2]) == (
        0,
        [
            "resnet: starting, nodes 1",
            "  node 1: waits for a node of the cluster: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        ],
    )
    world.waiting("resnet-1-abcde", "ImagePullBackOff", "no such tag")
    node = jobctl("status", "resnet", "--context", "test", "-o", "json").json["nodes"][1]
    assert (node["state"], node["host"], node["reason"]) == ("failed", "worker-9", "ImagePullBackOff: no such tag")


def test_status_says_why_no_pod_is_made(jobctl: Any, api: ApiServer, here: Path) -> None:
    """Who makes pods tells it in events: a quota, a policy, a service account that is missing."""
    api.denied.add(("list", "events"))
    labels = {"jobctl.dev/job": "resnet"}
    template = {"spec": {"containers": [{"name": "node", "image": "busybox"}], "restartPolicy": "Never"}}
    api.create("Job", {"metadata": {"name": "resnet", "labels": labels}, "spec": {"template": template}})

    def reason() -> str:
        return str(jobctl("status", "job.yaml", "-n", api.namespace, "-o", "json").json["reason"])

    nobody = "no pod has been made yet: does its operator run, and watch this namespace?"
    assert reason() == nobody
    api.denied.clear()
    assert reason() == nobody
    world = World(api)
    why = 'pods "resnet-0-" is forbidden: error looking up service account ml/typo: serviceaccount "typo" not found'
    world.event("old", "resnet", "FailedCreate", "of an earlier job", at=1.0)
    world.event("new", "resnet", "FailedCreate", why)
    world.event("other", "resnet-big", "FailedCreate", "of another job")
    assert reason() == f"no pod has been made yet: Pod resnet: FailedCreate: {why}"


def test_a_changed_spec_makes_the_job_anew_and_says_so_before(jobctl: Any, world: World, api: ApiServer) -> None:
    jobctl(*UP)
    before = api.get("Job", "resnet")["metadata"]["uid"]
    Path("job.yaml").write_text(SPEC + "args: [--epochs, '3']\n")
    told = jobctl("plan")
    assert (told.code, "replace Job resnet: the spec changed" in told.out.splitlines()) == (10, True)
    assert jobctl("up").code == 0
    after = api.get("Job", "resnet")["metadata"]["uid"]
    assert before != after
    assert jobctl("plan").code == 0
    assert len(world.pods()) == 2


def test_code_that_changed_makes_the_job_anew(jobctl: Any, world: World, here: Path) -> None:
    (here / "code").mkdir()
    (here / "code" / "train.py").write_text("print(1)\n")
    Path("job.yaml").write_text(SPEC + "code: code\n")
    assert jobctl(*UP).code == 0
    (here / "code" / "train.py").write_text("print(2)\n")
    ran = jobctl("plan")
    assert (ran.code, [line.split(":")[0] for line in ran.out.splitlines()]) == (
        10,
        ["replace Job resnet", "change ConfigMap resnet-code"],
    )


def test_wait_ends_with_the_result(jobctl: Any, world: World) -> None:
    jobctl(*UP)
    assert jobctl("wait", "resnet", "--timeout", "0.5").code == 124
    threading.Timer(0.7, _succeed, [world]).start()
    ran = jobctl("wait", "resnet", "--timeout", "180")
    assert (ran.code, ran.err) == (0, "job `resnet` succeeded\n")
    again = jobctl("up")
    assert (again.code, again.err) == (0, "job `resnet` is succeeded as the spec says; nothing to do\n")


def _succeed(world: World) -> None:
    for pod in ("resnet-0-abcde", "resnet-1-abcde"):
        world.end(pod)
    world.condition("Job", "resnet", "Complete")


def test_a_job_that_failed_says_why_and_up_begins_anew(jobctl: Any, world: World) -> None:
    jobctl(*UP)
    world.api.print("resnet-1-abcde", "Traceback (most recent call last):")
    world.api.print("resnet-1-abcde", "ValueError: no such layer")
    world.end("resnet-1-abcde", 7)
    world.condition("Job", "resnet", "Failed", "Job has reached the specified backoff limit")
    ran = jobctl("wait", "resnet")
    assert (ran.code, ran.err.splitlines()) == (
        1,
        [
            "error: job `resnet` failed: Job has reached the specified backoff limit; node 1: it exited with code 7",
            "last lines of node 1, trainer:",
            "  Traceback (most recent call last):",
            "  ValueError: no such layer",
        ],
    )
    assert jobctl("status", "resnet", "-o", "json").json["nodes"][1]["exit_code"] == 7
    again = jobctl("up")
    assert (again.code, again.err.splitlines()[0]) == (0, "replace Job resnet: the job had failed")


def test_down_collects_logs_and_removes_everything(jobctl: Any, world: World, api: ApiServer, here: Path) -> None:
    jobctl(*UP)
    asked = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"metadata": {"name": "checkpoints", "labels": {"jobctl.dev/job": "resnet"}}, "spec": asked}
    api.create("PersistentVolumeClaim", claim)
    api.print("resnet-0-abcde", "rank0 | step 1")
    api.print("resnet-1-abcde", "rank1 | step 1 too")
    ran = jobctl("down", "resnet")
    assert (ran.code, ran.err.splitlines()[-1].startswith("job `resnet` is down; its logs are in ")) == (0, True)
    assert api.names() == ["PersistentVolumeClaim checkpoints"]
    again = jobctl("down")
    assert (again.code, again.err) == (0, "nothing of job `resnet` is on this machine\n")
    logs = jobctl("logs", "job.yaml")
    assert sorted(logs.out.splitlines()) == ["node0 rank0 | step 1", "node1 rank1 | step 1 too"]


@pytest.mark.parametrize("command", ["down", "stop"])
def test_a_log_that_cannot_be_read_keeps_nobody_from_ending_the_job(
    jobctl: Any, world: World, api: ApiServer, here: Path, command: str
) -> None:
    jobctl(*UP)
    for number in (0, 1):
        api.print(f"resnet-{number}-abcde", f"rank{number} | step 1")
    pod = "resnet-0-abcde"
    api.fail("get", "pods/log", 500, name=pod)  # the kubelet of its node is off
    ran = jobctl(command, "resnet")
    assert (ran.code, world.pods()) == (0, [])
    told = sorted(jobctl("logs", "job.yaml").out.splitlines())
    why = f"cannot get Pod {pod}/log in namespace {api.namespace}: the server fails: told to fail with 500"
    assert told == [f"node0 launcher | the log of pod {pod} could not be read: test: {why}", "node1 rank1 | step 1"]


def test_down_needs_nothing_but_the_name_and_the_cluster(jobctl: Any, world: World, api: ApiServer, here: Path) -> None:
    jobctl(*UP)
    for path in sorted((here / "state").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    ran = jobctl("down", "resnet", "--context", "test", "-n", api.namespace)
    assert (ran.code, api.names()) == (0, [])
    again = jobctl("down", "resnet", "--context", "test")
    assert (again.code, again.err) == (0, f"nothing of job `resnet` is on test/{api.namespace}\n")


def test_the_spec_says_which_cluster_and_namespace_and_options_say_more(
    jobctl: Any, world: World, api: ApiServer
) -> None:
    api.backend.make_namespace("other")
    Path("job.yaml").write_text(SPEC + "kubernetes: {context: typo, namespace: other}\n")
    missing = jobctl(*UP)
    assert (missing.code, missing.err.splitlines()[0]) == (2, "error: the kubeconfig has no context `typo`")
    told = [jobctl("check", "--target", "kubernetes", *more, "-o", "json").json["findings"][0]["host"]
            for more in (("--context", "test"), ("--context", "test", "-n", api.namespace))]  # fmt: skip
    assert told == ["test/other", f"test/{api.namespace}"]
    Path("job.yaml").write_text(SPEC + "kubernetes: {context: test, namespace: other}\n")
    ran = jobctl(*UP, "-n", api.namespace)
    assert (ran.code, ran.err.splitlines()[-1].split(":")[0]) == (0, "job `resnet` runs")
    assert jobctl("up", "-n", api.namespace).err == "job `resnet` is running as the spec says; nothing to do\n"
    Path("job.yaml").write_text(SPEC + "kubernetes: {namespace: other}\n")
    assert jobctl("plan", "-n", api.namespace).code == 0  # whatever the cluster is called, it is the same job
    assert jobctl("restart", "resnet").code == 0


def test_down_says_what_does_not_go(jobctl: Any, world: World, api: ApiServer, monkeypatch: Any) -> None:
    from jobctl.jobspec.deploy.kubernetes import removal

    monkeypatch.setattr(removal, "REMOVAL_TIMEOUT", 0.3)
    jobctl(*UP)
    api.store.lingering = 60.0
    ran = jobctl("down", "resnet", "--timeout", "0")
    assert (ran.code, ran.err.splitlines()[0]) == (
        4,
        "error: test/ml: still there though deleted: Job resnet (foregroundDeletion)",
    )


@pytest.mark.parametrize(
    ("api", "operator"), [("fake", "none"), ("fake", "trainer"), ("mini", "trainer")], indirect=["api"]
)
def test_down_collects_the_garbage_where_nobody_does(
    jobctl: Any, world: World, api: ApiServer, monkeypatch: Any, operator: str
) -> None:
    """No controller manager runs: what hangs on a Job (or on a TrainJob's Job) stays, and the Job waits for it."""
    from jobctl.jobspec.deploy.kubernetes import removal

    need_operators(api)
    for name in ("COLLECTOR_TIMEOUT", "ORPHAN_POLL_INTERVAL", "ALOUD"):
        monkeypatch.setattr(progress if name == "ALOUD" else removal, name, 0.1)
    Path("job.yaml").write_text(f"{SPEC}kubernetes: {{operator: {operator}}}\n")
    jobctl(*UP)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "other", "uid": "1"}
    spec = {"containers": [{"name": "node", "image": "busybox"}]}
    api.create("Pod", {"metadata": {"name": "other", "ownerReferences": [owner]}, "spec": spec})
    if api.backend.which == "fake":
        api.store.collects = False
    ran = jobctl("down", "resnet")
    assert (ran.code, api.names()) == (0, ["Pod other"])
    main = "Job" if operator == "none" else "TrainJob"
    assert ran.err.splitlines()[0] == f"waiting for {main} resnet (foregroundDeletion) to go"


def test_secrets_are_in_the_cluster_and_nowhere_else(
    jobctl: Any, world: World, api: ApiServer, here: Path, monkeypatch: Any
) -> None:
    from base64 import b64decode

    monkeypatch.setenv("WANDB_API_KEY", "very-secret")
    Path("job.yaml").write_text(SPEC + "secrets: [WANDB_API_KEY]\n")
    assert jobctl(*UP).code == 0
    data = api.get("Secret", "resnet-secrets")["data"]
    assert {key: b64decode(value).decode() for key, value in data.items()} == {"WANDB_API_KEY": "very-secret"}
    assert not [path for path in here.rglob("*") if path.is_file() and b"very-secret" in path.read_bytes()]
    assert jobctl("up").err == "job `resnet` is running as the spec says; nothing to do\n"
    monkeypatch.delenv("WANDB_API_KEY")
    assert jobctl("plan").code == 0
    monkeypatch.setenv("WANDB_API_KEY", "no UTF-8: \udcff")  # no process could get it
    assert jobctl("plan").code == 0


def test_a_secret_whose_value_changed_makes_the_job_anew(
    jobctl: Any, world: World, api: ApiServer, here: Path, monkeypatch: Any
) -> None:
    for name in ("HF_TOKEN", "WANDB_API_KEY"):
        monkeypatch.setenv(name, f"first {name}")
    Path("job.yaml").write_text(SPEC + "secrets: [HF_TOKEN, WANDB_API_KEY]\n")
    assert jobctl(*UP).code == 0
    monkeypatch.setenv("WANDB_API_KEY", "second")
    monkeypatch.delenv("HF_TOKEN")  # of what cannot be read, nothing is said
    told = jobctl("plan")
    assert (told.code, told.out.splitlines()) == (
        10,
        [
            "replace Job resnet: Secret resnet-secrets changed",
            "change Secret resnet-secrets: `data.WANDB_API_KEY` differs",
        ],
    )
    assert jobctl("up").code == 2  # all are needed once anything is sent
    monkeypatch.setenv("HF_TOKEN", "first HF_TOKEN")
    before = api.get("Job", "resnet")["metadata"]["uid"]
    done = jobctl("up")
    after = api.get("Job", "resnet")["metadata"]["uid"]
    assert (done.code, before != after, jobctl("plan").code) == (0, True, 0)
    assert not [path for path in here.rglob("*") if path.is_file() and b"second" in path.read_bytes()]
    assert "second" not in told.out + told.err + done.out + done.err + "".join(api.requests)


def test_commands_that_mean_nothing_in_a_cluster_say_why(jobctl: Any, world: World) -> None:
    jobctl(*UP)
    for argv in (("scale", "resnet", "3"), ("drill", "resnet", "-y"), ("supervise", "resnet"), ("report", "resnet")):
        ran = jobctl(*argv)
        assert (ran.code, ran.err.startswith(f"error: there is no `{argv[0]}` on target `kubernetes`: ")) == (2, True)
    assert jobctl("restart", "resnet", "--node", "1").code == 2
    assert jobctl("restart", "resnet").err.splitlines()[0] == "replace Job resnet: `jobctl restart`"


def test_a_job_that_waits_in_a_queue_is_starting_and_left_alone(
    jobctl: Any, world: World, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kueue has suspended it: that is neither an end, nor anybody's to change but Kueue's."""
    Path("job.yaml").write_text(SPEC + "kubernetes: {queue: long}\n")
    world.queues = True

    waits = threading.Event()
    observe = Cluster.observe

    def look(cluster: Cluster) -> Observed:
        observed = observe(cluster)
        if observed.verdict == ("starting", "it is suspended: Job suspended"):
            waits.set()
        return observed

    def admit() -> None:
        """Have it go on once `up` has seen that it waits."""
        waits.wait(180)
        world.suspend(api.get("Job", "resnet"), False)

    monkeypatch.setattr(Cluster, "observe", look)
    threading.Thread(target=admit).start()
    assert (jobctl(*UP).code, waits.is_set()) == (0, True)
    world.suspend(api.get("Job", "resnet"), True)  # preempted
    state = jobctl("status", "resnet", "-o", "json").json
    assert (state["phase"], state["reason"]) == ("starting", "it is suspended: Job suspended")
    assert jobctl("plan").code == 0
    refused = jobctl("stop", "resnet")
    assert (refused.code, refused.err.splitlines()[0]) == (
        2,
        "error: Kueue decides when pods of job `resnet` run, and would start them again at once",
    )
