"""A change that replaces what runs: the API server is asked first whether it takes what comes after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kube.conftest import SPEC
from tests.kube.server import ApiServer
from tests.kube.world import World

UP = ("up", "--target", "kubernetes")


@pytest.mark.real
@pytest.mark.needs("jobs")
@pytest.mark.parametrize(
    ("status", "words"),
    [
        (422, "Job.batch is invalid: must be between 0 and 2147483647"),
        (403, 'admission webhook "policy" denied the request: containers cannot run as -1'),
    ],
)
def test_a_change_that_the_server_refuses_leaves_the_job_as_it_runs(
    jobctl: Any, world: World, api: ApiServer, status: int, words: str
) -> None:
    jobctl(*UP)
    before = api.get("Job", "resnet")["metadata"]["uid"]
    Path("job.yaml").write_text(SPEC + "kubernetes: {pod_security_context: {runAsUser: -1}}\n")
    api.fail("patch", "jobs", status, words=words)
    ran = jobctl("up")
    assert (ran.code, "replace" in ran.err, "cannot patch Job resnet in namespace" in ran.err) == (3, False, True)
    assert (api.get("Job", "resnet")["metadata"]["uid"], len(world.pods())) == (before, 2)
    assert jobctl("status", "resnet", "-o", "json").json["phase"] == "running"


def test_a_change_that_is_refused_is_not_what_the_job_is(jobctl: Any, world: World, api: ApiServer) -> None:
    jobctl(*UP)
    Path("job.yaml").write_text(SPEC.replace("nodes: 2", "nodes: 3"))
    words = 'admission webhook "size" denied the request: two pods at most'
    api.fail("patch", "jobs", 403, words=words)
    ran = jobctl("up")
    assert (ran.code, ran.err.splitlines()[-1].endswith(words)) == (3, True), ran.err
    found = jobctl("status", "resnet", "-o", "json").json
    assert (found["phase"], [node["state"] for node in found["nodes"]]) == ("running", ["running", "running"])
    Path("job.yaml").write_text(SPEC)
    assert jobctl("up").err == "job `resnet` is running as the spec says; nothing to do\n"


def test_nothing_is_made_of_a_job_that_is_refused(jobctl: Any, world: World, api: ApiServer) -> None:
    api.fail("patch", "jobs", 403, words='admission webhook "size" denied the request: no jobs today')
    ran = jobctl(*UP)
    assert (ran.code, ran.err.splitlines()[-1].endswith("no jobs today")) == (3, True), ran.err
    assert (api.list("ConfigMap", "jobctl.dev/job=resnet"), "resnet" in jobctl("list").out) == ([], False)


@pytest.mark.real
@pytest.mark.needs("jobs")
def test_a_job_that_may_not_be_deleted_goes_on(jobctl: Any, world: World, api: ApiServer) -> None:
    jobctl(*UP)
    before = api.get("Job", "resnet")["metadata"]["uid"]
    Path("job.yaml").write_text(SPEC + "args: [--epochs, '3']\n")
    words = 'admission webhook "keeper" denied the request: it is kept until Monday'
    api.fail("delete", "jobs", 403, words=words)
    ran = jobctl("up")
    told = f"error: test: cannot delete Job resnet in namespace {api.namespace}: {words}"
    assert (ran.code, ran.err.splitlines()) == (3, [told])
    assert (api.get("Job", "resnet")["metadata"]["uid"], len(world.pods())) == (before, 2)
    assert jobctl("up").code == 0


def test_a_job_that_is_ended_and_not_made_again_is_no_job_that_nothing_was_done_to(
    jobctl: Any, world: World, api: ApiServer
) -> None:
    jobctl(*UP)
    Path("job.yaml").write_text(SPEC + "args: [--epochs, '3']\n")
    api.fail("patch", "jobs", 500, skip=1)  # the dry run passes
    ran = jobctl("up")
    said = "error: what runs was ended; `jobctl up` again does the others"
    assert (ran.code, said in ran.err.splitlines()) == (4, True)
    assert jobctl("up").code == 0


@pytest.mark.parametrize(
    "refusal", ["exceeded quota: jobs, requested: count/jobs.batch=1", "User cannot patch resource"]
)
def test_what_only_a_dry_run_is_refused_for_does_not_stop_a_change(
    jobctl: Any, world: World, api: ApiServer, refusal: str
) -> None:
    jobctl(*UP)
    Path("job.yaml").write_text(SPEC + "args: [--epochs, '3']\n")
    api.fail("patch", "jobs", 403, words=refusal)
    asked = len(api.requests)
    assert jobctl("up").code == 0
    tried = [one for one in api.requests[asked:] if one.startswith("PATCH") and "/jobs/" in one and "dryRun" in one]
    assert (len(tried), "/jobs/resnet?" in tried[0]) == (1, False)


@pytest.mark.parametrize("command", ["up", "restart"])
def test_logs_of_pods_that_are_replaced_are_kept(
    jobctl: Any, world: World, api: ApiServer, here: Path, command: str
) -> None:
    """Those of a job that had failed are what its next version is written by."""
    jobctl(*UP)
    api.print("resnet-1-abcde", "rank1 | ValueError: no such layer")
    world.end("resnet-1-abcde", 7)
    world.condition("Job", "resnet", "Failed", "backoff limit")
    ran = jobctl(command, "resnet" if command == "restart" else "job.yaml")
    (kept,) = here.glob("state/jobs/resnet/history/*/node-1/logs/0/workerlog.0")
    assert (ran.code, kept.read_text()) == (0, "ValueError: no such layer\n")
    assert f"the logs of the pods that were ended are in {kept.parents[3]}" in ran.err.splitlines()
