"""What the API refuses, loses and forgets, and how commands go on."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobctl.jobspec.deploy.kubernetes.api import Api, connect
from jobctl.jobspec.deploy.kubernetes.kinds import POD
from jobctl.jobspec.deploy.kubernetes.mirror import Mirror
from jobctl.jobspec.deploy.model.errors import DeployError
from tests.kube.handler import TOKEN
from tests.kube.server import ApiServer
from tests.kube.world import World

UP = ("up", "--target", "kubernetes")
MIRROR = "jobctl.jobspec.deploy.kubernetes.mirror"


def client(api: ApiServer, tmp_path: Path) -> Api:
    return connect(None, None, {"KUBECONFIG": str(api.kubeconfig(tmp_path / "config"))})


@pytest.mark.long
def test_a_server_that_is_not_there(jobctl: Any, world: World, api: ApiServer) -> None:
    jobctl(*UP)
    api.close()
    ran = jobctl("status", "resnet", "-o", "json")
    state = ran.json
    assert (ran.code, state["phase"], state["nodes"], state["generation"]) == (3, "unknown", [], None)
    assert [one["code"] for one in state["unreachable"]] == ["api-unreachable"]
    for argv in (
        ("up", "job.yaml"),
        ("logs", "resnet"),
        ("exec", "resnet", "--", "true"),
        ("down", "resnet"),
        ("check",),
    ):
        ran = jobctl(*argv)
        assert (ran.code, "the API server does not answer" in ran.err, "Traceback" in ran.err) == (3, True, False), argv


def test_a_server_that_is_overloaded_is_waited_for(jobctl: Any, world: World, api: ApiServer) -> None:
    api.fail("patch", "services", 429, times=2, retry_after=1)
    api.fail("list", "pods", 503, retry_after=0)
    api.fail("patch", "jobs", 500, retry_after=1)  # ServerTimeout: its store has no leader just now
    begun = time.monotonic()
    assert jobctl(*UP).code == 0
    assert time.monotonic() - begun > 2


def test_connections_that_break_are_made_again(jobctl: Any, world: World, api: ApiServer) -> None:
    api.fail("list", "configmaps", "drop", times=2)
    api.fail("patch", "jobs", "drop")
    api.fail("list", "jobs", "cut")
    assert jobctl(*UP).code == 0
    assert jobctl("up").err == "job `resnet` is running as the spec says; nothing to do\n"


def test_what_fails_in_the_middle_is_told_and_done_by_the_next_up(jobctl: Any, world: World, api: ApiServer) -> None:
    api.fail("patch", "jobs", 500, skip=1)  # the dry run passes
    ran = jobctl(*UP)
    assert (ran.code, ran.err.splitlines()[-2:]) == (
        4,
        [
            "error: test: cannot patch Job resnet in namespace ml: the server fails: told to fail with 500",
            "hint: try again; the API server's own log says more",
        ],
    )
    again = jobctl("up")
    assert (again.code, again.err.splitlines()[0]) == (0, "create Job resnet: not there")


def test_a_missing_right_is_named(jobctl: Any, world: World, api: ApiServer) -> None:
    api.denied.add(("patch", "jobs"))
    ran = jobctl(*UP)
    assert (ran.code, ran.err.splitlines()[0]) == (
        3,
        "error: test/ml: rights: these rights are missing in namespace ml: patch jobs.batch [right-missing]",
    )
    ran = jobctl(*UP, "--skip-check")
    assert (ran.code, ran.err.splitlines()[-2:]) == (
        4,
        [
            "error: test: no right to patch Job resnet in namespace ml",
            'hint: ask for a Role in that namespace with apiGroups ["batch"], resources [jobs], verbs [patch]',
        ],
    )


def test_rights_in_one_namespace_are_enough(jobctl: Any, world: World, api: ApiServer) -> None:
    """What lies outside may all be forbidden, and kinds that the job has none of."""
    for verb in ("get", "list"):
        for resource in ("namespaces", "nodes", "deployments", "resourcequotas", "paddlejobs", "pytorchjobs"):
            api.denied.add((verb, resource))
    assert jobctl(*UP).code == 0
    assert jobctl("status", "resnet").code == 0
    assert jobctl("down", "resnet").code == 0


def test_a_job_without_secrets_needs_no_right_to_secrets(
    jobctl: Any, world: World, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.denied |= {(verb, "secrets") for verb in ("get", "list", "create", "patch", "delete")}
    assert jobctl(*UP).code == 0
    assert jobctl("up").err == "job `resnet` is running as the spec says; nothing to do\n"
    assert jobctl("down", "resnet").code == 0
    monkeypatch.setenv("TOKEN", "s3cret")
    ran = jobctl(*UP, "--skip-check", "--set", "secrets=[TOKEN]")
    assert (ran.code, ran.err.splitlines()[-2]) == (3, "error: test: no right to list secrets in namespace ml")


def test_credentials_that_are_refused(jobctl: Any, api: ApiServer, here: Path) -> None:
    api.kubeconfig(here / "kubeconfig", token="of yesterday")
    ran = jobctl(*UP)
    assert (ran.code, ran.err.splitlines()[0]) == (3, "error: test: cannot list jobs in namespace ml: not logged in")


@pytest.mark.parametrize("token", ["sesam\nopen", "schlüssel"])
def test_credentials_that_no_header_can_carry_are_not_shown(
    jobctl: Any, api: ApiServer, here: Path, token: str
) -> None:
    api.kubeconfig(here / "kubeconfig", token=token)
    ran = jobctl(*UP)
    told = "error: the credentials of the kubeconfig have characters that no header can carry"
    assert (ran.code, ran.err.splitlines()) == (3, [told, "hint: is there a line break in its token?"])


def test_a_token_may_end_with_its_line(jobctl: Any, api: ApiServer, here: Path) -> None:
    api.kubeconfig(here / "kubeconfig", token=f"{TOKEN}\n")
    assert jobctl("check", "--context", "test").code == 0


def test_kubeconfigs_that_do_not_help(jobctl: Any, api: ApiServer, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*argv: str) -> list[str]:
        ran = jobctl(*UP, *argv)
        assert ran.code == 2
        return list(ran.err.splitlines())

    assert refused("--context", "typo") == [
        "error: the kubeconfig has no context `typo`",
        "hint: `--context` chooses one: it has test",
    ]
    config = (here / "kubeconfig").read_text()
    (here / "kubeconfig").write_text(config.replace("current-context: test", "preferences: {}"))
    assert refused()[0] == "error: the kubeconfig has no current context"
    assert jobctl("check", "--context", "test").code == 0  # which it need not have
    for broken in ("contexts: [", "[]", "", "clusters: []\ncontexts: [{}]\n"):
        (here / "kubeconfig").write_text(broken)
        assert refused()[0].startswith("error: no cluster is known: ")
    monkeypatch.setenv("KUBECONFIG", str(here / "gone"))
    assert refused()[0] == f"error: no cluster is known: there is no {here / 'gone'}"


def test_without_the_package_the_extra_is_named(here: Path) -> None:
    code = (
        "import sys\n"
        "sys.modules['kubernetes'] = None\n"
        "from jobctl.main import main\n"
        "main(['up', '--target', 'kubernetes'])"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.splitlines()[-2:]) == (  # after the warnings of `validate`
        2,
        [
            "error: target `kubernetes` needs the Python package `kubernetes`, which is not installed",
            "hint: `pip install kubernetes`, in the environment where jobctl is",
        ],
    )


# Watches.


@pytest.fixture
def mirror(api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    for name in ("IDLE", "WATCH_TIMEOUT"):  # however seldom this test gets to look, and the watch to watch
        monkeypatch.setattr(f"{MIRROR}.{name}", 1e9)
    made = Mirror(client(api, tmp_path), POD, "jobctl.dev/job=resnet")
    made.objects()  # a second look begins to watch
    yield made
    made.close()


def put(api: ApiServer, name: str, job: str = "resnet") -> None:
    spec = {"containers": [{"name": "node", "image": "busybox"}]}
    api.create("Pod", {"metadata": {"name": name, "labels": {"jobctl.dev/job": job}}, "spec": spec})


def eventually(mirror: Mirror, names: list[str], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while sorted(pod["metadata"]["name"] for pod in mirror.objects()) != names:
        assert time.monotonic() < deadline, mirror.objects()
        time.sleep(0.02)


@pytest.mark.real
def test_a_watch_tells_what_comes_changes_and_goes(api: ApiServer, mirror: Mirror) -> None:
    put(api, "a")
    put(api, "b")
    put(api, "of-another", "other")
    eventually(mirror, ["a", "b"])
    api.delete("Pod", "a")
    eventually(mirror, ["b"])
    lists = sum("watch=true" not in request for request in api.requests if "/pods" in request)
    assert lists == 2


@pytest.mark.real
@pytest.mark.parametrize("after", [0, 1])
def test_a_watch_that_is_cut_goes_on_from_where_it_was(api: ApiServer, mirror: Mirror, after: int) -> None:
    api.fail("watch", "pods", "cut", times=2, after=after)
    eventually(mirror, [])
    for number in range(6):
        put(api, f"pod-{number}")
        eventually(mirror, [f"pod-{n}" for n in range(number + 1)])
    lists = sum("watch=true" not in request for request in api.requests if "/pods" in request)
    assert (lists, [fault.times for fault in api.faults]) == (2, [0])  # nothing was listed anew


def test_a_version_that_is_forgotten_is_listed_anew(api: ApiServer, mirror: Mirror) -> None:
    put(api, "a")
    eventually(mirror, ["a"])
    api.store.records.pop(("", "pods", "ml", "a"))  # while nobody watches
    put(api, "b")
    api.store.forget()
    eventually(mirror, ["b"])


@pytest.mark.real
def test_a_watch_that_is_refused_as_gone_is_listed_anew(api: ApiServer, mirror: Mirror) -> None:
    api.fail("watch", "pods", 410)
    eventually(mirror, [])
    put(api, "a")
    eventually(mirror, ["a"])
    assert [fault.times for fault in api.faults] == [0]


@pytest.mark.real
def test_a_watch_that_hears_it_has_fallen_behind_lists_anew(api: ApiServer, mirror: Mirror) -> None:
    """The 410 comes within the stream, whose status was 200."""
    behind = api.fail("watch", "pods", "expired")
    eventually(mirror, [])
    put(api, "a")
    eventually(mirror, ["a"])
    assert behind.times == 0


@pytest.mark.real
def test_a_slow_list_hides_nothing_that_came_meanwhile(api: ApiServer, mirror: Mirror) -> None:
    slow = api.fail("list", "pods", "slow")
    put(api, "before")
    looking = threading.Thread(target=mirror.objects)
    looking.start()
    assert slow.met.wait(120)
    put(api, "meanwhile")
    slow.gate.set()
    looking.join(120)
    put(api, "after")
    eventually(mirror, ["after", "before", "meanwhile"])


def test_a_watch_that_says_nothing_any_more_is_begun_anew(
    api: ApiServer, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a night in which this machine slept: nobody has told it that the connection is gone."""
    monkeypatch.setattr(f"{MIRROR}.SILENCE", 0.3)
    dead = api.fail("watch", "pods", "slow")
    eventually(mirror, [])
    assert dead.met.wait(60)
    put(api, "a")
    eventually(mirror, ["a"], 60.0)
    dead.gate.set()


def names(mirror: Mirror) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in mirror.objects())


def test_after_a_sleep_of_this_machine_each_look_lists_until_the_watch_has_begun_anew(
    api: ApiServer, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(ahead=0.0)
    monkeypatch.setattr(f"{MIRROR}.boot_time", lambda: time.monotonic() + clock.ahead)
    monkeypatch.setattr(mirror, "_slept", 0.0)
    monkeypatch.setattr(f"{MIRROR}.SILENCE", 1e6)
    hear, begun = mirror._hear, threading.Semaphore(0)
    monkeypatch.setattr(mirror, "_hear", lambda: (hear(), begun.release()))
    dead = api.fail("watch", "pods", "slow")
    assert names(mirror) == []
    for _ in ("list", "watch"):
        assert begun.acquire(timeout=60)
    put(api, "a")
    assert names(mirror) == []  # nobody has told it
    clock.ahead = 3600.0
    assert names(mirror) == ["a"]
    put(api, "b")
    assert names(mirror) == ["a", "b"]
    dead.gate.set()
    put(api, "c")
    eventually(mirror, ["a", "b", "c"])


def test_what_a_watch_hears_after_another_list_is_not_taken_for_newer(mirror: Mirror) -> None:
    """It begins again from that list, which may lack what the watch has told since, or have what it tells late."""

    def told(kind: str, name: str, version: int) -> Any:
        return {"type": kind, "object": {"metadata": {"uid": name, "name": name, "resourceVersion": str(version)}}}

    def lines(answer: object, call: object) -> Iterator[bytes]:
        yield json.dumps(told("ADDED", "a", 1)).encode()
        mirror._relist()
        yield json.dumps(told("DELETED", "b", 2)).encode()
        raise AssertionError("goes on")

    listed = [told("", name, 3)["object"] for name in "ab"]
    mirror.api = cast(
        "Api",
        SimpleNamespace(
            namespace="ml", stream=lambda *given: None, lines=lines, find_all=lambda kind, query: (listed, "3")
        ),
    )
    mirror._watch()
    assert (sorted(mirror._objects), mirror._version) == (["a", "b"], "3")


@pytest.mark.real
def test_who_may_not_watch_may_still_list(api: ApiServer, mirror: Mirror) -> None:
    api.denied.add(("watch", "pods"))
    eventually(mirror, [])
    put(api, "a")
    eventually(mirror, ["a"])


def test_what_a_watch_has_ended_with_is_forgotten_at_the_next_look(
    api: ApiServer, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a Ctrl-Z, while nobody looks and the server is not well."""
    for name, value in (("IDLE", 0.0), ("WATCH_TIMEOUT", 0.0), ("PAUSE", 0.01)):
        monkeypatch.setattr(f"{MIRROR}.{name}", value)
    monkeypatch.setattr(mirror, "_looked", 0.0)
    mirror._deaf(DeployError("not well"))
    put(api, "a")
    assert [pod["metadata"]["name"] for pod in mirror.objects()] == ["a"]


@pytest.mark.real
@pytest.mark.parametrize("forgotten", [False, True])
def test_lists_are_read_in_pages(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: bool
) -> None:
    """One of which the server forgets the beginning is read anew."""
    monkeypatch.setattr("jobctl.jobspec.deploy.kubernetes.api.PAGE", 3)
    if forgotten:
        api.fail("list", "pods", 410, skip=1)
    for number in range(8):
        put(api, f"pod-{number}")
    found, _ = client(api, tmp_path).find_all(POD, {"labelSelector": "jobctl.dev/job=resnet"})
    assert [pod["metadata"]["name"] for pod in found] == [f"pod-{number}" for number in range(8)]
    assert all((pod["apiVersion"], pod["kind"]) == ("v1", "Pod") for pod in found)
    assert sum("/pods" in request for request in api.requests) == (5 if forgotten else 3)
