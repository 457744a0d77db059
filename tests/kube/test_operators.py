"""A job below each operator, and without one, from `up` to `down`: the same verbs, exit codes and JSON."""

from __future__ import annotations

import json
import os
import threading
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kube.conftest import need_operators
from tests.kube.server import ApiServer
from tests.kube.store import Served, stamp
from tests.kube.world import World
from tests.tools import commands

SPEC = """\
name: demo
framework: FRAMEWORK
image: registry.example.com/train:1
module: train
nodes: 2
checkpoint: /checkpoints/demo
secrets: [TOKEN]
stop_grace_period: 1s
kubernetes: {operator: OPERATOR}
"""
ROLES = "mode: ps\nps: {servers: 1, trainers: 2}\n"


@dataclass(frozen=True)
class Case:
    """A job under an operator: its objects beside the Secret, its pods by node, and how its controller says how it ended."""

    operator: str
    framework: str
    main: str
    pods: tuple[str, ...]
    ends: dict[str, Any]
    beside: tuple[str, ...] = ()
    more: str = ""
    roles: tuple[str, ...] = ("trainer", "trainer")
    group: str | None = None
    suspends: bool = True
    server: str = "full"  # the real one that its life goes on, and that knows it

    @property
    def objects(self) -> list[str]:
        return sorted([f"{self.main} demo", "Secret demo-secrets", *self.beside])

    def spec(self) -> str:
        return SPEC.replace("FRAMEWORK", self.framework).replace("OPERATOR", self.operator) + self.more

    def served(self, api: ApiServer) -> Served:
        return api.served(self.main, self.group)

    def end(self, world: World) -> None:
        """End all pods well, and have the controller say so."""
        for pod, role in zip(self.pods, self.roles, strict=True):
            if role == "trainer":
                world.end(pod)
        world.api.status(self.served(world.api), "demo", **self.ends)


def done(condition: str) -> dict[str, Any]:
    told = {"type": condition, "status": "True", "reason": condition, "message": "all is done"}
    return {"conditions": [{**told, "lastTransitionTime": stamp()}]}


CASES = [
    Case(
        "none",
        "torch",
        "Job",
        ("demo-0-abcde", "demo-1-abcde"),
        done("Complete"),
        ("ConfigMap demo", "ConfigMap demo-launcher", "Service demo"),
        server="mini",
    ),
    Case("kubeflow", "torch", "PyTorchJob", ("demo-master-0", "demo-worker-0"), done("Succeeded")),
    Case(
        "kubeflow", "paddle", "PaddleJob", ("demo-worker-0", "demo-worker-1"), done("Succeeded"), group="kubeflow.org"
    ),
    Case(
        "trainer",
        "torch",
        "TrainJob",
        ("demo-node-0-0-abcde", "demo-node-0-1-abcde"),
        done("Complete"),
        ("TrainingRuntime demo",),
        server="mini",
    ),
    Case(
        "paddle-operator",
        "paddle",
        "PaddleJob",
        ("demo-worker-0", "demo-worker-1", "demo-ps-0"),
        {"phase": "Completed"},
        more=ROLES,
        roles=("trainer", "trainer", "server"),
        group="batch.paddlepaddle.org",
        suspends=False,
    ),
]


def things(api: ApiServer) -> list[str]:
    """Return what is in the namespace that no controller made."""
    own = [one for one in api.backend.served if one.namespaced and one.kind != "Event"]
    made = [(one.kind, thing["metadata"]) for one in own for thing in api.list(one)]
    return sorted(f"{kind} {meta['name']}" for kind, meta in made if "ownerReferences" not in meta)


@pytest.fixture
def case(request: pytest.FixtureRequest, api: ApiServer, here: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    one: Case = request.param
    if one.operator != "none":
        need_operators(api)
    Path("job.yaml").write_text(one.spec())
    monkeypatch.setenv("TOKEN", "s3cret")
    return one


# On the fake server only where no real one is here: test_contract.py holds all of them to the same answers.
REAL = {"JOBCTL_KUBE", "JOBCTL_CRDS"} <= {name for name, value in os.environ.items() if value}
PLACES = [
    pytest.param(server, case, id=f"{server}-{case.operator}-{case.framework}")
    for case in CASES
    for server in (case.server if REAL else "fake",)
]


def nodes(state: Any) -> list[tuple[Any, ...]]:
    return [(node["node"], node["role"], node["state"], node["container"]) for node in state["nodes"]]


@pytest.mark.parametrize(("api", "case"), PLACES, indirect=True)
def test_from_up_over_stop_to_down(jobctl: Any, world: World, api: ApiServer, case: Case, here: Path) -> None:
    up = jobctl("up", "--target", "kubernetes")
    assert up.code == 0, up.err
    assert things(api) == case.objects
    secret = api.get("Secret", "demo-secrets")
    assert secret["data"] == {"TOKEN": b64encode(b"s3cret").decode()}
    assert jobctl("up").err == "job `demo` is running as the spec says; nothing to do\n"

    state = jobctl("status", "demo", "-o", "json").json
    assert (state["phase"], state["generation"], state["supervised"]) == ("running", None, None)
    running = [(i, role, "running", pod) for i, (role, pod) in enumerate(zip(case.roles, case.pods, strict=True))]
    assert nodes(state) == running

    _stop_and_resume(jobctl, world, case)

    for number, pod in enumerate(case.pods):
        api.print(pod, f"rank{number} | step 1", f"2026-01-01T00:00:0{number}Z")
    logs = [json.loads(line) for line in jobctl("logs", "demo", "-o", "json").out.splitlines()]
    own = [f"rank{i} | step 1" for i in range(len(case.pods))]
    # Our launcher says which rank has printed what; under an operator a pod has one log, word for word.
    assert [(line["node"], line["line"]) for line in logs] == [
        (i, "step 1" if case.operator == "none" else text) for i, text in enumerate(own)
    ]
    inside = ("exec", "demo", "--node", "1", "--", "sh", "-c", "echo in; exit 4")
    ran = commands.run(inside, here, os.environ, 180.0)
    assert (ran.returncode, ran.stdout) == (4, "in\n")
    assert f"/pods/{case.pods[1]}/exec" in next(request for request in api.requests if "/exec" in request)

    world.event("e1", case.pods[0], "Pulled", "the image is there")
    events = [json.loads(line) for line in jobctl("events", "demo", "-o", "json").out.splitlines()]
    assert [one["object"] for one in events if one["event"] == "cluster"] == [f"Pod/{case.pods[0]}"]

    threading.Timer(0.5, case.end, [world]).start()
    assert jobctl("wait", "demo", "--timeout", "180").code == 0
    ended = jobctl("status", "demo", "-o", "json").json
    assert (ended["phase"], {node["state"] for node in ended["nodes"] if node["role"] == "trainer"}) == (
        "succeeded",
        {"exited"},
    )
    down = jobctl("down", "demo")
    assert (down.code, things(api), world.pods()) == (0, [], [])
    kept = [line.split(" | ", 1)[1] for line in jobctl("logs", "job.yaml").out.splitlines()]
    assert sorted(kept) == sorted(line["line"] for line in logs)


def _stop_and_resume(jobctl: Any, world: World, case: Case) -> None:
    """Stop ends all pods, and `up` resumes."""
    api = world.api
    before = api.get(case.served(api), "demo")["metadata"]["uid"]
    api.print(case.pods[0], "rank0 | step 0")
    stopped = jobctl("stop", "demo")
    assert stopped.code == 0, stopped.err
    assert stopped.err.startswith(
        "job `demo` stopped; `jobctl up` resumes it from its last checkpoint; its logs are in "
    )
    assert world.pods() == []
    # Without a switch for it, what makes the pods is gone; all else stays.
    assert things(api) == sorted(set(case.objects) - (set() if case.suspends else {f"{case.main} demo"}))
    assert jobctl("status", "demo", "-o", "json").json["phase"] == "stopped"
    assert jobctl("wait", "demo").code == 1
    assert jobctl("logs", "demo").out.endswith("step 0\n")
    again = jobctl("stop", "demo")
    assert (again.code, again.err) == (0, "job `demo` is stopped already\n")

    told = "change {} demo: the job was stopped" if case.suspends else "create {} demo: not there"
    plan = jobctl("plan")
    assert (plan.code, plan.out.splitlines()) == (10, [told.format(case.main)])
    assert jobctl("up").code == 0
    state = jobctl("status", "demo", "-o", "json").json
    assert (state["phase"], [node["container"] for node in state["nodes"]]) == ("running", list(case.pods))
    after = api.get(case.served(api), "demo")["metadata"]["uid"]
    assert ((before == after), jobctl("plan").code) == (case.suspends, 0)
