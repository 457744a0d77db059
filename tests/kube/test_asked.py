"""What a job asks of a cluster: sums over its pods, by the names that quotas have for them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from jobctl.jobspec.deploy.kubernetes.asked import pods_of, pods_there, totals


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
