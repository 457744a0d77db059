"""The first object of a job: of two processes that make it at the same time, one does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.kubernetes.api import connect
from jobctl.jobspec.deploy.kubernetes.claim import Foreign, create_first
from jobctl.jobspec.deploy.kubernetes.problems import ApiError
from tests.kube.server import ApiServer


def first(owner: str, data: str = "1") -> dict[str, Any]:
    meta = {"name": "tiny", "labels": {"jobctl.dev/job": "tiny"}, "annotations": {"jobctl.dev/owner": owner}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": data}}


@pytest.mark.real
def test_the_first_object_of_a_job_is_made_once(api: ApiServer, tmp_path: Path) -> None:
    client = connect(None, None, {"KUBECONFIG": str(api.kubeconfig(tmp_path / "config"))})
    made = create_first(client, "test", first("ann@desk"), list)
    assert made["data"] == {"a": "1"}
    with pytest.raises(Foreign, match="belongs to ann@desk: it is left alone"):
        create_first(client, "test", first("eve@desk", "2"), list)
    with pytest.raises(ApiError, match="conflict"):  # another machine has the same name
        create_first(client, "test", first("ann@desk", "2"), list)
    found = api.get("ConfigMap", "tiny")
    assert found["data"] == {"a": "1"}
    managers = {(one["manager"], one["operation"]) for one in found["metadata"].get("managedFields", [])}
    assert managers in ({("jobctl", "Apply")}, set())  # the fake server hides them
    client.apply({**first("ann@desk"), "data": {}})
    assert not api.get("ConfigMap", "tiny").get("data")  # nobody else holds what a later `up` takes away
    client.close()


class Changed:
    """A server with a webhook that changes what nobody may change later."""

    def __init__(self) -> None:
        self.managers: list[str] = []

    def apply(self, thing: Any, *, force: bool = False, manager: str = "jobctl") -> Any:
        self.managers.append(manager)
        if manager == "jobctl":
            raise ApiError("test", 422, "Invalid", "field is immutable", None, {})
        return {**thing, "status": {}}


def test_what_makes_pods_is_left_as_a_webhook_has_made_it() -> None:
    server: Any = Changed()
    thing = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "tiny"}}
    assert create_first(server, "test", thing, list) == {**thing, "status": {}}
    assert server.managers == [server.managers[0], "jobctl"]
