"""Which jobs run on a host, as told by the labels of its containers: these may be anybody's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobctl.jobspec.deploy.host.containers import Containers
from jobctl.jobspec.deploy.host.devices_in_use import devices_in_use, jobs_of


class Told:
    """An engine whose answer to a question for containers is given."""

    def __init__(self, *containers: Any) -> None:
        self.containers = containers

    answer = staticmethod(lambda value, kind: value)

    def listed(self, label: str) -> list[Any]:
        return list(self.containers)

    @contextmanager
    def asked(self) -> Iterator[Any]:
        yield SimpleNamespace(containers=lambda **how: list(self.containers))


def labelled(**labels: str) -> dict[str, Any]:
    return {"Id": "f00", "State": "running", "Labels": {f"jobctl.{name}": value for name, value in labels.items()}}


def host_job(*containers: Any) -> Any:
    return cast(Any, SimpleNamespace(engine=Told(*containers)))


def test_nodes_and_services_of_jobs() -> None:
    etcd = labelled(job="a", node="etcd-0", role="etcd", owner="ann@desk")
    node = labelled(job="a", node="1", owner="ann@desk", devices="gpu:0,gpu:1")
    assert jobs_of(host_job(etcd, node)) == [
        {"job": "a", "node": 1, "name": None, "owner": "ann@desk", "devices": ["gpu:0", "gpu:1"]},
        {"job": "a", "node": None, "name": "etcd-0", "owner": "ann@desk", "devices": []},
    ]
    assert devices_in_use(host_job(etcd, node)) == {"gpu:0": "a of ann@desk", "gpu:1": "a of ann@desk"}


FOREIGN = [
    {"Id": "1"},
    {"Id": "2", "Labels": None},
    {"Id": "3", "Labels": []},
    {"Id": "4", "Labels": {"jobctl.node": "0"}},
    {"Id": "5", "Labels": {"jobctl.node": 0, "jobctl.job": 7}},
    "what is this",
]


def test_what_names_no_job_is_none_of_ours() -> None:
    assert jobs_of(host_job(*FOREIGN)) == []


@pytest.mark.parametrize("node", ["", "-1", "--1", "²", "٣", "1_0", " 1", "1e3", "9" * 5000, "x", "../../etc"])
def test_a_label_that_is_no_number_is_nobodys_node(node: str) -> None:
    strange = labelled(job="a", node=node, devices="gpu:3")
    (job,) = jobs_of(host_job(strange))
    assert (job["node"], job["name"], job["owner"]) == (None, node, None)
    assert devices_in_use(host_job(strange)) == {"gpu:3": "a of somebody"}
    (seen,) = Containers(cast(Any, Told(strange)), "a").seen()
    assert (seen.node, seen.service) == (-1, None)  # no folder is ever removed in its name


def test_a_service_is_known_by_its_name() -> None:
    seen = Containers(cast(Any, Told(labelled(job="a", node="etcd-2"), {"Id": "9", "Labels": None})), "a").seen()
    assert [(one.node, one.service, one.running) for one in seen] == [(-1, None, False), (-1, "etcd-2", True)]
