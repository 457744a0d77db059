"""Data for some of the hosts: the job uses no others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec import load, plan
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import Inventory, SshOptions, dump_inventory, load_inventory
from jobctl.jobspec.deploy.store.jobdir import job_dir
from jobctl.jobspec.deploy.targets import host_fleet
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.operations.errors import InvalidSpec
from jobctl.jobspec.operations.inspect.data import DataHosts, DataOnHosts
from jobctl.jobspec.operations.resolve.job import AS_STARTED, Compiled, Where
from jobctl.jobspec.operations.resolve.planning import inventory_for
from jobctl.jobspec.plan.sent import Dataset
from jobctl.jobspec.spec.hosts import Host

SPEC = "name: job\nframework: torch\nimage: i\ncommand: [t]\nper: node\nnodes: 2\ncheckpoint: /c\ndata:\n"
HOSTS = "gpu[01-04]\ngpu[05-06] spare\nml@gpu09:2222\n"


@pytest.fixture
def load_with(tmp_path: Path) -> Callable[..., Compiled]:
    def loaded(*data: str, on: str | None = None) -> Compiled:
        (tmp_path / "job.yaml").write_text(SPEC + "".join(f"  - {{{one}}}\n" for one in data))
        (tmp_path / "hosts.txt").write_text(HOSTS)
        return load(tmp_path / "job.yaml", Where("ssh", tmp_path / "hosts.txt", on))

    return loaded


def test_a_job_runs_where_all_of_its_data_is(load_with: Callable[..., Compiled]) -> None:
    job = load_with(
        "source: 'gpu09:/d', target: /d, hosts: 'gpu[02-05]'",
        "source: 'gpu09:/e', target: /e, hosts: [gpu01, 'gpu[03-06]']",
    )
    assert [host.name for host in job.hosts] == ["gpu03", "gpu04", "gpu05"]
    assert [node.host.name for node in plan(job).nodes] == ["gpu03", "gpu04"]


def test_all_hosts_get_data_that_names_none(load_with: Callable[..., Compiled]) -> None:
    assert len(load_with("source: 'gpu09:/d', target: /d, hosts: all").hosts) == 7
    assert len(load_with("source: 'gpu09:/d', target: /d, hosts: [all]").hosts) == 7


def test_a_choice_of_hosts_counts_too(load_with: Callable[..., Compiled]) -> None:
    job = load_with("source: 'gpu09:/d', target: /d, hosts: 'gpu[02-05]'", on="gpu[01-03]")
    assert [host.name for host in job.hosts] == ["gpu02", "gpu03"]
    with pytest.raises(InvalidSpec, match="no host that the job may use gets all of its data"):
        load_with("source: 'gpu09:/d', target: /d, hosts: gpu04", on="gpu[01-03]")


@pytest.mark.parametrize(("hosts", "count"), [("all", 307), ("'n[001-300]'", 300)], ids=["all", "some"])
def test_no_host_is_compared_with_all_others(
    load_with: Callable[..., Compiled], monkeypatch: pytest.MonkeyPatch, hosts: str, count: int
) -> None:
    """Of 10,000 hosts that would be 100 million comparisons, twice."""
    compared: list[object] = []
    equal = Host.__eq__
    monkeypatch.setattr(Host, "__eq__", lambda self, other: compared.append(other) or equal(self, other))
    monkeypatch.setattr(f"{__name__}.HOSTS", f"{HOSTS}n[001-300]\n")
    assert len(load_with(f"source: 'gpu09:/d', target: /d, hosts: {hosts}").hosts) == count
    assert len(compared) < 300


def test_data_comes_from_a_host_of_the_file_that_the_job_does_not_use(
    load_with: Callable[..., Compiled], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(tmp_path))
    inventory = inventory_for(load_with("source: 'gpu09:/d', target: /d, hosts: 'gpu[02-05]'"), AS_STARTED)
    assert inventory is not None
    reached: list[Host] = []

    def transport_to(host: Host, options: SshOptions, met: object = None) -> LocalTransport:
        reached.append(host)
        return LocalTransport(host.name)

    monkeypatch.setattr(host_fleet, "transport_to", transport_to)
    made = host_fleet.host_fleet(job_dir(tmp_path, "job"), "ssh", inventory, None, lambda text: None)
    del reached[:]
    for source in ("gpu09", "ml@gpu09", "me@gpu09", "gpu02", "elsewhere"):
        made.folder_of(Dataset("/d", "/d", "d", host=source))
    assert [(host.user, host.name, host.port) for host in reached] == [
        ("ml", "gpu09", 2222),
        ("ml", "gpu09", 2222),
        ("me", "gpu09", None),
        (None, "elsewhere", None),
    ]
    assert load_inventory(dump_inventory(inventory)) == Inventory(inventory.hosts, inventory.ssh)


def test_where_no_host_answers_nobody_knows_what_data_they_have(jobctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = DataOnHosts({}, {"h1": HostError("h1", "no-route", "no route to its address")})
    monkeypatch.setattr(DataHosts, "list", lambda there: silent)
    Path("hosts.txt").write_text("h1\n")
    ran = jobctl("data", "remove", "bert", "--yes", "--hosts", "hosts.txt", "-o", "json")
    document = json.loads(ran.out)
    assert (ran.code, document["hosts"], [one["host"] for one in document["failed_hosts"]]) == (3, [], ["h1"])
    assert "no route to its address" in ran.err
