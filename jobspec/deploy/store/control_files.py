"""The control file of a run and the ledger beside it, on this machine."""

from __future__ import annotations

from pathlib import Path

from jobctl.jobspec.deploy.model.control import Control, Unreadable, parse_control
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.store.files import read_json, write_atomic


def read_control(work: Path) -> Control:
    """Return the control file and ledger in the work directory `work`; empty where there is none. Raises DeployError."""
    run = work / "run"
    try:
        return parse_control(read_json(run / "control.json"), read_json(run / "ledger.json"))
    except Unreadable as bad:
        hint = f"use the version that brought the job up; or `rm {run / bad.file}`, then `jobctl down`"
        raise DeployError(bad.error(str(run)), hint) from bad


def hand_over(work: Path, ledger: bytes, control: bytes) -> None:
    """Replace the ledger, then the control file, which launchers follow; one that is empty here stays.

    The ledger goes first: it is keyed by the generation that follows from it.
    """
    if ledger:
        write_atomic(work / "run" / "ledger.json", ledger, 0o600)
    if control:
        write_atomic(work / "run" / "control.json", control)
