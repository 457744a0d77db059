"""What a command that was refused or cut off in the middle leaves in a cluster, and how the next one goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.kubernetes import removal
from jobctl.jobspec.deploy.kubernetes.api import connect
from tests.kube.server import ApiServer
from tests.kube.world import World

UP = ("up", "--target", "kubernetes")


def test_a_down_that_was_refused_is_done_by_the_next_one(jobctl: Any, world: World, api: ApiServer) -> None:
    jobctl(*UP)
    api.fail("delete", "jobs", 500)
    ran = jobctl("down", "resnet")
    assert (ran.code, ran.err.splitlines()[-2]) == (4, "error: job `resnet` is down, but not on objects")
    again = jobctl("down", "resnet")
    assert (again.code, api.names(), "resnet" in jobctl("list").out) == (0, [], False)


@pytest.mark.real
@pytest.mark.needs("jobs")
def test_a_job_is_not_made_beside_pods_of_one_that_somebody_has_deleted(
    jobctl: Any, world: World, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run until they have ended, and each node would train twice meanwhile."""
    monkeypatch.setattr(removal, "COLLECTED", 0.1)
    jobctl(*UP)
    beside: list[list[str]] = []
    api.made.insert(0, lambda thing: beside.append([pod["metadata"]["name"] for pod in world.pods()]))
    api.delete("Job", "resnet")
    assert len(world.pods()) == 2
    assert (jobctl("up").code, beside, len(world.pods())) == (0, [[]], 2)


def test_pods_whose_object_is_there_stay(
    jobctl: Any, world: World, api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of trainers do, if somebody has deleted the Job of the servers."""
    for name, value in (("GONE", 0.3), ("COLLECTED", 0.0)):
        monkeypatch.setattr(removal, name, value)
    jobctl(*UP)
    client = connect(None, None, {"KUBECONFIG": str(api.kubeconfig(tmp_path / "config"))})
    removal.Removal(client, "resnet", lambda text: None, 0.0).remove_pods(but_of=api.list("Job"))
    assert len(world.pods()) == 2
