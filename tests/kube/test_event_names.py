"""Which events of a cluster are about a job: those of its objects, and of what controllers make of them."""

from __future__ import annotations

import pytest

from jobctl.jobspec.deploy.kubernetes.events import is_about


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
