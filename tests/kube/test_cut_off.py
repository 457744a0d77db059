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
    monkeypatch.setattr(removal, "COLLECTOR_TIMEOUT", 0.1)
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
    for name, value in (("REMOVAL_TIMEOUT", 0.3), ("COLLECTOR_TIMEOUT", 0.0)):
        monkeypatch.setattr(removal, name, value)
    jobctl(*UP)
    client = connect(None, None, {"KUBECONFIG": str(api.kubeconfig(tmp_path / "config"))})
    removal.Removal(client, "resnet", lambda text: None, 0.0).remove_pods(but_of=api.list("Job"))
    assert len(world.pods()) == 2


PS = """\
name: resnet
framework: paddle
image: registry.example.com/train:1
module: train
mode: ps
devices: cpu:2
ps: {servers: 1, trainers: 2}
checkpoint: /checkpoints/resnet
stop_grace_period: 1s
"""


def test_a_stop_that_was_cut_off_is_completed_by_the_next_one(jobctl: Any, world: World, api: ApiServer) -> None:
    """Of a job with roles the Job of one role is suspended, and those of others are not."""
    Path("job.yaml").write_text(PS)
    jobctl(*UP)
    api.fail("patch", "jobs", 500, name="resnet-trainer")
    assert jobctl("stop", "resnet").code == 4
    state = jobctl("status", "resnet", "-o", "json").json
    assert (state["phase"], state["reason"]) == ("degraded", "Job resnet-server: it is suspended: Job suspended")
    before = {pod["metadata"]["uid"] for pod in world.pods()}
    assert jobctl("plan").out.splitlines() == ["change Job resnet-server: the job was stopped"]
    assert (jobctl("up").code, len(before & {pod["metadata"]["uid"] for pod in world.pods()})) == (0, 2)
    api.fail("patch", "jobs", 500, name="resnet-trainer")
    assert jobctl("stop", "resnet").code == 4
    assert (jobctl("stop", "resnet").code, world.pods()) == (0, [])


@pytest.mark.real
@pytest.mark.needs("jobs")
def test_what_is_stopped_of_another_versions_job_goes_on_as_it_is(jobctl: Any, world: World, api: ApiServer) -> None:
    """What makes pods cannot be changed in place, and the pods of the other role are not ended for a new version."""
    Path("job.yaml").write_text(PS)
    jobctl(*UP)
    other = {"jobctl.dev/spec": "0" * 64, "jobctl.dev/version": "0.0.9"}
    for name in ("resnet-server", "resnet-trainer"):
        api.merge("Job", name, {"metadata": {"annotations": other}}, "jobctl")
    api.fail("patch", "jobs", 500, name="resnet-trainer")
    assert jobctl("stop", "resnet").code == 4
    before = {pod["metadata"]["uid"] for pod in world.pods()}
    ran = jobctl("up")
    assert (ran.code, ran.err.splitlines()[0]) == (0, "change Job resnet-server: the job was stopped")
    assert (len(before & {pod["metadata"]["uid"] for pod in world.pods()}), len(world.pods())) == (2, 3)
    assert api.get("Job", "resnet-server")["metadata"]["annotations"].items() >= other.items()
    assert jobctl("plan").code == 0


def test_what_is_stopped_and_being_removed_is_made_again(
    jobctl: Any, world: World, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `down` was cut off: to resume what has been deleted would bring nothing up."""
    for name in ("COLLECTOR_TIMEOUT", "ORPHAN_POLL_INTERVAL"):
        monkeypatch.setattr(removal, name, 0.1)
    jobctl(*UP)
    jobctl("stop", "resnet")
    api.store.collects = False
    api.delete("Job", "resnet", "Foreground")
    ran = jobctl("up")
    assert (ran.code, ran.err.splitlines()[0]) == (0, "replace Job resnet: it is being removed")
