"""Which events of a cluster are about a job, those of its objects and of what controllers make of them, and what they explain."""

from __future__ import annotations

import time
from typing import Any

import pytest

from jobctl.jobspec.deploy.kubernetes.events import is_about
from tests.kube.server import ApiServer
from tests.kube.world import World


@pytest.mark.parametrize(
    "name",
    [
        "resnet",
        "resnet-0-k2xzv",
        "resnet-12-k2xzv",
        "resnet-trainer",
        "resnet-server-1-k2xzv",
        "resnet-master-0",
        "resnet-worker-3",
        "resnet-ps-0",
        "resnet-node-0",
        "resnet-node-0-2-k2xzv",
    ],
)
def test_what_is_made_for_a_job_is_the_jobs(name: str) -> None:
    assert is_about({"involvedObject": {"name": name}}, "resnet")


@pytest.mark.parametrize(
    "name", ["resnet-2", "resnet-2-0-k2xzv", "resnet-2-worker-0", "resnet-small", "resnet-large-0-k2xzv", "my-resnet"]
)
def test_a_job_with_a_longer_name_is_another(name: str) -> None:
    assert not is_about({"involvedObject": {"name": name}}, "resnet")


def test_status_says_why_one_of_the_pods_is_not_made(jobctl: Any, world: World, api: ApiServer) -> None:
    """A quota has room for the others. What is said of pods, or was before the last one was made, is no reason."""
    jobctl("up", "--target", "kubernetes")
    api.delete("Pod", "resnet-1-abcde")

    def reason() -> str:
        return str(jobctl("status", "-o", "json").json["reason"])

    now = time.time() + 60
    world.event("pods", "resnet-0-abcde", "BackOff", "of a pod that is there", at=now + 1)
    world.event("old", "Job/resnet", "FailedCreate", "before the last one was made", at=1.0)
    assert reason() == "node 1: has no pod"
    why = 'Error creating: pods "resnet-1-k2xzv" is forbidden: exceeded quota: gpus'
    world.event("new", "Job/resnet", "FailedCreate", why, at=now)
    assert reason() == f"node 1: has no pod: Job resnet: FailedCreate: {why}"
