"""What a target has no operation for: why, and what does instead. One table, which every operation asks."""

from __future__ import annotations

from collections.abc import Mapping

from jobctl.jobspec.operations.errors import UnsupportedOnTarget

_OPERATOR = "in a cluster its operator takes care of the job: "
# By target and command: the reason, and the remedy.
UNSUPPORTED: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "local": {
        "prepare": ("processes run with what is installed on this machine", "`jobctl up` starts the job"),
    },
    "kubernetes": {
        "prepare": (
            "the nodes of a cluster pull images when pods start",
            "`jobctl up` applies the manifests",
        ),
        "up --fresh": (
            "the checkpoint's place is in the manifests",
            "name another `checkpoint` directory, for example with `--set checkpoint=…`",
        ),
        "scale": (
            f"{_OPERATOR}the number of pods is part of what it is made from",
            "change `nodes` in the spec, then `jobctl up`",
        ),
        "drill": (
            f"{_OPERATOR}jobctl has no recovery of its own to rehearse",
            "`kubectl delete pod` shows what the operator does",
        ),
        "supervise": (
            f"{_OPERATOR}no supervisor of jobctl's runs, nor could it do anything",
            "`jobctl status --watch` follows it",
        ),
        "restart --node": (
            f"{_OPERATOR}it decides which pods go on",
            "`kubectl delete pod` ends one, `jobctl restart` all of them",
        ),
        "report": (
            f"{_OPERATOR}nobody here notes when it trained and when not",
            "`jobctl events` has what the cluster tells",
        ),
        "run": (
            f"{_OPERATOR}a pod beside the job is not jobctl's to make",
            "`kubectl run -it --rm --image …`, or `jobctl exec` in a node",
        ),
    },
    "slurm": {
        "prepare": (
            "Slurm chooses the nodes when the job starts",
            "`jobctl up` sends the code to the shared directory",
        ),
        "ssh-config": (
            "`srun` enters nodes, and there is no container or host that jobctl could ask",
            "`jobctl ssh` and `jobctl exec` work there",
        ),
    },
}


def unsupported(target: str, command: str) -> UnsupportedOnTarget | None:
    """Return the error of a command that a target does not support, None if it does."""
    known = UNSUPPORTED.get(target, {}).get(command)
    if known is None:
        return None
    name = command.removeprefix("up ")
    return UnsupportedOnTarget(f"there is no `{name}` on target `{target}`: {known[0]}", known[1])


def refuse_unsupported(target: str | None, command: str) -> None:
    """Raise UnsupportedOnTarget if the target of a job does not support a command."""
    error = unsupported(target or "", command)
    if error is not None:
        raise error
