"""Whose a job in a cluster is: another user's, another tool's, in another place, or of an older jobctl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.kubernetes.api import APPLY
from jobctl.jobspec.operations.lifecycle.in_cluster import ClusterJob
from tests.kube.conftest import SPEC
from tests.kube.server import ApiServer
from tests.kube.world import World

UP = ("up", "--target", "kubernetes")


def test_marks_of_old_still_tell_whose_a_job_is(jobctl: Any, world: World, api: ApiServer) -> None:
    """Until 0.1 labels had no domain: such a job is seen, is what it was, and goes with `down`."""
    assert jobctl(*UP).code == 0
    for record in api.store.records.values():
        _age(record.thing)
    state = jobctl("status", "resnet", "-o", "json").json
    assert (state["phase"], [node["role"] for node in state["nodes"]]) == ("running", ["trainer", "trainer"])
    again = jobctl("up")
    assert (again.code, again.err) == (0, "job `resnet` is running as the spec says; nothing to do\n")
    Path("job.yaml").write_text(SPEC + "args: [--epochs, '3']\n")
    plan = jobctl("plan")
    assert (plan.code, "replace Job resnet: the spec changed" in plan.out.splitlines()) == (10, True)
    assert jobctl("up").code == 0
    assert [pod["metadata"]["labels"]["jobctl.dev/job"] for pod in world.pods()] == ["resnet", "resnet"]
    assert jobctl("plan").code == 0
    for record in api.store.records.values():
        _age(record.thing)
    down = jobctl("down", "resnet")
    assert (down.code, api.names()) == (0, [])


def test_what_another_version_of_jobctl_has_made_goes_on(jobctl: Any, world: World, api: ApiServer) -> None:
    """It rendered the Job and a ConfigMap in another way, from the same spec."""
    assert jobctl(*UP).code == 0
    _mark(api, {"jobctl.dev/spec": "0" * 64, "jobctl.dev/version": "0.0.9"})
    again = jobctl("up")
    assert (again.code, again.err) == (0, "job `resnet` is running as the spec says; nothing to do\n")
    Path("job.yaml").write_text(SPEC + "args: [--epochs, '3']\n")
    assert "replace Job resnet: the spec changed" in jobctl("plan").out.splitlines()
    Path("job.yaml").write_text(SPEC)
    assert "replace Job resnet: `--recreate`" in jobctl("up", "--recreate").err.splitlines()
    assert jobctl("plan").code == 0
    _mark(api, {"jobctl.dev/spec": "0" * 64})  # an edit of what this version has made
    assert "replace Job resnet: the spec changed" in jobctl("plan").out.splitlines()


def test_what_another_version_has_made_is_made_again_once_it_is_stopped(
    jobctl: Any, world: World, api: ApiServer
) -> None:
    """New pods begin anyway; the spec is what it was."""
    assert (jobctl(*UP).code, jobctl("stop", "resnet").code) == (0, 0)
    _mark(api, {"jobctl.dev/spec": "0" * 64, "jobctl.dev/version": "0.0.9"})
    plan = jobctl("plan").out.splitlines()
    assert "replace Job resnet: another version of jobctl made it in another way" in plan
    assert (jobctl("up").code, jobctl("plan").code, len(world.pods())) == (0, 0, 2)


def test_new_pods_have_the_launcher_of_the_version_that_makes_them(jobctl: Any, world: World, api: ApiServer) -> None:
    """Another launcher alone makes no new pods."""
    assert jobctl(*UP).code == 0
    launcher = api.get("ConfigMap", "resnet-launcher")["data"]
    changed = "change ConfigMap resnet-launcher: `data.launcher.py` differs"
    for command in ("up --recreate", "restart resnet", "up --set args=[1]"):
        (record,) = [one for one in api.store.records.values() if "launcher.py" in one.thing.get("data", {})]
        record.thing["data"] = {"launcher.py": "# of another version"}
        again = jobctl("up")
        assert (again.code, again.err) == (0, "job `resnet` is running as the spec says; nothing to do\n")
        ran = jobctl(*command.split())
        assert (ran.code, changed in ran.err.splitlines()) == (0, True), command
        assert api.get("ConfigMap", "resnet-launcher")["data"] == launcher


@pytest.mark.parametrize("secret", [False, True])
def test_what_another_version_of_jobctl_has_made_can_be_restarted(
    jobctl: Any, world: World, api: ApiServer, monkeypatch: pytest.MonkeyPatch, secret: bool
) -> None:
    """A secret that it had rendered in another way, `restart` would empty: it does not know its value."""
    monkeypatch.setenv("TOKEN", "sesam")
    Path("job.yaml").write_text(SPEC + "secrets: [TOKEN]\n")
    assert jobctl(*UP).code == 0
    _mark(api, {"jobctl.dev/spec": "0" * 64, "jobctl.dev/version": "0.0.9"})
    if secret:
        (record,) = [one for one in api.store.records.values() if one.thing["kind"] == "Secret"]
        record.thing["metadata"]["labels"]["app.kubernetes.io/name"] = "old"
    before = api.get("Secret", "resnet-secrets")["data"]
    ran = jobctl("restart", "resnet")
    refused = [
        "error: job `resnet` is not in the cluster as it was brought up",
        "hint: `jobctl up --recreate` fixes that first",
    ]
    started = ["replace Job resnet: `jobctl restart`", "change ConfigMap resnet: `data.control.json` differs"]
    assert (ran.code, ran.err.splitlines()[:2]) == ((2, refused) if secret else (0, started))
    assert api.get("Secret", "resnet-secrets")["data"] == before
    assert jobctl("up", *(["--recreate"] if secret else [])).code == 0
    assert jobctl("plan").code == 0


def _mark(api: ApiServer, marks: dict[str, str]) -> None:
    """Give the Job other annotations, and the ConfigMap another text."""
    things = {record.thing["kind"]: record.thing for record in api.store.records.values()}
    things["Job"]["metadata"]["annotations"].update(marks)
    config = next(r.thing for r in api.store.records.values() if "control.json" in r.thing.get("data", {}))
    config["data"]["control.json"] = "{}"


def _age(thing: Any) -> None:
    """Give an object the marks of an older jobctl, and a hash of its own."""
    if isinstance(thing, dict):
        for key in list(thing):
            if key.startswith("jobctl.dev/"):
                value = thing.pop(key)
                if key not in ("jobctl.dev/inputs", "jobctl.dev/version"):
                    thing[key.replace("jobctl.dev/", "jobctl.")] = "0" * 64 if key == "jobctl.dev/spec" else value
            elif key in ("app.kubernetes.io/name", "app.kubernetes.io/component"):
                del thing[key]
            else:
                _age(thing[key])


def test_a_job_of_another_owner_is_left_alone(jobctl: Any, world: World, api: ApiServer) -> None:
    jobctl(*UP)
    api.merge("Job", "resnet", {"metadata": {"annotations": {"jobctl.dev/owner": "eve@desk"}}}, "jobctl")
    ran = jobctl("up", "--recreate")
    assert (ran.code, ran.err.splitlines()) == (
        5,
        [
            f"error: job `resnet` in test/{api.namespace} belongs to eve@desk, and is left alone",
            "hint: give yours another `name`, or `--take-over` if it is yours nevertheless",
        ],
    )
    assert jobctl("down", "resnet").code == 5
    assert (jobctl("plan").code, jobctl("plan", "--take-over").code) == (5, 10)
    taken = jobctl("up", "--take-over")
    assert (taken.code, taken.err.splitlines()[0]) == (0, "change Job resnet: it is eve@desk's")
    assert jobctl("up").err == "job `resnet` is running as the spec says; nothing to do\n"
    assert jobctl("down", "resnet").code == 0


@pytest.mark.real
@pytest.mark.needs("jobs")
@pytest.mark.parametrize("theirs", ["resnet-launcher", "resnet-code"])
def test_a_job_that_another_user_brings_up_just_now_is_left_alone(
    jobctl: Any, world: World, api: ApiServer, monkeypatch: pytest.MonkeyPatch, theirs: str
) -> None:
    """Both have seen that there is none. The other one may begin with an object that this job does not have."""
    marks = {"labels": {"jobctl.dev/job": "resnet"}, "annotations": {"jobctl.dev/owner": "eve@desk"}}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": theirs, **marks}, "data": {"a": "b"}}

    def try_out(*_: Any, **__: Any) -> None:
        api.ask("PATCH", "ConfigMap", theirs, body=body, content=APPLY, fieldManager="jobctl", force="false")

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(ClusterJob, "_try_out", try_out)
        ran = jobctl(*UP)
    place = f"test/{api.namespace}"
    told = f"error: {place}: there is a ConfigMap {theirs} already and belongs to eve@desk: it is left alone"
    assert (ran.code, told in ran.err.splitlines()) == (5, True)
    assert (api.names(), api.get("ConfigMap", theirs)["data"]) == ([f"ConfigMap {theirs}"], {"a": "b"})
    api.delete("ConfigMap", theirs)
    assert jobctl(*UP).code == 0
    fields = api.get("ConfigMap", "resnet-launcher")["metadata"].get("managedFields", [])  # the fake server hides them
    assert {(one["manager"], one["operation"]) for one in fields} in (set(), {("jobctl", "Apply")})
    assert (jobctl("plan").code, jobctl("down", "resnet").code) == (0, 0)


def test_what_is_left_of_a_job_of_another_owner_is_left_alone(jobctl: Any, world: World, api: ApiServer) -> None:
    """Its Job has gone, some time after its end: the values of its secrets, and its code, are still somebody's."""
    jobctl(*UP)
    api.delete("Job", "resnet")
    for pod in world.pods():
        api.delete("Pod", pod["metadata"]["name"])
    left = _give(api, "eve@desk")
    assert left == ["ConfigMap resnet", "ConfigMap resnet-launcher", "Service resnet"]
    for command in (("up",), ("down", "resnet"), ("stop", "resnet")):
        ran = jobctl(*command)
        assert (ran.code, "eve@desk, and is left alone" in ran.err, api.names()) == (5, True, left), command
    taken = jobctl("up", "--take-over")
    assert (taken.code, "change Service resnet: it is eve@desk's" in taken.err.splitlines()) == (0, True)
    assert jobctl("up").err == "job `resnet` is running as the spec says; nothing to do\n"
    assert jobctl("down", "resnet").code == 0


def test_what_a_version_has_made_that_told_no_owner_is_no_change(jobctl: Any, world: World, api: ApiServer) -> None:
    """Until 0.2, only objects that make pods named their owner."""
    jobctl(*UP)
    assert _give(api, None) == ["ConfigMap resnet", "ConfigMap resnet-launcher", "Job resnet", "Service resnet"]
    assert jobctl("up").err == "job `resnet` is running as the spec says; nothing to do\n"
    assert (jobctl("restart", "resnet").code, jobctl("plan").code, jobctl("down", "resnet").code) == (0, 0, 0)


def _give(api: ApiServer, owner: str | None) -> list[str]:
    """Have all objects belong to somebody else, except what makes pods; None: tell nobody's name. Return what there is."""
    for record in api.store.records.values():
        if record.thing["kind"] in ("ConfigMap", "Service"):
            annotations = record.thing["metadata"]["annotations"]
            annotations["jobctl.dev/owner"] = owner
            if owner is None:
                del record.thing["metadata"]["annotations"]
    return [name for name in api.names() if not name.startswith("Pod ")]


def test_what_jobctl_did_not_make_is_left_alone(jobctl: Any, world: World, api: ApiServer) -> None:
    api.create("Service", {"metadata": {"name": "resnet"}, "spec": {"ports": [{"port": 80}]}})
    ran = jobctl(*UP)
    assert (ran.code, ran.err.splitlines()[0], api.names()) == (
        5,
        f"error: test/{api.namespace}: there is a Service resnet already, which jobctl did not make: it is left alone",
        ["Service resnet"],
    )


@pytest.mark.real
@pytest.mark.needs("jobs")
def test_a_conflict_names_the_field_and_who_set_it(jobctl: Any, world: World, api: ApiServer) -> None:
    jobctl(*UP)
    api.merge("Service", "resnet", {"metadata": {"labels": {"app.kubernetes.io/name": "mine"}}}, "kubectl-edit")
    field = ".metadata.labels.app.kubernetes.io/name"
    ran, theirs = jobctl("up"), 'conflict with "kubectl-edit" using v1'
    assert (ran.code, ran.err.splitlines()) == (
        3,
        [
            f"error: test: cannot patch Service resnet in namespace {api.namespace}: {field}: {theirs}",
            "hint: `--take-over` takes these fields, if the object is yours",
        ],
    )
    assert jobctl("up", "--take-over").code == 0


def test_a_job_is_not_brought_up_in_two_places(jobctl: Any, world: World, api: ApiServer) -> None:
    api.backend.make_namespace("other")
    jobctl(*UP)
    ran = jobctl("up", "-n", "other")
    assert (ran.code, ran.err.splitlines()[0]) == (
        2,
        f"error: job `resnet` is up in test/{api.namespace}, and would be brought up in test/other too",
    )


def test_a_job_is_not_forgotten_by_a_down_in_another_place(jobctl: Any, world: World, api: ApiServer) -> None:
    """It would be brought up there next, and train in two places."""
    api.backend.make_namespace("other")
    jobctl(*UP)
    home, before = f"test/{api.namespace}", api.names()
    down = jobctl("down", "resnet", "-n", "other")
    assert (down.code, down.err.splitlines()) == (
        4,
        [
            f"error: {home}: job `resnet` was brought up there, and it is not among the places of this command",
            "hint: `jobctl down resnet` without `--hosts`, `--context` and `--namespace` goes there",
            f"error: job `resnet` is down, but not on {home}",
            "hint: `jobctl down resnet` again cleans up there once that is fixed",
        ],
    )
    assert (jobctl("up", "-n", "other").code, api.names(), len(world.pods())) == (2, before, 2)
    assert (jobctl("down", "resnet").code, api.names()) == (0, [])
    assert jobctl("plan", "-n", "other").code == 10


def test_a_label_that_somebody_has_taken_away_ends_no_pods(jobctl: Any, world: World, api: ApiServer) -> None:
    jobctl(*UP)
    before = api.get("Job", "resnet")["metadata"]["uid"]
    (record,) = [one for one in api.store.records.values() if "control.json" in one.thing.get("data", {})]
    del record.thing["metadata"]["labels"]["app.kubernetes.io/managed-by"]
    changed = "change ConfigMap resnet: `metadata.labels.app.kubernetes.io/managed-by` differs"
    ran = jobctl("up")
    assert (ran.code, ran.err.splitlines()[0]) == (0, changed)
    assert (api.get("Job", "resnet")["metadata"]["uid"], jobctl("plan").code) == (before, 0)
