"""Which environment Slurm's commands get in an allocation: without what its user has set for them.

On a login node, deploy/slurm/scripts/plain.sh does the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, Mapping

# How the names of variables begin that change what a command lists, cancels or prints, or have it ask a person.
USERS_OWN = ("SQUEUE_", "SCANCEL_", "SCONTROL_", "SINFO_", "SACCT_")
# What `srun` reads and a batch script does not have by itself. The step of the node runners would end early, wait, have less than
# the allocation, run another program or elsewhere, or print where nobody looks.
_OF_STEPS = """
BCAST BCAST_EXCLUDE CLUSTERS COMPRESS CONSTRAINT DEPENDENCY EXACT EXCLUSIVE GRES HINT HOSTFILE IMMEDIATE LABELIO OPEN_MODE
REMOTE_CWD SIGNAL STDERRMODE STDINMODE STDOUTMODE STEP_GRES TEST_EXEC THREADS TIMELIMIT USE_MIN_NODES WORKING_DIR
"""
FOR_STEPS = frozenset("SLURM_" + name for name in _OF_STEPS.split())


def command_environ(environ: Mapping[str, str]) -> Dict[str, str]:
    """Return the environment of a command that asks Slurm, or cancels: with times as ISO 8601 has them, in this cluster."""
    kept = {name: environ[name] for name in environ if not name.startswith(USERS_OWN) and name != "SLURM_CLUSTERS"}
    return {**kept, "SLURM_TIME_FORMAT": "standard"}


def step_environ(environ: Mapping[str, str]) -> Dict[str, str]:
    """Return the environment of an `srun` whose step begins with the allocation and ends with it."""
    return {name: environ[name] for name in environ if not name.startswith("SRUN_") and name not in FOR_STEPS}


def next_job_environ(environ: Mapping[str, str]) -> Dict[str, str]:
    """Return the environment of a job that is submitted: it has an allocation of its own, of which ours know nothing."""
    return {name: environ[name] for name in environ if not name.startswith("SLURM_") or name == "SLURM_CONF"}
