"""The environment of a job's processes on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from jobctl.jobspec.deploy.apply.deployer import RuntimeInputs
from jobctl.jobspec.deploy.store import processes
from jobctl.jobspec.deploy.store.files import read_json, write_json
from jobctl.jobspec.frameworks.base import framework
from jobctl.jobspec.plan.known_environ import node_environ
from jobctl.jobspec.plan.types import Node, Plan

# A job started from within a job (or from a test) is not part of it: it has another place, checkpoints of its own, or none.
_OWN = frozenset(
    (
        *(*processes.MARKS, "JOBCTL_LAUNCH", "JOBCTL_PROCESS"),
        *("JOBCTL_JOB", "JOBCTL_RUN_ID", "JOBCTL_NODES", "JOBCTL_ROLE", "JOBCTL_ROLE_RANK", "JOBCTL_GENERATION"),
        *("JOBCTL_CHECKPOINT_DIR", "JOBCTL_CHECKPOINT_KEEP", "JOBCTL_PROGRESS_FILE", "JOBCTL_STANDBY"),
        *("JOBCTL_SERVERS", "JOBCTL_TRAINERS", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
        *("NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    )
)


def record_environ(work: Path, plan: Plan, environ: Mapping[str, str]) -> None:
    """Keep the environment that `up` was called with, as launchers get it."""
    write_json(work / "environ.json", _with_framework(plan, environ), 0o600)


def recorded_environ(work: Path) -> dict[str, str]:
    """Return the environment that `up` was called with."""
    return dict(read_json(work / "environ.json") or os.environ)


def process_environ(plan: Plan, node: Node, start: RuntimeInputs) -> dict[str, str]:
    """Return what a process of `node` has in its environment, less what only a generation knows."""
    return {
        **_with_framework(plan, start.environ),
        **dict(node.container.env),
        **node_environ(plan, node),
        **start.secrets,
    }


def _with_framework(plan: Plan, environ: Mapping[str, str]) -> dict[str, str]:
    """Return `up`'s environment, with the interpreter that has the framework first on PATH.

    That is the one that runs jobctl, if it can import the framework (a virtual environment need not be activated
    then); otherwise the PATH is left alone, as for a jobctl installed by itself with pipx.
    """
    result = {name: value for name, value in environ.items() if name not in _OWN}
    if find_spec(framework(plan.framework).module) is not None:
        result["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environ.get("PATH", os.defpath)])
    return result
