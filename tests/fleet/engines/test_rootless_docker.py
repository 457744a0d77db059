"""A host whose engine is a user's own Docker Engine: what `check` says of it, and a job of one node on it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.fleet import Fleet, fleet
from tests.fleet.host import UID, USER
from tests.fleet.jobs import SPEC, Jobs
from tests.fleet.podman import RootlessHost

PROGRAM = "/usr/share/docker.io/contrib/dockerd-rootless.sh"
NEEDED = {"rootlesskit": "rootlesskit", "slirp4netns": "slirp4netns", "newuidmap": "uidmap"}


class RootlessDockerHost(RootlessHost):
    """A host of which nobody uses more than USER and their own Docker Engine, whose network is that of slirp4netns."""

    def make(self) -> None:
        """Make it, with a device for tunnels that its user may open, as where udev runs."""
        super().make()
        device = self.dir / "tun"
        os.mknod(device, 0o020666, os.makedev(10, 200))
        device.chmod(0o666)
        self.binds[device] = "/dev/net/tun"

    def start_engine(self, *more: str) -> None:
        """Start the user's engine."""
        environ = [
            f"HOME={self.home}",
            f"XDG_RUNTIME_DIR={self.dir}/run",
            f"USER={USER}",
            "PATH=/usr/sbin:/usr/bin:/bin",
        ]
        user = ["setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups", "env", *environ]
        where = ["--host", f"unix://{self.socket}", "--data-root", str(self.dir / "data")]
        network = ["--iptables=false", "--bridge=none"]
        self.start(
            "dockerd", [*user, "DOCKERD_ROOTLESS_ROOTLESSKIT_NET=slirp4netns", "sh", PROGRAM, *where, *network, *more]
        )

    @property
    def socket(self) -> Path:
        """Where its engine listens."""
        return self.dir / "run" / "docker.sock"


class _Rootless(Fleet):
    kind = RootlessDockerHost


@pytest.fixture
def jobs(tmp_path: Path, can_have_fleet: None) -> Iterator[Jobs]:
    """A job of one node, and a host for it."""
    lacking = [package for name, package in NEEDED.items() if shutil.which(name, path="/usr/bin:/usr/sbin") is None]
    if lacking or not Path(PROGRAM).exists():
        (pytest.fail if os.environ.get("JOBCTL_FLEET") == "required" else pytest.skip)(
            f"rootless Docker needs the Debian packages {' '.join(lacking) or 'docker.io'}"
        )
    with fleet(1, _Rootless) as made:
        shared = made.dir / "shared"
        shared.mkdir()
        shared.chmod(0o777)
        found = Jobs(tmp_path, made, SPEC.replace("nodes: 2", "nodes: 1").replace("{checkpoints}", str(shared)))
        yield found
        assert found.run("down", *found.where).returncode == 0
        assert (found.containers(), found.files()) == ([[]], [])


@pytest.mark.long
def test_check_tells_what_rootless_docker_cannot_and_a_job_of_one_node_runs(jobs: Jobs) -> None:
    check = json.loads(jobs.run("check", *jobs.where, "--target", "ssh", "-o", "json").stdout)
    said = [(one["verdict"], one["code"]) for one in check["findings"] if one["check"] == "engine"]
    (kind,) = [one["message"] for one in check["findings"] if (one["check"], one["verdict"]) == ("engine", "ok")]
    assert said == [("ok", None), ("warning", "engine-rootless"), ("warning", "engine-ends-with-session")]
    assert ("Docker Engine 2" in kind, "image store: layers, rootless" in kind) == (True, True), kind
    up = jobs.up("--target", "ssh")
    assert up.returncode == 0, up.stderr
    jobs.trains(step=1)
