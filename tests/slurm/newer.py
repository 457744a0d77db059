"""Slurm 24.11, which is Debian 13's: root file systems with its programs, for machines of a test cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.fleet.machine import cache, locked
from tests.tools.frameworks import RECIPES

LEFT_OUT = ("doc", "man", "locale")


@dataclass(frozen=True)
class Programs:
    """What a root file system has. `name` is another one whenever the packages are."""

    name: str
    packages: tuple[str, ...]

    @property
    def root(self) -> Path:
        """Where it is."""
        return cache().parent / f"slurm-trixie-{self.name}.root"

    def missing(self) -> str | None:
        """Say what making it lacks, None if nothing."""
        return None if self.root.exists() or shutil.which("mmdebstrap") else "there is no mmdebstrap here"


SLURM = Programs("1", ("slurmctld", "slurmd", "slurm-client", "munge", "python3"))  # 200 MB, half a minute of CPU
# Made only for the tests that need containers or frameworks: 350 MB.
MORE = Programs("more-1", (*SLURM.packages, "podman", "runc", "conmon", "docker-registry", "libgomp1", "libstdc++6"))


def lent() -> tuple[Path, ...]:
    """Return the folders that such machines see too: the Python of the tests, and those of frameworks.

    None if it is this machine's own, which needs more of it.
    """
    if sys.base_prefix == "/usr":
        return ()
    wanted = [Path(sys.base_prefix), next(iter(RECIPES.values())).folder.parent, Path(sys.prefix)]
    return tuple(path for path in wanted if not any(one in path.parents for one in wanted) and path.is_dir())


def newer_root(programs: Programs = SLURM) -> Path:
    """Return the folder with a root file system; made with mmdebstrap when missing."""
    path = programs.root
    with locked(path.with_suffix(".lock")):
        if not path.exists():
            new = path.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)  # somebody was killed
            excluded = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in LEFT_OUT]
            argv = [
                "mmdebstrap",
                "--variant=minbase",
                f"--include={','.join(programs.packages)}",
                *excluded,
                "trixie",
                str(new),
            ]
            done = subprocess.run([*argv, "--format=directory"], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            (new / "etc" / "hosts").touch()  # the cluster's is mounted there
            os.rename(new, path)
    return path
