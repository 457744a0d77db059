"""What a job asks of a cluster: sums over its pods, by the names that quotas have for them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from jobctl.jobspec.deploy.kubernetes.asked import counted_by, pods_of, pods_there, totals


def pod(phase: str | None = None, **resources: Any) -> dict[str, Any]:
    """A pod of one container with these resources."""
    status = {"status": {"phase": phase}} if phase else {}
    return {"spec": {"containers": [{"name": "node", "resources": resources}]}, **status}


def job(count: int, **resources: Any) -> dict[str, Any]:
    spec = {"parallelism": count, "template": pod(**resources)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": spec}


def test_pods_that_have_ended_count_for_no_quota() -> None:
    phases = ("Pending", "Running", "Succeeded", "Failed", None)
    assert len(pods_there([pod(phase, limits={"cpu": "1"}) for phase in phases])) == 3


def test_what_all_pods_ask_for_is_summed_up() -> None:
    found = totals(pods_of([job(3, limits={"cpu": "500m", "memory": "1Gi"}, requests={"cpu": "250m"})]))
    assert found == {
        "pods": 3,
        "count/pods": 3,
        "requests.cpu": Decimal("0.75"),
        "cpu": Decimal("0.75"),
        "limits.cpu": Decimal("1.5"),
        "requests.memory": 3 * 2**30,  # what is not said is what the limit says
        "memory": 3 * 2**30,
        "limits.memory": 3 * 2**30,
    }


def of_class(operator: str, *values: str) -> dict[str, Any]:
    """The selector of a quota by priority class."""
    scope = {"scopeName": "PriorityClass", "operator": operator, **({"values": list(values)} if values else {})}
    return {"scopeSelector": {"matchExpressions": [scope]}}


@pytest.mark.parametrize(
    ("spec", "counted"),
    [
        ({}, ["plain", "urgent", "limited"]),
        ({"scopes": ["BestEffort"]}, ["urgent", "limited"]),
        ({"scopes": ["NotBestEffort", "NotTerminating"]}, ["plain"]),
        ({"scopes": ["Terminating"]}, ["limited"]),
        ({"scopes": ["PriorityClass"]}, ["urgent"]),
        (of_class("In", "urgent", "high"), ["urgent"]),
        (of_class("NotIn", "high"), ["plain", "urgent", "limited"]),
        (of_class("DoesNotExist"), ["plain", "limited"]),
        ({"scopes": ["OfTomorrow"]}, []),
    ],
)
def test_a_quota_with_scopes_counts_the_pods_within_all_of_them(spec: dict[str, Any], counted: list[str]) -> None:
    pods = {
        "plain": pod(limits={"memory": "1Gi"}),
        "urgent": pod(limits={"nvidia.com/gpu": "1"}),
        "limited": pod(),
    }
    pods["urgent"]["spec"]["priorityClassName"] = "urgent"
    pods["limited"]["spec"]["activeDeadlineSeconds"] = 60
    found = counted_by({"spec": spec}, pods_there(list(pods.values())))
    assert [next(name for name, one in pods.items() if one["spec"] is each.spec) for each in found] == counted
