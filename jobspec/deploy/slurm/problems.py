"""What Slurm's commands say when they refuse, and what helps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jobctl.jobspec.deploy.host.host_job import NOT_OURS
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.transport.base import Result

# Words of sbatch and scontrol, as the libraries of 22.05 and 24.11 have them: a part of them, our code, the remedy. The first that
# is found counts: what limits say names sizes and times, too.
_CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        "violates accounting/QOS policy",
        "slurm-limit",
        "a limit of the account or QOS: ask for less, or choose another `slurm.account` or `slurm.qos`",
    ),
    (
        "Requested account has breached",
        "slurm-limit",
        "the account has used up what that QOS gives it: choose another `slurm.account` or `slurm.qos`",
    ),
    ("Invalid account", "slurm-account", "`sacctmgr show associations user=$USER` lists yours; set `slurm.account`"),
    (
        "unknown association",
        "slurm-account",
        "`sacctmgr show associations user=$USER` lists yours; set `slurm.account`",
    ),
    ("Invalid qos", "slurm-qos", "`sacctmgr show qos` lists them; set `slurm.qos`"),
    ("Invalid partition", "slurm-partition", "`sinfo` lists the partitions; set `slurm.partition`"),
    (
        "No partition specified",
        "slurm-partition",
        "this cluster has no default: `sinfo` lists the partitions; set `slurm.partition`",
    ),
    (
        "not permitted to use this partition",
        "slurm-partition",
        "`scontrol show partition` says which groups may: choose another `slurm.partition`",
    ),
    ("Required partition not available", "slurm-partition", "the partition is down or drained: choose another"),
    ("Partition in DOWN state", "slurm-partition", "choose another `slurm.partition`, or wait until it is up"),
    (
        "feature specification",
        "slurm-constraint",
        "`sinfo -o '%N %f'` lists the features of nodes; change `slurm.constraint`",
    ),
    *(
        (words, "slurm-gres", "`sinfo -o '%N %G'` lists what nodes have; set `slurm.gres`")
        for words in ("generic resource", "Invalid GRES", "GRES option", "Trackable RESource")
    ),
    (
        "maintenance reservation",
        "slurm-reservation",
        "`scontrol show reservation` says when it begins: a job with a shorter `slurm.time` may end before",
    ),
    (
        "requested reservation",
        "slurm-reservation",
        "`scontrol show reservation` lists them, with their users and times; set `slurm.reservation`",
    ),
    ("Time limit specification required", "slurm-time", "set `slurm.time`: `sinfo -o '%P %l'` lists the limits"),
    ("time limit", "slurm-time", "lower `slurm.time`: `sinfo -o '%P %l'` lists the limits"),
    (
        "Node count specification invalid",
        "slurm-nodes",
        "the partition has fewer nodes: lower `nodes` or `slurm.spares`",
    ),
    ("Requested nodes not in this partition", "slurm-nodes", "`sinfo -N` lists the nodes: change `slurm.options`"),
    ("Invalid node name", "slurm-nodes", "`sinfo -N` lists the nodes: change `slurm.options`"),
    (
        "Required node not available",
        "slurm-nodes",
        "nodes that the job names are down, drained or reserved: `sinfo -R` says why; change `slurm.options`",
    ),
    ("More processors requested", "slurm-nodes", "no node has so many cores: lower `resources.cpus`"),
    ("CPU count specification invalid", "slurm-nodes", "no node has so many cores: lower `resources.cpus`"),
    ("Memory required by task", "slurm-memory", "no node has so much memory: lower `resources.memory`"),
    ("Memory specification", "slurm-memory", "no node has so much memory: lower `resources.memory`"),
    ("Requested node configuration", "slurm-nodes", "no node is like that: look at `slurm`, `devices` and `resources`"),
    ("Requested topology", "slurm-nodes", "no nodes are joined like that: look at `slurm.options`, or ask for fewer"),
    (
        "Requested partition configuration",
        "slurm-nodes",
        "the partition has fewer nodes, or they are drained: `sinfo -R`",
    ),
    ("license", "slurm-option", "`scontrol show licenses` lists them: change `slurm.options`"),
    ("wckey", "slurm-option", "`sacctmgr show wckeys` lists yours: change `slurm.options`"),
    (
        "Access/permission denied",
        "slurm-permission",
        "Slurm lets the job's user and administrators do that: log in as that user (`slurm.login: USER@HOST`), or ask one",
    ),
    ("Invalid --", "slurm-option", "`man sbatch` has the forms of its options: change it in `slurm.options`"),
    ("unrecognized option", "slurm-option", "this Slurm does not know the option: leave it out of `slurm.options`"),
    ("Unable to contact slurm controller", "slurm-silent", "slurmctld does not answer: try again later"),
    ("in standby mode", "slurm-silent", "slurmctld is being replaced by its backup: try again later"),
    ("Socket timed out", "slurm-silent", "slurmctld is busy: try again later"),
    ("Rate limit exceeded", "slurm-silent", "slurmctld is busy: try again later"),
    ("Unable to create job record", "slurm-silent", "slurmctld has as many jobs as it takes: try again later"),
    ("Connection refused", "slurm-silent", "slurmctld does not run: try again later"),
    ("Munge", "slurm-munge", "munged does not run on the login node"),
    (
        "authentication",
        "slurm-munge",
        "munged has another key there, or another time: its administrators know; `munge -n | unmunge` tries it",
    ),
    ("not found", "slurm-missing", "is this a login node? `slurm: {login: HOST}` names one"),
    ("No such file or directory", "slurm-missing", "is this a login node? `slurm: {login: HOST}` names one"),
)


# How scancel says that it need not end a job: it has forgotten it, or the job is ending.
_ENDED = (b"Invalid job id", b"already completing or completed")


def has_ended(result: Result) -> bool:
    """Say whether `scancel` could signal nobody, as the job has ended, or is about to."""
    return result.code != 0 and any(words in result.err for words in _ENDED)


def slurm_error(host: str, what: str, result: Result) -> HostError:
    """Return the error of a command of Slurm's that failed, with the remedy where the cause is a common one."""
    text = result.err.decode("utf-8", "replace") or result.out.decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = "; ".join(dict.fromkeys(line.removeprefix("sbatch: error: ") for line in lines[-3:])) or result.words
    if result.code == NOT_OURS:
        hint = "choose a directory of your own with `slurm.directory`"
        return HostError(host, "no-permission", f"cannot {what}: {said}", hint)
    for sign, code, hint in _CAUSES:
        if sign.lower() in text.lower():
            return HostError(host, code, f"cannot {what}: {said}", hint)
    hint = "`jobctl render --target slurm` shows what Slurm gets; its administrators know its limits"
    return HostError(host, "slurm-refused", f"cannot {what}: {said}", hint)


@contextmanager
def written_there() -> Iterator[None]:
    """Have the remedy of what cannot be written name the key of the spec: there is no hosts file with a `dir=`."""
    try:
        yield
    except HostError as error:
        before, found, after = (error.hint or "").partition("`dir=` in the hosts file")
        if not found:
            raise
        raise HostError(error.host, error.code, error.cause, f"{before}`slurm.directory`{after}") from error
