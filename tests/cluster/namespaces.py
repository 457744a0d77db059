"""Pods in namespaces of this machine: cheap, for tests that start many of them.

Each container is a mount and a process namespace of its own, with the machine's files (whatever its image) and, where it
says so, volumes; its pod has an address of 127.0.0.0/8, and names by a hosts file. Killing it kills all that it holds.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

from tests.tools.frameworks import Name, python_of

from .pods import Container, Pod

# Runs as root in new namespaces: a root directory that is the machine's, but for what is mounted below.
_ENTER = """\
mount --make-rprivate /
mount -t tmpfs tmpfs "$ROOT"
for path in /*; do
    if [ -L "$path" ]; then cp -P "$path" "$ROOT$path"
    elif [ "$path" = /proc ]; then mkdir "$ROOT$path"; mount -t proc proc "$ROOT$path"
    elif [ -d "$path" ]; then mkdir "$ROOT$path"; mount --rbind "$path" "$ROOT$path"; fi
done
mount --bind "$HOSTS" "$ROOT/etc/hosts"
hostname "$NAME"
while [ "$1" != -- ]; do
    mkdir -p "$ROOT$2"
    if [ -n "$1" ]; then mount --bind "$1" "$ROOT$2"; else mount -t tmpfs tmpfs "$ROOT$2"; fi
    shift 2
done
shift
unset HOSTS NAME
root=$ROOT; unset ROOT
work=$WORK; unset WORK
exec chroot "$root" sh -c 'cd -- "$0" && exec "$@"' "$work" "$@"
"""
_SPACES = ("unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child")

# Tests run side by side in several processes: each takes networks of its own.
_NETWORKS = (number % 250 + 2 for number in itertools.count(os.getpid() * 29))


def lacking() -> str | None:
    """Say why no pods can be made here, None if they can."""
    if os.geteuid() != 0:
        return "pods are made by root"
    done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False)
    return None if done.returncode == 0 else f"no namespaces here: {done.stderr.decode().strip()}"


class Namespaces:
    """This machine."""

    def __init__(self) -> None:
        self.network = next(_NETWORKS)
        self.numbers = itertools.count(2)

    def overrides(self, framework: Name | None) -> dict[str, str]:
        """Name the interpreter by its path."""
        python = str(python_of(framework)) if framework else sys.executable
        return {"image": "none", "container.python": python}

    def address(self) -> str:
        """Return the next address of the network."""
        number = next(self.numbers)
        return f"127.{self.network}.{number // 250}.{number % 250 + 2}"

    def begin(self, pod: Pod) -> None:
        """Do nothing: all addresses of 127.0.0.0/8 are there."""

    def run(self, pod: Pod, container: Container, log: Path) -> subprocess.Popen[bytes]:
        """Start a container."""
        root = pod.folder / "root"
        root.mkdir(exist_ok=True)
        mounts = [word for mount in container.mounts for word in (str(mount.source or ""), mount.target)]
        own = {
            "ROOT": str(root),
            "HOSTS": str(pod.cluster.hosts),
            "NAME": pod.name,
            "WORK": container.workdir or "/",
            "PATH": os.environ["PATH"],
            "HOME": "/root",
        }
        with log.open("ab") as out:
            return subprocess.Popen(
                [*_SPACES, "sh", "-ec", _ENTER, "sh", *mounts, "--", *container.argv],
                env={**own, **container.env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def end(self, pod: Pod) -> None:
        """Do nothing: what a pod held is gone with it."""
