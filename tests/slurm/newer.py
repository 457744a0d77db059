"""Slurm 24.11, which is Debian 13's: a root file system with its programs, for machines of a test cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.fleet.machine import cache, locked

PACKAGES = "slurmctld,slurmd,slurm-client,munge,python3"
LEFT_OUT = ("doc", "man", "locale")


def missing_newer() -> str | None:
    """Say what making it lacks, None if nothing."""
    return None if _root().exists() or shutil.which("mmdebstrap") else "there is no mmdebstrap here"


def newer_root() -> Path:
    """Return the folder with the root file system; made with mmdebstrap when missing (half a minute of CPU, 200 MB)."""
    path = _root()
    with locked(path.with_suffix(".lock")):
        if not path.exists():
            new = path.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)  # somebody was killed
            excluded = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in LEFT_OUT]
            argv = ["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", *excluded, "trixie", str(new)]
            done = subprocess.run([*argv, "--format=directory"], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            (new / "etc" / "hosts").touch()  # the cluster's is mounted there
            os.rename(new, path)
    return path


def _root() -> Path:
    return cache().parent / "slurm-trixie-1.root"
