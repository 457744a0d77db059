"""What identifies the files of a job in Slurm, so that `up` knows which of them have changed."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobctl.jobspec.plan.types import Plan
    from jobctl.jobspec.render.slurm import SlurmFile
PROGRAMS = ("launcher.py", "allocation.py")  # a new version of jobctl alone changes no job


def hashes_of(plan: Plan) -> dict[str, str]:
    """Return what identifies the files that a job was made from, by their paths; jobctl's own programs left out."""
    from jobctl.jobspec.plan.generation import first_generation
    from jobctl.jobspec.render.slurm import slurm_files

    files = [file for file in slurm_files(plan, first_generation(plan)) if file.path not in PROGRAMS]
    found = {file.path: sha256(stable(file)).hexdigest() for file in files}
    return {**found, **({"code": plan.code.version or ""} if plan.code else {})}


def settings_of_earlier(plan: Plan) -> str:
    """Return the hash of the settings as earlier versions wrote them, which did not end a job after `max_duration`."""
    from jobctl.jobspec.render.slurm import settings_file

    return sha256(settings_file(replace(plan, recovery=replace(plan.recovery, max_duration=None)))).hexdigest()


def stable(file: SlurmFile) -> bytes:
    """Return the bytes of a file that its hash covers: ports come of the run's name, which every change makes another."""
    if file.path == "job.sbatch":  # that of earlier versions had no `trap`
        return b"".join(line for line in file.content.splitlines(keepends=True) if not line.startswith(b"trap "))
    if file.path != "control.json":
        return file.content
    control = json.loads(file.content)
    control.pop("autonomy", None)  # it is there as `alone`, too: the hash is that of earlier versions
    return json.dumps({**control, "run_id": "", "rendezvous": {}}, sort_keys=True).encode()
