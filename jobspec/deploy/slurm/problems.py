"""What Slurm's commands say when they refuse, and what helps."""

from __future__ import annotations

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.transport.base import Result

# Words of sbatch and scontrol, by slurm_strerror of 22.05 to 24.11: a part of them, our code, the remedy.
_CAUSES: tuple[tuple[str, str, str], ...] = (
    ("not found", "slurm-missing", "is this a login node? `slurm: {login: HOST}` names one"),
    ("No such file or directory", "slurm-missing", "is this a login node? `slurm: {login: HOST}` names one"),
    ("Invalid account", "slurm-account", "`sacctmgr show associations user=$USER` lists yours; set `slurm.account`"),
    ("Invalid partition", "slurm-partition", "`sinfo` lists the partitions; set `slurm.partition`"),
    ("Invalid qos", "slurm-qos", "`sacctmgr show qos` lists them; set `slurm.qos`"),
    (
        "Invalid feature",
        "slurm-constraint",
        "`sinfo -o '%N %f'` lists the features of nodes; change `slurm.constraint`",
    ),
    ("Invalid generic resource", "slurm-gres", "`sinfo -o '%N %G'` lists what nodes have; set `slurm.gres`"),
    ("reservation is invalid", "slurm-reservation", "`scontrol show reservation` lists them; set `slurm.reservation`"),
    ("Requested time limit is invalid", "slurm-time", "lower `slurm.time`: `sinfo -o '%P %l'` lists the limits"),
    ("time limit", "slurm-time", "lower `slurm.time`: `sinfo -o '%P %l'` lists the limits"),
    (
        "Node count specification invalid",
        "slurm-nodes",
        "the partition has fewer nodes: lower `nodes` or `slurm.spares`",
    ),
    ("More processors requested", "slurm-nodes", "no node has so many cores: lower `resources.cpus`"),
    ("Memory specification", "slurm-memory", "no node has so much memory: lower `resources.memory`"),
    ("Requested node configuration", "slurm-nodes", "no node is like that: look at `slurm`, `devices` and `resources`"),
    (
        "Requested partition configuration",
        "slurm-nodes",
        "the partition has fewer nodes, or they are drained: `sinfo -R`",
    ),
    ("violates accounting/QOS policy", "slurm-limit", "a limit of the account or QOS: ask for less, or choose another"),
    ("Required partition not available", "slurm-partition", "the partition is down or drained: choose another"),
    (
        "Access/permission denied",
        "slurm-permission",
        "Slurm lets the job's user and administrators do that: log in as that user (`slurm.login: USER@HOST`), or ask one",
    ),
    ("Invalid --", "slurm-option", "`man sbatch` has the forms of its options: change it in `slurm.options`"),
    ("unrecognized option", "slurm-option", "this Slurm does not know the option: leave it out of `slurm.options`"),
    ("Unable to contact slurm controller", "slurm-silent", "slurmctld does not answer: try again later"),
    ("Socket timed out", "slurm-silent", "slurmctld is busy: try again later"),
    ("Connection refused", "slurm-silent", "slurmctld does not run: try again later"),
    ("Munge", "slurm-munge", "munged does not run on the login node"),
)


def slurm_error(host: str, what: str, result: Result) -> HostError:
    """Return the error of a command of Slurm's that failed, with the remedy where the cause is a common one."""
    text = result.err.decode("utf-8", "replace") or result.out.decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = "; ".join(dict.fromkeys(line.removeprefix("sbatch: error: ") for line in lines[-3:])) or result.words
    for sign, code, hint in _CAUSES:
        if sign.lower() in text.lower():
            return HostError(host, code, f"cannot {what}: {said}", hint)
    hint = "`jobctl render --target slurm` shows what Slurm gets; its administrators know its limits"
    return HostError(host, "slurm-refused", f"cannot {what}: {said}", hint)
