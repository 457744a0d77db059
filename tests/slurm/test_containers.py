"""Jobs in containers of podman, each node with an engine's storage of its own, in a real Slurm."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.slurm import images
from tests.slurm.cluster import READY, Machine, Slurm, wait_for
from tests.slurm.conftest import ENDLESS, FULLER, HOST_TIMEOUT, SlurmJobs, need, versions

# What podman needs to know where control groups and overlays are not to be had, as in containers of a test machine.
_ENGINE = """\
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
tmp_dir = "{here}/tmp"
lock_type = "file"
[containers]
default_sysctls = []
"""
_STORAGE = '[storage]\ndriver = "vfs"\ngraphroot = "{here}/graph"\nrunroot = "{here}/run"\n'


FULL = "(no space left on device|database or disk is full)"  # as podman 4 or 5 says


class Podman:
    """Podman on the machines of a cluster."""

    def __init__(self, cluster: Slurm) -> None:
        here = cluster.dir / "containers"
        self.environ = {}
        for name, text in (("CONTAINERS_CONF", _ENGINE), ("CONTAINERS_STORAGE_CONF", _STORAGE)):
            path = cluster.dir / f"{name}.toml"
            path.write_text(text.format(here=here))
            self.environ[name] = str(path)

    def on(self, machine: Machine, *argv: str) -> str:
        """Run podman on a machine, and return what it prints."""
        done = subprocess.run(
            machine.inside("podman", *argv),
            env={**os.environ, **self.environ},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def containers(self, *machines: Machine) -> list[str]:
        """Return the containers on machines, whether they run or not."""
        return [name for one in machines for name in self.on(one, "ps", "--all", "--format", "{{.Names}}").split()]


@pytest.fixture
def podman(jobs: SlurmJobs) -> Podman:
    need(jobs.cluster.lacks("podman"))
    return Podman(jobs.cluster)


@pytest.fixture
def image(jobs: SlurmJobs, podman: Podman, tmp_path: Path) -> Iterator[str]:
    """An image in a registry that all machines of the cluster reach."""
    cluster = jobs.cluster
    need(cluster.lacks("docker-registry"))
    place, archive, config = f"{cluster.ctl.address}:5000", tmp_path / "image.tar", tmp_path / "registry.yml"
    config.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdir: {tmp_path}/store}}}}\nhttp: {{addr: {place}}}\n"
    )
    (tmp_path / "registries.conf").write_text(f'[[registry]]\nlocation = "{place}"\ninsecure = true\n')
    podman.environ["CONTAINERS_REGISTRIES_CONF"] = str(tmp_path / "registries.conf")
    images.write_archive(archive)
    serving = cluster.ctl.start("docker-registry", "serve", str(config))
    try:
        podman.on(cluster.ctl, "load", "--input", str(archive))
        wait_for(lambda: listens(cluster.ctl, 5000), "the registry")
        podman.on(cluster.ctl, "push", "--quiet", f"localhost/{images.NAME}", f"docker://{place}/{images.NAME}")
        yield f"{place}/{images.NAME}"
    finally:
        for pid in cluster.ctl.processes(str(config)):  # `nsenter` alone would leave it behind, at its port
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        serving.wait()
        wait_for(lambda: not cluster.ctl.processes(str(config)), "the end of the registry")


def listens(machine: Machine, port: int) -> bool:
    """Say whether somebody listens at a port of a machine."""
    ask = ["bash", "-c", f"exec 3<>/dev/tcp/{machine.address}/{port}"]
    return subprocess.run(machine.inside(*ask), capture_output=True, check=False).returncode == 0


def write(jobs: SlurmJobs, image: str, spares: int = 1) -> None:
    """Write the spec of a job in containers."""
    inside: dict[str, Any] = {
        "image": image,
        "container": {"python": images.PYTHON},
        "volumes": list(images.VOLUMES),
        "code": {"source": ".", "exclude": ["store", "image.tar"]},
        "command": [images.PYTHON, "rank.py", str(ENDLESS)],
        "recovery": {"host_timeout": HOST_TIMEOUT},
    }
    jobs.write(spec=inside, container="podman", requeue="chain", spares=spares)


def without_room(machine: Machine, cluster: Slurm) -> str:
    """Leave a machine's engine no room for images, and return where."""
    place = str(cluster.dir / "containers" / "graph")
    subprocess.run(machine.inside("mkdir", "-p", place), check=True)
    subprocess.run(machine.inside("mount", "-t", "tmpfs", "-o", "size=64k", "none", place), check=True)
    return place


@versions(
    pytest.mark.release(
        "tests/slurm/test_containers.py::test_a_container_that_cannot_start_moves_to_a_spare_or_is_tried_again[22.05]"
    ),
    FULLER,
)
def test_a_container_that_cannot_start_moves_to_a_spare_or_is_tried_again(
    jobs: SlurmJobs, podman: Podman, image: str
) -> None:
    _, s2, _, _ = jobs.cluster.nodes
    write(jobs, image)
    jobs.environ.update(podman.environ)
    full = without_room(s2, jobs.cluster)
    try:
        jobs.ok("up", "--target", "slurm")
        jobs.goes_on()
        state = jobs.running()
        assert [node["host"] for node in state["nodes"]] == ["s1", "s3"]
        assert state["spares"] == [{"host": "s2", "state": "cold"}]
        events = [json.loads(line) for line in jobs.ok("events", "-o", "json").splitlines()]
        (refused,) = [event for event in events if event["event"] == "host-failed"]
        assert refused["message"].startswith("s2 cannot start node 1: ")
        assert re.search(f"{FULL}; the node moves to s3$", refused["message"]), refused
        jobs.ok("down")

        write(jobs, image, spares=0)
        argv = [sys.executable, "-m", "jobctl", "up", "--target", "slurm"]  # returns once the job waits, or runs
        before = set(jobs.jobs())
        up = subprocess.Popen(argv, cwd=jobs.directory, env=jobs.environ)
        # Before that, `status` does not know where the job is to run.
        wait_for(lambda: set(jobs.jobs()) - before, "a job in the queue")
        state = jobs.until(lambda state: re.search(FULL, str(state["reason"])), "a node that is tried again")
        assert (state["phase"], state["nodes"][1]["state"]) == ("starting", "pending")
    finally:
        wait_for(
            lambda: subprocess.run(s2.inside("umount", full), check=False).returncode == 0, "an engine that is idle"
        )
    jobs.goes_on()
    assert up.wait(READY) == 0
    assert [node["host"] for node in jobs.running()["nodes"]] == ["s1", "s2"]
    jobs.check_steps()
    jobs.ok("down")
    assert podman.containers(*jobs.cluster.nodes) == []


@versions(
    pytest.mark.release(
        "tests/slurm/test_containers.py::test_a_job_in_containers_recovers_moves_and_goes_on_and_leaves_none[22.05]"
    ),
    FULLER,
)
def test_a_job_in_containers_recovers_moves_and_goes_on_and_leaves_none(
    jobs: SlurmJobs, podman: Podman, image: str
) -> None:
    s1, s2, s3, s4 = nodes = jobs.cluster.nodes
    write(jobs, image)
    jobs.environ.update(podman.environ)
    jobs.ok("up", "--target", "slurm")
    first = jobs.running()["slurm"]["job_id"]
    (kept,) = (jobs.directory / ".jobctl" / ".images").glob("*/image.tar")
    fetched = kept.stat()
    assert podman.containers(s1, s2, s3) == [f"jobctl-tiny-{first}-0"] * 2
    said = jobs.ok("exec", "--node", "1", "--", "sh", "-c", 'echo "$OF_IMAGE $NODE_RANK $MASTER_ADDR $(pwd)"')
    assert said.strip() == "yes 1 10.9.0.1 /workspace"
    assert jobs.run("exec", "--node", "1", "--", "no-such-command").returncode == 127

    wait_for(lambda: len(jobs.begun()) == 2, "ranks")
    os.kill(s2.processes("rank.py")[-1], signal.SIGKILL)
    wait_for(lambda: len(jobs.begun()) == 4, "generation 2")
    jobs.goes_on()
    # The whole container, and then the node runner that keeps it alive.
    podman.on(s2, "kill", f"jobctl-tiny-{first}-0")
    wait_for(lambda: len(jobs.begun()) == 6, "generation 3")
    jobs.goes_on()
    os.kill(s2.processes("allocation.py\0node")[0], signal.SIGKILL)
    wait_for(lambda: len(jobs.begun()) == 8, "generation 4")
    jobs.goes_on()
    jobs.cluster.run("scancel", "--batch", "--signal=USR1", str(first))
    wait_for(lambda: len(jobs.begun()) == 10, "ranks in the next allocation")
    jobs.goes_on()
    state = jobs.running()
    assert (state["slurm"]["job_id"] > first, state["generation"]) == (True, 5)
    jobs.check_steps()
    jobs.ok("down")
    # Where the node runner was killed, nobody has removed the container, in which nothing runs.
    assert podman.containers(s1, s3, s4) == []
    podman.on(s2, "rm", "--all")  # it removes none that runs
    assert [pid for node in nodes for word in ("rank.py", "allocation.py") for pid in node.processes(word)] == []
    wait_for(lambda: not any(node.processes("conmon") for node in nodes), "what stands around a container to end")
    assert not jobs.work.exists()
    assert (kept.stat().st_ino, sorted(os.listdir(kept.parent))) == (fetched.st_ino, ["image.tar", "lock"])


@versions(
    pytest.mark.release(
        "tests/slurm/test_containers.py::test_a_command_runs_in_a_container_like_those_of_the_job[22.05]"
    ),
    FULLER,
)
def test_a_command_runs_in_a_container_like_those_of_the_job(jobs: SlurmJobs, podman: Podman, image: str) -> None:
    """Before the job is up, and beside its container on the same machine."""
    write(jobs, image, spares=0)
    jobs.environ.update(podman.environ)
    tell = ("--", "sh", "-c", 'echo "$(hostname) $OF_IMAGE ${SLURM_PROCID:-none} $(pwd)"; cat; exit 7')
    done = jobs.run("run", "--target", "slurm", *tell)
    assert (done.stdout, done.returncode) == ("s1 yes none /workspace\n", 7), done.stderr
    wait_for(lambda: not jobs.jobs(), "an empty queue")
    jobs.ok("up", "--target", "slurm")
    job = jobs.running()["slurm"]["job_id"]
    jobs.goes_on()
    done = jobs.run("run", "--node", "1", *tell)
    assert (done.stdout, done.returncode) == ("s2 yes none /workspace\n", 7), done.stderr
    jobs.goes_on()
    assert (jobs.status()["generation"], podman.containers(*jobs.cluster.nodes)) == (1, [f"jobctl-tiny-{job}-0"] * 2)
    jobs.ok("down")
    assert podman.containers(*jobs.cluster.nodes) == []
