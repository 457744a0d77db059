"""What Slurm's commands say when they refuse a job, word for word, and what a user is told to do."""

from __future__ import annotations

import pytest

from jobctl.jobspec.deploy.slurm.problems import slurm_error
from jobctl.jobspec.deploy.transport.base import Result

# From `libslurmfull` of 22.05.8 and 24.11.5: the same in both, but those that one of them lacks.
SAID = {
    "slurm-account": (
        ("Invalid account or account/partition combination specified", "`slurm.account`"),
        ("Invalid or unknown association", "`slurm.account`"),  # 24.11
    ),
    "slurm-limit": (
        (
            "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
            "a limit of the account or QOS: ask for less",
        ),
        ("Requested account has breached requested QOS usage threshold", "`slurm.qos`"),
    ),
    "slurm-qos": (("Invalid qos specification", "`slurm.qos`"),),
    "slurm-partition": (
        ("Invalid partition name specified", "`sinfo` lists the partitions"),
        ("No partition specified or system default partition", "has no default"),
        ("User's group not permitted to use this partition", "which groups may"),
        ("Required partition not available (inactive or drain)", "choose another"),
        ("Partition in DOWN state", "choose another"),
    ),
    "slurm-constraint": (
        ("Invalid feature specification", "`slurm.constraint`"),
        ("Invalid preferred feature specification", "`slurm.constraint`"),
    ),
    "slurm-gres": (
        ("Invalid generic resource (gres) specification", "`slurm.gres`"),
        ("Invalid GRES specification (with and without type identification)", "`slurm.gres`"),
        ("Requested GRES option unsupported by configured SelectType plugin", "`slurm.gres`"),
        ("Invalid Trackable RESource (TRES) specification", "`slurm.gres`"),
    ),
    "slurm-reservation": (
        ("Requested reservation is invalid", "`slurm.reservation`"),
        ("Access denied to requested reservation", "`slurm.reservation`"),
        ("Requested reservation not usable now", "`slurm.reservation`"),
        ("Job can not start due to maintenance reservation.", "a shorter `slurm.time`"),
    ),
    "slurm-time": (
        ("Requested time limit is invalid (missing or exceeds some limit)", "lower `slurm.time`"),
        ("Time limit specification required, but not provided", "set `slurm.time`"),
    ),
    "slurm-nodes": (
        ("Node count specification invalid", "lower `nodes` or `slurm.spares`"),
        ("Requested node configuration is not available", "`devices` and `resources`"),
        ("Requested partition configuration not available now", "`sinfo -R`"),
        ("Required node not available (down, drained or reserved)", "`sinfo -R`"),
        ("Requested nodes not in this partition", "`slurm.options`"),
        ("Invalid node name specified", "`slurm.options`"),
        ("More processors requested than permitted", "`resources.cpus`"),
        ("CPU count specification invalid", "`resources.cpus`"),
        ("Requested topology configuration is not available", "`slurm.options`"),  # 24.11
    ),
    "slurm-memory": (
        ("Memory required by task is not available", "`resources.memory`"),
        ("Invalid memory specification", "`resources.memory`"),
    ),
    "slurm-option": (
        ("Invalid license specification", "`scontrol show licenses`"),
        ("Licenses currently unavailable", "`scontrol show licenses`"),  # 24.11
        ("Invalid wckey specification", "`sacctmgr show wckeys`"),
        ("Invalid --signal specification", "`man sbatch`"),  # 24.11
    ),
    "slurm-permission": (("Access/permission denied", "log in as that user"),),
    "slurm-silent": (
        ("Unable to contact slurm controller (connect failure)", "try again later"),
        ("Slurm backup controller in standby mode", "try again later"),
        ("Socket timed out on send/recv operation", "try again later"),
        ("Rate limit exceeded, please retry later", "try again later"),  # 24.11
        ("Unable to create job record, try again", "try again later"),
    ),
    "slurm-munge": (
        ("Protocol authentication error", "munged has another key"),
        ("Invalid authentication credential", "munged has another key"),
    ),
}


@pytest.mark.parametrize(
    ("text", "code", "remedy"), [(text, code, remedy) for code, said in SAID.items() for text, remedy in said]
)
def test_what_slurm_refuses_is_told_with_the_remedy(text: str, code: str, remedy: str) -> None:
    printed = f"sbatch: error: Batch job submission failed: {text}\n".encode()
    error = slurm_error("login", "submit the job", Result(1, b"", printed))
    assert (error.code, error.cause) == (code, f"cannot submit the job: Batch job submission failed: {text}")
    assert remedy in str(error.hint)


def test_what_nobody_has_foreseen_is_told_as_slurm_says_it() -> None:
    error = slurm_error("login", "submit the job", Result(1, b"", b"sbatch: error: a word of the site's own\n"))
    assert (error.code, error.cause) == ("slurm-refused", "cannot submit the job: a word of the site's own")
    assert "`jobctl render --target slurm`" in str(error.hint)
