"""A job on hosts whose engine is Podman: what a user does with it, and what happens to it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.jobs import SPEC, Jobs
from tests.fleet.podman import fleet_of, missing_engine


@pytest.fixture(scope="module")
def podmans(can_have_fleet: None) -> Iterator[Fleet]:
    """Two hosts with Podman."""
    if problem := missing_engine():
        (pytest.fail if os.environ.get("JOBCTL_FLEET") == "required" else pytest.skip)(problem)
    with fleet_of("podman", 2) as made:
        yield made


@pytest.fixture
def jobs(tmp_path: Path, podmans: Fleet) -> Iterator[Jobs]:
    made = Jobs(tmp_path, podmans, SPEC.replace("nodes: 2", 'nodes: "1:2"'))
    yield made
    assert made.run("down", *made.where).returncode == 0


def test_a_job_on_podman_lives_as_on_docker(jobs: Jobs) -> None:
    check = json.loads(jobs.run("check", *jobs.where, "--target", "ssh", "-o", "json").stdout)
    said = [(one["verdict"], one["code"]) for one in check["findings"] if one["check"] == "engine"]
    assert said == [("ok", None), ("warning", "engine-no-restart")] * 2

    assert jobs.up("--target", "ssh").returncode == 0
    jobs.trains(generation=1)
    assert jobs.up("--target", "ssh").returncode == 0
    assert jobs.status()["generation"] == 1
    assert jobs.run("exec", "--node", "1", "--", "sh", "-c", "exit 9").returncode == 9

    # What ended is started again: a container, the launcher in it, and the job after a process.
    for generation, kill in enumerate((("kill",), ("exec",)), 2):
        name = "jobctl-counter-1"
        if kill == ("kill",):
            jobs.fleet[1].docker("kill", name)
        else:
            (jobs.checkpoints / "fail-1").touch()
        jobs.trains(step=1, generation=generation)  # which has printed something by then
    assert "generation 3" in jobs.ok("logs", "--node", "1")

    assert jobs.run("scale", "counter", "1").returncode == 0
    jobs.trains(after=3)
    assert jobs.run("stop").returncode == 0
    assert jobs.phase() == "stopped"
    assert jobs.up("--target", "ssh").returncode == 0
    assert jobs.phase() == "running"
    assert jobs.run("down").returncode == 0
    assert (jobs.containers(), jobs.files()) == ([[], []], [])


def test_an_engine_that_does_not_run_is_podman(jobs: Jobs) -> None:
    url = f"docker=unix://{jobs.fleet[0].dir}/podman.sock"
    jobs.fleet.hosts_file(jobs.code / "hosts.txt", url)
    check = json.loads(jobs.run("check", *jobs.where, "-o", "json").stdout)
    found = [one for one in check["findings"] if one["code"] == "docker-down"]
    assert [(one["message"], "podman.socket" in one["hint"]) for one in found] == [
        ("its Podman does not run", True)
    ] * 2
    jobs.fleet.hosts_file(jobs.code / "hosts.txt")
