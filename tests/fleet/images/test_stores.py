"""A changed image to hosts whose engines keep images in different ways, from each of these stores, with one job on all."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.fleet import Fleet, fleet
from tests.fleet.host import Host
from tests.fleet.jobs import SPEC, Jobs
from tests.fleet.loading import Archive, layer
from tests.fleet.machine import IMAGE, base_image
from tests.fleet.podman import STORE, ContainerdHost, NewerHost, PodmanHost, image_store, missing_engine

NAME, BELOW = "jobctl-test-stores:1", "jobctl-test-stores:0"
CHANGED = 12_000_000
# The first plays this machine's engine. It is each kind in turn.
KINDS = {"docker26": NewerHost, "containerd": ContainerdHost, "docker": Host, "podman": PodmanHost}
PARTS = {"docker26": ["containerd", "docker"], "containerd": [], "docker": [], "podman": []}  # who gets the change only


class Mixed(Fleet):
    """Hosts h1 to h5: an engine of each kind, and of that of h1 another one."""

    first = "docker26"

    def _host(self, number: int) -> Host:
        self.kind = KINDS[([self.first, *KINDS])[number - 1]]  # type: ignore[misc]
        return super()._host(number)


# An image from Docker's own store, and one from Podman, leave this machine in every run in other tests.
OTHERS = pytest.mark.release(
    "tests/fleet/images/test_stores.py::test_hosts_of_all_stores_get_a_change_and_train[docker26]",
    "tests/fleet/images/test_images.py::test_an_image_leaves_this_machine_once",
    "tests/fleet/engines/test_podman.py::test_a_job_on_podman_lives_as_on_docker",
)
# How containerd's store saves an image is what the units know; hosts with it get one from each other here.
CONTAINERD = pytest.mark.release(
    "tests/fleet/images/test_stores.py::test_hosts_of_all_stores_get_a_change_and_train[docker26]",
    "tests/deploy/images/test_images.py::test_an_archive_that_lacks_a_layer_is_an_error",
    "tests/deploy/images/test_images.py::test_what_an_engine_saves_goes_on_as_it_is",
)
MARKS = {"docker26": pytest.mark.long, "containerd": CONTAINERD, "docker": OTHERS, "podman": OTHERS}


@pytest.fixture(params=[pytest.param(kind, marks=MARKS[kind]) for kind in KINDS])
def mixed(can_have_fleet: None, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Five hosts; that of `first` comes twice."""
    for problem in filter(None, (missing_engine("containerd"), missing_engine("podman"))):
        (pytest.fail if os.environ.get("JOBCTL_FLEET") == "required" else pytest.skip)(problem)
    of = type("Of", (Mixed,), {"first": request.param})
    with fleet(5, of, lends={STORE: image_store()}) as made:
        yield made


@pytest.fixture
def jobs(tmp_path: Path, mixed: Fleet) -> Iterator[Jobs]:
    """A job of four hosts, h2 to h5, which have an image that only the uppermost layer of the job's differs from."""
    others = copy.copy(mixed)
    others.hosts = mixed.hosts[1:]
    made = Jobs(tmp_path, others, SPEC.replace(IMAGE, NAME).replace("nodes: 2", "nodes: 4"))
    made.environ["DOCKER_HOST"] = f"unix://{mixed[0].socket}"
    below, changed = base_image(), layer(tmp_path / "changed", CHANGED)
    Archive(tmp_path, BELOW, [below])
    mixed[0].docker("load", "--input", str(Archive(tmp_path, NAME, [below, changed]).path))
    for host in others.hosts:
        host.docker("load", "--input", str(tmp_path / "jobctl-test-stores-0.tar"))
    yield made
    assert made.run("down", *made.where).returncode == 0


def come(host: Host) -> int:
    """Return how many bytes a host has got."""
    return int(Path(f"/sys/class/net/{host.cable}/statistics/tx_bytes").read_text())


def test_hosts_of_all_stores_get_a_change_and_train(jobs: Jobs, mixed: Fleet, request: pytest.FixtureRequest) -> None:
    first = request.node.callspec.params["mixed"]
    before = {kind: come(host) for kind, host in zip(KINDS, mixed.hosts[1:], strict=True)}
    up = jobs.up("--target", "ssh")
    assert up.returncode == 0, up.stderr
    jobs.trains(generation=1)
    got = {kind: come(host) - before[kind] for kind, host in zip(KINDS, mixed.hosts[1:], strict=True)}
    for kind, size in got.items():
        assert (size < 2 * CHANGED) == (kind in PARTS[first] or kind == first == "docker26"), got
    for host in mixed.hosts[1:]:
        (told,) = json.loads(host.docker("image", "inspect", NAME))
        assert len(told["RootFS"]["Layers"]) == 2
    checked = json.loads(jobs.run("check", *jobs.where, "--target", "ssh", "-o", "json").stdout)
    assert [one for one in checked["findings"] if one["code"] in ("image-differs", "image-missing")] == []
    again = {kind: come(host) for kind, host in zip(KINDS, mixed.hosts[1:], strict=True)}
    assert jobs.up("--target", "ssh").returncode == 0
    assert all(come(host) - again[kind] < CHANGED // 4 for kind, host in zip(KINDS, mixed.hosts[1:], strict=True))
