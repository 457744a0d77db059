"""Images that jobctl builds, by a real engine: where they are missing, and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.images.buildkit import builder
from tests.fleet.fleet import Fleet
from tests.fleet.host import Host
from tests.fleet.jobs import SPEC, Jobs
from tests.fleet.machine import IMAGE

NAME = "jobctl-test-built"
BUILT = SPEC.replace(f"image: {IMAGE}\npull: never\n", f"image: {NAME}:1\nbuild: ")
DOCKERFILE = f"FROM {IMAGE}\nARG WORD=none\nCOPY needed.txt /\nRUN echo $WORD >/word && cat /needed.txt\n"


def built(host: Host) -> list[str]:
    """Return the tags of the test's image on a host that jobctl knows it by: each with the version of its content."""
    return sorted(tag for tag in tags(host) if tag != "1")


def tags(host: Host) -> list[str]:
    return host.docker("images", "--format", "{{.Tag}}", NAME).split()


@pytest.fixture
def jobs(tmp_path: Path, hosts_of: Callable[[int], Fleet]) -> Iterator[Jobs]:
    """A job on h1 and h2; this machine's engine is that of h3, and has the base image as all have."""
    fleet = hosts_of(3)
    made = Jobs(tmp_path, fleet, BUILT.replace("build: ", "build: .\n"))
    (made.code / "Dockerfile").write_text(DOCKERFILE)
    (made.code / "needed.txt").write_text("first line\n")
    made.environ["DOCKER_HOST"] = f"unix://{fleet[2].socket}"
    yield made
    down = made.run("down", *made.where)
    assert (down.returncode, made.containers()) == (0, [[] for _ in fleet.hosts]), down.stderr
    for host in fleet.hosts:
        for tag in tags(host):
            host.docker("rmi", f"{NAME}:{tag}")
        host.docker("image", "prune", "-f")


ON = ("--on", "h1,h2")


def image_of(host: Host) -> str:
    """Return the name of the image that the host's container was made of."""
    return host.docker("inspect", "--format", "{{.Config.Image}}", *host.containers()).strip()


def id_of(host: Host, tag: str) -> str:
    """Return which image has a tag."""
    return host.docker("inspect", "--format", "{{.Id}}", f"{NAME}:{tag}").strip()


def test_an_image_is_built_once_and_again_after_a_change(jobs: Jobs) -> None:
    first, second, here = jobs.fleet.hosts
    up = jobs.up(*ON)
    assert up.returncode == 0, up.stderr
    said = [line for line in up.stderr.splitlines() if "builds" in line or line == "first line"]
    (tag,) = built(here)
    assert said == [f"this machine builds {NAME}:{tag} from {jobs.code}", "first line"]
    assert [tags(host) for host in (first, second)] == [[tag], [tag]]
    assert id_of(here, "1") == id_of(here, tag)  # the name that the spec has, as with Compose
    assert image_of(first) == f"{NAME}:{tag}"
    jobs.trains()
    # Nothing has changed, and a change of the code is none of the image.
    again = jobs.run("up")
    assert (again.returncode, "builds" in again.stderr, jobs.steps()) == (0, False, []), again.stderr
    (jobs.code / "counter.py").write_text((jobs.code / "counter.py").read_text() + "# changed\n")
    plan = jobs.run("plan")
    assert (plan.returncode, "build:" in plan.stdout) == (10, False), plan.stdout
    (jobs.code / "needed.txt").write_text("second line\n")
    plan = jobs.run("plan")
    assert (plan.returncode, f"build: {NAME}:{tag} → {NAME}:1-" in plan.stdout) == (10, True), plan.stdout
    assert built(here) == [tag]
    up = jobs.run("up", "--skip-check")
    assert (up.returncode, "second line" in up.stderr) == (0, True), up.stderr
    (new,) = (one for one in built(here) if one != tag)
    assert {image_of(first), image_of(second)} == {f"{NAME}:{new}"}
    assert id_of(here, "1") == id_of(here, new)
    jobs.trains(generation=2)
    running = image_of(first)
    # A build that fails changes nothing.
    (jobs.code / "Dockerfile").write_text(f"{DOCKERFILE}RUN echo it fails here; exit 3\n")
    up = jobs.run("up")
    assert (up.returncode, "nothing was changed" in up.stderr) == (3, True), up.stderr
    assert "it fails here" in up.stderr.partition("cannot build")[2]
    assert (image_of(first), image_of(second)) == (running, running)
    assert jobs.run("status").returncode == 0


def test_a_host_builds(jobs: Jobs) -> None:
    first, second, here = jobs.fleet.hosts
    del jobs.environ["DOCKER_HOST"]
    jobs.spec(BUILT.replace("build: ", "build: {{context: ., args: {{WORD: three}}, on: h2}}\n"))
    check = jobs.run("check", *jobs.where, *ON, "-o", "json")
    assert (check.returncode, check.stdout.count("is built first")) == (0, 2), check.stdout
    prepared = jobs.run("prepare", *jobs.where, *ON, "--skip-check")
    assert prepared.returncode == 0, prepared.stderr
    (tag,) = built(second)
    assert f"h2 builds {NAME}:{tag} from" in prepared.stderr
    assert (built(first), built(here)) == ([tag], [])
    ran = jobs.run("run", *jobs.where, *ON, "--node", "0", "--", "cat", "/word", "/needed.txt")
    assert (ran.returncode, ran.stdout) == (0, "three\nfirst line\n"), ran.stderr
    up = jobs.up(*ON)
    assert (up.returncode, "builds" in up.stderr) == (0, False), up.stderr
    # Another user's job is left alone before anything is built.
    (jobs.code / "needed.txt").write_text("second line\n")
    jobs.environ |= {"LOGNAME": "somebody", "JOBCTL_STATE_DIR": str(jobs.directory / "another")}
    other = jobs.up(*ON)
    assert (other.returncode, "belongs to" in other.stderr) == (5, True), other.stderr
    assert built(second) == [tag]
    jobs.environ |= {"LOGNAME": os.environ.get("LOGNAME", "root"), "JOBCTL_STATE_DIR": str(jobs.directory / "state")}


def test_a_host_builds_with_buildkit(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the `docker` of this machine, through SSH to the host's engine."""
    monkeypatch.setenv("PATH", f"/usr/bin:{os.environ['PATH']}")
    if builder() is None:
        pytest.skip("no `docker` of this machine has BuildKit")
    jobs.environ["PATH"] = os.environ["PATH"]
    del jobs.environ["DOCKER_HOST"]
    (jobs.code / "Dockerfile").write_text(DOCKERFILE.replace("RUN ", "RUN --mount=type=cache,target=/kept "))
    jobs.spec(BUILT.replace("build: ", "build: {{context: ., args: {{WORD: three}}, on: h2}}\n"))
    prepared = jobs.run("prepare", *jobs.where, *ON, "--skip-check")
    assert (prepared.returncode, "first line" in prepared.stderr) == (0, True), prepared.stderr
    first, second, _ = jobs.fleet.hosts
    (tag,) = built(second)
    assert built(first) == [tag]
    assert first.docker("run", "--rm", "--net=host", f"{NAME}:{tag}", "cat", "/word") == "three\n"
