"""What the fleet needs of the machine: root, packages, a bridge, and one small image; made once and cached."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = {
    "dockerd": "docker.io",
    "runc": "docker.io",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "tc": "iproute2",
    "ping": "iputils-ping",
    "faketime": "faketime",
    "mmdebstrap": "mmdebstrap",
    "nsenter": "util-linux",
    "mkfs.ext4": "e2fsprogs",
    "etcd": "etcd-server",
}
ETCD_IMAGE = "jobctl-fleet-etcd:1"  # the machine's etcd, and nothing else
MIRROR = "http://deb.debian.org/debian"
IMAGE = "jobctl-fleet:1"  # Debian with python3, and what torch needs beside itself


def missing() -> str | None:
    """Return why there can be no fleet here, None if there can."""
    if os.geteuid() != 0:
        return "the fleet needs root: network namespaces and Docker Engines of its own"
    lacking = sorted({package for program, package in PROGRAMS.items() if not _which(program)})
    if lacking:
        return f"the fleet needs the Debian packages {' '.join(lacking)}"
    try:
        sh("unshare", "--net", "--mount", "--uts", "true")
    except subprocess.CalledProcessError as error:
        return f"this machine allows no namespaces: {error.stderr.strip()}"
    return None


def _which(program: str) -> str | None:
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def sh(*argv: str, check: bool = True, **how: object) -> str:
    """Run a command and return what it printed; raises CalledProcessError with what it said."""
    environ = {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environ, **how)  # type: ignore[call-overload]
    if check and done.returncode:
        raise subprocess.CalledProcessError(done.returncode, argv, done.stdout, done.stderr or done.stdout)
    return str(done.stdout)


def cache() -> Path:
    """Return the folder, outside of the checkout, for what takes long to make."""
    path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jobctl-tests" / "fleet"
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that other test processes respect."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def base_image() -> Path:
    """Return a tar of the root file system of IMAGE; made with mmdebstrap when missing (half a minute)."""
    path = cache() / "base-2.tar"
    with locked(cache() / "base.lock"):
        if not path.exists():
            new = path.with_suffix(".new")
            sh("mmdebstrap", "--variant=essential", "--include=python3,libstdc++6,libgomp1",
               "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
               "--dpkgopt=path-exclude=/usr/share/locale/*", "bookworm", str(new), "--format=tar")  # fmt: skip
            new.rename(path)
    return path


# What hosts of Debian 13 need.
DEBIAN_13 = (
    *("bash", "coreutils", "dash", "diffutils", "findutils", "grep", "gzip", "hostname", "mawk", "mount", "sed", "tar"),
    *("util-linux", "docker.io", "docker-cli", "podman", "runc", "crun", "conmon", "catatonit", "netavark", "uidmap"),
    *("openssh-server", "python3", "iproute2", "iptables", "procps", "zstd"),
)


def debian_13() -> Path:
    """Return a folder with the programs of Debian 13, for /usr; made with mmdebstrap when missing (a minute or two)."""
    path = cache() / "debian-13"
    with locked(cache() / "debian-13.lock"):
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=cache()) as scratch:
                left_out = [f"--dpkgopt=path-exclude=/usr/share/{what}/*" for what in ("doc", "man", "locale")]
                more = f"--include={','.join(DEBIAN_13)}"
                root = Path(scratch) / "root"
                sh("mmdebstrap", "--variant=extract", *left_out, more, "trixie", str(root), MIRROR)
                (root / "usr").rename(path)
    return path


def etcd_image() -> Path:
    """Return a tar of the root file system of ETCD_IMAGE: the program and the libraries that it needs, as in etcd's own."""
    program = Path(str(_which("etcd")))
    path = cache() / f"etcd-{program.stat().st_mtime_ns}.tar"
    with locked(cache() / "etcd.lock"):
        if not path.exists():
            words = sh("ldd", str(program), check=False).split()
            needed = [str(Path(word).resolve()) + ":" + word for word in words if word.startswith("/")]
            with tarfile.open(path.with_suffix(".new"), "w") as archive:
                archive.add(program.resolve(), "usr/local/bin/etcd")
                for source, _, place in (one.partition(":") for one in needed):
                    archive.add(source, place.lstrip("/"))
            path.with_suffix(".new").rename(path)
    return path


def engine_root() -> Path:
    """Return the data root of an engine that has IMAGE and ETCD_IMAGE; made when missing.

    Hosts begin with a copy: to load images into each engine would take most of the time of a fleet.
    """
    path = cache() / f"{base_image().stem}-{etcd_image().stem}.root"
    with locked(cache() / "engine.lock"):
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=cache()) as scratch:
                _fill_engine(Path(scratch))
                os.rename(Path(scratch) / "data", path)
    return path


def _fill_engine(folder: Path) -> None:
    """Have an engine of its own import the images into `folder`/data, and end it."""
    host = f"unix://{folder}/docker.sock"
    with (folder / "log").open("wb") as log:
        engine = subprocess.Popen(
            [
                *(str(_which("dockerd")), "--data-root", f"{folder}/data", "--exec-root", f"{folder}/run", "-H", host),
                *("--pidfile", f"{folder}/pid", "--bridge=none", "--iptables=false", "--ip-forward=false"),
            ],
            stdout=log,
            stderr=log,
            env={**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"},
        )
    try:
        deadline = time.monotonic() + 180
        while not (folder / "docker.sock").exists() or "Server" not in sh("docker", "-H", host, "version", check=False):
            if engine.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"dockerd said:\n{(folder / 'log').read_text()}")
            time.sleep(0.1)
        for archive, name in ((base_image(), IMAGE), (etcd_image(), ETCD_IMAGE)):
            sh("docker", "-H", host, "import", str(archive), name)
    finally:
        engine.terminate()
        engine.wait(180)


def compose_plugin() -> Path:
    """Return the Compose plugin's binary. Raises ToolMissing."""
    from tests.tools.compose import compose

    argv = compose()
    if len(argv) == 1:
        return Path(argv[0])
    found = [Path(place) / "docker-compose" for place in PLUGINS if (Path(place) / "docker-compose").exists()]
    return found[0]


PLUGINS: Sequence[str] = (
    "/usr/libexec/docker/cli-plugins",
    "/usr/local/lib/docker/cli-plugins",
    "/usr/lib/docker/cli-plugins",
    str(Path.home() / ".docker/cli-plugins"),
)
