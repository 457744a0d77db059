"""One contract for all API servers that tests run against: what holds here for real ones, the fake one does too.

What the servers do differently is in backend.CAPABILITIES; a test that needs it says so.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kube.backend import REVIEWS, Answer, Asked, path_of
from tests.kube.server import ApiServer
from tests.kube.store import Object, Refused

pytestmark = pytest.mark.real

APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"


def config(name: str = "one", data: str = "first", **labels: str) -> Object:
    meta = {"name": name, "labels": {"app": "demo", **labels}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"key": data}}


def apply(api: ApiServer, thing: Object, manager: str = "jobctl", **query: str) -> Answer:
    """Return the answer to an apply, as it came."""
    path = path_of(api.served(thing["kind"]), api.namespace, thing["metadata"]["name"])
    return api.backend.answer(Asked("PATCH", path, {"fieldManager": manager, "force": "false", **query}, thing, APPLY))


def refused(api: ApiServer, *how: Any, **more: Any) -> tuple[int, str]:
    """Return the status and the reason that a request is refused with."""
    with pytest.raises(Refused) as why:
        api.ask(*how, **more)
    return why.value.code, why.value.reason


# What is asked for and is not there.


def test_what_is_not_there_is_not_found_by_its_name(api: ApiServer) -> None:
    for method in ("GET", "DELETE"):
        with pytest.raises(Refused) as why:
            api.ask(method, "Pod", "nobody")
        told = why.value
        assert (told.code, told.reason, told.message) == (404, "NotFound", 'pods "nobody" not found')
        assert (told.details["name"], told.details["kind"]) == ("nobody", "pods")
    assert refused(api, "PATCH", "Pod", "nobody", content=MERGE, body={"spec": {}}) == (404, "NotFound")


@pytest.mark.parametrize(
    "path", ["/apis/no.such.org", "/apis/no.such.org/v1", "/apis/no.such.org/v1/namespaces/ml/things"]
)
def test_a_path_that_nothing_is_served_at_has_no_status(api: ApiServer, path: str) -> None:
    answer = api.backend.answer(Asked("GET", path))
    assert (answer.status, answer.value) == (404, "404 page not found\n")


def test_what_is_served_can_be_asked_for(api: ApiServer) -> None:
    told = api.backend.answer(Asked("GET", "/apis/batch/v1")).value["resources"]
    (jobs,) = [one for one in told if one["name"] == "jobs"]
    assert (jobs["kind"], jobs["namespaced"]) == ("Job", True)
    group = api.backend.answer(Asked("GET", "/apis/batch")).value
    assert "v1" in [one["version"] for one in group["versions"]]
    assert api.backend.answer(Asked("GET", "/version")).value["gitVersion"].startswith("v1.")


def test_nothing_is_made_in_a_namespace_that_is_not_there(api: ApiServer) -> None:
    thing = config()
    path = path_of(api.served("ConfigMap"), "nowhere", "one")
    answer = api.backend.answer(Asked("PATCH", path, {"fieldManager": "jobctl"}, thing, APPLY))
    assert (answer.status, answer.value["reason"]) == (404, "NotFound")
    assert answer.value["details"]["name"] == "nowhere"
    assert refused(api, "POST", "ConfigMap", body=thing, namespace="nowhere") == (404, "NotFound")


def test_an_object_says_the_namespace_of_its_path_or_none(api: ApiServer) -> None:
    thing = config()
    thing["metadata"]["namespace"] = "elsewhere"
    answer = apply(api, thing)
    assert (answer.status, answer.value["reason"]) == (400, "BadRequest")


# Creating and changing.


def test_an_object_is_created_once(api: ApiServer) -> None:
    made = api.create("ConfigMap", config())
    assert {"uid", "resourceVersion", "creationTimestamp"} <= made["metadata"].keys()
    assert made["metadata"]["namespace"] == api.namespace
    assert refused(api, "POST", "ConfigMap", body=config()) == (409, "AlreadyExists")


def test_a_status_is_changed_apart_from_the_rest(api: ApiServer) -> None:
    spec = {"containers": [{"name": "node", "image": "busybox"}]}
    pod = {"metadata": {"name": "one"}, "spec": spec, "status": {"phase": "Running", "reason": "said"}}
    path = path_of(api.served("Pod"), api.namespace)
    made = api.backend.answer(Asked("POST", path, {}, {"apiVersion": "v1", "kind": "Pod", **pod})).value
    assert "reason" not in made.get("status", {})
    told = api.status("Pod", "one", phase="Running", reason="heard")
    assert (told["status"]["reason"], told["spec"]["containers"][0]["image"]) == ("heard", "busybox")


def test_a_merge_changes_what_it_names_and_no_more(api: ApiServer) -> None:
    before = api.create("ConfigMap", {**config(), "data": {"key": "first", "other": "stays"}})
    after = api.merge("ConfigMap", "one", {"data": {"key": "second"}})
    assert after["data"] == {"key": "second", "other": "stays"}
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]


def test_a_merge_that_names_an_old_version_is_a_conflict(api: ApiServer) -> None:
    before = api.create("ConfigMap", config())
    api.merge("ConfigMap", "one", {"data": {"key": "second"}})
    stale = {"metadata": {"resourceVersion": before["metadata"]["resourceVersion"]}, "data": {"key": "third"}}
    assert refused(api, "PATCH", "ConfigMap", "one", content=MERGE, body=stale) == (409, "Conflict")


def test_a_merge_that_names_another_uid_is_invalid(api: ApiServer) -> None:
    api.create("ConfigMap", config())
    with pytest.raises(Refused) as why:
        api.merge("ConfigMap", "one", {"metadata": {"uid": "another"}})
    assert (why.value.code, why.value.reason) == (422, "Invalid")
    assert "metadata.uid" in [cause["field"] for cause in why.value.details["causes"]]


# Applying.


def test_the_first_apply_creates_and_the_same_again_changes_nothing(api: ApiServer) -> None:
    first = apply(api, config())
    again = apply(api, config())
    assert (first.status, again.status) == (201, 200)
    assert first.value["metadata"]["resourceVersion"] == again.value["metadata"]["resourceVersion"]


def test_a_dry_run_tells_and_does_nothing(api: ApiServer) -> None:
    dry = {"dryRun": "All"}
    assert (apply(api, config(), **dry).status, refused(api, "GET", "ConfigMap", "one")) == (201, (404, "NotFound"))
    before = apply(api, config()).value
    would = apply(api, config(data="second"), **dry)
    assert (would.status, would.value["data"]) == (200, {"key": "second"})
    assert api.get("ConfigMap", "one")["data"] == before["data"]


def test_what_is_no_longer_applied_goes(api: ApiServer) -> None:
    apply(api, config(extra="label"))
    assert "extra" not in apply(api, config()).value["metadata"]["labels"]


def test_a_field_that_somebody_else_has_set_is_a_conflict_unless_forced(api: ApiServer) -> None:
    apply(api, config())
    api.merge("ConfigMap", "one", {"data": {"key": "theirs"}}, "kubectl-edit")
    answer = apply(api, config())
    assert (answer.status, answer.value["reason"]) == (409, "Conflict")
    assert answer.value["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "kubectl-edit" using v1', "field": ".data.key"}
    ]
    taken = apply(api, config(), force="true")
    assert (taken.status, taken.value["data"], apply(api, config()).status) == (200, {"key": "first"}, 200)


def test_two_who_apply_the_same_field_differently_are_a_conflict(api: ApiServer) -> None:
    apply(api, config(), "first")
    answer = apply(api, config(data="second"), "second")
    told = [cause["message"] for cause in answer.value["details"]["causes"]]
    assert (answer.status, told) == (409, ['conflict with "first"'])


@pytest.mark.needs("schemas")
def test_a_field_that_nobody_knows_is_not_applied(api: ApiServer) -> None:
    answer = apply(api, {**config(), "typo": "x"})
    assert (answer.status, ".typo: field not declared in schema" in answer.value["message"]) == (500, True)


@pytest.mark.needs("strict")
def test_a_field_that_nobody_knows_is_not_created(api: ApiServer) -> None:
    with pytest.raises(Refused, match='unknown field "typo"') as why:
        api.ask("POST", "ConfigMap", body={**config(), "typo": "x"}, fieldValidation="Strict")
    assert why.value.code == 400


@pytest.mark.needs("rules")
def test_a_pod_without_an_image_is_invalid(api: ApiServer) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": {"containers": [{"name": "node"}]}}
    assert refused(api, "POST", "Pod", body=pod) == (422, "Invalid")


# Deleting.


def test_what_is_deleted_is_gone(api: ApiServer) -> None:
    made = api.create("ConfigMap", config())
    answer = api.ask("DELETE", "ConfigMap", "one", body={"preconditions": {"uid": made["metadata"]["uid"]}})
    assert (answer["status"], answer["details"]["uid"]) == ("Success", made["metadata"]["uid"])
    assert refused(api, "GET", "ConfigMap", "one") == (404, "NotFound")


def test_a_dry_run_of_a_deletion_deletes_nothing(api: ApiServer) -> None:
    """Said in the body: where there is one, servers take no notice of the query."""
    apply(api, config())
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground", "dryRun": ["All"]}
    api.ask("DELETE", "ConfigMap", "one", body=options)
    assert "deletionTimestamp" not in api.get("ConfigMap", "one")["metadata"]


def test_only_the_object_that_is_meant_is_deleted(api: ApiServer) -> None:
    api.create("ConfigMap", config())
    how = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "another"}}
    assert refused(api, "DELETE", "ConfigMap", "one", body=how) == (409, "Conflict")
    assert api.get("ConfigMap", "one")["data"] == {"key": "first"}


def test_what_a_finalizer_holds_goes_with_it(api: ApiServer) -> None:
    thing = config()
    thing["metadata"]["finalizers"] = ["example.com/hold"]
    made = api.create("ConfigMap", thing)
    api.delete("ConfigMap", "one")
    held = api.get("ConfigMap", "one")["metadata"]
    assert (held["uid"], "deletionTimestamp" in held) == (made["metadata"]["uid"], True)
    api.merge("ConfigMap", "one", {"metadata": {"finalizers": []}})
    assert refused(api, "GET", "ConfigMap", "one") == (404, "NotFound")


def _job_with_pod(api: ApiServer) -> Object:
    spec = {"containers": [{"name": "node", "image": "busybox"}], "restartPolicy": "Never"}
    job = api.create("Job", {"metadata": {"name": "one"}, "spec": {"template": {"spec": spec}}})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "one", "uid": job["metadata"]["uid"]}
    meta = {"name": "pod", "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}]}
    api.create("Pod", {"metadata": meta, "spec": spec})
    return job


def test_what_is_deleted_in_the_foreground_waits(api: ApiServer) -> None:
    with _watching(api, "Job") as events:
        _job_with_pod(api)
        api.delete("Job", "one", "Foreground")
        seen = next(
            thing for event, thing in events if event == "MODIFIED" and "deletionTimestamp" in thing["metadata"]
        )
    assert seen["metadata"]["finalizers"] == ["foregroundDeletion"]


@pytest.mark.needs("collector")
def test_a_collector_removes_what_hangs_on_it_first(api: ApiServer) -> None:
    with _watching(api, "Pod") as pods, _watching(api, "Job") as jobs:
        _job_with_pod(api)
        api.delete("Job", "one", "Foreground")
        assert next(thing["metadata"]["name"] for event, thing in pods if event == "DELETED") == "pod"
        assert next(thing["metadata"]["name"] for event, thing in jobs if event == "DELETED") == "one"


@pytest.mark.needs("no-collector")
def test_without_a_collector_it_waits_until_the_finalizer_is_taken_away(api: ApiServer) -> None:
    _job_with_pod(api)
    api.delete("Job", "one", "Foreground")
    assert [pod["metadata"]["name"] for pod in api.list("Pod")] == ["pod"]
    api.merge("Job", "one", {"metadata": {"finalizers": []}})
    assert refused(api, "GET", "Job", "one") == (404, "NotFound")


# Listing and watching.


def test_a_list_has_what_its_selector_chooses(api: ApiServer) -> None:
    for name, job in (("a", "one"), ("b", "two"), ("c", "one")):
        api.create("ConfigMap", config(name, job=job))
    assert [one["metadata"]["name"] for one in api.list("ConfigMap", "job=one")] == ["a", "c"]
    assert [one["metadata"]["name"] for one in api.list("ConfigMap", "job=one,app=other")] == []


def test_a_list_comes_in_pages_of_one_version(api: ApiServer) -> None:
    for name in "abcde":
        api.create("ConfigMap", config(name))
    pages, more = [], {"limit": "2"}
    while True:
        page = api.ask("GET", "ConfigMap", **more)
        pages.append([one["metadata"]["name"] for one in page["items"]])
        if not page["metadata"].get("continue"):
            break
        more["continue"] = page["metadata"]["continue"]
    assert pages == [["a", "b"], ["c", "d"], ["e"]]
    assert refused(api, "GET", "ConfigMap", **{"limit": "2", "continue": "nonsense"}) == (400, "BadRequest")


@contextlib.contextmanager
def _watching(api: ApiServer, kind: str, selector: str = "app=demo") -> Iterator[Iterator[tuple[str, Object]]]:
    """Yield the events of a watch that begins with what a list has; it ends with the block."""
    chosen = {"labelSelector": selector} if kind == "ConfigMap" else {}
    version = api.ask("GET", kind, **chosen)["metadata"]["resourceVersion"]
    lines = api.ask("GET", kind, watch="true", resourceVersion=version, timeoutSeconds="120", **chosen)
    yield ((told["type"], told["object"]) for told in map(json.loads, lines) if told["type"] != "BOOKMARK")
    lines.close()


def test_a_watch_tells_all_that_came_after_its_list_in_order(api: ApiServer) -> None:
    api.create("ConfigMap", config("before"))
    with _watching(api, "ConfigMap") as events:
        api.create("ConfigMap", config("a"))
        api.create("ConfigMap", {**config("b"), "metadata": {"name": "b", "labels": {"app": "other"}}})
        api.merge("ConfigMap", "a", {"data": {"key": "second"}})
        api.delete("ConfigMap", "a")
        told = [next(events) for _ in range(3)]
    assert [(event, one["metadata"]["name"]) for event, one in told] == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
    ]
    versions = [int(one["metadata"]["resourceVersion"]) for _, one in told]
    assert versions == sorted(set(versions))
    assert told[1][1]["data"] == {"key": "second"}


def test_a_watch_tells_what_its_selector_begins_and_ceases_to_choose(api: ApiServer) -> None:
    api.create("ConfigMap", {**config("a"), "metadata": {"name": "a", "labels": {"app": "other"}}})
    with _watching(api, "ConfigMap") as events:
        api.merge("ConfigMap", "a", {"metadata": {"labels": {"app": "demo"}}})
        api.merge("ConfigMap", "a", {"metadata": {"labels": {"app": "other"}}})
        api.create("ConfigMap", config("last"))
        told = [next(events) for _ in range(3)]
    assert [(event, one["metadata"]["name"]) for event, one in told] == [
        ("ADDED", "a"),
        ("DELETED", "a"),
        ("ADDED", "last"),
    ]


def test_a_watch_ends_when_its_time_is_over(api: ApiServer) -> None:
    version = api.ask("GET", "ConfigMap")["metadata"]["resourceVersion"]
    lines = api.ask("GET", "ConfigMap", watch="true", resourceVersion=version, timeoutSeconds="1")
    assert [line for line in lines if b"BOOKMARK" not in line] == []


def test_a_change_is_told_to_all_who_watch(api: ApiServer) -> None:
    with _watching(api, "ConfigMap") as one, _watching(api, "ConfigMap") as other:
        heard: list[str] = []
        reader = threading.Thread(target=lambda: heard.append(next(other)[1]["metadata"]["name"]))
        reader.start()
        api.create("ConfigMap", config("a"))
        reader.join(120)
        assert (next(one)[1]["metadata"]["name"], heard) == ("a", ["a"])


# Rights.


@pytest.mark.needs("reviews")
def test_who_asks_is_told_what_is_allowed(api: ApiServer) -> None:
    asked = {"namespace": api.namespace, "verb": "get", "group": "", "version": "v1", "resource": "pods"}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    answer = api.backend.answer(Asked("POST", REVIEWS, {}, {**body, "spec": {"resourceAttributes": asked}}))
    assert (answer.status, answer.value["status"]["allowed"]) == (201, True)
