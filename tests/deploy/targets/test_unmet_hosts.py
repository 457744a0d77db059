"""Hosts that were never reached, such as a name with a typo: the job has nothing there, and may forget them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.model.control import Control
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.host_state import HostState
from jobctl.jobspec.deploy.model.inventory import Inventory, SshOptions, dump_inventory
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.targets.host_fleet import HostFleet, host_fleet
from jobctl.jobspec.operations.resolve.job import Reached, Where, check, compiled_of, job_of_name
from jobctl.jobspec.operations.resolve.planning import inventory_for
from jobctl.jobspec.spec.hosts import Host
from tests.deploy.apply.test_executor import TWO
from tests.deploy.apply.test_reconcile import CONTROL
from tests.tools.loopback import Loopback

FILE = (Host("h1"), Host("localhost"), Host("typo"), Host("off"), Host("refuses"))
AWAY = {
    "h1": HostError("h1", "silent", "`sh` has said nothing"),
    "typo": HostError("typo", "unknown-name", "its name cannot be resolved"),
    "off": HostError("off", "no-route", "no route to its address"),
    "refuses": HostError("refuses", "key-refused", "it takes no key"),
}


@pytest.fixture
def hosts(tmp_path: Path, server: Loopback) -> HostFleet:
    """Return the fleet of a job that is new here; h1 has answered, and is silent by now."""
    job = JobDir(tmp_path / "jobs" / "demo")
    with server.client():
        made = host_fleet(job, "ssh", Inventory(FILE, SshOptions(server.folder / "config")), None, lambda text: None)
        made.host_jobs["h1"].transport.run(["true"])
        made.close()
    made.down = AWAY
    job.create()
    return made


def test_a_host_of_a_new_job_that_was_never_reached_is_noted(hosts: HostFleet) -> None:
    hosts.note_unmet()
    assert hosts.job.unreached_hosts() == {"typo", "off"}


def test_a_host_that_the_job_had_before_is_not(hosts: HostFleet) -> None:
    """An `up` that was killed may have reached it."""
    before = dump_inventory(Inventory((Host("typo"),)))
    hosts.job.remember({"target": "ssh", "reach": before}, TWO, {})
    hosts.note_unmet()
    assert hosts.job.unreached_hosts() == {"off"}


def test_no_host_is_where_another_state_directory_has_brought_the_job_up(hosts: HostFleet) -> None:
    """A container may come back there with its host, and nobody would know of it."""
    hosts.seen = {"localhost": HostState((), Control(), {}, there=True)}
    hosts.note_unmet()
    assert hosts.job.unreached_hosts() == frozenset()


def test_a_host_that_the_newest_generation_names_is_not(hosts: HostFleet) -> None:
    """Somebody else may have moved a node there."""
    hosts.job.remember({"target": "ssh", "reach": dump_inventory(Inventory((Host("localhost"),)))}, TWO, {})
    members = tuple(replace(member, host="off") for member in CONTROL.generation.members)  # type: ignore[union-attr]
    moved = replace(CONTROL.generation, members=members)  # type: ignore[type-var]
    hosts.seen = {"localhost": HostState((), replace(CONTROL, generation=moved), {}, there=True)}
    hosts.note_unmet()
    assert hosts.job.unreached_hosts() == {"typo"}


def test_a_host_that_is_reached_later_is_noted_no_more(hosts: HostFleet) -> None:
    hosts.job.note_unmet(["h1", "typo"])
    hosts.host_jobs["h1"].transport.run(["true"])  # as a supervisor does
    hosts.close()
    assert hosts.job.unreached_hosts() == {"typo"}
    hosts.job.forget()
    assert hosts.job.unreached_hosts() == frozenset()


def test_such_a_host_is_forgotten_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(tmp_path / "state"))
    Path("job.yaml").write_text("name: demo\nframework: torch\nmodule: train\nimage: img\nnodes: '1:3'\n")
    Path("hosts.txt").write_text("h1\n")
    compiled, job = compiled_of(check("job.yaml", None, Where("ssh", Path("hosts.txt")))), job_of_name("demo")
    job.create()
    job.remember({"target": "ssh", "reach": dump_inventory(Inventory(FILE))}, TWO, {})
    job.note_unmet(["typo"])
    found = inventory_for(compiled, Reached())
    assert found is not None
    assert found.left == ("localhost", "off", "refuses")
