"""Commands of Slurm's that do not tell the truth."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.slurm.conftest import SlurmJobs

SILENT = "echo slurm_load_jobs error: Unable to contact slurm controller >&2; exit 1"


def lying(jobs: SlurmJobs, folder: Path, **commands: str) -> None:
    """Put scripts in place of some of Slurm's commands; without any, the real ones are back."""
    honest = [part for part in jobs.environ["PATH"].split(":") if part != str(folder)]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, script in commands.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    jobs.environ["PATH"] = ":".join([str(folder), *honest])
