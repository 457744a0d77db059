"""What objects and pods of a cluster mean, as operators write them."""

from __future__ import annotations

from typing import Any

import pytest

from jobctl.jobspec.deploy.kubernetes.job_state import observe
from jobctl.jobspec.deploy.kubernetes.kinds import JOB, PADDLE_JOB, PYTORCH_JOB, Kind
from jobctl.jobspec.deploy.kubernetes.pods import number_of, parse_pod, role_of
from jobctl.jobspec.deploy.model.observed import phase

Object = dict[str, Any]


def main(kind: Kind, **status: Any) -> Object:
    meta = {"name": "a", "uid": "1"}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": {}, "status": status}


def held(kind: Kind, *path: str, queue: str = "", **status: Any) -> Object:
    """Return an object that was told to let no pod run, by a switch below `path` of its spec."""
    made = main(kind, **status)
    below = made["spec"]
    for key in path:
        below = below.setdefault(key, {})
    below["suspend"] = True
    made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return made


def condition(name: str, message: str = "", status: str = "True") -> Object:
    return {"type": name, "status": status, "message": message}


def pod(name: str, state: Object | None = None, **more: Any) -> Object:
    labels = more.pop("labels", {})
    told = [{"name": "c", "state": state, "restartCount": more.pop("restarts", 0)}] if state else []
    created = more.pop("created", "2026-01-01T00:00:00Z")
    meta = {"name": name, "uid": name, "labels": labels, "creationTimestamp": created, **more.pop("meta", {})}
    spec = {"containers": [{"name": "c"}], "nodeName": more.pop("node", "worker-1")}
    return {"metadata": meta, "spec": spec, "status": {"containerStatuses": told, **more}}


RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def ready(status: str, reason: str | None = None, containers: str = "True", **more: Any) -> Object:
    """Return a pod that ran when its kubelet last told, and whether it counts as ready."""
    why = {"reason": reason} if reason else {}
    conditions = [{"type": "Ready", "status": status, **why}, {"type": "ContainersReady", "status": containers, **why}]
    return pod("a-0", RUNNING, phase="Running", conditions=conditions, **more)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (main(JOB), ("running", None)),
        (main(JOB, conditions=[condition("Complete")]), ("succeeded", None)),
        (main(JOB, conditions=[condition("Complete", status="False")]), ("running", None)),
        (main(JOB, conditions=[condition("Failed", "deadline")]), ("failed", "deadline")),
        (main(JOB, conditions=[condition("SuccessCriteriaMet")]), ("succeeded", None)),
        (main(JOB, conditions=[condition("FailureTarget", "deadline")]), ("failed", "deadline")),
        (held(JOB, conditions=[condition("FailureTarget", "deadline")]), ("failed", "deadline")),
        (held(JOB, conditions=[condition("Suspended", "by ada")]), ("stopped", "it is suspended: by ada")),
        (held(JOB, queue="long", conditions=[condition("Suspended")]), ("starting", "it is suspended")),
        (held(JOB), ("stopped", "it is suspended")),
        (held(JOB, conditions=[condition("Complete")]), ("succeeded", None)),
        (main(JOB, conditions=[condition("Suspended")]), ("running", None)),  # it has just been told to go on
        (held(PYTORCH_JOB, "runPolicy"), ("stopped", "it is suspended")),
        (main(PYTORCH_JOB, conditions=[condition("Created"), condition("Succeeded")]), ("succeeded", None)),
        (main(PYTORCH_JOB, conditions=[condition("Restarting", "1 of 3")]), ("restarting", "1 of 3")),
        (main(PADDLE_JOB, phase="Completed"), ("succeeded", None)),
        (main(PADDLE_JOB, phase="Failed"), ("failed", "its operator says that it failed")),
        (main(PADDLE_JOB, phase="Running"), ("running", None)),
    ],
)
def test_what_controllers_say(made: Object, expected: tuple[str, str | None]) -> None:
    assert phase(observe([made], [pod("a-0", RUNNING, phase="Running")], None)) == expected


@pytest.mark.parametrize(
    ("made", "state", "reason"),
    [
        (pod("a-0", phase="Pending", node=""), "pending", "waits for a node of the cluster"),
        (pod("a-0", phase="Pending"), "starting", "waits for its container"),
        (
            pod(
                "a-0",
                {"waiting": {"reason": "CreateContainerConfigError", "message": "no config map"}},
                phase="Pending",
            ),
            "starting",
            "waits: CreateContainerConfigError: no config map",
        ),
        (
            pod(
                "a-0",
                phase="Pending",
                initContainerStatuses=[{"name": "code", "state": {"waiting": {"reason": "Error"}}}],
            ),
            "starting",
            "waits for its container code: Error",
        ),
        (
            pod("a-0", {"waiting": {"reason": "CrashLoopBackOff", "message": "5m"}}, phase="Running"),
            "failed",
            "CrashLoopBackOff: 5m",
        ),
        (pod("a-0", RUNNING, phase="Running"), "running", None),
        (pod("a-0", {"terminated": {"exitCode": 0}}, phase="Succeeded"), "exited", None),
        (pod("a-0", {"terminated": {"exitCode": 3}}, phase="Failed"), "failed", "it exited with code 3"),
        (
            pod("a-0", {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, phase="Failed"),
            "failed",
            "it was killed because it used more memory than `resources.memory` allows",
        ),
        (pod("a-0", phase="Failed", reason="Evicted", message="disk"), "failed", "Evicted: disk"),
        (pod("a-0", RUNNING, phase="Unknown", reason="NodeLost"), "lost", "its node is not heard"),
        (ready("False"), "lost", "its node is not heard"),  # by the node controller, which gives no reason
        (ready("False", meta={"deletionTimestamp": "2026-01-01T00:05:00Z"}), "lost", "its node is not heard"),
        (ready("True"), "running", None),
        (ready("False", "ReadinessGatesNotReady"), "running", None),  # by the kubelet
        (ready("False", "ContainersNotReady", containers="False"), "running", None),
    ],
)
def test_what_pods_say(made: Object, state: str, reason: str | None) -> None:
    found = parse_pod(made)
    assert (found.state, found.reason) == (state, reason)


@pytest.mark.parametrize(
    ("labels", "name", "expected"),
    [
        (
            {"jobctl.dev/role": "server", "batch.kubernetes.io/job-completion-index": "3"},
            "a-server-3-xyzab",
            ("server", 3),
        ),
        (
            {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "2"},
            "x",
            ("trainer", 2),
        ),
        ({"paddle-res-type": "ps"}, "a-ps-1", ("server", 1)),
        ({"jobctl.dev/role": "trainer"}, "a-worker-12", ("trainer", 12)),
    ],
)
def test_roles_and_numbers(labels: dict[str, str], name: str, expected: tuple[str, int]) -> None:
    made = pod(name, labels=labels)
    assert (role_of(made), number_of(made)) == expected


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        ({"exitCode": 1, "reason": "Error"}, "its container code exited with code 1"),
        (
            {"exitCode": 128, "reason": "StartError", "message": 'exec: "python3": executable file not found\n'},
            'its container code exited with code 128: exec: "python3": executable file not found',
        ),
        ({"exitCode": 0, "reason": "Completed"}, "failed"),
    ],
)
def test_a_pod_that_fails_before_its_container_begins_says_which_one_failed(ended: Object, reason: str) -> None:
    first = [{"name": "code", "state": {"terminated": ended}}]
    made = pod("a-0", {"waiting": {"reason": "PodInitializing"}}, phase="Failed", initContainerStatuses=first)
    found = parse_pod(made)
    assert (found.state, found.reason) == ("failed", reason)


def test_nobody_waits_for_what_runs_beside_the_job_to_end() -> None:
    told = [{"name": name, "state": RUNNING} for name in ("gke-gcsfuse-sidecar", "code")]
    made = pod("a-0", {"waiting": {"reason": "PodInitializing"}}, phase="Pending", initContainerStatuses=told)
    made["spec"]["initContainers"] = [{"name": "gke-gcsfuse-sidecar", "restartPolicy": "Always"}, {"name": "code"}]
    assert parse_pod(made).reason == "waits for its container code to end"
    told[1]["state"] = {"terminated": {"exitCode": 0}}
    assert parse_pod(made).reason == "waits for its container"


def test_of_several_pods_of_a_node_the_newest_counts() -> None:
    pods = [
        pod("a-0", {"terminated": {"exitCode": 1}}, phase="Failed", created="2026-01-01T00:00:00Z"),
        pod("b-0", RUNNING, phase="Running", created="2026-01-01T00:01:00Z", restarts=2),
        pod("c-0", phase="Pending", created="2026-01-01T00:02:00Z", meta={"deletionTimestamp": "2026-01-01T00:03:00Z"}),
    ]
    (node,) = observe([main(JOB)], pods, None).nodes
    assert (node.container, node.state, node.process_restarts) == ("b-0", "running", 4)


def test_a_job_that_has_failed_for_good_does_not_wait_for_a_node_that_is_off() -> None:
    """Its Job has no condition `Failed` before the last pod has ended."""
    told = main(JOB, conditions=[condition("FailureTarget", "too many")])
    failed = pod("a-0", {"terminated": {"exitCode": 3}}, phase="Failed")
    gone = ready("False", meta={"deletionTimestamp": "2026-01-01T00:10:00Z"})
    gone["metadata"].update(name="a-1", uid="a-1")
    observed = observe([told], [failed, gone], None)
    assert sorted(node.state for node in observed.nodes) == ["failed", "lost"]
    assert phase(observed) == ("failed", "too many; node 0: it exited with code 3")


def test_without_its_objects_a_job_is_stopped() -> None:
    assert phase(observe([], [], None)) == ("stopped", "nothing of it is in the cluster")
    assert phase(observe([main(JOB)], [], None)) == (
        "starting",
        "no pod has been made yet: does its operator run, and watch this namespace?",
    )


@pytest.mark.parametrize(
    ("made", "ended"),
    [
        (pod("a", phase="Failed", reason="UnexpectedAdmissionError"), True),  # its node had no device left for it
        (pod("a", {"terminated": {"exitCode": 1}}, phase="Failed"), True),
        (pod("a", {"terminated": {"exitCode": 0}}, phase="Succeeded"), True),
        (pod("a", {"waiting": {"reason": "CrashLoopBackOff"}}, phase="Running"), False),
        (pod("a", RUNNING, phase="Running"), False),
    ],
)
def test_a_pod_whose_container_never_ran_may_have_ended(made: Object, ended: bool) -> None:
    assert parse_pod(made).ended is ended


def test_what_a_mesh_puts_before_the_container_is_not_the_node() -> None:
    made = pod(
        "a-0", None, containerStatuses=[{"name": "linkerd-proxy", "state": RUNNING}, {"name": "node", "state": {}}]
    )
    mounts = [{"name": "launcher", "mountPath": "/jobctl/launcher"}]
    made["spec"]["containers"] = [{"name": "linkerd-proxy"}, {"name": "node", "volumeMounts": mounts}]
    found = parse_pod(made)
    assert (found.container, found.state, found.launcher) == ("node", "starting", True)
