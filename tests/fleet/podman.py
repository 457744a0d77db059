"""Hosts with other engines. Podman: its service at the host's socket, as `podman.socket` has it, in place of a Docker Engine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from tests.fleet import engine
from tests.fleet.fleet import NOTHING, Fleet, fleet
from tests.fleet.host import UID, USER, Host
from tests.fleet.machine import ETCD_IMAGE, IMAGE, base_image, cache, debian_13, etcd_image, locked, sh

STORE = "podman-images"  # what is lent to hosts under this name
# What Podman has to know on machines without systemd, which may not raise limits; each host has locks of its own.
_CONF = """\
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
tmp_dir = "{run}/tmp"
init_path = "{init}"
[containers]
default_sysctls = []
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
"""
_STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{data}"
runroot = "{run}"
[storage.options]
additionalimagestores = [{more}]
"""


def missing_engine(engine: str = "podman") -> str | None:
    """Return why there can be no hosts with an engine here, None if there can."""
    if engine in NEWER:
        try:
            debian_13()
        except (OSError, subprocess.CalledProcessError) as error:
            return f"hosts of Debian 13 need its packages: {getattr(error, 'stderr', None) or error}"
        return None
    needed = {"podman": "podman", "conmon": "conmon", "runc": "runc"}
    needed |= {"newuidmap": "uidmap"} if engine == "rootless" else {}
    lacking = [package for name, package in needed.items() if shutil.which(name, path="/usr/bin:/usr/sbin") is None]
    return f"hosts with Podman need the Debian packages {' '.join(lacking)}" if lacking else None


def image_store() -> Path:
    """Return a store of Podman's that has the images of the fleet; made when missing. All hosts read it."""
    path = cache() / f"{base_image().stem}-{etcd_image().stem}.podman"
    with locked(cache() / "podman.lock"):
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=cache()) as scratch:
                own = [
                    "podman",
                    "--root",
                    f"{scratch}/data",
                    "--runroot",
                    f"{scratch}/run",
                    "--storage-driver",
                    "overlay",
                ]
                for archive, name in ((base_image(), IMAGE), (etcd_image(), ETCD_IMAGE)):
                    sh(*own, "import", "--quiet", str(archive), f"docker.io/library/{name}")
                os.rename(f"{scratch}/data", path)
    return path


class PodmanHost(Host):
    """A host with Podman. What tests call its `dockerd` is the service."""

    def install_images(self) -> None:
        """Let its engine see the images of the fleet."""
        self.configure(self.dir.parent / "lent" / STORE)

    def configure(self, *stores: Path) -> None:
        """Write what its engine has to know, with stores of images that it reads beside its own."""
        init = shutil.which("catatonit") or shutil.which("docker-init") or "/usr/bin/docker-init"
        text = {"run": self.dir / "run", "data": self.dir / "data", "init": init}
        more = ", ".join(f'"{store}"' for store in stores)
        (self.dir / "containers.conf").write_text(_CONF.format(**text))
        (self.dir / "storage.conf").write_text(_STORAGE.format(**text, more=more))

    def start_engine(self, *more: str) -> None:
        """Start the service, which containers do not need to run on."""
        (self.dir / "run").mkdir(exist_ok=True)
        files = [f"CONTAINERS_CONF={self.dir}/containers.conf", f"CONTAINERS_STORAGE_CONF={self.dir}/storage.conf"]
        service = ["podman", *more, "system", "service", "--time=0", f"unix://{self.socket}"]
        self.start("dockerd", ["env", *files, *service])


class RootlessHost(PodmanHost):
    """A host of which nobody uses more than USER and their own Podman."""

    user = USER
    own_files = (*Host.own_files, "subuid", "subgid")

    @property
    def home(self) -> Path:
        """The home directory of its user."""
        return self.dir / USER

    def make(self) -> None:
        """Make it, with numbers for the users in its containers."""
        super().make()
        for name in ("subuid", "subgid"):
            (self.dir / "etc" / name).write_text(f"{USER}:{100000 + UID}:65536\n")

    def install_images(self) -> None:
        """Write what its engine has to know; it loads the images itself."""
        for name in ("data", "run"):
            (self.dir / name).mkdir(exist_ok=True)
            os.chown(self.dir / name, UID, UID)
        self.configure()

    def wait_for_engine(self) -> None:
        """Wait until the engine answers, and give it the image of jobs unless it has that: it cannot read what is root's."""
        super().wait_for_engine()
        if not engine.images(self.socket):
            self.docker("import", str(base_image()), IMAGE)

    def start_engine(self, *more: str) -> None:
        """Start the user's service."""
        run = self.dir / "run"
        files = [f"CONTAINERS_CONF={self.dir}/containers.conf", f"CONTAINERS_STORAGE_CONF={self.dir}/storage.conf"]
        environ = [*files, f"HOME={self.home}", f"XDG_RUNTIME_DIR={run}", f"USER={USER}"]
        user = ["setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups", "env", *environ]
        self.start("dockerd", [*user, "podman", *more, "system", "service", "--time=0", f"unix://{self.socket}"])

    @property
    def socket(self) -> Path:
        """Where its engine listens: only its user can make a socket there."""
        return self.dir / "run" / "podman.sock"


class Debian13(Host):
    """A host whose programs are those of Debian 13; all else is this machine's."""

    def make(self) -> None:
        """Make it."""
        self.binds[debian_13()] = "/usr"
        super().make()


class NewerHost(Debian13):
    """A host with Docker Engine 26."""


class ContainerdHost(NewerHost):
    """A host with Docker Engine 26 whose images are in the containerd store, as in a fresh Docker Engine 29."""

    def install_images(self) -> None:
        """Write what its engine has to know; it loads the image itself."""
        (self.dir / "daemon.json").write_text(json.dumps({"features": {"containerd-snapshotter": True}}))

    def start_engine(self, *more: str) -> None:
        """Start its engine with that store."""
        super().start_engine("--config-file", str(self.dir / "daemon.json"), *more)

    def wait_for_engine(self) -> None:
        """Wait until the engine answers, and give it the image of jobs unless it has that."""
        super().wait_for_engine()
        if not engine.images(self.socket):
            self.docker("import", str(base_image()), IMAGE)


class NewerPodmanHost(Debian13, PodmanHost):
    """A host with Podman 5."""


class NewerRootlessHost(Debian13, RootlessHost):
    """A host with a user's own Podman 5."""


def fleet_of(kind: str, size: int, lends: Mapping[str, Path] = NOTHING) -> AbstractContextManager[Fleet]:
    """Return hosts with engines of a kind, one of ENGINES."""
    store = {STORE: image_store()} if issubclass(ENGINES[kind].kind, PodmanHost) else {}
    return fleet(size, ENGINES[kind], lends={**lends, **store})


class _Podman(Fleet):
    """Hosts with Podman."""

    kind = PodmanHost


class _Rootless(Fleet):
    """Hosts with a user's own Podman."""

    kind = RootlessHost


class _Newer(Fleet):
    """Hosts with Docker Engine 26."""

    kind = NewerHost


class _Containerd(Fleet):
    """Hosts with Docker Engine 26 and the containerd store."""

    kind = ContainerdHost


class _NewerPodman(Fleet):
    """Hosts with Podman 5."""

    kind = NewerPodmanHost


class _NewerRootless(Fleet):
    """Hosts with a user's own Podman 5."""

    kind = NewerRootlessHost


NEWER: Mapping[str, type[Fleet]] = {
    "docker26": _Newer,
    "containerd": _Containerd,
    "podman5": _NewerPodman,
    "rootless5": _NewerRootless,
}
ENGINES: Mapping[str, type[Fleet]] = {"docker": Fleet, "podman": _Podman, "rootless": _Rootless, **NEWER}
