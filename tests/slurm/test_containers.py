"""Jobs in containers of podman, each node with an engine's storage of its own, in a real Slurm."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from typing import Any

import pytest

from . import images
from .cluster import Machine, Slurm, wait_for
from .conftest import SlurmJobs

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
def podman(cluster: Slurm) -> Podman:
    if shutil.which("podman") is None:
        (pytest.fail if os.environ.get("JOBCTL_FLEET") == "required" else pytest.skip)("there is no podman here")
    return Podman(cluster)


def write(jobs: SlurmJobs, podman: Podman, **more: Any) -> None:
    """Write the spec of a job in containers of the archive's image."""
    archive = jobs.directory / "image.tar"
    images.write_archive(archive)
    inside: dict[str, Any] = {
        "image": str(archive),
        "container": {"python": images.PYTHON},
        "volumes": list(images.VOLUMES),
        "code": {"source": ".", "exclude": ["image.tar", "checkpoints"]},
        "command": [images.PYTHON, "rank.py", str(10**9)],
    }
    jobs.write(spec={**inside, **more}, container="podman", requeue="chain", spares=1)
    jobs.environ.update(podman.environ)


def test_a_job_in_containers_recovers_moves_and_goes_on_and_leaves_none(jobs: SlurmJobs, podman: Podman) -> None:
    s1, s2, s3, _ = nodes = jobs.cluster.nodes
    write(jobs, podman)
    jobs.ok("up", "--target", "slurm")
    first = jobs.running()["slurm"]["job_id"]
    assert podman.containers(s1, s2, s3) == [f"jobctl-tiny-{first}-0"] * 2
    said = jobs.ok("exec", "--node", "1", "--", "sh", "-c", 'echo "$OF_IMAGE $NODE_RANK $MASTER_ADDR $(pwd)"; ls /')
    assert said.splitlines()[0] == "yes 1 10.9.0.1 /workspace"
    assert "home" not in said.splitlines()
    assert jobs.run("exec", "--node", "1", "--", "no-such-command").returncode == 127

    os.kill(s2.processes("rank.py")[-1], signal.SIGKILL)
    wait_for(lambda: jobs.begun()[2:] and max(jobs.begun())[1] == 2, "generation 2")
    jobs.goes_on()

    # The whole container, and then the node runner that keeps it alive.
    podman.on(s2, "kill", f"jobctl-tiny-{first}-0")
    wait_for(lambda: len(jobs.begun()) == 6, "generation 3")
    jobs.goes_on()
    os.kill(min(s2.processes("allocation.py\0node")), signal.SIGKILL)
    wait_for(lambda: len(jobs.begun()) == 8, "generation 4")
    jobs.goes_on()
    jobs.check_steps()

    jobs.cluster.run("scancel", "--batch", "--signal=USR1", str(first))
    wait_for(lambda: len(jobs.begun()) == 10, "ranks in the next allocation")
    jobs.goes_on()
    state = jobs.running()
    assert (state["slurm"]["job_id"] > first, state["generation"]) == (True, 5)
    jobs.check_steps()
    jobs.ok("down")
    assert podman.containers(*nodes) == []
    assert [
        pid for node in nodes for word in ("rank.py", "conmon", "allocation.py") for pid in node.processes(word)
    ] == []
    assert not (jobs.directory / ".jobctl").exists()
