"""Roles as a cluster knows them: what docs/kubernetes-client.md asks for is enough, and what lacks is named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kube.server import ApiServer
from tests.kube.store import Object, Served
from tests.kube.world import World

pytestmark = [pytest.mark.real, pytest.mark.needs("rbac")]

DOCS = Path(__file__).parents[2] / "docs" / "kubernetes-client.md"
ROLE = Served("rbac.authorization.k8s.io", "v1", "Role", "roles")
BINDING = Served("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
SPEC = """\
name: resnet
framework: torch
image: registry.example.com/train:1
module: train
nodes: 2
checkpoint: /checkpoints/resnet
secrets: [TOKEN]
stop_grace_period: 1s
kubernetes: {operator: kubeflow}
"""


def documented() -> Object:
    """Return the Role of the docs, for Kubeflow's jobs."""
    found = re.search(r"```yaml\n(apiVersion: rbac.*?)```", DOCS.read_text(), re.S)
    assert found is not None
    role: Object = yaml.load(found[1], yaml.CSafeLoader)
    (jobs,) = [rule for rule in role["rules"] if rule["resources"] == ["jobs"]]
    role["rules"].append(
        {**jobs, "apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": [*jobs["verbs"]]}
    )
    jobs["verbs"] = ["list", "watch"]
    return role


def give(api: ApiServer, user: str, role: Object) -> None:
    """Let a user do what a Role says, in the namespace of the test."""
    api.create(ROLE, {"metadata": {"name": "jobctl"}, "rules": role["rules"]})
    group = "rbac.authorization.k8s.io"
    bound = {"roleRef": {"apiGroup": group, "kind": "Role", "name": "jobctl"}}
    api.create(
        BINDING, {"metadata": {"name": "ada"}, **bound, "subjects": [{"apiGroup": group, "kind": "User", "name": user}]}
    )


@pytest.fixture
def spec(api: ApiServer, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "PyTorchJob" not in {kind.kind for kind in api.backend.served}:
        pytest.skip("JOBCTL_CRDS names no folder with the CRDs of operators")
    (here / "job.yaml").write_text(SPEC)
    monkeypatch.setenv("TOKEN", "s3cret")
    api.user = "ada"


@pytest.mark.usefixtures("spec")
def test_the_role_of_the_docs_is_enough_from_up_to_down(
    jobctl: Any, world: World, api: ApiServer, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(api, "ada", documented())
    checked = jobctl("check", "--target", "kubernetes", "-o", "json")
    told = {one["check"]: one["verdict"] for one in checked.json["findings"]}
    assert (checked.code, told["rights"], told["namespace"], told["capacity"]) == (0, "ok", "skipped", "skipped")
    assert jobctl("up", "--target", "kubernetes").code == 0
    assert jobctl("status", "resnet", "-o", "json").json["phase"] == "running"
    assert jobctl("up").err == "job `resnet` is running as the spec says; nothing to do\n"
    for command in (("logs",), ("events",), ("stop",)):
        assert jobctl(*command, "resnet").code == 0
    assert jobctl("up").code == 0
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(here / "another machine"))
    for command in (("status",), ("logs",), ("events",)):
        assert jobctl(*command, "resnet", "--namespace", api.namespace).code == 0
    down = jobctl("down", "resnet", "--namespace", api.namespace)
    assert (down.code, api.names()) == (0, [])


@pytest.mark.usefixtures("spec")
def test_the_rights_that_lack_are_named(jobctl: Any, world: World, api: ApiServer) -> None:
    role = documented()
    for rule in role["rules"]:
        if rule["resources"] == ["pytorchjobs"]:
            rule["verbs"].remove("patch")
    give(api, "ada", role)
    space = api.namespace
    ran = jobctl("up", "--target", "kubernetes")
    missing = f"these rights are missing in namespace {space}: patch pytorchjobs.kubeflow.org [right-missing]"
    assert (ran.code, ran.err.splitlines()[0]) == (3, f"error: test/{space}: rights: {missing}")
    ran = jobctl("up", "--target", "kubernetes", "--skip-check")
    assert (ran.code, ran.err.splitlines()[-2:]) == (
        4,
        [
            f"error: test: no right to patch PyTorchJob resnet in namespace {space}",
            'hint: ask for a Role in that namespace with apiGroups ["kubeflow.org"], resources [pytorchjobs], verbs [patch]',
        ],
    )
