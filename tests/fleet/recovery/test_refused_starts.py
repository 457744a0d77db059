"""Containers that cannot start on a host that answers: a folder that they mount, or the job's own, is not there any more."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.recovery.run import LONG, Run
from tests.tools.waiting import eventually


@pytest.fixture
def scratch(hosts_of: Callable[[int], Fleet]) -> Iterator[list[Path]]:
    """A folder on each of three hosts that containers mount."""
    folders = [host.home / "scratch" for host in hosts_of(3).hosts[:3]]
    for folder in folders:
        folder.mkdir()
    yield folders
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def job(tmp_path: Path, hosts_of: Callable[[int], Fleet], scratch: list[Path]) -> Iterator[Run]:
    """A job on two hosts, with a third one to spare."""
    made = Run(tmp_path, hosts_of(3), change=LONG)
    with (made.code / "job.yaml").open("a") as spec:
        spec.write("volumes: ['/root/scratch:/scratch']\n")
    yield made
    print(made.run("events").stdout)
    down = made.run("down", *made.where)
    assert (down.returncode, made.containers(), made.files()) == (0, [[], [], []], []), down.stderr


def test_a_node_moves_from_where_its_container_cannot_start_and_waits_where_it_can_go_nowhere(
    job: Run, scratch: list[Path]
) -> None:
    """Its host is unfit then; without another one the job waits, and goes on once the cause is gone."""
    job.begin()
    scratch[1].rmdir()
    job.fleet[1].docker("kill", "jobctl-counter-1")
    eventually(lambda: job.happened("moved"))
    assert job.trains(1, after=1)["nodes"][1]["host"] == "h3"
    (why,) = {event["message"] for event in job.happened("host-failed")}
    assert why.startswith("h2: cannot start node 1: ")
    scratch[2].rmdir()
    job.fleet[2].docker("kill", *job.fleet[2].containers())
    job.tells("there is no other host for it, so it is tried again until it starts")
    assert "cannot be started on h3: " in job.status()["reason"]
    scratch[2].mkdir()
    assert job.ends_well()["nodes"][1]["host"] == "h3"


def test_up_begins_on_a_spare_where_a_container_cannot_start(job: Run, scratch: list[Path]) -> None:
    """And where there is none that can, it names each host, and says what that said."""
    scratch[1].rmdir()
    scratch[2].rmdir()
    up = job.up()
    assert up.returncode == 4, up.stderr
    assert all(f"{host}: cannot start node 1: " in up.stderr for host in ("h2", "h3")), up.stderr
    job.ok("down", *job.where)
    scratch[2].mkdir()
    up = job.up()
    assert (up.returncode, "node 1 runs on spare h3: h2: cannot start node 1: " in up.stderr) == (0, True), up.stderr
    state = job.ends_well()
    assert ([node["host"] for node in state["nodes"]], state["generation"]) == (["h1", "h3"], 1)


def removed(folder: Path) -> None:
    """Remove a folder in which launchers write meanwhile."""

    def gone() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    eventually(gone)


def test_a_node_moves_from_where_somebody_has_removed_the_files_of_its_job(job: Run) -> None:
    """Its container still has them, but can begin nothing more. Where it can go nowhere, `up` sends them again."""
    job.begin()
    removed(job.fleet[1].home / ".jobctl")
    assert job.trains(1, after=1)["nodes"][1]["host"] == "h3"
    words = [told["message"] for told in job.happened("host-failed")]  # of the control file, or of the container
    assert any(said.startswith("h2: cannot ") and "files of the job are not " in said for said in words), words
    removed(job.fleet[2].home / ".jobctl")
    job.tells("h3: the code that runs is not there")
    eventually(lambda: "cannot be started on h3: the code that runs is not there" in (job.status()["reason"] or ""))
    assert job.up().returncode == 0
    assert job.ends_well()["nodes"][1]["host"] == "h3"
