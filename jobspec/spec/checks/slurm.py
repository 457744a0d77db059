"""The rules of target `slurm`: what has no meaning in an allocation, and what `sbatch` is told already. Rows, as in `rules`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from jobctl.jobspec.spec.checks.rules import ERROR, WARNING, CheckRule, has_recovery_key, regroups, waits
from jobctl.jobspec.spec.diagnostics import Diagnostic
from jobctl.jobspec.spec.durations import EARLIEST_SIGNAL
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.parts.slurm import Slurm
from jobctl.jobspec.spec.reading.source import Source

# Options of sbatch that jobctl sets itself, and of which a second value would break recovery.
_OURS = (
    *("--ntasks-per-gpu", "--ntasks-per-tres", "--tasks-per-node"),
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


def has_engine(spec: Spec) -> bool:
    """Say whether Podman or Docker runs the containers: these take the options of `docker run`."""
    return slurm_of(spec).container in ("podman", "docker")


def has_image_name(spec: Spec) -> bool:
    """Say whether `image` is a name in a registry: it may also be a file, or an address as its program takes it."""
    image = spec.image or ""
    is_address = "://" in image and slurm_of(spec).container != "docker"
    return in_container(spec) and not image.startswith("/") and not is_address


# What only Podman and Docker get of the block `container`.
_UNHEARD = {"runtime", "devices", "cap_add"}


def _is_file(spec: Spec) -> bool:
    return slurm_of(spec).container in ("apptainer", "enroot")


def _said(spec: Spec) -> set[str]:
    return set(spec.container.model_fields_set)


_OPTION = re.compile(r"--[A-Za-z][\w-]*(=[^\n\r]*)?|-[A-Za-z]\S*")


def check_options(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    """Yield what is wrong with each of the options that `sbatch` is to get."""
    for number, option in enumerate(slurm_of(spec).options):
        where = source.value_span(("slurm", "options", number))
        # The value of a short one may follow at once.
        name = option.partition("=")[0] if option.startswith("--") else option[:2]
        if not _OPTION.fullmatch(option):
            message = "an option of `sbatch` is one line that begins with `-`, and its value comes after `=`"
            yield Diagnostic("error", "slurm-option", message, where, "write `--nice=100`")
        elif name == "-M" or (len(name) > 4 and "--clusters".startswith(name)):
            message = "jobctl would not find the job in another cluster: its other commands ask this one"
            hint = "set `SLURM_CLUSTERS` in the environment, which all of Slurm's commands follow"
            yield Diagnostic("error", "slurm-option", message, where, hint)
        elif _sets_ours(name):
            yield Diagnostic("error", "slurm-option", f"jobctl sets `{name}` of `sbatch` itself", where, "leave it out")
        elif name in _KEYS:
            key = f"`slurm.{_KEYS[name]}`"
            message = f"`{name}` of `sbatch` has a key of its own, {key}: Slurm follows this one, and jobctl knows only the key"
            yield Diagnostic("warning", "slurm-option", message, where, "use the key")


# Enroot reads a mount as the fields of a line of fstab, with colons between them.
_OTHER_FOLDER = "it is the spec's folder: name another, `slurm: {directory: /shared/jobs}`"
_NOT_IN_FSTAB = re.compile(r"[:\s$\\]")


def check_enroot_paths(spec: Spec, source: Source, directory: Path) -> Iterator[Diagnostic]:
    """Yield an error for each path that Enroot is to mount and cannot; `directory` is the spec's."""
    if slurm_of(spec).container != "enroot":
        return
    for path, where, hint in _mounted(spec, directory):
        if _NOT_IN_FSTAB.search(path):
            message = f"Enroot cannot mount a path with a colon, a space, `$` or a backslash: `{path}`"
            yield Diagnostic("error", "slurm-container", message, source.value_span(where), hint)


def _mounted(spec: Spec, directory: Path) -> Iterator[tuple[str, tuple[str | int, ...], str]]:
    """Yield the paths that a container of the job shares with its node, where the spec has each, and a hint."""
    given, hint = slurm_of(spec), "name another path"
    if given.directory is not None:
        yield given.directory, ("slurm", "directory"), hint
    elif given.login is None:
        yield str(directory), ("slurm", "container"), _OTHER_FOLDER
    if spec.code is not None:
        yield spec.code.target, ("code", "target"), hint
    for number, volume in enumerate(spec.volumes):
        yield volume.source or "", ("volumes", number, "source"), hint
        yield volume.target, ("volumes", number, "target"), hint
    if spec.checkpoint is not None:
        yield spec.checkpoint.dir, ("checkpoint", "dir"), hint


def _sets_ours(name: str) -> bool:
    """Say whether an option is one that jobctl sets; `sbatch` takes the beginning of a long one for the whole."""
    return name in _OURS or (len(name) > 4 and any(ours.startswith(name) for ours in _OURS))


def _keeps_apart(spec: Spec) -> bool:
    """Say whether each machine has checkpoints of its own."""
    return spec.checkpoint is not None and not spec.checkpoint.shared


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
    CheckRule("slurm-container", WARNING, ("resources", "shm_size"),
         lambda s: _is_file(s) and s.resources.shm_size is not None,
         "Apptainer and Enroot give processes the `/dev/shm` of their node, however large that is", at_key=True),
    CheckRule("slurm-container", WARNING, ("resources", "ulimits"), lambda s: _is_file(s) and bool(s.resources.ulimits),
         "under Apptainer and Enroot processes have the limits that Slurm gives them",
         "use `slurm: {container: podman}`; Slurm usually passes on the limits of the shell that calls `up`", at_key=True),
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
    CheckRule("slurm-grace", WARNING, ("stop_grace_period",), lambda s: s.stop_grace_period > EARLIEST_SIGNAL,
         "Slurm signals a job at most 65,535 seconds (18 hours) before its time limit, so processes get no more than that"),
    CheckRule("slurm-etcd", WARNING, ("etcd",), lambda s: s.etcd,
         "this etcd is not used: launchers in an allocation agree among themselves", at_key=True),
    CheckRule("slurm-etcd", WARNING, ("paddle", "elastic_timeout"), lambda s: waits(s) and regroups(s),
         "paddle's launchers do not wait for nodes there, as they use no etcd: it is the coordinator that decides",
         at_key=True),
    CheckRule("slurm-checkpoint", ERROR, ("slurm", "spares"), lambda s: _keeps_apart(s) and slurm_of(s).spares > 0,
         "a node whose checkpoint only its own machine has cannot move to a spare",
         "share the checkpoint, or leave `spares` out"),
    CheckRule("slurm-checkpoint", WARNING, ("checkpoint", "shared"),
         lambda s: _keeps_apart(s) and slurm_of(s).spares == 0,
         "another allocation has other machines, which lack the checkpoints of these", "share the checkpoint"),
    CheckRule("slurm-recovery", WARNING, ("recovery", "window"), lambda s: s.recovery.window is not None,
         "in an allocation all restarts of a run count", at_key=True),
    CheckRule("slurm-recovery", WARNING, ("recovery", "wait_timeout"), lambda s: s.recovery.wait_timeout is not None,
         "in an allocation launchers wait until its time limit", "`slurm.time` sets that", at_key=True),
    CheckRule("slurm-recovery", WARNING, ("recovery", "on_host_loss"),
         lambda s: has_recovery_key(s, "on_host_loss") and s.recovery.on_host_loss == "fail",
         "a node that is lost is replaced by a spare of the allocation, or waited for", at_key=True),
    CheckRule("slurm-recovery", WARNING, ("recovery", "rules"), lambda s: any(rule.event for rule in s.recovery.rules),
         "in an allocation nobody moves a node that is only slow", at_key=True),
    CheckRule("slurm-nodes", ERROR, ("nodes", "max"), lambda s: s.nodes.max * (2 if s.ps else 1) > MOST_NODES,
         f"on this target a job has at most {MOST_NODES} nodes; in mode `ps`, servers and trainers are nodes of their own",
         "lower `nodes`"),
)
# fmt: on
