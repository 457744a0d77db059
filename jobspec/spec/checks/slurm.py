"""The rules of target `slurm`: what has no meaning in an allocation, and what `sbatch` is told already. Rows, as in `rules`."""

from __future__ import annotations

import re

from jobctl.jobspec.spec.checks.rules import ERROR, WARNING, CheckRule
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.slurm_part import Slurm

# Options of sbatch that jobctl sets itself, and of which a second value would break recovery.
_OURS = (
    *("--nodes", "-N", "--ntasks", "-n", "--ntasks-per-node", "--array", "-a", "--job-name", "-J", "--comment"),
    *("--no-kill", "-k", "--signal", "--requeue", "--no-requeue", "--open-mode", "--output", "-o", "--error", "-e"),
    *("--chdir", "-D", "--wrap", "--dependency", "-d", "--parsable", "--test-only", "--wait", "-W", "--hold", "-H"),
)
MOST_NODES = 1500  # the coordinator tells each launcher where all others are, in one datagram of at most 64 KiB
# Options that have a key of their own.
_KEYS = {
    "--partition": "partition",
    "--account": "account",
    "--qos": "qos",
    "--time": "time",
    "--constraint": "constraint",
    "--reservation": "reservation",
    "--gres": "gres",
    "--exclusive": "exclusive",
    "--mail-user": "mail",
}


def slurm_of(spec: Spec) -> Slurm:
    """Return what the spec says about Slurm; without the block, the defaults."""
    return spec.slurm or Slurm()


def in_container(spec: Spec) -> bool:
    """Say whether the job's processes run in containers."""
    return slurm_of(spec).container != "none"


# What only Podman and Docker get of the block `container`.
_UNHEARD = {"runtime", "devices", "cap_add"}


def _is_file(spec: Spec) -> bool:
    return slurm_of(spec).container in ("apptainer", "enroot")


def _said(spec: Spec) -> set[str]:
    return set(spec.container.model_fields_set)


_OPTION = re.compile(r"--[A-Za-z][\w-]*(=[^\n\r]*)?|-[A-Za-z]\S*")


def _options(spec: Spec) -> list[str]:
    """Return the names of options; the value of a short one may follow at once."""
    given = slurm_of(spec).options
    return [option.partition("=")[0] if option.startswith("--") else option[:2] for option in given]


def _sets_ours(name: str) -> bool:
    """Say whether an option is one that jobctl sets; `sbatch` takes the beginning of a long one for the whole."""
    return name in _OURS or (len(name) > 4 and any(ours.startswith(name) for ours in _OURS))


def _says(spec: Spec, key: str) -> bool:
    return key in spec.recovery.model_fields_set


# fmt: off
RULES: tuple[CheckRule, ...] = (
    CheckRule("slurm-container", ERROR, ("container", "user"),
         lambda s: _is_file(s) and s.container.user not in (None, "self", "root"),
         "Apptainer and Enroot run processes as the user who submits the job, or as one that looks like root",
         "write `self` or `root`"),
    CheckRule("slurm-container", ERROR, ("volumes",), lambda s: _is_file(s) and any(v.kind != "bind" for v in s.volumes),
         "Apptainer and Enroot mount paths of the nodes only: no named volumes, no `tmpfs`",
         "name a path of the nodes, or use `slurm: {container: podman}`"),
    CheckRule("slurm-container", WARNING, ("container",), lambda s: _is_file(s) and bool(_UNHEARD & _said(s)),
         "of this block Apptainer and Enroot take `user`, `python` and `options` only", at_key=True),
    CheckRule("slurm-container", WARNING, ("build",), lambda s: in_container(s) and s.build is not None,
         "nobody builds the image on this target: it has to be in a registry, or in a file that all nodes see",
         "`docker save` or `podman save` makes one: `image: /shared/NAME.tar`", at_key=True),
    CheckRule("slurm-devices", ERROR, ("devices",),
         lambda s: s.devices.kind != "cpu" and s.devices.count is None and s.devices.ids is None,
         "Slurm has to be asked for a number of devices", "write `gpu:8`"),
    CheckRule("slurm-devices", WARNING, ("devices", "ids"), lambda s: s.devices.ids is not None,
         "Slurm chooses which devices of a node the job gets: of these only the number counts"),
    CheckRule("slurm-directory", ERROR, ("slurm", "login"),
         lambda s: slurm_of(s).login is not None and slurm_of(s).directory is None,
         "the spec's folder is on this machine, and the job's files have to be where the cluster's nodes see them",
         "name a directory there: `slurm: {directory: /shared/jobs}`", at_key=True),
    CheckRule("slurm-etcd", WARNING, ("etcd",), lambda s: s.etcd,
         "this etcd is not used: launchers in an allocation agree among themselves", at_key=True),
    CheckRule("slurm-recovery", WARNING, ("recovery", "window"), lambda s: s.recovery.window is not None,
         "in an allocation all restarts of a run count", at_key=True),
    CheckRule("slurm-recovery", WARNING, ("recovery", "wait_timeout"), lambda s: s.recovery.wait_timeout is not None,
         "in an allocation launchers wait until its time limit", "`slurm.time` sets that", at_key=True),
    CheckRule("slurm-recovery", WARNING, ("recovery", "on_host_loss"),
         lambda s: _says(s, "on_host_loss") and s.recovery.on_host_loss == "fail",
         "a node that is lost is replaced by a spare of the allocation, or waited for", at_key=True),
    CheckRule("slurm-recovery", WARNING, ("recovery", "rules"), lambda s: any(rule.event for rule in s.recovery.rules),
         "in an allocation nobody moves a node that is only slow", at_key=True),
    CheckRule("slurm-nodes", ERROR, ("nodes", "max"), lambda s: s.nodes.max * (2 if s.ps else 1) > MOST_NODES,
         f"on this target a job has at most {MOST_NODES} nodes; in mode `ps`, servers and trainers are nodes of their own",
         "lower `nodes`"),
    CheckRule("slurm-option", ERROR, ("slurm", "options"),
         lambda s: not all(map(_OPTION.fullmatch, slurm_of(s).options)),
         "an option of `sbatch` is one line that begins with `-`, and its value comes after `=`", "write `--nice=100`"),
    CheckRule("slurm-option", ERROR, ("slurm", "options"), lambda s: any(map(_sets_ours, _options(s))),
         "jobctl sets this option of `sbatch` itself", "leave it out"),
    CheckRule("slurm-option", WARNING, ("slurm", "options"), lambda s: any(one in _KEYS for one in _options(s)),
         "this option of `sbatch` has a key of its own in `slurm`, which comes first", "use the key"),
)
# fmt: on
